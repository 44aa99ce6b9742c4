// SPDX-License-Identifier: Apache-2.0
//! Driver side of virtqueues: split (virtio 1.2, section 2.7) and packed (section 2.8).
//!
//! The driver owns the memory: rings, and one buffer per slot of a ring. The device, a vhost-user back end, maps it and can
//! write to all of it, so nothing that the driver reads is trusted: indices, identifiers, lengths and flags are read once
//! and checked against private memory. A queue whose device breaks the rules stops (see [`Fault`]) until the connection
//! restarts.
//!
//! Must not know mbufs, sockets or negotiation.
//!
//! A burst of frames from the device: [`Receiver::ready`], [`Receiver::next`] for each frame, [`Receiver::release`]. A burst
//! to the device: [`Sender::ready`], [`Sender::put`] for each frame, [`Sender::publish`].

mod buffers;
pub mod layout;
mod packed;
mod queue;
mod receiver;
mod sender;
mod slots;
mod split;

pub use layout::{Layout, LayoutError, QueueLayout};
pub use packed::Packed;
pub use queue::{Fault, Queue, SetupError, Used};
pub use receiver::{Frame, PIECES_MAX, Received, Receiver, Rest};
pub use sender::{PutResult, Sender};
pub use split::Split;

/// Maximum number of used buffers read from a ring at once.
const BURST: usize = 64;
/// Distance of the prefetched frame from the current one, frames.
const PREFETCH_AHEAD: usize = 8;
/// Octets of a frame that are prefetched; the hardware prefetcher loads the lines after them.
const PREFETCH_OCTETS: usize = 256;

#[cfg(test)]
mod tests;
