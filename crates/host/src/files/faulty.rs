// SPDX-License-Identifier: Apache-2.0
//! Files of a fake kernel with injected faults, for tests.

use std::io;
use std::path::Path;

use quietwire_base::faults::Faults;

use super::Files;

/// The kernel's files as one process with faults sees them.
#[derive(Debug)]
pub(crate) struct Faulty<'a, K> {
    pub(crate) kernel: &'a K,
    pub(crate) faults: &'a Faults<'a>,
}

impl<K: Files> Files for Faulty<'_, K> {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.faults.reads("read", path, || self.kernel.read(path))
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let write = || self.kernel.write(path, text);
        self.faults.changes("write", path, write)
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let make = || self.kernel.make_directory(path);
        self.faults.changes("mkdir", path, make)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let remove = || self.kernel.remove_directory(path);
        self.faults.changes("rmdir", path, remove)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.faults.reads("list", path, || self.kernel.list(path))
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        let look = || self.kernel.is_directory(path);
        self.faults.reads("stat", path, look)
    }
}
