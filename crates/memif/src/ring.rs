// SPDX-License-Identifier: Apache-2.0
//! Rings in shared memory.
//!
//! A ring consists of two cache lines with its indices and flags, followed by its descriptors:
//!
//! | offset | field |
//! |---|---|
//! | 0 | cookie, 32 bits: 0x3E31F20 |
//! | 4 | flags, 16 bits: bit 0 masks interrupts |
//! | 6 | head, 16 bits: the client's index |
//! | 64 | tail, 16 bits: the server's index |
//! | 128 | descriptors of 16 octets |
//!
//! A descriptor has flags (16 bits; bit 0: the frame continues in the next descriptor), region (16 bits), length (32 bits),
//! offset in the region (32 bits) and metadata (32 bits).
//!
//! Indices are free-running counters (modulo 2¹⁶). In a ring from client to server, the client fills descriptors and moves
//! the head past them; the server consumes them and moves the tail. In a ring from server to client, the client moves the
//! head past empty buffers; the server fills them and moves the tail.
//!
//! The peer may write anything anywhere in the memory at any time. Therefore both ends keep their own indices in private
//! memory and only write the shared copies, read each value from the peer once, and check it before use.

mod descriptor;
mod layout;
mod memory;
mod receiver;
mod sender;

pub use layout::{Layout, RingSizes};
pub use receiver::{Frame, Pieces, Received, Receiver};
pub use sender::{PutResult, Sender};

/// Maximum length of a frame, octets. Longer frames are bad.
pub const MAX_FRAME: usize = LONGEST as usize;
/// Maximum length of a frame in the type of a descriptor, octets.
const LONGEST: u32 = 65_535;
/// Maximum number of descriptors per frame. Longer chains are bad.
pub const MAX_PIECES: usize = 64;

/// The cookie at the start of a ring.
const COOKIE: u32 = 0x03E3_1F20;
/// Octets before the descriptors.
const HEADER: u64 = 128;
/// 16-bit words before the descriptors.
const HEADER_WORDS: usize = 64;
/// Octets of a descriptor.
const DESCRIPTOR: u64 = 16;

/// Returns the octets of a ring of 2^`log2_size` descriptors.
pub(crate) const fn ring_octets(log2_size: u8) -> u64 {
    (DESCRIPTOR << log2_size).saturating_add(HEADER)
}

/// Reason why a location has no valid ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The region does not exist, or the ring is not within it or not aligned.
    #[error("ring: not within its region, or not aligned to 8 octets")]
    Location,
    /// The ring carries frames in the other direction.
    #[error("ring: carries frames in the other direction")]
    Direction,
    /// The ring does not begin with the cookie of the protocol.
    #[error("ring: cookie is {0:#x} (expected {COOKIE:#x})")]
    Cookie(u32),
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
