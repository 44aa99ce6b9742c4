// SPDX-License-Identifier: Apache-2.0
//! Interface of rings of either kind to receivers and senders.

use std::sync::Arc;

use quietwire_memory::Mapping;
use quietwire_memory::atomic::{Ordering, fence};

use super::layout::{Layout, QueueLayout};
use crate::features::{F_ACCESS_PLATFORM, F_IN_ORDER, F_RING_PACKED, F_VERSION_1};
use crate::ring::layout::DESCRIPTOR_WORDS;

/// Violation of the ring's rules by the device. The queue stops until its connection restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The index of the used ring exceeds the number of buffers that the device has.
    #[error("used ring: index is {ahead} entries ahead, but the device has only {outstanding}")]
    Index {
        /// Entries since the last one that was read.
        ahead: u16,
        /// Buffers that the device has.
        outstanding: u16,
    },
    /// The device returned a buffer that it did not have.
    #[error("used ring: the device returned buffer {0}, which it does not have")]
    Id(u32),
}

/// Reason why a queue cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The layout has no queue with this index and direction.
    #[error("queue {0}: not a queue of this direction in the layout")]
    Queue(u32),
    /// The layout or the negotiated features are for the other kind of ring.
    #[error("queue {0}: the kind of ring differs from the layout or the negotiated features")]
    Kind(u32),
    /// A feature was negotiated that the driver does not implement, or one that it requires was not.
    #[error(
        "queue {index}: features {features:#x} are not supported (VERSION_1 is required; ACCESS_PLATFORM and IN_ORDER are not supported)"
    )]
    Features {
        /// Index of the queue.
        index: u32,
        /// Negotiated features.
        features: u64,
    },
    /// The mapping is shorter than the layout.
    #[error("queue {0}: the shared memory is shorter than its layout")]
    Memory(u32),
}

/// Used buffer as reported by the device, unchecked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Identifier of the chain.
    pub id: u32,
    /// Octets that the device wrote.
    pub len: u32,
}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// Ring of either kind: [`super::Split`] or [`super::Packed`].
///
/// A chain is offered by one call of [`Self::describe`] for each of its slots, then one of [`Self::offer`]. The device sees
/// it after [`Self::publish`].
pub trait Queue: sealed::Sealed + Sized {
    /// True for packed rings.
    const PACKED: bool;

    /// Writes the initial contents of a ring that is all zero. `address` returns a slot's address for the device.
    #[doc(hidden)]
    fn new(
        mapping: &Arc<Mapping>,
        queue: &QueueLayout,
        event_index: bool,
        address: impl Fn(u16) -> u64,
    ) -> Option<Self>;

    /// Returns the maximum number of used entries that [`Self::next_used`] may find. Reads the device's memory again if
    /// fewer than `enough` are known.
    #[doc(hidden)]
    fn poll(&mut self, enough: u16) -> Result<u16, Fault>;

    /// Returns the next used entry, which remains the next one until [`Self::advance`].
    #[doc(hidden)]
    fn next_used(&self) -> Option<Used>;

    /// Steps over the next used entry, whose chain has `slots` slots.
    #[doc(hidden)]
    fn advance(&mut self, slots: u16);

    /// Asks the processor to load the used entry that is `skip` slots ahead, if it is the first of its line.
    #[doc(hidden)]
    fn prefetch_used(&self, skip: u16);

    /// Asks the processor to load the next `count` used entries, which [`Self::poll`] found. No effect if it only found their maximum
    /// number.
    #[doc(hidden)]
    fn prefetch_row(&self, count: u16);

    /// Describes the next slot of the chain that begins with slot `head`.
    #[doc(hidden)]
    fn describe(&mut self, head: u16, slot: u16, len: u32, flags: u16, next: u16);

    /// Ends the description of the chain that begins with slot `head`.
    #[doc(hidden)]
    fn offer(&mut self, head: u16);

    /// Offers a chain of one slot that is described the same way as before.
    #[doc(hidden)]
    fn offer_again(&mut self, slot: u16, len: u32, flags: u16);

    /// Returns the number of slots or chains that were offered since the last [`Self::publish`].
    #[doc(hidden)]
    fn unpublished(&self) -> u16;

    /// Returns the slot that was offered as number `at` since the last [`Self::publish`], provided that all chains have one
    /// slot.
    #[doc(hidden)]
    fn offered(&self, at: u16) -> u16;

    /// Makes all offered chains visible to the device. Returns false if there are none.
    #[doc(hidden)]
    fn make_visible(&mut self) -> bool;

    /// Returns the number of slots or chains, in the unit of [`Self::unpublished`], that were made visible after the last check whether the
    /// device wants a notification, and the number of those of a whole ring.
    #[doc(hidden)]
    fn unchecked(&self) -> (u16, u16);

    /// Returns true if the device's request, as visible now, covers one of those.
    #[doc(hidden)]
    fn wants_notification(&self) -> bool;

    /// Notes that the device's request is known for all of those.
    #[doc(hidden)]
    fn note_checked(&mut self);

    /// Makes all offered chains visible to the device. Returns true if the device is known to want a notification.
    ///
    /// A device that requests notifications at the same time can be missed: its request is read without a barrier after the chains are
    /// published, because a barrier waits until all writes to buffers have reached the cache. [`Self::settle`] closes this gap. After at
    /// most a whole ring, this call closes it.
    #[doc(hidden)]
    #[inline(always)]
    fn publish(&mut self) -> bool {
        if !self.make_visible() {
            return false;
        }
        let (unchecked, ring) = self.unchecked();
        if unchecked >= ring {
            return self.settle();
        }
        let is_wanted = self.wants_notification();
        if is_wanted {
            self.note_checked();
        }
        is_wanted
    }

    /// Checks once more whether the device wants a notification of what was published since the last check. No cost if that is known.
    #[doc(hidden)]
    #[inline(always)]
    fn settle(&mut self) -> bool {
        if self.unchecked().0 == 0 {
            return false;
        }
        // The device writes its request, executes a barrier, and reads what is available: one of the two sees what the other wrote.
        fence(Ordering::SeqCst);
        let is_wanted = self.wants_notification();
        self.note_checked();
        is_wanted
    }
}

/// Returns the index of the first 64-bit word of a slot's descriptor, the address.
#[inline(always)]
pub(super) fn address_at(slot: usize) -> usize {
    slot.wrapping_mul(DESCRIPTOR_WORDS)
}

/// Returns the index of the second 64-bit word of a slot's descriptor.
#[inline(always)]
pub(super) fn second_word_at(slot: usize) -> usize {
    address_at(slot).wrapping_add(1)
}

/// Checks the negotiated features, clears the ring and returns its layout: the common part of the constructors.
pub(super) fn prepare<Q: Queue>(
    mapping: &Mapping,
    layout: &Layout,
    index: u32,
    sends: bool,
    features: u64,
) -> Result<QueueLayout, SetupError> {
    let refused = F_ACCESS_PLATFORM | F_IN_ORDER;
    if features & F_VERSION_1 == 0 || features & refused != 0 {
        return Err(SetupError::Features { index, features });
    }
    if Q::PACKED != layout.is_packed() || Q::PACKED != (features & F_RING_PACKED != 0) {
        return Err(SetupError::Kind(index));
    }
    let queue = layout
        .queue(index)
        .filter(|_| (index % 2 == 1) == sends)
        .ok_or(SetupError::Queue(index))?;
    if mapping.len() < layout.total() || !layout.clear(mapping, index) {
        return Err(SetupError::Memory(index));
    }
    Ok(queue)
}
