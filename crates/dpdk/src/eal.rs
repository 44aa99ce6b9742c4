// SPDX-License-Identifier: Apache-2.0
//! DPDK's environment abstraction layer (EAL), started once per process on given CPUs.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use quietwire_base::durable::remove_if_exists;

use crate::error::{self, Error};
use crate::library_log::{self, Mark};
use crate::port::peers::Peers;
use crate::{heap, sys, thread};

/// Use of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Use huge pages if enough are free, otherwise ordinary pages; [`Memory`] has the outcome.
    Auto,
    /// Use ordinary pages (`--no-huge`).
    Never,
    /// Use huge pages; fail if too few are free.
    Require,
}

/// Options for the start of the EAL.
#[derive(Clone, Debug)]
pub struct EalOptions {
    /// CPUs of the main thread and of all threads that DPDK creates (kernel numbers). Not empty.
    pub control_cpus: Vec<u32>,
    /// Memory to allocate at the start, MiB.
    pub memory_mib: u32,
    /// Use of huge pages.
    pub huge_pages: HugePages,
    /// PCI devices of later ports. DPDK probes no others.
    pub pci_devices: Vec<String>,
    /// Prefix in names of threads and files of this process: [`crate::file_prefix`].
    pub file_prefix: String,
}

/// Kind of memory that the EAL uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Pages of 2 MiB or more.
    HugePages,
    /// Ordinary pages. They cause more TLB misses: measured cost about 15 % on memif and 20 % on vhost.
    OrdinaryPages,
}

/// Ports of this process on one socket.
#[derive(Debug, Default)]
pub(crate) struct SocketUse {
    pub(crate) ports: usize,
    pub(crate) made_here: bool,
}

#[derive(Debug)]
pub(crate) struct EalInner {
    memory: Memory,
    devices: AtomicU32,
    /// The peer thread (see [`crate::port`]).
    peers: Peers,
    /// Sockets used by ports of this process.
    pub(crate) sockets: Mutex<HashMap<PathBuf, SocketUse>>,
}

/// The started EAL. Clones share it. It stays until the process ends: DPDK's `rte_eal_cleanup` unmaps memory
/// that its own interrupt thread still uses, which ends the process with a segmentation fault if a port was
/// closed just before (observed with 22.11). Nothing outlives the process because memory is anonymous.
#[derive(Clone, Debug)]
pub struct Eal(pub(crate) Arc<EalInner>);

static STARTED: AtomicBool = AtomicBool::new(false);

/// Size of the pages that [`EalOptions::huge_pages`] counts, MiB.
const HUGE_PAGE_MIB: u64 = 2;

impl Eal {
    /// Starts the EAL in this process (`rte_eal_init`).
    ///
    /// All CPUs are given explicitly. Otherwise the EAL pins the calling thread to one CPU of its
    /// choice, and every later thread inherits it. The caller's affinity is unchanged
    /// afterwards. No file is left in the huge page mount because memory is anonymous
    /// (`--in-memory`, `--no-huge`). The huge page pool is never changed.
    ///
    /// # Errors
    /// [`Error::EalTwice`], [`Error::HugePages`], [`Error::Eal`], [`Error::Thread`].
    pub fn start(options: &EalOptions) -> Result<Self, Error> {
        let memory = choose_memory(options)?;
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err(Error::EalTwice);
        }
        if !heap::keep_small() {
            tracing::warn!(
                "the allocator keeps its defaults, so the process may hold more memory than it uses"
            );
        }
        // DPDK's threads inherit the affinity.
        let before = thread::affinity()?;
        // Threads of the EAL get the caller's CPUs without those of lcores, or the CPUs of the main
        // lcore if none is left (eal_common_options.c, compute_ctrl_threads_cpuset). The
        // caller is on the control CPUs only, so both are the control CPUs.
        thread::pin(&options.control_cpus)?;
        let started = initialise(options, memory);
        let peers = Peers::start();
        thread::pin(&before)?;
        started?;
        let peers = peers.map_err(|error| Error::Thread {
            what: "cannot start the peer thread".to_owned(),
            cause: error.to_string(),
        })?;
        raise_descriptor_limit();
        // SAFETY: a call without preconditions after rte_eal_init. It is required before our threads
        // are registered; there are no secondary processes.
        if !unsafe { sys::rte_mp_disable() } {
            tracing::warn!(
                "cannot disable DPDK's multi-process support, so forwarding threads may lack buffer caches"
            );
        }
        remove_runtime_directory();
        Ok(Self(Arc::new(EalInner {
            memory,
            devices: AtomicU32::new(0),
            peers,
            sockets: Mutex::new(HashMap::new()),
        })))
    }

    /// Returns the kind of memory that the EAL uses.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.0.memory
    }

    pub(crate) fn next_device(&self) -> u32 {
        self.0.devices.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.0.peers
    }

    /// Releases a port's use of a socket. The last release removes the socket if this process created it.
    pub(crate) fn forget_socket(&self, path: &Path) {
        let mut sockets = self
            .0
            .sockets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(socket) = sockets.get_mut(path) else {
            return;
        };
        socket.ports = socket.ports.saturating_sub(1);
        if socket.ports > 0 {
            return;
        }
        let made_here = socket.made_here;
        sockets.remove(path);
        // DPDK removes the sockets of most ports.
        if made_here && let Err(error) = remove_if_exists(path) {
            tracing::warn!("cannot remove the socket {}: {error}", path.display());
        }
    }
}

