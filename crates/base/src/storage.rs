// SPDX-License-Identifier: Apache-2.0
//! Storage of files through a trait: the disk, or a fake for tests that fails.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Operations on files that have to survive a kill, a full disk or a power failure.
pub trait Storage: Debug {
    /// Returns the octets of a file.
    ///
    /// # Errors
    /// Error of the operating system.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Opens a file to write to it. `mode` is that of a new file (open(2)).
    ///
    /// # Errors
    /// Error of the operating system.
    fn open(&self, path: &Path, opening: Opening, mode: u32) -> io::Result<Box<dyn OpenFile>>;

    /// Creates a directory and its parents, unless they exist. `mode` is that of new directories (mkdir(2)).
    ///
    /// # Errors
    /// Error of the operating system.
    fn make_directories(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Removes a directory with its contents.
    ///
    /// # Errors
    /// Error of the operating system. A part of the contents may be removed then.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Error of the operating system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Renames a file. An existing file `to` is replaced in one step (rename(2)).
    ///
    /// # Errors
    /// Error of the operating system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name (link(2)).
    ///
    /// # Errors
    /// Error of the operating system. `AlreadyExists` if `to` exists.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Returns the names in a directory, in order.
    ///
    /// # Errors
    /// Error of the operating system.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Returns type, length and permissions of a file. Follows symbolic links.
    ///
    /// # Errors
    /// Error of the operating system.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;

    /// Returns the absolute path without symbolic links (realpath(3)).
    ///
    /// # Errors
    /// Error of the operating system.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;

    /// Writes a directory to the disk, so that its new, renamed and removed files survive a power failure (fsync(2)).
    ///
    /// # Errors
    /// Error of the operating system.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// Mode of a file that is opened for writing. A missing file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Writes go to the end.
    Append,
    /// The former contents are removed.
    Truncate,
}

/// A file that is open for writing.
pub trait OpenFile: Send {
    /// Returns the length, octets.
    ///
    /// # Errors
    /// Error of the operating system.
    fn length(&self) -> io::Result<u64>;

    /// Writes octets behind the former ones.
    ///
    /// # Errors
    /// Error of the operating system. Any part may have been written then.
    fn append(&mut self, octets: &[u8]) -> io::Result<()>;

    /// Removes everything after the first `length` octets.
    ///
    /// # Errors
    /// Error of the operating system.
    fn truncate(&mut self, length: u64) -> io::Result<()>;

    /// Sets the permissions.
    ///
    /// # Errors
    /// Error of the operating system.
    fn set_permissions(&mut self, permissions: Permissions) -> io::Result<()>;

    /// Returns when contents and length are on the disk (fsync(2)).
    ///
    /// # Errors
    /// Error of the operating system.
    fn sync(&mut self) -> io::Result<()>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Storage for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn open(&self, path: &Path, opening: Opening, mode: u32) -> io::Result<Box<dyn OpenFile>> {
        let mut options = OpenOptions::new();
        match opening {
            Opening::Append => options.append(true),
            Opening::Truncate => options.write(true).truncate(true),
        };
        let file = options.create(true).mode(mode).open(path)?;
        Ok(Box::new(file))
    }

    fn make_directories(&self, path: &Path, mode: u32) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(mode).create(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.push(entry?.file_name());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        fs::metadata(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl OpenFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        self.write_all(octets)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn set_permissions(&mut self, permissions: Permissions) -> io::Result<()> {
        File::set_permissions(self, permissions)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}
