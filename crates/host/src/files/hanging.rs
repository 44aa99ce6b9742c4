// SPDX-License-Identifier: Apache-2.0
//! Files of a machine with a driver that hangs while it changes its virtual functions, for tests.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use super::Files;
use crate::pci_driver::FUNCTIONS;

/// Files whose numbers of virtual functions are read some times, and then no more. A read without a timeout would never return: it fails
/// the test.
#[derive(Debug)]
pub(crate) struct Hanging<'a> {
    files: &'a dyn Files,
    answers: Cell<u32>,
}

impl<'a> Hanging<'a> {
    /// Returns an access to `files` with this number of successful reads.
    pub(crate) fn after(answers: u32, files: &'a dyn Files) -> Self {
        let answers = Cell::new(answers);
        Self { files, answers }
    }
}

impl Files for Hanging<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        assert!(!path.ends_with(FUNCTIONS), "a read without a timeout");
        self.files.read(path)
    }

    fn read_within(&self, path: &Path, time: Duration) -> io::Result<String> {
        if path.ends_with(FUNCTIONS) {
            let left = self.answers.get().checked_sub(1);
            self.answers.set(left.ok_or(ErrorKind::TimedOut)?);
        }
        self.files.read_within(path, time)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.files.write(path, text)
    }

    fn write_within(&self, path: &Path, text: &str, time: Duration) -> io::Result<()> {
        self.files.write_within(path, text, time)
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.files.make_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.files.remove_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.files.list(path)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.files.is_directory(path)
    }
}
