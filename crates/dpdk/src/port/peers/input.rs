// SPDX-License-Identifier: Apache-2.0
//! Incoming messages of a vhost-user connection, which may arrive in parts.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use quietwire_vhost::message::{Header, MessageError};

use super::socket;

/// Parser of a message: header, payload, and number of its descriptors.
type Parse<T> = fn(Header, &[u8], usize) -> Result<T, MessageError>;

/// A received message.
pub(crate) struct Incoming<T> {
    pub(crate) header: Header,
    pub(crate) message: T,
    pub(crate) files: Vec<OwnedFd>,
}

/// Octets and descriptors of a message that is not complete.
#[derive(Default)]
pub(crate) struct Input {
    octets: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Input {
    /// Returns true if no part of a message has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Reads until a message is complete; `None` if the socket has no more octets. `peer` is the other end, for errors.
    ///
    /// # Errors
    /// A malformed message, the end of the connection, or the kernel's error.
    pub(crate) fn read<T>(
        &mut self,
        socket: impl AsFd,
        peer: &str,
        parse: Parse<T>,
    ) -> Result<Option<Incoming<T>>, String> {
        loop {
            let wanted = match self.octets.first_chunk() {
                None => Header::LENGTH,
                Some(octets) => {
                    let header = Header::parse(octets).map_err(|error| error.to_string())?;
                    let whole = Header::LENGTH.saturating_add(header.size());
                    if self.octets.len() == whole {
                        let payload = self.octets.get(Header::LENGTH..).unwrap_or(&[]);
                        let message = parse(header, payload, self.files.len())
                            .map_err(|error| error.to_string())?;
                        self.octets.clear();
                        return Ok(Some(Incoming {
                            header,
                            message,
                            files: std::mem::take(&mut self.files),
                        }));
                    }
                    whole
                }
            };
            let have = self.octets.len();
            self.octets.resize(wanted, 0);
            let place = self.octets.get_mut(have..).unwrap_or(&mut []);
            let received = socket::receive(&socket, place, &mut self.files);
            let more = received.as_ref().copied().unwrap_or(0);
            self.octets.truncate(have.saturating_add(more));
            match received {
                Ok(0) => return Err(format!("the {peer} ended the connection")),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}
