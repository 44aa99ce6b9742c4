// SPDX-License-Identifier: Apache-2.0
//! A recorded machine for the tests of all monitors.

use std::fs;
use std::os::unix::fs::FileExt as _;

use crate::monitor::{Monitor, Target, Watched};

/// Files of a machine, and watched processes.
pub(crate) struct Machine {
    root: tempfile::TempDir,
    watched: Vec<Watched>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            watched: Vec::new(),
        }
    }
}

impl Machine {
    /// Adds a file.
    pub(crate) fn with(self, path: &str, text: &str) -> Self {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Adds a processor of this vendor, and a register of its CPU 0.
    pub(crate) fn with_register(self, vendor: &str, address: u64, value: u64) -> Self {
        let machine = self.with("proc/cpuinfo", &format!("vendor_id\t: {vendor}\n"));
        let machine = machine.with("dev/cpu/0/msr", "");
        let path = machine.root().join("dev/cpu/0/msr");
        let file = fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&value.to_le_bytes(), address).unwrap();
        machine
    }

    /// Adds a watched process.
    pub(crate) fn watching(mut self, watched: Watched) -> Self {
        self.watched.push(watched);
        self
    }

    /// Returns the directory of the files.
    pub(crate) fn root(&self) -> &std::path::Path {
        self.root.path()
    }

    fn target(&self) -> Target<'_> {
        Target {
            root: self.root.path(),
            watched: &self.watched,
        }
    }

    /// Returns the counters of a monitor.
    pub(crate) fn read<M: Monitor>(&self) -> M::Counters {
        M::read(&self.target()).unwrap()
    }

    /// Returns why a monitor is unavailable.
    pub(crate) fn unavailable<M: Monitor>(&self) -> String {
        M::read(&self.target()).map(|_| ()).unwrap_err().0
    }
}

/// Returns the activity of a monitor between two instants without anomalies.
pub(crate) fn between<M: Monitor>(before: &Machine, after: &Machine) -> M::Activity {
    let mut anomalies = Vec::new();
    let activity = M::between(&before.read::<M>(), &after.read::<M>(), &mut anomalies);
    assert!(anomalies.is_empty(), "{anomalies:?}");
    activity
}
