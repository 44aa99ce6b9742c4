// SPDX-License-Identifier: Apache-2.0
//! Helpers of tests: the EAL, which a process can start only once, polling, and network namespaces.

use std::sync::OnceLock;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use quietwire_base::wait_until;

use crate::eal::{Eal, EalOptions, HugePages};

/// Returns the EAL of all tests of this process.
pub(crate) fn eal() -> Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    let start = || {
        Eal::start(&EalOptions {
            control_cpus: vec![0],
            memory_mib: 256,
            huge_pages: HugePages::Never,
            pci_devices: Vec::new(),
            file_prefix: format!("qw-tests-{}", std::process::id()),
        })
        .unwrap()
    };
    EAL.get_or_init(start).clone()
}

/// Polls until `holds` returns true.
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    const DEADLINE: Duration = Duration::from_secs(60);
    let is_so = wait_until(DEADLINE, holds);
    assert!(is_so, "not within {DEADLINE:?}: {what}");
}

/// Starts a thread in a new network namespace. Requires root.
pub(crate) fn spawn_in_namespace<T: Send + 'static>(
    inside: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("requires root");
        inside()
    })
}

/// Runs a test in a thread with a new network namespace.
pub(crate) fn in_a_namespace(test: impl FnOnce() + Send + 'static) {
    spawn_in_namespace(test).join().unwrap();
}
