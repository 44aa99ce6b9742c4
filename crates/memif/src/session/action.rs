// SPDX-License-Identifier: Apache-2.0
//! Actions that a session requests of its caller, and reasons for its end.

use crate::message::{MAX_LOG2_RING_SIZE, Message, MessageError, Name, Reason, RingLocation};
use crate::ring::{RingSizes, ring_octets};

/// An action that a caller carries out for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<F> {
    /// Send a message with these file descriptors.
    Send(Message, Vec<F>),
    /// Server: map a region of the client's memory.
    MapRegion {
        /// The region's number: consecutive from 0.
        index: u16,
        /// Octets, at least 1.
        size: u64,
        /// The file.
        file: F,
    },
    /// Server: record a ring. It lies within a region that was mapped before.
    AddRing {
        /// The ring.
        place: RingLocation,
        /// The eventfd of the ring's interrupts.
        event: F,
    },
    /// Client: allocate memory with these rings, and pass it to [`Client::offer`](super::Client::offer) before the next
    /// message is handled.
    Allocate {
        /// Rings from client to server.
        c2s_rings: u16,
        /// Rings from server to client.
        s2c_rings: u16,
        /// The sizes of the rings.
        sizes: RingSizes,
    },
    /// Negotiation is complete: start the rings.
    Connect {
        /// The name of the peer's interface.
        peer_interface: Name,
    },
    /// The peer ended the connection.
    Disconnect(Reason),
}

/// The actions that a session requests of its caller, in order.
pub type Actions<F> = Vec<Action<F>>;

/// Limits that a server grants to one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of regions, at least 1. Default: 8.
    pub regions: u16,
    /// Octets of all regions. Default: 256 MiB.
    pub octets: u64,
    /// Number of rings from client to server, at least 1. Default: 1.
    pub c2s_rings: u16,
    /// Number of rings from server to client, at least 1. Default: 1.
    pub s2c_rings: u16,
    /// Binary logarithm of a ring's size, at most 14. Default: 14.
    pub log2_ring_size: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            regions: 8,
            octets: 256 << 20,
            c2s_rings: 1,
            s2c_rings: 1,
            log2_ring_size: MAX_LOG2_RING_SIZE,
        }
    }
}

/// Reason for the end of a session. The text is also sent to the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The message cannot be handled.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The message is out of order.
    #[error("{message}: out of order (expected {expected})")]
    OutOfOrder {
        /// The message.
        message: &'static str,
        /// The message that the session waits for.
        expected: &'static str,
    },
    /// The session is over.
    #[error("{0}: the session is over")]
    Over(&'static str),
    /// The peers use different versions.
    #[error("version {major}.{minor}: not supported (use version 2.0)")]
    Version {
        /// Upper octet.
        major: u8,
        /// Lower octet.
        minor: u8,
    },
    /// The interface's mode is not Ethernet.
    #[error("mode {0}: not supported (use mode 0, Ethernet)")]
    Mode(u8),
    /// The socket has no interface with this number.
    #[error("interface {0}: no such interface")]
    UnknownInterface(u32),
    /// The interface already has a client.
    #[error("interface {0}: already connected")]
    AlreadyConnected(u32),
    /// The client's secret is wrong.
    #[error("interface {0}: wrong secret")]
    WrongSecret(u32),
    /// An index is out of order: regions and rings are numbered from 0.
    #[error("{message}: index {found} is out of order (expected {expected})")]
    Index {
        /// The message.
        message: &'static str,
        /// The next index.
        expected: u16,
        /// The index in the message.
        found: u16,
    },
    /// The client adds more than the server grants.
    #[error("{message}: too many {what} (at most {limit})")]
    TooMany {
        /// The message.
        message: &'static str,
        /// Regions or rings.
        what: &'static str,
        /// The server's limit.
        limit: u16,
    },
    /// The regions exceed the server's limit.
    #[error("ADD_REGION: too much memory (at most {0} octets in all regions)")]
    TooMuchMemory(u64),
    /// The ring exceeds the server's limit.
    #[error("ADD_RING: ring size 2^{found} is too large (at most 2^{limit})")]
    RingSize {
        /// Logarithm of the ring's size.
        found: u8,
        /// Logarithm of the server's limit.
        limit: u8,
    },
    /// The ring is not within a region.
    #[error("ADD_RING: the ring is not within region {0}")]
    RingLocation(u16),
    /// Private headers are not supported: they change the location of descriptors.
    #[error("ADD_RING: private header of {0} octets is not supported (use 0)")]
    PrivateHeader(u16),
    /// The client connects without a ring.
    #[error("CONNECT: no ring was added")]
    NoRing,
    /// The client's own memory does not match what was negotiated.
    #[error("memory of this client: {0}")]
    Offer(&'static str),
    /// The caller could not carry out an action.
    #[error("{0}")]
    Failed(String),
}

impl SessionError {
    /// Returns the message that reports the error to the peer.
    #[must_use]
    pub fn message(&self) -> Message {
        Message::Disconnect {
            code: self.code(),
            reason: Reason::truncated(&self.to_string()),
        }
    }

    /// Returns the number of this kind of error. The protocol gives the numbers no meaning, except for 0 (no error).
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            Self::Message(_) => 1,
            Self::OutOfOrder { .. } | Self::Over(_) => 2,
            Self::Version { .. } => 3,
            Self::Mode(_) => 4,
            Self::UnknownInterface(_) => 5,
            Self::AlreadyConnected(_) => 6,
            Self::WrongSecret(_) => 7,
            Self::Index { .. } | Self::TooMany { .. } | Self::TooMuchMemory(_) => 8,
            Self::RingSize { .. }
            | Self::RingLocation(_)
            | Self::PrivateHeader(_)
            | Self::NoRing => 9,
            Self::Offer(_) | Self::Failed(_) => 10,
        }
    }

    pub(super) fn version(version: u16) -> Self {
        let [major, minor] = version.to_be_bytes();
        Self::Version { major, minor }
    }
}

/// Returns true if a ring lies within a region of `size` octets.
pub(super) fn is_within(place: &RingLocation, size: u64) -> bool {
    u64::from(place.offset)
        .checked_add(ring_octets(place.log2_size))
        .is_some_and(|end| end <= size)
}