/// Raises the limit of open files to its hard limit (getrlimit(2), RLIMIT_NOFILE), because a shared-memory port uses several
/// descriptors per queue.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

fn free_huge_mib() -> u64 {
    fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(0)
        .saturating_mul(HUGE_PAGE_MIB)
}

fn choose_memory(options: &EalOptions) -> Result<Memory, Error> {
    let wanted_mib = options.memory_mib;
    match options.huge_pages {
        HugePages::Never => Ok(Memory::OrdinaryPages),
        HugePages::Auto | HugePages::Require => {
            let free_mib = free_huge_mib();
            if free_mib >= u64::from(wanted_mib) {
                Ok(Memory::HugePages)
            } else if options.huge_pages == HugePages::Auto {
                tracing::info!(
                    "{wanted_mib} MiB of huge pages required, but only {free_mib} MiB free: using ordinary pages, which costs about 15 % on memif and 20 % on vhost"
                );
                Ok(Memory::OrdinaryPages)
            } else {
                let pages = u64::from(wanted_mib).div_ceil(HUGE_PAGE_MIB);
                Err(Error::HugePages {
                    wanted_mib,
                    free_mib,
                    pages,
                })
            }
        }
    }
}

/// Removes the EAL's directory of files shared by processes, which the EAL leaves behind. It is empty, so it is removed at
/// once, and does not stay if this process is killed.
fn remove_runtime_directory() {
    // SAFETY: a call without preconditions after rte_eal_init; it returns a static string.
    let directory = unsafe { CStr::from_ptr(sys::rte_eal_get_runtime_dir()) };
    let path = Path::new(OsStr::from_bytes(directory.to_bytes()));
    if let Err(error) = fs::remove_dir(path) {
        tracing::warn!("cannot remove DPDK's directory {}: {error}", path.display());
    }
}

fn arguments(options: &EalOptions, memory: Memory) -> Vec<String> {
    let cpus: Vec<String> = options.control_cpus.iter().map(u32::to_string).collect();
    let mut arguments = vec![
        "quietwire".to_owned(),
        format!("--lcores=0@({})", cpus.join(",")),
        "--no-telemetry".to_owned(),
        format!("--file-prefix={}", options.file_prefix),
        "-m".to_owned(),
        options.memory_mib.to_string(),
        // The EAL applies the first pattern that matches a driver loaded later. This driver reports an error if the kernel has
        // no classifier for its flow rules, which no port requests.
        "--log-level=pmd.net.tap:critical".to_owned(),
        format!("--log-level=*:{}", library_log::level()),
    ];
    match memory {
        Memory::HugePages => arguments.push("--in-memory".to_owned()),
        // Implies legacy memory, which --in-memory refuses. Memory is not shared with other processes in either case.
        Memory::OrdinaryPages => {
            arguments.push("--no-huge".to_owned());
            arguments.push("--no-shconf".to_owned());
        }
    }
    if options.pci_devices.is_empty() {
        arguments.push("--no-pci".to_owned());
        arguments.push("--iova-mode=va".to_owned());
    }
    for address in &options.pci_devices {
        arguments.push("-a".to_owned());
        arguments.push(address.clone());
    }
    arguments
}

fn initialise(options: &EalOptions, memory: Memory) -> Result<(), Error> {
    let arguments = arguments(options, memory);
    library_log::open();
    let mark = Mark::now();
    let fail = |cause: String| {
        Error::Eal {
        arguments: arguments.get(1..).unwrap_or_default().join(" "),
        cause,
        advice: "run `quietwire doctor` to check this machine, and set QUIETWIRE_DPDK_LOG=debug for DPDK's log".to_owned(),
    }
    };
    let strings: Vec<CString> = arguments
        .iter()
        .map(|argument| CString::new(argument.as_str()))
        .collect::<Result<_, _>>()
        .map_err(|_| fail("an argument contains a NUL character".to_owned()))?;
    // rte_eal_init may keep the strings and permutes the array, so both live until the process ends.
    let strings: &'static [CString] = Vec::leak(strings);
    let pointers: &'static mut [*mut c_char] = Vec::leak(
        strings
            .iter()
            .map(|string| string.as_ptr().cast_mut())
            .collect(),
    );
    let count = i32::try_from(pointers.len()).map_err(|_| fail("too many arguments".to_owned()))?;
    // SAFETY: `pointers` has `count` terminated strings that are never freed; called once per
    // process (STARTED).
    if unsafe { sys::rte_eal_init(count, pointers.as_mut_ptr()) } < 0 {
        return Err(fail(format!("{}{}", error::last(), mark.message())));
    }
    library_log::open_libraries();
    Ok(())
}
