// SPDX-License-Identifier: Apache-2.0
//! Messages of the vhost-user protocol: octets in, checked values out.
//!
//! A message is a [`Header`] of 12 octets and a payload, in the machine's byte order (vhost-user protocol, section 'Message
//! Specification'). To receive a message, read the header, then [`Header::size`] octets, then parse both. File descriptors
//! are transferred outside the octets; the codec checks only their number.

mod backend;
mod fields;
mod frontend;
mod payload;
mod reply;
#[cfg(test)]
mod tests;

pub use backend::BackendRequest;
pub use frontend::FrontendRequest;
pub use payload::{
    ConfigWrite, InflightArea, IotlbEntry, IotlbRange, LogArea, MemoryTable, Permission, Region,
    RingAddresses, RingBase, RingEvent, RingSize,
};
pub use reply::Reply;

/// Largest payload of a message, in octets.
pub const PAYLOAD_MAX: usize = 4096;
/// Largest number of file descriptors of a message: one for each region of a memory table.
pub const DESCRIPTORS_MAX: usize = TABLE_REGIONS_MAX;
/// Largest number of regions of a memory table (section 'Multiple Memory regions description').
pub const TABLE_REGIONS_MAX: usize = 8;
/// Largest number of octets of configuration space in a message.
pub const CONFIG_MAX: usize = 256;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 0b11;
const FLAG_REPLY: u32 = 1 << 2;
const FLAG_NEED_REPLY: u32 = 1 << 3;

/// Numbers of the front end's requests (section 'Front-end message types').
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub mod code {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_LOG_FD: u32 = 7;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SEND_RARP: u32 = 19;
    pub const NET_SET_MTU: u32 = 20;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const IOTLB_MSG: u32 = 22;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
    pub const SET_STATUS: u32 = 39;
    pub const GET_STATUS: u32 = 40;
}

/// Numbers of the back end's requests (section 'Back-end message types').
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub mod backend_code {
    pub const IOTLB_MSG: u32 = 1;
    pub const CONFIG_CHANGE_MSG: u32 = 2;
    pub const VRING_HOST_NOTIFIER_MSG: u32 = 3;
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    request: u32,
    flags: u32,
    size: u16,
}

impl Header {
    /// Octets of a header.
    pub const LENGTH: usize = 12;

    /// Parses a header.
    ///
    /// # Errors
    /// [`MessageError`]: the version is not 1, a flag is unknown, or the payload has more than [`PAYLOAD_MAX`] octets.
    pub fn parse(octets: &[u8; Self::LENGTH]) -> Result<Self, MessageError> {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *octets;
        let request = u32::from_ne_bytes([a, b, c, d]);
        let flags = u32::from_ne_bytes([e, f, g, h]);
        let size = u32::from_ne_bytes([i, j, k, l]);
        if flags & VERSION_MASK != VERSION {
            return Err(MessageError::Version(flags & VERSION_MASK));
        }
        if flags & !(VERSION_MASK | FLAG_REPLY | FLAG_NEED_REPLY) != 0 {
            return Err(MessageError::Flags(flags));
        }
        match u16::try_from(size) {
            Ok(short) if usize::from(short) <= PAYLOAD_MAX => Ok(Self {
                request,
                flags,
                size: short,
            }),
            _ => Err(MessageError::PayloadSize { request, size }),
        }
    }

    /// Returns the request's number: of this message, or of the one that it replies to.
    #[must_use]
    pub fn request(self) -> u32 {
        self.request
    }

    /// Returns true if the sender asks for an acknowledgement.
    #[must_use]
    pub fn need_reply(self) -> bool {
        self.flags & FLAG_NEED_REPLY != 0
    }

    /// Returns true if the message is a reply.
    #[must_use]
    pub fn is_reply(self) -> bool {
        self.flags & FLAG_REPLY != 0
    }

    /// Returns the octets of the payload, at most [`PAYLOAD_MAX`].
    #[must_use]
    pub fn size(self) -> usize {
        usize::from(self.size)
    }
}

