// SPDX-License-Identifier: Apache-2.0
//! Messages of the control channel.
//!
//! A message has 128 octets: a type of 16 bits, then packed fields in little-endian byte order, then padding. Some messages
//! carry a file descriptor.

use std::fmt;

/// Octets of a message.
pub const MESSAGE_LEN: usize = 128;
/// Version 2.0: the major version in the upper octet.
pub const VERSION: u16 = 0x0200;
/// The mode of interfaces that carry Ethernet frames.
pub const MODE_ETHERNET: u8 = 0;
/// The largest logarithm of a ring's size: 16,384 descriptors. Indices have 16 bits.
pub const MAX_LOG2_RING_SIZE: u8 = 14;
/// Alignment of a ring, octets.
pub const RING_ALIGNMENT: u32 = 8;

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;

/// ADD_RING: the ring carries frames from client to server.
const RING_C2S: u16 = 1;

/// A text of at most `N` octets, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>([u8; N]);

/// The name of a program or of an interface.
pub type Name = Text<32>;
/// Reason for the end of a connection.
pub type Reason = Text<96>;

impl<const N: usize> Text<N> {
    /// An empty text.
    pub const NONE: Self = Self([0; N]);

    /// Returns a text; `None` if it has more than `N` octets.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (text.len() <= N).then(|| Self::truncated(text))
    }

    /// Returns the first `N` octets of a text.
    #[must_use]
    pub fn truncated(text: &str) -> Self {
        let mut octets = [0; N];
        for (to, from) in octets.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        Self(octets)
    }

    /// Returns true if the text has no octets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.first().is_none_or(|octet| *octet == 0)
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::NONE
    }
}

/// Prints the octets before the first zero. Octets that are not printable ASCII characters are printed as `?`.
impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for octet in self.0.iter().take_while(|octet| **octet != 0) {
            let is_printable = octet.is_ascii_graphic() || *octet == b' ';
            f.write_char(if is_printable {
                char::from(*octet)
            } else {
                '?'
            })?;
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The secret that a client shows to a server: at most 24 octets, padded with zeros.
#[derive(Clone, Copy, Default)]
pub struct Secret([u8; Self::LEN]);

impl Secret {
    /// Maximum length of a secret, octets.
    pub const LEN: usize = 24;

    /// Returns a secret; `None` if it has more than 24 octets.
    #[must_use]
    pub fn new(octets: &[u8]) -> Option<Self> {
        let mut secret = [0; Self::LEN];
        secret.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(Self(secret))
    }
}

/// Compares in constant time.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let differences = self
            .0
            .iter()
            .zip(&other.0)
            .fold(0, |all, (one, two)| std::hint::black_box(all | (one ^ two)));
        differences == 0
    }
}

impl Eq for Secret {}

/// Does not print the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The direction in which a ring carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From client to server (S2M in older texts).
    ClientToServer,
    /// From server to client (M2S in older texts).
    ServerToClient,
}

/// The location of a ring in the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLocation {
    /// The direction of frames.
    pub direction: Direction,
    /// The queue's number within its direction.
    pub index: u16,
    /// The region that contains the ring.
    pub region: u16,
    /// Offset of the ring in the region, octets: a multiple of 8.
    pub offset: u32,
    /// Logarithm of the number of descriptors: at most 14.
    pub log2_size: u8,
}

/// A server's offer: the fields of HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The server program's name.
    pub name: Name,
    /// The lowest version that the server supports.
    pub min_version: u16,
    /// The highest version that the server supports.
    pub max_version: u16,
    /// The highest index of a region.
    pub max_region: u16,
    /// The highest index of a ring from server to client.
    pub max_s2c_ring: u16,
    /// The highest index of a ring from client to server.
    pub max_c2s_ring: u16,
    /// Highest binary logarithm of a ring's size.
    pub max_log2_ring_size: u8,
}

/// A client's request: the fields of INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// The version that the client uses.
    pub version: u16,
    /// The interface that the client requests: one socket may serve several.
    pub id: u32,
    /// The kind of frames that the interface carries: [`MODE_ETHERNET`].
    pub mode: u8,
    /// The secret of the interface.
    pub secret: Secret,
    /// The client program's name.
    pub name: Name,
}

