// SPDX-License-Identifier: Apache-2.0
//! Classes of errors: the party at fault.

use std::io::{Error, ErrorKind};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

/// The party at fault for an error; decides the exit code. In JSON: `bad-input`, `missing-prerequisite` or `failed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Bad input or usage: exit code 2.
    BadInput,
    /// The machine lacks something: exit code 3.
    MissingPrerequisite,
    /// Anything else: exit code 1.
    Failed,
}

impl Fault {
    /// Returns the fault of an error at a path that the caller has named: bad input if no such file can be there, or the caller may not use
    /// it; a failure if the same path could be used at another time, such as on a full disk.
    #[must_use]
    pub fn of_path(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::InvalidFilename
            | ErrorKind::InvalidInput => Self::BadInput,
            // It has no stable name.
            kind if kind == Error::from(Errno::ELOOP).kind() => Self::BadInput,
            _ if error.raw_os_error() == Some(Errno::ENXIO as i32) => Self::BadInput,
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_used_is_bad_input_and_a_full_disk_is_not() {
        let fault = |errno: Errno| Fault::of_path(&Error::from(errno));
        for errno in [
            Errno::ENOENT,
            Errno::ENOTDIR,
            Errno::EISDIR,
            Errno::EEXIST,
            Errno::EACCES,
            Errno::EPERM,
            Errno::EROFS,
            Errno::ENAMETOOLONG,
            Errno::ELOOP,
            Errno::ENXIO,
        ] {
            assert_eq!(fault(errno), Fault::BadInput, "{errno}");
        }
        let with_path = Error::new(Error::from(Errno::ELOOP).kind(), "a path");
        assert_eq!(Fault::of_path(&with_path), Fault::BadInput);
        for errno in [Errno::ENOSPC, Errno::EDQUOT, Errno::EIO, Errno::EMFILE] {
            assert_eq!(fault(errno), Fault::Failed, "{errno}");
        }
    }
}
