// SPDX-License-Identifier: Apache-2.0
//! Files that a program with fewer rights may have replaced: by a FIFO, whose reader waits without end, by a device, or by a file of any length.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::libc;

/// Size of the first read, octets. Most files of the kernel are shorter.
const PIECE: usize = 8 << 10;

/// Opens a regular file for reading.
///
/// # Errors
/// Error of the operating system; [`io::ErrorKind::Other`] for a FIFO, a device or a directory.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_with(path, 0)
}

/// Opens a regular file like [`open_regular`], with further flags of open(2), such as `O_NOFOLLOW`.
///
/// # Errors
/// As [`open_regular`].
pub fn open_regular_with(path: &Path, flags: libc::c_int) -> io::Result<File> {
    // A FIFO would block until another process opens it for writing.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags | libc::O_NONBLOCK);
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Reads a regular file of at most `octets_max` octets.
///
/// # Errors
/// Those of [`open_regular`]; [`io::ErrorKind::Other`] for a longer file.
pub fn read_regular(path: &Path, octets_max: u64) -> io::Result<Vec<u8>> {
    read_up_to(open_regular(path)?, octets_max)
}

/// Reads a file of at most `octets_max` octets to its end.
///
/// # Errors
/// Error of the operating system; [`io::ErrorKind::Other`] for a longer file.
pub fn read_up_to(file: File, octets_max: u64) -> io::Result<Vec<u8>> {
    let mut octets = Vec::with_capacity(PIECE);
    file.take(octets_max.saturating_add(1))
        .read_to_end(&mut octets)?;
    match octets.len() as u64 <= octets_max {
        true => Ok(octets),
        false => Err(io::Error::other(format!(
            "it is longer than {octets_max} octets"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::run_within;

    #[test]
    fn regular_files_up_to_the_maximum_are_read_and_others_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "abc").unwrap();
        symlink(path("file"), path("link")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_regular(&path(name), 3).unwrap(), b"abc");
        }
        let error = read_regular(&path("file"), 2).unwrap_err().to_string();
        assert_eq!(error, "it is longer than 2 octets");
        let absent = read_regular(&path("absent"), 2).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        mkfifo(&path("fifo"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        symlink("/dev/zero", path("endless")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        for name in ["fifo", "endless", "directory"] {
            let path = path(name);
            // A FIFO that is read would block the test.
            let read = run_within(Duration::from_secs(60), move || read_regular(&path, 1024));
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::Other, "{name}");
        }
    }
}
