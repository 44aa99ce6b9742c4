// SPDX-License-Identifier: Apache-2.0
//! System calls by task.
//!
//! Calls of drivers are those of DPDK 22.11 (`drivers/net`, `lib/eal/linux`). A call with conditions is allowed only with these arguments.

use std::collections::{BTreeMap, BTreeSet};

use nix::libc;
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::task::Task;
use crate::error::Error;
use crate::uri::PortKind;

/// Conditions by number of the call; a call without conditions is allowed with any arguments.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Creates a list of numbers from the constants of the libc crate.
macro_rules! calls {
    ($($call:ident)*) => { &[$(libc::$call),*] };
}

/// Calls of every thread.
///
/// - `read`, `write`: eventfds (wake-up of peers and threads), kernel interfaces, the log, pcap files; `readv`, `writev`: frames of taps,
///   long frames of `af-packet`; `sendmmsg`: other frames of `af-packet`;
///   `sendto`, `recvfrom`, `poll`, `ppoll`: wake-up of the kernel for `af-xdp`; `pread64`, `pwrite64`: registers of old virtio cards over
///   VFIO
/// - `epoll_*`: sleep until a receive interrupt; `io_*`: wake-up of peers by asynchronous requests
/// - `sched_yield`, `nanosleep`, `clock_nanosleep`, `futex`: idle threads, locks
/// - `clone`, `clone3`: see [`failing`]
/// - `munmap`, `close`, `membarrier` and others of memory: release of rings and memory of a peer, the allocator, the end of a thread
const EVERY_THREAD: &[i64] = calls! {
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_lseek SYS_close
    SYS_sendto SYS_sendmmsg SYS_recvfrom SYS_ppoll SYS_epoll_pwait SYS_epoll_ctl SYS_io_submit SYS_io_getevents SYS_io_destroy
    SYS_futex SYS_sched_yield SYS_nanosleep SYS_clock_nanosleep SYS_restart_syscall
    SYS_clock_gettime SYS_clock_getres SYS_gettimeofday SYS_getpid SYS_gettid SYS_getcpu SYS_sched_getaffinity SYS_getrandom
    SYS_munmap SYS_mremap SYS_madvise SYS_brk SYS_membarrier
    SYS_rt_sigreturn SYS_rt_sigprocmask SYS_sigaltstack SYS_exit SYS_clone SYS_clone3
};

/// Calls of the service thread besides: routes and neighbours of the kernel (rtnetlink(7)).
const SERVICE: &[i64] = calls! { SYS_sendmsg SYS_recvmsg };

/// Calls of control threads besides: all of DPDK's start and of opening, serving and closing ports; the control socket, the metrics and
/// the service manager; starts of threads, and the reduction of their capabilities.
const CONTROL: &[i64] = calls! {
    SYS_openat SYS_readlinkat SYS_newfstatat SYS_fstat SYS_statx SYS_faccessat SYS_faccessat2 SYS_getdents64 SYS_statfs SYS_fstatfs
    SYS_getcwd SYS_mkdirat SYS_unlinkat SYS_renameat SYS_renameat2 SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_umask
    SYS_ftruncate SYS_fallocate SYS_fsync SYS_fdatasync SYS_flock SYS_fcntl SYS_dup SYS_dup3 SYS_pipe2 SYS_memfd_create SYS_fadvise64
    SYS_pselect6 SYS_epoll_create1 SYS_eventfd2 SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
    SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch
    SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_shutdown SYS_getsockname SYS_getpeername SYS_setsockopt SYS_getsockopt
    SYS_sendmsg SYS_recvmsg SYS_recvmmsg SYS_bpf SYS_ioctl SYS_io_setup SYS_io_cancel
    SYS_msync SYS_mincore SYS_mlock SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall
    SYS_mbind SYS_get_mempolicy SYS_set_mempolicy SYS_move_pages
    SYS_set_robust_list SYS_get_robust_list SYS_set_tid_address SYS_rseq SYS_exit_group SYS_prctl SYS_seccomp
    SYS_sched_setaffinity SYS_sched_getscheduler SYS_sched_setparam SYS_sched_getparam
    SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_setpriority SYS_getpriority
    SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_getppid SYS_capget SYS_capset
    SYS_prlimit64 SYS_getrlimit SYS_setrlimit SYS_getrusage SYS_sysinfo SYS_uname SYS_times
};

