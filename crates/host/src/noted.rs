// SPDX-License-Identifier: Apache-2.0
//! Notes the files of the machine that cannot be read. Most code treats a file that it cannot read as one that the machine does not have;
//! this module distinguishes the two.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files::{Files, is_absent};

/// File access that notes failures to read.
#[derive(Debug)]
pub(crate) struct Noted<'a> {
    files: &'a dyn Files,
    unreadable: RefCell<Vec<(PathBuf, io::Error)>>,
}

impl<'a> Noted<'a> {
    /// Returns an access to `files`.
    pub(crate) fn new(files: &'a dyn Files) -> Self {
        Self {
            files,
            unreadable: RefCell::default(),
        }
    }

    /// Returns the files that could not be read since the last call, with the errors.
    pub(crate) fn take(&self) -> Vec<(PathBuf, io::Error)> {
        self.unreadable.take()
    }

    fn note<T>(&self, path: &Path, found: io::Result<T>) -> io::Result<T> {
        let error = match found {
            Err(error) if !is_absent(&error) => error,
            found => return found,
        };
        // An error of the operating system cannot be cloned.
        let same = match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        self.unreadable.borrow_mut().push((path.to_owned(), same));
        Err(error)
    }
}

impl Files for Noted<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.note(path, self.files.read(path))
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.files.write(path, text)
    }

    fn write_within(&self, path: &Path, text: &str, time: Duration) -> io::Result<()> {
        self.files.write_within(path, text, time)
    }

    fn read_within(&self, path: &Path, time: Duration) -> io::Result<String> {
        self.note(path, self.files.read_within(path, time))
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.files.make_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.files.remove_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.note(path, self.files.list(path))
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.note(path, self.files.is_directory(path))
    }
}
