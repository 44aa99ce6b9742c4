// SPDX-License-Identifier: Apache-2.0
//! Files of a machine with a driver that hangs while it changes its virtual functions, for tests.

use std::cell::Cell;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::Files;
use crate::pci_driver::FUNCTIONS;

/// Creates a network card whose driver holds back the number of virtual functions: opening the FIFO in its place blocks until the FIFO has a
/// writer. Returns the directory of the card, `0000:3b:00.0`.
pub(crate) fn card(root: &Path) -> PathBuf {
    let device = root.join("sys/bus/pci/devices/0000:3b:00.0");
    fs::create_dir_all(&device).unwrap();
    mkfifo(&device.join(FUNCTIONS), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    device
}

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
