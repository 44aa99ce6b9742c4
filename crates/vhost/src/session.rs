// SPDX-License-Identifier: Apache-2.0
//! The vhost-user connection as state machines: messages in, actions out. No socket, no clock, no memory.
//!
//! `F` is the caller's type of a file descriptor. A caller carries out actions in order. Some of them are marked 'answer
//! with': the session waits for that method, which the caller must call before it passes the next message.

pub mod backend;
pub mod frontend;
#[cfg(test)]
mod tests;

use crate::message::{MessageError, request_name};

/// Maximum number of queue pairs: the protocol supports 256 rings.
pub const QUEUE_PAIRS_MAX: u16 = 128;
/// Maximum number of memory regions of a back end. A region costs a mapping for as long as it is in the table.
pub const MEMORY_SLOTS_MAX: u16 = 32;

/// Reason for the end of a session or the refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The message's format is wrong.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The request is not known.
    #[error("vhost-user request {0}: unknown")]
    Unknown(u32),
    /// The request is part of a feature that is not negotiated.
    #[error("vhost-user request {}: {feature} is not negotiated", request_name(*request))]
    NotNegotiated {
        /// Number of the request.
        request: u32,
        /// Name of the feature.
        feature: &'static str,
    },
    /// The front end uses features that were not offered.
    #[error("vhost-user features: {0:#x} were not offered")]
    NotOffered(u64),
    /// Features that this side requires are missing.
    #[error("vhost-user features: {0:#x} are missing (required)")]
    Missing(u64),
    /// The features change while rings run.
    #[error("vhost-user features: {0:#x} change while rings are running")]
    FeaturesInUse(u64),
    /// The device has no such ring.
    #[error("vhost-user ring {index}: the device has {rings} rings only")]
    NoSuchRing {
        /// Index of the ring.
        index: u8,
        /// Rings of the device.
        rings: u16,
    },
    /// The ring is running, and the request would change what must not change then.
    #[error("vhost-user request {}: ring {index} is running", request_name(*request))]
    RingRunning {
        /// Number of the request.
        request: u32,
        /// Index of the ring.
        index: u8,
    },
    /// The ring cannot start.
    #[error("vhost-user ring {index}: {reason}")]
    BadRing {
        /// Index of the ring.
        index: u8,
        /// The reason.
        reason: &'static str,
    },
    /// A field is out of range for this device.
    #[error("vhost-user request {}: {field} is out of range", request_name(*request))]
    Value {
        /// Number of the request.
        request: u32,
        /// The field.
        field: &'static str,
    },
    /// All slots for memory regions are in use.
    #[error("vhost-user memory: all {0} slots are in use")]
    MemorySlots(u16),
    /// The region shares guest addresses with another one.
    #[error("vhost-user memory: region at guest address {0:#x} overlaps another one")]
    Overlap(u64),
    /// The region to be removed is not in the table.
    #[error("vhost-user memory: no such region at guest address {0:#x}")]
    NoSuchRegion(u64),
    /// Logging starts without a log.
    #[error("vhost-user log: logging starts before SET_LOG_BASE")]
    LogMissing,
    /// The caller could not carry out a request of the front end.
    #[error("vhost-user request {}: failed", request_name(*.0))]
    Failed(u32),
    /// The number of file descriptors does not match the request.
    #[error("vhost-user request {}: wrong number of file descriptors ({count})", request_name(*request))]
    Descriptors {
        /// Number of the request.
        request: u32,
        /// File descriptors that arrived.
        count: usize,
    },
    /// The back end refused a request.
    #[error("vhost-user request {}: the back end refused it", request_name(*.0))]
    Refused(u32),
    /// A reply arrived that the session does not wait for.
    #[error("vhost-user reply to {}: unexpected", request_name(*.0))]
    UnexpectedReply(u32),
    /// The session waits for an answer of the caller, or does not wait for this one.
    #[error("vhost-user session: call out of order")]
    OutOfOrder,
    /// The caller's configuration is not possible.
    #[error("vhost-user front end: {0}")]
    Config(&'static str),
    /// The session has ended.
    #[error("vhost-user session: has ended")]
    Ended,
}
