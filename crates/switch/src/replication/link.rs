// SPDX-License-Identifier: Apache-2.0
//! One stream to a peer, without blocking: messages that wait to be sent, messages that have arrived, and deadlines.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use super::wire::{Message, Reader, WireError};

/// Timeout for a peer that sends nothing, or reads nothing of what waits.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum octets that wait to be sent.
pub(super) const QUEUE_MAX: usize = 16 << 20;
/// Octets that are read at once, and those of a turn.
const CHUNK: usize = 16 * 1024;
const OCTETS_A_TURN: usize = 1 << 20;

/// Reason for ending a stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The peer has sent something else than the next message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The stream has failed.
    #[error("the connection has failed: {0}")]
    Io(#[from] std::io::Error),
    /// The peer has closed the stream.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer has sent nothing for too long.
    #[error("the peer has sent nothing for {} s", TIMEOUT.as_secs())]
    Silent,
    /// The peer reads too slowly.
    #[error("the peer does not read its messages in time")]
    Slow,
}

/// A stream to a peer.
#[derive(Debug)]
pub(super) struct Link<S> {
    stream: S,
    reader: Reader,
    /// Octets that wait, of which `sent` have been sent.
    queue: Vec<u8>,
    sent: usize,
    /// Sequence of the next message to send.
    next: u64,
    /// Time of the last message received, of the last progress of the queue, and of the last message queued.
    heard: Instant,
    progressed: Instant,
    spoke: Instant,
}

impl<S: Read + Write> Link<S> {
    /// Begins with a stream that does not block, by a hello.
    pub(super) fn new(stream: S, now: Instant) -> Self {
        let mut link = Self {
            stream,
            reader: Reader::default(),
            queue: Vec::new(),
            sent: 0,
            next: 0,
            heard: now,
            progressed: now,
            spoke: now,
        };
        link.put(&Message::Hello, now);
        link
    }

    /// Returns the number of octets that wait.
    pub(super) const fn queued(&self) -> usize {
        self.queue.len().saturating_sub(self.sent)
    }

    /// Returns the sequence of the last message that was queued.
    pub(super) const fn last(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// Returns the number of messages received.
    pub(super) const fn received(&self) -> u64 {
        self.reader.count()
    }

    /// Returns the time since the last message was queued.
    pub(super) fn quiet_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.spoke)
    }

    /// Queues a message.
    pub(super) fn put(&mut self, message: &Message, now: Instant) {
        if self.queued() == 0 {
            self.progressed = now;
        }
        message.put(self.next, &mut self.queue);
        self.next = self.next.saturating_add(1);
        self.spoke = now;
    }

    /// Sends what waits, as far as the peer reads it.
    ///
    /// # Errors
    /// [`LinkError`]: the stream has ended.
    pub(super) fn flush(&mut self, now: Instant) -> Result<(), LinkError> {
        while let Some(rest) = self.queue.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(count) => {
                    self.sent = self.sent.saturating_add(count);
                    self.progressed = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.queued() == 0 {
            self.queue.clear();
            self.sent = 0;
        } else if self.sent > QUEUE_MAX / 4 {
            self.queue.drain(..self.sent);
            self.sent = 0;
        }
        let is_stalled = now.saturating_duration_since(self.progressed) >= TIMEOUT;
        if self.queued() > QUEUE_MAX || self.queued() > 0 && is_stalled {
            return Err(LinkError::Slow);
        }
        Ok(())
    }

    /// Returns messages that have arrived, at most `count`. Others wait for the next call.
    ///
    /// # Errors
    /// [`LinkError`]: the stream has ended. Messages before are lost.
    pub(super) fn receive(
        &mut self,
        count: usize,
        now: Instant,
    ) -> Result<Vec<Message>, LinkError> {
        let mut messages = Vec::new();
        let mut left = OCTETS_A_TURN;
        loop {
            while messages.len() < count {
                match self.reader.next()? {
                    Some(message) => {
                        self.heard = now;
                        messages.push(message);
                    }
                    None => break,
                }
            }
            if messages.len() >= count || left < CHUNK {
                return Ok(messages);
            }
            let mut chunk = [0; CHUNK];
            match self.stream.read(&mut chunk) {
                Ok(0) if messages.is_empty() => return Err(LinkError::Closed),
                // The messages count, and the next call reports the end.
                Ok(0) => return Ok(messages),
                Ok(length) => {
                    left = left.saturating_sub(CHUNK);
                    self.reader.push(chunk.get(..length).unwrap_or_default());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    left = left.saturating_sub(CHUNK);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if now.saturating_duration_since(self.heard) >= TIMEOUT {
            return Err(LinkError::Silent);
        }
        Ok(messages)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Returns both ends of a stream that does not block.
    pub(crate) fn pair() -> (UnixStream, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        other.set_nonblocking(true).unwrap();
        (one, other)
    }

    #[test]
    fn messages_arrive_in_order_and_wait_for_their_turn() {
        let (one, other) = pair();
        let now = Instant::now();
        let (mut one, mut other) = (Link::new(one, now), Link::new(other, now));
        for number in 0..10 {
            one.put(&Message::Acknowledgement(number), now);
        }
        assert_eq!(one.last(), 10);
        one.flush(now).unwrap();
        assert_eq!(one.queued(), 0);
        let first = other.receive(4, now).unwrap();
        assert_eq!((first.len(), &first[0]), (4, &Message::Hello));
        let rest = other.receive(100, now).unwrap();
        assert_eq!(rest.last(), Some(&Message::Acknowledgement(9)));
        assert_eq!(other.received(), 11);
        assert!(other.receive(100, now).unwrap().is_empty());
    }

    #[test]
    fn a_silent_slow_or_foreign_peer_loses_its_stream_only() {
        let now = Instant::now();
        let late = now + TIMEOUT;
        let (one, other) = pair();
        let mut link = Link::new(one, now);
        link.flush(now).unwrap();
        assert!(link.receive(1, late - Duration::from_millis(1)).is_ok());
        assert!(matches!(link.receive(1, late), Err(LinkError::Silent)));
        // It reads nothing: the kernel's buffer is full after a while.
        let changes = Message::Mappings {
            nat: "n".repeat(200),
            changes: Vec::new(),
        };
        let mut count = 0;
        while link.queued() == 0 {
            link.put(&changes, now);
            link.flush(now).unwrap();
            count += 1;
            assert!(count < 1_000_000, "the buffer of the kernel never fills");
        }
        assert!(matches!(link.flush(late), Err(LinkError::Slow)));
        drop(other);
        assert!(link.flush(now).is_err());
        let (one, mut other) = pair();
        let mut link = Link::new(one, now);
        other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let error = link.receive(1, now).unwrap_err().to_string();
        assert!(error.contains("longer than"), "{error}");
        let (one, other) = pair();
        let mut link = Link::new(one, now);
        drop(other);
        assert!(matches!(
            link.receive(1, now),
            Err(LinkError::Closed | LinkError::Io(_))
        ));
    }

    #[test]
    fn a_queue_beyond_its_maximum_ends_the_stream() {
        let now = Instant::now();
        let (one, _other) = pair();
        let mut link = Link::new(one, now);
        let changes = Message::Mappings {
            nat: "n".repeat(200),
            changes: Vec::new(),
        };
        while link.queued() <= QUEUE_MAX + (1 << 20) {
            link.put(&changes, now);
        }
        assert!(matches!(link.flush(now), Err(LinkError::Slow)));
    }
}