/// A message of the control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Acknowledges the previous message.
    Ack,
    /// Server to client: the first message.
    Hello(Hello),
    /// Client to server: the request for an interface.
    Init(Init),
    /// Client to server: a region of memory, with its file.
    AddRegion {
        /// The region's number.
        index: u16,
        /// Octets, 1 to 2⁶³ - 1.
        size: u64,
    },
    /// Client to server: a ring, with the eventfd of its interrupts.
    AddRing {
        /// Location of the ring.
        place: RingLocation,
        /// Octets of a header between ring and descriptors that is private to the client.
        private_header_size: u16,
    },
    /// Client to server: the interface is ready.
    Connect {
        /// The client's interface.
        interface: Name,
    },
    /// Server to client: the interface is up.
    Connected {
        /// The server's interface.
        interface: Name,
    },
    /// Either direction: the connection ends.
    Disconnect {
        /// An error code for programs; 0 is no error.
        code: u32,
        /// A description for users.
        reason: Reason,
    },
}

/// Reason why octets are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A message has 128 octets.
    #[error("message: {0} octets (expected {MESSAGE_LEN})")]
    Length(usize),
    /// No message has this type.
    #[error("message: unknown type {0}")]
    Type(u16),
    /// The message carries too many or too few file descriptors.
    #[error("{message}: {found} file descriptors (expected {expected})")]
    Descriptors {
        /// The message.
        message: &'static str,
        /// Required number.
        expected: usize,
        /// Number that the message carries.
        found: usize,
    },
    /// A field has a value that no message may have.
    #[error("{message}: {field} is {value}, which is out of range")]
    Range {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// Reads fields from the front of a message.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// Returns the next octets; zeros after the end, which no message reaches.
    fn octets<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk::<N>() else {
            return [0; N];
        };
        self.0 = rest;
        *field
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.octets())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.octets())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.octets())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.octets())
    }

    fn text<const N: usize>(&mut self) -> Text<N> {
        Text(self.octets())
    }
}

/// A message that is being written.
struct Writer {
    octets: [u8; MESSAGE_LEN],
    len: usize,
}

impl Writer {
    fn new(kind: u16) -> Self {
        let octets = [0; MESSAGE_LEN];
        Self { octets, len: 0 }.put(kind.to_le_bytes())
    }

    fn put<const N: usize>(mut self, field: [u8; N]) -> Self {
        let end = self.len.saturating_add(N);
        if let Some(place) = self.octets.get_mut(self.len..end) {
            place.copy_from_slice(&field);
        }
        self.len = end;
        self
    }
}

impl Message {
    /// Parses a message from its octets and its number of file descriptors.
    ///
    /// # Errors
    /// [`MessageError`] for a wrong length, type or number of descriptors, and for values that no session accepts.
    pub fn parse(octets: &[u8], descriptors: usize) -> Result<Self, MessageError> {
        if octets.len() != MESSAGE_LEN {
            return Err(MessageError::Length(octets.len()));
        }
        let mut fields = Fields(octets);
        let message = match fields.u16() {
            ACK => Self::Ack,
            HELLO => Self::Hello(parse_hello(&mut fields)?),
            INIT => Self::Init(Init {
                version: fields.u16(),
                id: fields.u32(),
                mode: fields.u8(),
                secret: Secret(fields.octets()),
                name: fields.text(),
            }),
            ADD_REGION => parse_add_region(&mut fields)?,
            ADD_RING => parse_add_ring(&mut fields)?,
            CONNECT => Self::Connect {
                interface: fields.text(),
            },
            CONNECTED => Self::Connected {
                interface: fields.text(),
            },
            DISCONNECT => Self::Disconnect {
                code: fields.u32(),
                reason: fields.text(),
            },
            other => return Err(MessageError::Type(other)),
        };
        message.check_descriptors(descriptors)?;
        Ok(message)
    }

