// SPDX-License-Identifier: Apache-2.0
//! Connections to Unix sockets within a time: connect(2) waits without end for a process that hangs and has a full backlog.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use crate::deadline::Deadline;

/// Connects to a stream socket. The new stream has no timeouts.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if the backlog stays full for `timeout`; otherwise the error of connect(2).
pub fn connect_within(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let address = UnixAddr::new(path)?;
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let stream = UnixStream::from(socket);
    let deadline = Deadline::after(timeout);
    loop {
        // SO_SNDTIMEO bounds connect(2) too (socket(7)). Zero would be no limit.
        let left = deadline.remaining().max(Duration::from_millis(1));
        stream.set_write_timeout(Some(left))?;
        match connect(stream.as_raw_fd(), &address) {
            Ok(()) => break,
            Err(Errno::EINTR) if !deadline.has_passed() => {}
            Err(Errno::EINTR | Errno::EAGAIN) => {
                let what = "the process that listens accepts no connection";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            Err(error) => return Err(error.into()),
        }
    }
    stream.set_write_timeout(None)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;

    #[test]
    fn a_connection_carries_octets_and_has_no_timeouts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut stream = connect_within(&path, Duration::from_secs(60)).unwrap();
        assert_eq!(stream.write_timeout().unwrap(), None);
        assert_eq!(stream.read_timeout().unwrap(), None);
        let (mut accepted, _) = listener.accept().unwrap();
        stream.write_all(b"abc").unwrap();
        drop(stream);
        let mut text = String::new();
        accepted.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
    }

    #[test]
    fn connecting_to_a_process_that_accepts_nothing_has_a_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            assert!(waiting.len() < 8, "the backlog is never full");
            match connect_within(&path, Duration::from_millis(20)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(!waiting.is_empty());
    }

    #[test]
    fn errors_are_those_of_the_system() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let kind = || {
            let connected = connect_within(&path, Duration::from_secs(60));
            connected.unwrap_err().kind()
        };
        assert_eq!(kind(), io::ErrorKind::NotFound);
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(kind(), io::ErrorKind::ConnectionRefused);
    }
}
