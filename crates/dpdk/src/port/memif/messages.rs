// SPDX-License-Identifier: Apache-2.0
//! Messages of a memif connection. Their number is limited.

use std::io;
use std::os::fd::OwnedFd;

use quietwire_memif::message::{MESSAGE_LEN, Message};
use quietwire_memif::session::SessionError;

use crate::port::peers::socket;

/// Most messages of a peer per connection. A handshake has one per region and ring, and a few more.
const MESSAGES_MAX: u32 = 1024;
/// Most messages read from a peer at once.
pub(super) const MESSAGES_AT_ONCE: usize = 16;

/// Reads one message and its descriptors; `None` if there is none. `count` is the number of messages of the connection so far, and `peer`
/// the other end, for errors.
///
/// # Errors
/// A malformed message, too many messages, the end of the connection, or the kernel's error.
pub(super) fn read(
    socket: &OwnedFd,
    count: &mut u32,
    peer: &str,
) -> Result<Option<(Message, Vec<OwnedFd>)>, SessionError> {
    let (mut octets, mut files) = ([0; MESSAGE_LEN + 1], Vec::new());
    let length = match socket::receive(socket, &mut octets, &mut files) {
        Ok(0) => {
            let reason = format!("the {peer} ended the connection");
            return Err(SessionError::Failed(reason));
        }
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(SessionError::Failed(error.to_string())),
    };
    *count = count.saturating_add(1);
    if *count > MESSAGES_MAX {
        return Err(SessionError::Failed("too many messages".to_owned()));
    }
    let message = Message::parse(octets.get(..length).unwrap_or(&[]), files.len())?;
    Ok(Some((message, files)))
}
