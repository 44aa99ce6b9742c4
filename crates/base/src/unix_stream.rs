// SPDX-License-Identifier: Apache-2.0
//! Connections to Unix sockets and exchanges on stream sockets, with deadlines. Without a deadline, connect(2) waits without end for a
//! process that hangs with a full backlog, and the timeouts of a socket start again with each octet.

use std::io::{self, Read, Write};
use std::net::TcpStream;
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

/// Minimum timeout of an operation: zero would be no limit.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// A stream socket with timeouts of reads and writes (`SO_RCVTIMEO`, `SO_SNDTIMEO`).
pub trait StreamSocket {
    /// Sets the timeout of reads; `None` for none.
    ///
    /// # Errors
    /// Error of setsockopt(2).
    fn limit_reads(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// Sets the timeout of writes; `None` for none.
    ///
    /// # Errors
    /// Error of setsockopt(2).
    fn limit_writes(&self, timeout: Option<Duration>) -> io::Result<()>;
}

impl StreamSocket for UnixStream {
    fn limit_reads(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)
    }

    fn limit_writes(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_write_timeout(timeout)
    }
}

impl StreamSocket for TcpStream {
    fn limit_reads(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)
    }

    fn limit_writes(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_write_timeout(timeout)
    }
}

/// A stream whose reads and writes end by a deadline, also if the peer sends or reads one octet at a time.
#[derive(Debug)]
pub struct BoundedStream<'a, S = UnixStream> {
    stream: &'a S,
    silence: Duration,
    deadline: Deadline,
}

impl<'a, S> BoundedStream<'a, S> {
    /// Bounds the operations on a stream that blocks: each waits for `silence` at most, and all of them until `deadline`. They set the timeouts
    /// of the stream.
    ///
    /// An operation fails with [`io::ErrorKind::WouldBlock`] after `silence`, and with [`io::ErrorKind::TimedOut`] after the deadline.
    #[must_use]
    pub const fn new(stream: &'a S, silence: Duration, deadline: Deadline) -> Self {
        Self {
            stream,
            silence,
            deadline,
        }
    }

    /// Runs an operation with a timeout, which `set` sets.
    fn run<T>(
        &self,
        set: fn(&S, Option<Duration>) -> io::Result<()>,
        mut operation: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let left = self.deadline.remaining();
            if left.is_zero() {
                let what = "the peer is too slow";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            set(self.stream, Some(left.min(self.silence).max(WAIT_MIN)))?;
            match operation(self.stream) {
                // The deadline comes first, and a timeout of the kernel may end a tick before it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && left < self.silence => {}
                done => return done,
            }
        }
    }
}

impl<S: StreamSocket> Read for BoundedStream<'_, S>
where
    for<'s> &'s S: Read,
{
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        self.run(S::limit_reads, |mut stream| stream.read(octets))
    }
}

impl<S: StreamSocket> Write for BoundedStream<'_, S>
where
    for<'s> &'s S: Write,
{
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.run(S::limit_writes, |mut stream| stream.write(octets))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

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

    /// Longest time of a test: long after the deadlines in it.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_peer_that_sends_one_octet_at_a_time_is_read_until_the_deadline() {
        let (own, mut peer) = UnixStream::pair().unwrap();
        let error = thread::scope(|scope| {
            scope.spawn(move || {
                let sending = Deadline::after(LONG);
                // Until the reader has given up and closed its end.
                sending.poll(Duration::from_millis(1), || peer.write_all(b"x").err())
            });
            let deadline = Deadline::after(Duration::from_millis(50));
            let mut octets = Vec::new();
            let read = BoundedStream::new(&own, LONG, deadline).read_to_end(&mut octets);
            drop(own);
            read.unwrap_err()
        });
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_silent_peer_and_one_that_reads_nothing_are_waited_for_within_bounds() {
        let (own, _peer) = UnixStream::pair().unwrap();
        let brief = Duration::from_millis(20);
        let mut silent = BoundedStream::new(&own, brief, Deadline::after(LONG));
        let error = silent.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let mut late = BoundedStream::new(&own, LONG, Deadline::after(brief));
        let error = late.write_all(&vec![0; 16 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = late.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn octets_pass_a_bounded_stream_in_both_directions() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut one = BoundedStream::new(&one, LONG, Deadline::after(LONG));
        let mut other = BoundedStream::new(&other, LONG, Deadline::after(LONG));
        let mut octets = [0; 3];
        one.write_all(b"abc").unwrap();
        other.read_exact(&mut octets).unwrap();
        other.write_all(&octets).unwrap();
        one.read_exact(&mut octets).unwrap();
        assert_eq!(&octets, b"abc");
    }
}
