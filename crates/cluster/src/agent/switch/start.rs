// SPDX-License-Identifier: Apache-2.0
//! Identity of a start of the switch, by its control socket.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Returns the identity of the start of the switch at a control socket. Each start makes a socket of its own, whose time of modification is
/// that of bind(2). None if there is no socket.
pub(super) fn identity(socket: &Path) -> Option<String> {
    let socket = fs::metadata(socket).ok()?;
    let (seconds, nanoseconds) = (socket.mtime(), socket.mtime_nsec());
    Some(format!("{}-{seconds}.{nanoseconds:09}", socket.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_start_of_the_switch_is_known_by_its_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("switch.sock");
        assert_eq!(identity(&path), None);
        let first = UnixListener::bind(&path).unwrap();
        let of_first = identity(&path);
        assert!(of_first.is_some());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(identity(&path), of_first);
        // Another socket, while the inode of the first one is in use.
        let beside = directory.path().join("new.sock");
        let second = UnixListener::bind(&beside).unwrap();
        fs::rename(&beside, &path).unwrap();
        assert_ne!(identity(&path), of_first);
        drop((first, second));
    }
}
