// SPDX-License-Identifier: Apache-2.0
//! Messages of a stream, and messages as text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use quietwire_base::crc32c;

use super::{CONTENTS_MAX, CRC, HEADER, Message, WireError};

/// Messages of one direction of a stream.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    octets: Vec<u8>,
    /// Sequence of the next message.
    next: u64,
}

impl Reader {
    /// Adds octets of the stream.
    pub(crate) fn push(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Returns true if there are octets of a message that is not complete.
    pub(crate) const fn has_rest(&self) -> bool {
        !self.octets.is_empty()
    }

    /// Returns the number of messages read.
    pub(crate) const fn count(&self) -> u64 {
        self.next
    }

    /// Returns the next message; `None` if it is not complete.
    ///
    /// # Errors
    /// [`WireError`]: nothing can be read any more.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, WireError> {
        let Some(header) = self.octets.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [a, b, c, d, e, f, g, h, sequence @ ..] = *header;
        let length = u32::from_be_bytes([a, b, c, d]);
        let (kind, sequence) = (
            u32::from_be_bytes([e, f, g, h]),
            u64::from_be_bytes(sequence),
        );
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > CONTENTS_MAX {
            return Err(WireError::Length);
        }
        let end = HEADER.saturating_add(length);
        let Some((message, rest)) = self.octets.split_at_checked(end) else {
            return Ok(None);
        };
        let Some(crc) = rest.first_chunk::<CRC>() else {
            return Ok(None);
        };
        if crc32c(message).to_be_bytes() != *crc {
            return Err(WireError::Checksum);
        }
        if sequence != self.next {
            return Err(WireError::Sequence {
                expected: self.next,
                received: sequence,
            });
        }
        let contents = message.get(HEADER..).unwrap_or_default();
        let read = Message::read(kind, contents)?;
        // The first message of a side, and only that, is a hello.
        if (read == Message::Hello) != (sequence == 0) {
            return Err(WireError::Version);
        }
        self.next = self.next.saturating_add(1);
        self.octets.drain(..end.saturating_add(CRC));
        Ok(Some(read))
    }
}

/// Returns messages as text: a stream of a hello and the messages, as base64.
pub(crate) fn text_of(messages: &[Message]) -> String {
    let mut octets = Vec::new();
    Message::Hello.put(0, &mut octets);
    for (sequence, message) in (1..).zip(messages) {
        message.put(sequence, &mut octets);
    }
    BASE64.encode(octets)
}

/// Reads messages from text.
///
/// # Errors
/// [`WireError`]: of another version, or no messages.
pub(crate) fn messages_of(text: &str) -> Result<Vec<Message>, WireError> {
    let octets = BASE64.decode(text).map_err(|_| WireError::Contents)?;
    let (mut reader, mut messages) = (Reader::default(), Vec::new());
    reader.push(&octets);
    while let Some(message) = reader.next()? {
        messages.extend((message != Message::Hello).then_some(message));
    }
    if reader.count() == 0 || reader.has_rest() {
        return Err(WireError::Contents);
    }
    Ok(messages)
}
