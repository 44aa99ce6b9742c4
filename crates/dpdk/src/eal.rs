// SPDX-License-Identifier: Apache-2.0
//! DPDK's environment abstraction layer: started once in a process, with its CPUs named.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::error::{self, Error};
use crate::library_log::{self, Mark};
use crate::port::peers::Peers;
use crate::{sys, thread};

/// Whether to use huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Where enough are free; otherwise without, and [`Memory`] says so.
    Auto,
    /// Never (`--no-huge`).
    Never,
    /// Always; too few free is an error.
    Require,
}

/// How the EAL is to be started.
#[derive(Clone, Debug)]
pub struct EalOptions {
    /// CPUs of the main and of all threads that DPDK makes for itself (numbers as the kernel's). Not empty.
    pub control_cpus: Vec<u32>,
    /// Memory to take at start, MiB.
    pub memory_mib: u32,
    /// Whether to use huge pages.
    pub huge_pages: HugePages,
    /// PCI devices that ports will be opened on; no other is touched.
    pub pci_devices: Vec<String>,
    /// Word that the threads and files of this process carry.
    pub file_prefix: String,
}

/// What memory the EAL got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// 2 MiB (or larger) pages.
    HugePages,
    /// Ordinary pages: more misses of the TLB, seen to cost about 15 % on memif and 20 % on vhost.
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
    /// The thread that talks to the peers of ports.
    peers: Peers,
    /// Sockets that ports of this process use.
    pub(crate) sockets: Mutex<HashMap<PathBuf, SocketUse>>,
}

/// The started EAL. Clones share it. It stays until the process ends: DPDK's `rte_eal_cleanup` takes the memory
/// away under its own interrupt thread, which then ends the process with a segmentation fault if a port was
/// closed just before (seen with 22.11). Nothing outlives the process, since memory is anonymous.
#[derive(Clone, Debug)]
pub struct Eal(pub(crate) Arc<EalInner>);

static STARTED: AtomicBool = AtomicBool::new(false);

/// Size of the pages that [`EalOptions::huge_pages`] counts, MiB.
const HUGE_PAGE_MIB: u64 = 2;

impl Eal {
    /// Starts the EAL in this process (`rte_eal_init`).
    ///
    /// All CPUs are named explicitly: without that the EAL pins the calling thread to one CPU of its
    /// own choice and every thread made later inherits it. The caller's affinity is the same
    /// afterwards as before; real-time signals no longer go to it. No file is left in the huge page mount, since memory is anonymous
    /// (`--in-memory`, `--no-huge`); the huge page pool itself is never changed.
    ///
    /// # Errors
    /// [`Error::EalTwice`], [`Error::HugePages`], [`Error::Eal`], [`Error::Thread`].
    pub fn start(options: &EalOptions) -> Result<Self, Error> {
        let memory = choose_memory(options)?;
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err(Error::EalTwice);
        }
        // DPDK's own threads inherit this.
        thread::refuse_realtime_signals();
        let before = thread::affinity()?;
        // Threads that the EAL makes get the caller's CPUs less those of lcores, or those of the main
        // lcore when nothing is left (eal_common_options.c, compute_ctrl_threads_cpuset): with the
        // caller on the control CPUs only, both are the control CPUs.
        thread::pin(&options.control_cpus)?;
        let started = initialise(options, memory);
        let peers = Peers::start();
        thread::pin(&before)?;
        started?;
        let peers = peers.map_err(|error| Error::Thread {
            what: "starting the thread that talks to the peers of ports".to_owned(),
            cause: error.to_string(),
        })?;
        raise_descriptor_limit();
        // SAFETY: a call without preconditions after rte_eal_init. Needed before threads of our own
        // are registered; there are no secondary processes.
        if !unsafe { sys::rte_mp_disable() } {
            tracing::warn!(
                "DPDK's multi-process support stayed on; forwarding threads may run without buffer caches"
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

    /// What memory it got.
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

    /// One port less uses a socket. The last one removes it, when it was made here.
    pub(crate) fn forget_socket(&self, path: &Path) {
        let mut sockets = self
            .0
            .sockets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(socket) = sockets.get_mut(path) else {
            return;
        };
        socket.ports -= 1;
        if socket.ports > 0 {
            return;
        }
        let made_here = socket.made_here;
        sockets.remove(path);
        // DPDK removes the sockets of most ports itself.
        if made_here
            && let Err(error) = fs::remove_file(path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(
                "the socket {} could not be removed: {error}",
                path.display()
            );
        }
    }
}

/// Each port of shared memory has a few descriptors for each queue: takes as many as the process may have at all
/// (getrlimit(2), RLIMIT_NOFILE).
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!("the limit of open files was not raised: {error}");
    }
}

fn free_huge_mib() -> u64 {
    fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(0)
        * HUGE_PAGE_MIB
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
                    "{free_mib} MiB of huge pages are free and {wanted_mib} MiB are needed: running on ordinary pages, which costs about 15 % on memif and 20 % on vhost"
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

/// The EAL makes a directory for files that processes share, and leaves it behind. There are none, so that it can go at
/// once, and does not stay when this process is killed.
fn remove_runtime_directory() {
    // SAFETY: a call without preconditions after rte_eal_init; it gives a string that stays.
    let directory = unsafe { CStr::from_ptr(sys::rte_eal_get_runtime_dir()) };
    let path = Path::new(OsStr::from_bytes(directory.to_bytes()));
    if let Err(error) = fs::remove_dir(path) {
        tracing::warn!("DPDK's directory {} stays: {error}", path.display());
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
        // Of patterns that match a driver loaded later, EAL applies the first. This driver calls it an error when the kernel has
        // no classifier for its flow rules, which no port requests.
        "--log-level=pmd.net.tap:critical".to_owned(),
        format!("--log-level=*:{}", library_log::level()),
    ];
    match memory {
        Memory::HugePages => arguments.push("--in-memory".to_owned()),
        // Implies legacy memory, which --in-memory refuses; nothing is shared with other processes either way.
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
        arguments: arguments[1..].join(" "),
        cause,
        advice: "Run `quietwire doctor` to see what this machine lacks, and set QUIETWIRE_DPDK_LOG=debug for DPDK's own words".to_owned(),
    }
    };
    let strings: Vec<CString> = arguments
        .iter()
        .map(|argument| CString::new(argument.as_str()))
        .collect::<Result<_, _>>()
        .map_err(|_| fail("an argument holds a zero octet".to_owned()))?;
    // rte_eal_init may keep the strings and permutes the array, so both live as long as the process.
    let strings: &'static [CString] = Vec::leak(strings);
    let pointers: &'static mut [*mut c_char] = Vec::leak(
        strings
            .iter()
            .map(|string| string.as_ptr().cast_mut())
            .collect(),
    );
    let count = i32::try_from(pointers.len()).map_err(|_| fail("too many arguments".to_owned()))?;
    // SAFETY: `pointers` holds `count` terminated strings that are never freed; called once in the
    // process (STARTED).
    if unsafe { sys::rte_eal_init(count, pointers.as_mut_ptr()) } < 0 {
        return Err(fail(error::last() + &mark.said()));
    }
    library_log::open_libraries();
    Ok(())
}