/// The older forms of the above that the C library uses on x86-64.
#[cfg(target_arch = "x86_64")]
const EVERY_THREAD_LEGACY: &[i64] = calls! { SYS_poll SYS_epoll_wait SYS_time };
#[cfg(target_arch = "x86_64")]
const CONTROL_LEGACY: &[i64] = calls! {
    SYS_open SYS_stat SYS_lstat SYS_readlink SYS_access SYS_mkdir SYS_rmdir SYS_unlink SYS_rename SYS_chmod SYS_chown SYS_pipe SYS_dup2
    SYS_select SYS_epoll_create SYS_eventfd SYS_arch_prctl SYS_iopl
};
/// See [`failing`].
#[cfg(target_arch = "x86_64")]
const PORT_RIGHTS: &[i64] = calls! { SYS_iopl };
#[cfg(not(target_arch = "x86_64"))]
const PORT_RIGHTS: &[i64] = &[];
#[cfg(not(target_arch = "x86_64"))]
const EVERY_THREAD_LEGACY: &[i64] = &[];
#[cfg(not(target_arch = "x86_64"))]
const CONTROL_LEGACY: &[i64] = &[];

/// Requests to devices of threads that are no control threads: state and MTU of the interface of an `af-packet` port that refuses a frame,
/// interrupts of a card over VFIO (linux/vfio.h, `VFIO_DEVICE_SET_IRQS`), and queues of an mlx5 card after an error
/// (rdma/rdma_user_ioctl_cmds.h, `RDMA_VERBS_IOCTL`).
const DEVICE_REQUESTS: [u64; 5] = [
    libc::SIOCGIFNAME,
    libc::SIOCGIFFLAGS,
    libc::SIOCGIFMTU,
    0x3b6e,
    0xc018_1b01,
];

/// Domains of the sockets that control threads open, whatever the kinds of the ports.
const DOMAINS: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// Returns the domains of the sockets that control threads open for ports of a kind, besides [`DOMAINS`].
const fn domains_of(kind: PortKind) -> &'static [i32] {
    match kind {
        PortKind::Veth | PortKind::AfPacket => &[libc::AF_PACKET],
        // The promiscuous mode of the interface is held by a packet socket.
        PortKind::AfXdp => &[libc::AF_PACKET, libc::AF_XDP],
        PortKind::Memif
        | PortKind::Vhost
        | PortKind::VirtioUser
        | PortKind::Tap
        | PortKind::Pci
        | PortKind::Pcap
        | PortKind::Null => &[],
    }
}

/// Signals whose handlers restore the default action, so that a fault ends the process.
const FATAL: [i32; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT];

/// Returns a condition on the lower half of an argument, which is all of an `int`.
fn is(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, Error> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .map_err(Error::seccomp)
}

fn equal(argument: u8, value: u64) -> Result<SeccompCondition, Error> {
    is(argument, SeccompCmpOp::Eq, value)
}

/// Returns the condition that the bits of a mask have the values of `value`.
fn masked(argument: u8, mask: i32, value: i32) -> Result<SeccompCondition, Error> {
    let mask = SeccompCmpOp::MaskedEq(bits(mask));
    is(argument, mask, bits(value))
}

fn bits(flags: i32) -> u64 {
    u64::from(flags.cast_unsigned())
}

/// Returns rules that allow any of these values of an argument.
fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, Error> {
    let rules = values
        .iter()
        .map(|value| all([equal(argument, *value)?].into()));
    rules.collect()
}