/// Violation of the message format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The version is not 1.
    #[error("vhost-user message: protocol version {0} is not supported (version 1 is)")]
    Version(u32),
    /// Reserved bits of the flags are set.
    #[error("vhost-user message: reserved bits are set in flags {0:#x}")]
    Flags(u32),
    /// The payload is too long.
    #[error(
        "vhost-user message {request}: payload of {size} octets is too long (at most {PAYLOAD_MAX})"
    )]
    PayloadSize {
        /// Number of the request.
        request: u32,
        /// Octets of the payload.
        size: u32,
    },
    /// A request has the reply flag, or a reply does not.
    #[error("vhost-user message {}: reply flag is {}", request_name(*request), if *is_reply { "set in a request" } else { "missing in a reply" })]
    Direction {
        /// Number of the request.
        request: u32,
        /// True if the flag is set.
        is_reply: bool,
    },
    /// The payload's length does not match the message.
    #[error("vhost-user message {}: wrong payload size of {size} octets", request_name(*request))]
    Length {
        /// Number of the request.
        request: u32,
        /// Octets of the payload.
        size: usize,
    },
    /// A field is out of range.
    #[error("vhost-user message {}: {field} is out of range", request_name(*request))]
    Value {
        /// Number of the request.
        request: u32,
        /// The field.
        field: &'static str,
    },
    /// The number of file descriptors does not match the message.
    #[error("vhost-user message {}: {count} file descriptors (expected: {expected})", request_name(*request))]
    Descriptors {
        /// Number of the request.
        request: u32,
        /// File descriptors that arrived with the message.
        count: usize,
        /// File descriptors that the message requires.
        expected: usize,
    },
}

/// Returns the protocol's name of a front-end request; the number if it is unknown.
#[must_use]
pub fn request_name(request: u32) -> std::borrow::Cow<'static, str> {
    let name = match request {
        code::GET_FEATURES => "GET_FEATURES",
        code::SET_FEATURES => "SET_FEATURES",
        code::SET_OWNER => "SET_OWNER",
        code::RESET_OWNER => "RESET_OWNER",
        code::SET_MEM_TABLE => "SET_MEM_TABLE",
        code::SET_LOG_BASE => "SET_LOG_BASE",
        code::SET_LOG_FD => "SET_LOG_FD",
        code::SET_VRING_NUM => "SET_VRING_NUM",
        code::SET_VRING_ADDR => "SET_VRING_ADDR",
        code::SET_VRING_BASE => "SET_VRING_BASE",
        code::GET_VRING_BASE => "GET_VRING_BASE",
        code::SET_VRING_KICK => "SET_VRING_KICK",
        code::SET_VRING_CALL => "SET_VRING_CALL",
        code::SET_VRING_ERR => "SET_VRING_ERR",
        code::GET_PROTOCOL_FEATURES => "GET_PROTOCOL_FEATURES",
        code::SET_PROTOCOL_FEATURES => "SET_PROTOCOL_FEATURES",
        code::GET_QUEUE_NUM => "GET_QUEUE_NUM",
        code::SET_VRING_ENABLE => "SET_VRING_ENABLE",
        code::SEND_RARP => "SEND_RARP",
        code::NET_SET_MTU => "NET_SET_MTU",
        code::SET_BACKEND_REQ_FD => "SET_BACKEND_REQ_FD",
        code::IOTLB_MSG => "IOTLB_MSG",
        code::GET_CONFIG => "GET_CONFIG",
        code::SET_CONFIG => "SET_CONFIG",
        code::GET_INFLIGHT_FD => "GET_INFLIGHT_FD",
        code::SET_INFLIGHT_FD => "SET_INFLIGHT_FD",
        code::RESET_DEVICE => "RESET_DEVICE",
        code::GET_MAX_MEM_SLOTS => "GET_MAX_MEM_SLOTS",
        code::ADD_MEM_REG => "ADD_MEM_REG",
        code::REM_MEM_REG => "REM_MEM_REG",
        code::SET_STATUS => "SET_STATUS",
        code::GET_STATUS => "GET_STATUS",
        _ => return request.to_string().into(),
    };
    name.into()
}

/// Returns true if the reply to a request has its own payload, which is never an acknowledgement.
pub(crate) fn has_reply(request: u32) -> bool {
    matches!(
        request,
        code::GET_FEATURES
            | code::SET_LOG_BASE
            | code::GET_VRING_BASE
            | code::GET_PROTOCOL_FEATURES
            | code::GET_QUEUE_NUM
            | code::GET_CONFIG
            | code::GET_INFLIGHT_FD
            | code::GET_MAX_MEM_SLOTS
            | code::GET_STATUS
    )
}

/// Checks the direction flag of a message.
fn check_direction(header: Header, is_reply: bool) -> Result<(), MessageError> {
    if header.is_reply() == is_reply {
        Ok(())
    } else {
        Err(MessageError::Direction {
            request: header.request,
            is_reply: header.is_reply(),
        })
    }
}

/// Checks the number of file descriptors of a message.
fn check_descriptors(request: u32, count: usize, expected: usize) -> Result<(), MessageError> {
    if count == expected {
        Ok(())
    } else {
        Err(MessageError::Descriptors {
            request,
            count,
            expected,
        })
    }
}