    /// Returns the octets of the message.
    #[must_use]
    pub fn encode(&self) -> [u8; MESSAGE_LEN] {
        let writer = match self {
            Self::Ack => Writer::new(ACK),
            Self::Hello(hello) => Writer::new(HELLO)
                .put(hello.name.0)
                .put(hello.min_version.to_le_bytes())
                .put(hello.max_version.to_le_bytes())
                .put(hello.max_region.to_le_bytes())
                .put(hello.max_s2c_ring.to_le_bytes())
                .put(hello.max_c2s_ring.to_le_bytes())
                .put([hello.max_log2_ring_size]),
            Self::Init(init) => Writer::new(INIT)
                .put(init.version.to_le_bytes())
                .put(init.id.to_le_bytes())
                .put([init.mode])
                .put(init.secret.0)
                .put(init.name.0),
            Self::AddRegion { index, size } => Writer::new(ADD_REGION)
                .put(index.to_le_bytes())
                .put(size.to_le_bytes()),
            Self::AddRing {
                place,
                private_header_size,
            } => {
                let flags = match place.direction {
                    Direction::ClientToServer => RING_C2S,
                    Direction::ServerToClient => 0,
                };
                Writer::new(ADD_RING)
                    .put(flags.to_le_bytes())
                    .put(place.index.to_le_bytes())
                    .put(place.region.to_le_bytes())
                    .put(place.offset.to_le_bytes())
                    .put([place.log2_size])
                    .put(private_header_size.to_le_bytes())
            }
            Self::Connect { interface } => Writer::new(CONNECT).put(interface.0),
            Self::Connected { interface } => Writer::new(CONNECTED).put(interface.0),
            Self::Disconnect { code, reason } => Writer::new(DISCONNECT)
                .put(code.to_le_bytes())
                .put(reason.0),
        };
        writer.octets
    }

    /// Returns the protocol's name of the message's type.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ACK",
            Self::Hello(_) => "HELLO",
            Self::Init(_) => "INIT",
            Self::AddRegion { .. } => "ADD_REGION",
            Self::AddRing { .. } => "ADD_RING",
            Self::Connect { .. } => "CONNECT",
            Self::Connected { .. } => "CONNECTED",
            Self::Disconnect { .. } => "DISCONNECT",
        }
    }

    /// Returns the number of file descriptors that the message carries.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        match self {
            Self::AddRegion { .. } | Self::AddRing { .. } => 1,
            _ => 0,
        }
    }

    pub(crate) fn check_descriptors(&self, found: usize) -> Result<(), MessageError> {
        let expected = self.descriptors();
        if found == expected {
            return Ok(());
        }
        Err(MessageError::Descriptors {
            message: self.name(),
            expected,
            found,
        })
    }
}

fn parse_hello(fields: &mut Fields<'_>) -> Result<Hello, MessageError> {
    let hello = Hello {
        name: fields.text(),
        min_version: fields.u16(),
        max_version: fields.u16(),
        max_region: fields.u16(),
        max_s2c_ring: fields.u16(),
        max_c2s_ring: fields.u16(),
        max_log2_ring_size: fields.u8(),
    };
    if hello.min_version > hello.max_version {
        return Err(MessageError::Range {
            message: "HELLO",
            field: "lowest version",
            value: hello.min_version.into(),
        });
    }
    Ok(hello)
}

fn parse_add_region(fields: &mut Fields<'_>) -> Result<Message, MessageError> {
    let (index, size) = (fields.u16(), fields.u64());
    if size == 0 || size > i64::MAX as u64 {
        return Err(MessageError::Range {
            message: "ADD_REGION",
            field: "the size",
            value: size,
        });
    }
    Ok(Message::AddRegion { index, size })
}

fn parse_add_ring(fields: &mut Fields<'_>) -> Result<Message, MessageError> {
    let flags = fields.u16();
    let place = RingLocation {
        direction: match flags & RING_C2S {
            0 => Direction::ServerToClient,
            _ => Direction::ClientToServer,
        },
        index: fields.u16(),
        region: fields.u16(),
        offset: fields.u32(),
        log2_size: fields.u8(),
    };
    let message = Message::AddRing {
        place,
        private_header_size: fields.u16(),
    };
    let range = |field, value| {
        Err(MessageError::Range {
            message: "ADD_RING",
            field,
            value,
        })
    };
    if flags & !RING_C2S != 0 {
        return range("flags field", flags.into());
    }
    if place.log2_size > MAX_LOG2_RING_SIZE {
        return range("logarithm of the ring size", place.log2_size.into());
    }
    if !place.offset.is_multiple_of(RING_ALIGNMENT) {
        return range("the offset", place.offset.into());
    }
    Ok(message)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
