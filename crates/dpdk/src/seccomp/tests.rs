// SPDX-License-Identifier: Apache-2.0
//! Filters in threads of this process. Other tests are not affected: a filter belongs to the thread that installs it.

use std::io;
use std::process::Command;

use nix::libc;

use super::*;

/// Makes a system call with integers as arguments, and returns the error.
fn error_of(number: libc::c_long, arguments: [usize; 4]) -> Option<i32> {
    let [first, second, third, fourth] = arguments;
    // SAFETY: the tests pass no pointer that the kernel could write to, and no memory that another part uses.
    let code = unsafe { libc::syscall(number, first, second, third, fourth, -1_isize, 0_usize) };
    (code < 0).then(|| io::Error::last_os_error().raw_os_error().unwrap())
}

fn is_denied(number: libc::c_long, arguments: [usize; 4]) -> bool {
    error_of(number, arguments) == Some(libc::EPERM)
}

/// Runs a function in a thread with the filter of a task.
fn within<T: Send + 'static>(
    task: Task,
    mode: Seccomp,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    within_filter(Filter::new(task, mode).unwrap(), body)
}

/// Runs a function in a thread with a filter.
fn within_filter<T: Send + 'static>(
    filter: Filter,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let thread = std::thread::spawn(move || {
        let _installed = filter.install().unwrap();
        body()
    });
    thread.join().unwrap()
}

fn own_thread() -> i32 {
    nix::unistd::gettid().as_raw()
}

const PAGE: usize = 4096;
const READ: usize = libc::PROT_READ as usize;
const WRITE: usize = libc::PROT_WRITE as usize;
const EXECUTE: usize = libc::PROT_EXEC as usize;
const OWN: usize = libc::MAP_PRIVATE as usize;
const ANONYMOUS: usize = OWN | libc::MAP_ANONYMOUS as usize;

#[test]
fn a_thread_for_packets_opens_and_starts_nothing_and_continues() {
    let before = of_task(Task::Packets).calls;
    let (results, denied) = within(Task::Packets, Seccomp::Enforce, || {
        let results = [
            is_denied(libc::SYS_openat, [0; 4]),
            is_denied(libc::SYS_socket, [libc::AF_INET as usize, 1, 0, 0]),
            is_denied(libc::SYS_ptrace, [0; 4]),
            is_denied(libc::SYS_clone, [libc::CLONE_THREAD as usize, 0, 0, 0]),
            is_denied(libc::SYS_mmap, [0, PAGE, READ | EXECUTE, ANONYMOUS]),
            is_denied(libc::SYS_mmap, [0, PAGE, READ, OWN]),
            is_denied(libc::SYS_ioctl, [0, libc::FIONREAD as usize, 0, 0]),
            is_denied(libc::SYS_tgkill, [1, 1, 0, 0]),
            is_denied(libc::SYS_execve, [0; 4]),
        ];
        (results, of_thread(own_thread()))
    });
    assert_eq!(results, [true; 9]);
    // The start of a thread fails without being counted.
    assert_eq!(denied.calls, 8);
    assert_eq!(denied.last.as_deref(), Some("execve"));
    assert!(of_task(Task::Packets).calls >= before + 8);
}

#[test]
fn a_thread_for_packets_sends_messages() {
    let is_refused = within(Task::Packets, Seccomp::Enforce, || {
        is_denied(libc::SYS_sendmmsg, [0; 4])
    });
    assert!(!is_refused);
}

#[test]
fn a_thread_for_packets_cannot_install_a_wider_filter() {
    let wider = Filter::new(Task::Control, Seccomp::Enforce).unwrap();
    let (is_refused, is_still_denied) = within(Task::Packets, Seccomp::Enforce, move || {
        let is_refused = wider.install().is_err();
        (is_refused, is_denied(libc::SYS_openat, [0; 4]))
    });
    assert!(is_refused && is_still_denied);
}

