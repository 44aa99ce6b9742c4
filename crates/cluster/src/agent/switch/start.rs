// SPDX-License-Identifier: Apache-2.0
//! Identity of a start of the switch, by its control socket.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;

/// Interval at which the socket is read: containers have no network until the agent knows of the start.
pub(in crate::agent) const INTERVAL: Duration = Duration::from_secs(1);

/// Returns the identity of the start of the switch at a control socket. Each start makes a socket of its own, whose time of modification is
/// that of bind(2). None if there is no socket.
pub(in crate::agent) fn identity(socket: &Path) -> Option<String> {
    let socket = fs::metadata(socket).ok()?;
    let (seconds, nanoseconds) = (socket.mtime(), socket.mtime_nsec());
    Some(format!("{}-{seconds}.{nanoseconds:09}", socket.ino()))
}

/// Reads the control socket at an interval, and sends the identity of each further start, until `known` has no receiver. While there is no
/// socket, it sends nothing.
pub(in crate::agent) async fn follow(
    socket: PathBuf,
    interval: Duration,
    known: watch::Sender<Option<String>>,
) {
    while !known.is_closed() {
        let now = identity(&socket);
        known.send_if_modified(|known| {
            let is_new = now.is_some() && *known != now;
            if is_new {
                *known = now;
            }
            is_new
        });
        tokio::time::sleep(interval).await;
    }
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

    #[test]
    fn another_start_of_the_switch_is_sent_and_an_absent_socket_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("switch.sock");
        let first = UnixListener::bind(&path).unwrap();
        crate::runtime().unwrap().block_on(async {
            let (known, mut starts) = watch::channel(identity(&path));
            let of_first = starts.borrow().clone();
            let interval = Duration::from_millis(1);
            let following = tokio::spawn(follow(path.clone(), interval, known));
            fs::remove_file(&path).unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!starts.has_changed().unwrap());
            let second = UnixListener::bind(&path).unwrap();
            let changed = tokio::time::timeout(Duration::from_secs(10), starts.changed());
            changed.await.unwrap().unwrap();
            let of_second = starts.borrow_and_update().clone();
            assert!(of_second.is_some() && of_second != of_first);
            // It ends with the last receiver.
            drop(starts);
            let ended = tokio::time::timeout(Duration::from_secs(10), following);
            ended.await.unwrap().unwrap();
            drop((first, second));
        });
    }
}
