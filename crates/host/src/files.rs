// SPDX-License-Identifier: Apache-2.0
//! The kernel's files, behind a trait: the disk, or a directory that keeps to a kernel's rules without one.

use std::fmt::Debug;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// What is read, written, made and removed while settings are changed and undone.
pub trait Files: Debug {
    /// What a file holds.
    ///
    /// # Errors
    /// What the system said.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Writes a text to a file, in one call: the kernel takes every call for a value of its own.
    ///
    /// # Errors
    /// What the system said.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Makes a directory.
    ///
    /// # Errors
    /// What the system said.
    fn make_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory of the kernel's (a group), with the files that the kernel shows in it.
    ///
    /// # Errors
    /// What the system said.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Names in a directory, in order.
    ///
    /// # Errors
    /// What the system said.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// True for a directory that is there.
    fn is_directory(&self, path: &Path) -> bool;
}

/// The files that are mounted on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        fs::write(path, text)
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir(path) {
            // Of the kernel's groups none says so: this is a recorded tree, where files are files.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => fs::remove_dir_all(path),
            done => done,
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }
}

/// An error of the system's with the file that it is about.
pub(crate) fn named(path: &Path) -> impl FnOnce(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A file's text without the end of its line; none when it cannot be read.
pub(crate) fn text(files: &dyn Files, path: &Path) -> Option<String> {
    let text = files.read(path).ok()?;
    Some(text.trim().to_owned())
}