#[test]
fn a_thread_for_packets_allocates_waits_and_ends() {
    let denied = within(Task::Packets, Seccomp::Enforce, || {
        // Larger than the allocator's limit for mmap, and grown.
        let mut octets = vec![1_u8; 1 << 20];
        octets.resize(1 << 24, 2);
        std::thread::sleep(std::time::Duration::from_millis(1));
        std::thread::yield_now();
        eprintln!("a thread writes {} octets", octets.len());
        assert_eq!(
            error_of(libc::SYS_mmap, [0, PAGE, READ | WRITE, ANONYMOUS]),
            None
        );
        of_thread(own_thread())
    });
    assert_eq!(denied, Denied::default());
}

#[test]
fn a_control_thread_starts_threads_but_no_processes_and_maps_no_writable_code() {
    let (results, last) = within(Task::Control, Seccomp::Enforce, || {
        std::fs::read_to_string("/proc/self/comm").unwrap();
        let nested = std::thread::spawn(|| {
            let is_inherited = is_denied(libc::SYS_ptrace, [0; 4]);
            (is_inherited, of_thread(own_thread()).calls)
        });
        assert_eq!(nested.join().unwrap(), (true, 1));
        let results = [
            Command::new("true").status().is_err(),
            is_denied(libc::SYS_socket, [libc::AF_ALG as usize, 5, 0, 0]),
            is_denied(libc::SYS_mmap, [0, PAGE, WRITE | EXECUTE, ANONYMOUS]),
            is_denied(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0]),
            error_of(libc::SYS_clone3, [0; 4]) == Some(libc::ENOSYS),
            is_denied(libc::SYS_mount, [0; 4]),
        ];
        (results, of_thread(own_thread()).last)
    });
    assert_eq!(results, [true; 6]);
    assert_eq!(last.as_deref(), Some("mount"));
}

#[test]
fn a_control_thread_opens_only_sockets_that_its_kinds_of_ports_require() {
    let (packet, xdp, local) = (libc::AF_PACKET, libc::AF_XDP, libc::AF_UNIX);
    for (kind, denied) in [
        (PortKind::Memif, [true, true, false]),
        (PortKind::Tap, [true, true, false]),
        (PortKind::Veth, [false, true, false]),
        (PortKind::AfXdp, [false, false, false]),
    ] {
        let filter = Filter::for_ports(Task::Control, Seccomp::Enforce, &[kind]).unwrap();
        let found = within_filter(filter, move || {
            // The kernel has no socket of this type, in any family.
            const NO_TYPE: usize = 15;
            [packet, xdp, local].map(|domain| {
                let domain = usize::try_from(domain).unwrap();
                is_denied(libc::SYS_socket, [domain, NO_TYPE, 0, 0])
            })
        });
        assert_eq!(found, denied, "{kind:?}");
    }
}

#[test]
fn a_narrower_filter_is_added_to_an_inherited_one() {
    let denied = within(Task::Control, Seccomp::Enforce, || {
        within(Task::Packets, Seccomp::Enforce, || {
            assert!(is_denied(libc::SYS_openat, [0; 4]));
            of_thread(own_thread())
        })
    });
    assert_eq!((denied.calls, denied.last.as_deref()), (1, Some("openat")));
}

#[test]
fn calls_pass_while_they_are_only_logged_and_without_filters() {
    for (mode, is_filtered) in [(Seccomp::Log, true), (Seccomp::Off, false)] {
        let (status, denied) = within(Task::Packets, mode, || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            (status, of_thread(own_thread()))
        });
        assert_eq!(status.contains("Seccomp:\t2"), is_filtered, "{status}");
        assert_eq!(denied, Denied::default());
    }
}

#[test]
fn calls_have_the_names_of_the_kernel() {
    assert_eq!(names::name_of(libc::SYS_openat), Some("openat"));
    assert_eq!(names::name_of(libc::SYS_epoll_pwait), Some("epoll_pwait"));
    assert_eq!(names::name_of(-1), None);
}
