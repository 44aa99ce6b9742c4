// SPDX-License-Identifier: Apache-2.0
//! Files of kubelet, read within a limit.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use quietwire_base::{open_regular, text_error};

/// Largest file that is read, octets.
const SIZE_MAX: u64 = 4 << 20;

/// Errors in a file of kubelet.
#[derive(Debug, thiserror::Error)]
pub enum KubeletFileError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The file has unexpected contents.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
}

impl KubeletFileError {
    /// Returns whether the file does not exist.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Unreadable { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }

    pub(super) fn malformed(path: &Path, problem: impl Into<String>) -> Self {
        Self::Malformed {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Reads and parses a text file of at most 4 MiB. `None` if it does not exist. `parse` returns the problem of a text that it refuses.
pub(super) fn parsed<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, KubeletFileError> {
    match read(path) {
        Ok(text) => parse(&text)
            .map(Some)
            .map_err(|problem| KubeletFileError::malformed(path, problem)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a text file of at most 4 MiB.
pub(super) fn read(path: &Path) -> Result<String, KubeletFileError> {
    let mut text = String::new();
    let read = open_regular(path).and_then(|file| file.take(SIZE_MAX).read_to_string(&mut text));
    let length = read
        .map_err(text_error)
        .map_err(|cause| KubeletFileError::Unreadable {
            path: path.to_owned(),
            cause,
        })?;
    if length as u64 >= SIZE_MAX {
        return Err(KubeletFileError::malformed(path, "larger than 4 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use quietwire_base::run_within;

    use super::*;

    #[test]
    fn a_fifo_in_the_place_of_a_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        // A FIFO that is read would block the test.
        let read = move || Ok(read(&path).unwrap_err().to_string());
        let error = run_within(Duration::from_secs(60), read).unwrap();
        assert!(error.contains("not a regular file"), "{error}");
    }
}
