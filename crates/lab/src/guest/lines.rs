// SPDX-License-Identifier: Apache-2.0
//! Lines of JSON over a Unix socket, the format of QEMU's monitor and of the agent in a guest. Each call ends by its deadline,
//! and a line's memory is limited, whatever the peer does.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use quietwire_base::{BoundedStream, Deadline, connect_within};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::stop::Stop;

/// Longest accepted line, octets with its end.
pub(crate) const LINE_MAX: usize = 4 << 20;

/// Time for the peer to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Interval between checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Characters of a line shown in an error.
const EXCERPT: usize = 120;

/// Error of a line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// No process listens.
    #[error("{0}")]
    Connect(std::io::Error),
    /// The peer closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// No line within the timeout.
    #[error("no answer within {0:?}")]
    Silent(Duration),
    /// The stop flag is set.
    #[error("interrupted")]
    Stopped,
    /// A line that exceeds the limit.
    #[error("it sent a line of more than {LINE_MAX} octets")]
    TooLong,
    /// A line that is not JSON, or not of the expected type.
    #[error("it answered '{excerpt}', which {}: {cause}", defect(.cause))]
    Garbage {
        /// The start of the line.
        excerpt: String,
        /// The parser's error.
        cause: serde_json::Error,
    },
    /// A system call's error.
    #[error("its socket: {0}")]
    Io(std::io::Error),
}

/// Returns the fault of a line, as a clause.
fn defect(cause: &serde_json::Error) -> &'static str {
    match cause.is_data() {
        true => "has an unknown format",
        false => "is not JSON",
    }
}

/// Returns the start of a text, for an error.
pub(crate) fn excerpt(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line.get(..4 * EXCERPT).unwrap_or(line));
    let text: String = text
        .chars()
        .take(EXCERPT)
        .map(|c| if c.is_control() { '.' } else { c })
        .collect();
    text.trim().to_owned()
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Lines {
    stream: UnixStream,
    held: Vec<u8>,
    stop: Stop,
}

impl Lines {
    pub(crate) fn connect(socket: &Path) -> Result<Self, LineError> {
        Self::connect_within(socket, CONNECT)
    }

    /// As [`Self::connect`], with the caller's timeout.
    pub(crate) fn connect_within(socket: &Path, timeout: Duration) -> Result<Self, LineError> {
        let stream = connect_within(socket, timeout).map_err(LineError::Connect)?;
        Ok(Self {
            stream,
            held: Vec::new(),
            stop: Stop::default(),
        })
    }

    /// As [`Self::connect`]. Waits end when `stop` is set.
    pub(crate) fn unless(self, stop: &Stop) -> Self {
        Self {
            stop: stop.clone(),
            ..self
        }
    }

    /// Sends one line.
    pub(crate) fn send(
        &mut self,
        value: &impl Serialize,
        timeout: Duration,
    ) -> Result<(), LineError> {
        let mut line = serde_json::to_vec(value).map_err(|error| LineError::Io(error.into()))?;
        line.push(b'\n');
        let wait = timeout.max(Duration::from_millis(1));
        BoundedStream::new(&self.stream, wait, Deadline::after(wait))
            .write_all(&line)
            .map_err(|error| match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => LineError::Silent(timeout),
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => LineError::Closed,
                _ => LineError::Io(error),
            })
    }

    /// Receives the next line.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> Result<T, LineError> {
        let deadline = Deadline::after(timeout);
        let mut searched = 0_usize;
        loop {
            let mut rest = self.held.iter().skip(searched);
            let found = rest.position(|c| *c == b'\n');
            if let Some(end) = found.map(|end| searched.saturating_add(end)) {
                if end >= LINE_MAX {
                    return Err(LineError::TooLong);
                }
                let line: Vec<u8> = self.held.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|cause| LineError::Garbage {
                    excerpt: excerpt(&line),
                    cause,
                });
            }
            searched = self.held.len();
            if searched >= LINE_MAX {
                return Err(LineError::TooLong);
            }
            let left = deadline.remaining();
            if left.is_zero() {
                return Err(LineError::Silent(timeout));
            }
            if self.stop.is_wanted() {
                return Err(LineError::Stopped);
            }
            self.more(left.min(POLL_INTERVAL))?;
        }
    }

    fn more(&mut self, timeout: Duration) -> Result<(), LineError> {
        let mut buffer = [0; 65536];
        self.stream
            .set_read_timeout(Some(timeout))
            .map_err(LineError::Io)?;
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(LineError::Closed),
            Ok(count) => {
                self.held
                    .extend_from_slice(buffer.get(..count).unwrap_or_default());
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
                ErrorKind::ConnectionReset => Err(LineError::Closed),
                _ => Err(LineError::Io(error)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use serde_json::Value;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);

    /// Returns the outcome for a peer that sends this and, if `closes`, closes the connection.
    fn heard(printed: &[u8], closes: bool) -> Result<Value, LineError> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::scope(|scope| {
            let peer = scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                // The receiver may have closed the connection.
                let _ = stream.write_all(printed);
                (!closes).then_some(stream)
            });
            let mut lines = Lines::connect(&socket).unwrap();
            let answer = lines.receive(if closes { LONG } else { SHORT });
            drop(lines);
            peer.join().unwrap();
            answer
        })
    }

    #[test]
    fn any_octets_of_a_peer_end_in_an_answer_or_an_error() {
        assert_eq!(heard(b"{\"a\": 1}\nrest", true).unwrap()["a"], 1);
        let error = heard(b"\x00\xffnonsense\n", true).unwrap_err().to_string();
        assert!(
            error.contains("nonsense") && !error.contains('\0'),
            "{error}"
        );
        assert!(matches!(heard(b"{\"half\":", true), Err(LineError::Closed)));
        assert!(matches!(
            heard(b"{\"half\":", false),
            Err(LineError::Silent(_))
        ));
        let endless = vec![b'x'; LINE_MAX + 1];
        assert!(matches!(heard(&endless, true), Err(LineError::TooLong)));
    }

    #[test]
    fn a_silent_peer_is_not_waited_for_once_everything_is_to_end() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let flag = Arc::new(AtomicBool::new(true));
        let lines = Lines::connect(&socket).unwrap();
        let mut lines = lines.unless(&Stop::from(&flag));
        let (mut peer, _) = listener.accept().unwrap();
        assert!(matches!(
            lines.receive::<Value>(LONG),
            Err(LineError::Stopped)
        ));
        // Lines of a slow peer are received in the meantime.
        flag.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(2 * POLL_INTERVAL);
                peer.write_all(b"1\n").unwrap();
            });
            assert_eq!(lines.receive::<u8>(LONG).unwrap(), 1);
        });
    }

    #[test]
    fn lines_that_come_together_are_distinguished() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut lines = Lines::connect(&socket).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"1\n2\n\n").unwrap();
        assert_eq!(lines.receive::<u8>(LONG).unwrap(), 1);
        assert_eq!(lines.receive::<u8>(LONG).unwrap(), 2);
        assert!(matches!(
            lines.receive::<Value>(LONG),
            Err(LineError::Garbage { .. })
        ));
        // JSON of another type.
        peer.write_all(b"\"two\"\n").unwrap();
        let error = lines.receive::<u8>(LONG).unwrap_err().to_string();
        assert!(
            error.contains("unknown format") && error.contains("expected u8"),
            "{error}"
        );
        drop(peer);
        assert!(matches!(
            lines.receive::<Value>(LONG),
            Err(LineError::Closed)
        ));
        drop(listener);
        assert!(matches!(
            Lines::connect(&socket),
            Err(LineError::Connect(_))
        ));
    }
}