fn all(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, Error> {
    SeccompRule::new(conditions).map_err(Error::seccomp)
}

/// Returns the calls that a task may make in this process. Sockets that only ports require are those of ports of these kinds.
///
/// # Errors
/// [`Error::Seccomp`]. No case is known.
pub(super) fn allowed(task: Task, kinds: &[PortKind]) -> Result<Rules, Error> {
    const PROTECTION: u8 = 2;
    const FLAGS: u8 = 3;
    let not_executable = || masked(PROTECTION, libc::PROT_EXEC, 0);
    let mut rules = Rules::new();
    let mut allow = |calls: &[i64]| rules.extend(calls.iter().map(|call| (*call, Vec::new())));
    allow(EVERY_THREAD);
    allow(EVERY_THREAD_LEGACY);
    match task {
        Task::Packets => {}
        Task::Service => allow(SERVICE),
        Task::Control => {
            allow(CONTROL);
            allow(CONTROL_LEGACY);
        }
    }
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, one_of(0, &[own])?);
    // A thread may give up its real-time priority, and take none.
    let ordinary = bits(libc::SCHED_OTHER);
    rules.insert(libc::SYS_sched_setscheduler, one_of(1, &[ordinary])?);
    rules.insert(libc::SYS_mprotect, vec![all(vec![not_executable()?])?]);
    if task == Task::Control {
        rules.insert(libc::SYS_sched_setscheduler, Vec::new());
        rules.insert(libc::SYS_rt_sigaction, Vec::new());
        let of_ports = kinds.iter().flat_map(|kind| domains_of(*kind));
        let domains: BTreeSet<i32> = DOMAINS.iter().chain(of_ports).copied().collect();
        let domains: Vec<u64> = domains.into_iter().map(bits).collect();
        rules.insert(libc::SYS_socket, one_of(0, &domains)?);
        // A tap and the far end of a pair, also of one that `af-xdp` uses, may be in another network namespace.
        let network = bits(libc::CLONE_NEWNET);
        rules.insert(libc::SYS_setns, one_of(1, &[network])?);
        rules.insert(libc::SYS_socketpair, one_of(0, &[bits(libc::AF_UNIX)])?);
        // DPDK loads its drivers at its start: code that is not writable.
        let code = masked(PROTECTION, libc::PROT_WRITE, 0)?;
        let mappings = vec![all(vec![not_executable()?])?, all(vec![code])?];
        rules.insert(libc::SYS_mmap, mappings);
    } else {
        let anonymous = masked(FLAGS, libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS)?;
        let memory = all(vec![not_executable()?, anonymous])?;
        rules.insert(libc::SYS_mmap, vec![memory]);
        rules.insert(libc::SYS_rt_sigaction, one_of(0, &FATAL.map(bits))?);
        // Rust's standard library checks a descriptor that it closes, in builds with checks.
        rules.insert(libc::SYS_fcntl, one_of(1, &[bits(libc::F_GETFD)])?);
        rules.insert(libc::SYS_ioctl, one_of(1, &DEVICE_REQUESTS)?);
    }
    Ok(rules)
}

/// Returns the calls of a task that fail without being counted, and their errors: starts of processes, and of threads except by control
/// threads. `clone3` has its flags in memory, which no filter reads, so the C library uses `clone` instead. DPDK requests the right to
/// use all ports of the processor at each start, and does without it.
///
/// # Errors
/// [`Error::Seccomp`]. No case is known.
pub(super) fn failing(task: Task) -> Result<[(Rules, u32); 2], Error> {
    let conditions = match task {
        Task::Control => vec![all(vec![masked(0, libc::CLONE_THREAD, 0)?])?],
        Task::Packets | Task::Service => Vec::new(),
    };
    let newer = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let mut older = Rules::from([(libc::SYS_clone, conditions)]);
    older.extend(PORT_RIGHTS.iter().map(|call| (*call, Vec::new())));
    Ok([(newer, errno(libc::ENOSYS)), (older, errno(libc::EPERM))])
}

const fn errno(error: i32) -> u32 {
    error.cast_unsigned()
}
