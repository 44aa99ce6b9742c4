// SPDX-License-Identifier: Apache-2.0
//! Access to the kernel's files through a trait: the disk, or a fake for tests that follows the kernel's rules.

#[cfg(test)]
pub(crate) mod faulty;
#[cfg(test)]
pub(crate) mod hanging;

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use quietwire_base::run_within;

pub use quietwire_base::storage::Disk;

/// File operations for changing and undoing settings.
pub trait Files: Debug {
    /// Returns the text of a file.
    ///
    /// # Errors
    /// Error of the operating system.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Writes a text to a file in one call, because the kernel handles every call as a separate value.
    ///
    /// # Errors
    /// Error of the operating system.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Writes like [`Self::write`], and returns after a time even if the kernel has not finished. The write may have its effect later.
    /// Implementations that never block ignore the time.
    ///
    /// # Errors
    /// Error of the operating system, [`ErrorKind::TimedOut`].
    fn write_within(&self, path: &Path, text: &str, _time: Duration) -> io::Result<()> {
        self.write(path, text)
    }

    /// Reads like [`Self::read`], and returns after a time even if the kernel has not answered: some files wait for a change of the
    /// device that is in progress. Implementations that never block ignore the time.
    ///
    /// # Errors
    /// Error of the operating system, [`ErrorKind::TimedOut`].
    fn read_within(&self, path: &Path, _time: Duration) -> io::Result<String> {
        self.read(path)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// Error of the operating system.
    fn make_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory of the kernel (a group), with the kernel's files in it.
    ///
    /// # Errors
    /// Error of the operating system.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a directory, in order.
    ///
    /// # Errors
    /// Error of the operating system.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Returns whether the path is an existing directory.
    ///
    /// # Errors
    /// Error of the operating system, other than that the path does not exist.
    fn is_directory(&self, path: &Path) -> io::Result<bool>;
}

/// Maximum length of a text, octets. Files of the kernel and the database of Open vSwitch are shorter.
pub(crate) const TEXT_MAX: u64 = 64 << 20;

/// Reads a text of at most `octets_max` octets: below another root than that of the machine, a file may be of any length.
fn read_up_to(path: &Path, octets_max: u64) -> io::Result<String> {
    let octets = quietwire_base::read_up_to(File::open(path)?, octets_max)?;
    String::from_utf8(octets).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        read_up_to(path, TEXT_MAX)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        fs::write(path, text)
    }

    fn write_within(&self, path: &Path, text: &str, time: Duration) -> io::Result<()> {
        let (file, value) = (path.to_owned(), text.to_owned());
        run_within(time, move || fs::write(file, value))
    }

    fn read_within(&self, path: &Path, time: Duration) -> io::Result<String> {
        let file = path.to_owned();
        run_within(time, move || read_up_to(&file, TEXT_MAX))
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir(path) {
            // The kernel never returns this for groups: this is a recorded tree with plain files.
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

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Err(error) if is_absent(&error) => Ok(false),
            found => Ok(found?.is_dir()),
        }
    }
}

/// Returns whether an error of reading means that the machine does not have the file: it does not exist (any more), or the kernel does not
/// support the setting.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ENODEV | Errno::EOPNOTSUPP)
    )
}

/// Returns whether the kernel offers a file for reading only. False if it does not exist.
pub(crate) fn is_read_only(path: &Path) -> bool {
    const WRITABLE: u32 = 0o200;
    let metadata = fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.permissions().mode() & WRITABLE == 0)
}

/// Returns a function that adds the file's path to an error.
pub(crate) fn named(path: &Path) -> impl FnOnce(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns a file's text without the trailing newline. `None` if it cannot be read.
pub(crate) fn text(files: &dyn Files, path: &Path) -> Option<String> {
    let text = files.read(path).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn texts_have_a_maximum_length() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "abc").unwrap();
        assert_eq!(read_up_to(&file, 3).unwrap(), "abc");
        for path in [file.as_path(), Path::new("/dev/zero")] {
            let error = read_up_to(path, 2).unwrap_err().to_string();
            assert_eq!(error, "it is longer than 2 octets");
        }
        // Files of the kernel have no length or that of a page, and are read to their ends.
        let whole = fs::read_to_string("/proc/cpuinfo").unwrap();
        let read = Disk.read(Path::new("/proc/cpuinfo")).unwrap();
        assert_eq!(read.lines().count(), whole.lines().count());
    }

    #[test]
    fn operations_that_block_end_at_their_time() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        Disk.write_within(&file, "1", Duration::from_secs(60))
            .unwrap();
        let read = Disk.read_within(&file, Duration::from_secs(60));
        assert_eq!(read.unwrap(), "1");
        let missing = directory.path().join("none/file");
        let error = Disk.write_within(&missing, "1", Duration::from_secs(60));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::NotFound);
        // Opening a FIFO for writing blocks until it has a reader.
        let fifo = directory.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let error = Disk.write_within(&fifo, "1", Duration::from_millis(20));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
        // The blocked thread ends when a reader opens the FIFO.
        assert_eq!(fs::read_to_string(&fifo).unwrap(), "1");
        // So does opening it for reading without a writer.
        let error = Disk.read_within(&fifo, Duration::from_millis(20));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
        fs::write(&fifo, "2").unwrap();
    }
}
