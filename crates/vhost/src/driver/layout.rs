// SPDX-License-Identifier: Apache-2.0
//! Layout of the memory that a driver shares with its device: the rings of all queues and the buffers of their slots.

use std::sync::Arc;

use quietwire_memory::Mapping;

use crate::ring::header::HEADER_LEN;
use crate::ring::layout::{RING_SIZE_MAX, packed, split};

/// Alignment of data that only one side writes: two cache lines, since processors load lines in pairs.
const LINES: u64 = 128;
/// Alignment of the rings of a queue.
const PAGE: u64 = 4096;
/// Alignment of a frame's data within a buffer.
const DATA_ALIGN: u64 = 64;
/// Octets before the header of a frame in its slot, so that the data after the header is aligned.
const BEFORE_HEADER: u64 = DATA_ALIGN - HEADER_LEN as u64;
/// Address of the first octet for the device. It is not an address of this process, which would help a hostile device; it is
/// not 0, which some back ends treat as a missing region; and it is low, because a log of written pages begins at address 0.
const BASE: u64 = 1 << 32;

/// Largest number of queue pairs (virtio 1.2, section 5.1.5).
pub const QUEUE_PAIRS_MAX: u16 = 0x8000;
/// Maximum number of data octets of a buffer: a frame that is segmented later, with its headers.
pub const BUFFER_SIZE_MAX: u32 = 128 * 1024;

/// Reason why a layout is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The number of queue pairs is out of range.
    #[error("queue pairs: {0} is out of range (1 to {QUEUE_PAIRS_MAX})")]
    QueuePairs(u16),
    /// The number of entries of a ring is not a power of two or out of range.
    #[error("ring size: {0} is not a power of two from 2 to {RING_SIZE_MAX}")]
    RingSize(u16),
    /// The number of octets of a buffer is out of range.
    #[error("buffer size: {0} is out of range (64 to {BUFFER_SIZE_MAX} octets)")]
    BufferSize(u32),
    /// The memory is larger than the address space.
    #[error("queues: memory of {0} octets exceeds the address space")]
    Total(u64),
}

/// Offsets of one queue in the shared memory, in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    /// Number of entries.
    pub size: u16,
    /// Descriptor table, or the packed ring.
    pub descriptors: u64,
    /// Available ring, or the driver's event suppression structure.
    pub driver_area: u64,
    /// Used ring, or the device's event suppression structure.
    pub device_area: u64,
    /// Header in the first buffer. The data follows [`HEADER_LEN`] octets later.
    pub buffers: u64,
    /// Octets from one buffer to the next.
    pub stride: u64,
    /// Data octets of a buffer. Its descriptor has [`HEADER_LEN`] more.
    pub buffer_size: u32,
}

/// Memory layout of all queues: their rings first, then their buffers.
///
/// Queue `2 * n` receives and queue `2 * n + 1` sends, from the side of the driver (virtio 1.2, section 5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    queue_pairs: u16,
    ring_size_rx: u16,
    ring_size_tx: u16,
    buffer_size: u32,
    packed: bool,
}

impl Layout {
    /// Returns the layout of `queue_pairs` pairs of queues with `ring_size_rx` and `ring_size_tx` entries, each of which owns
    /// a buffer for `buffer_size` octets of a frame and its header. `packed` selects packed rings.
    ///
    /// # Errors
    /// [`LayoutError`]: a number is out of range.
    pub fn new(
        queue_pairs: u16,
        ring_size_rx: u16,
        ring_size_tx: u16,
        buffer_size: u32,
        packed: bool,
    ) -> Result<Self, LayoutError> {
        if !(1..=QUEUE_PAIRS_MAX).contains(&queue_pairs) {
            return Err(LayoutError::QueuePairs(queue_pairs));
        }
        for size in [ring_size_rx, ring_size_tx] {
            if !size.is_power_of_two() || !(2..=RING_SIZE_MAX).contains(&size) {
                return Err(LayoutError::RingSize(size));
            }
        }
        if !(64..=BUFFER_SIZE_MAX).contains(&buffer_size) {
            return Err(LayoutError::BufferSize(buffer_size));
        }
        let layout = Self {
            queue_pairs,
            ring_size_rx,
            ring_size_tx,
            buffer_size,
            packed,
        };
        // At most 2^15 pairs of 2^16 buffers of 2^17 octets and their rings: far from an overflow of 64 bits.
        let total = layout.total_octets();
        if isize::try_from(total).is_err() {
            return Err(LayoutError::Total(total));
        }
        Ok(layout)
    }

    /// Returns the size of the memory, octets.
    #[must_use]
    pub fn total(&self) -> usize {
        usize::try_from(self.total_octets()).unwrap_or(usize::MAX)
    }

    /// Returns the number of queues: two for each pair.
    #[must_use]
    pub const fn queues(&self) -> u32 {
        (self.queue_pairs as u32).saturating_mul(2)
    }

    /// Returns true if the rings are packed.
    #[must_use]
    pub const fn is_packed(&self) -> bool {
        self.packed
    }

    /// Returns the offsets of queue `index`; `None` if there is no such queue.
    #[must_use]
    pub fn queue(&self, index: u32) -> Option<QueueLayout> {
        if index >= self.queues() {
            return None;
        }
        let sends = index % 2 == 1;
        let pair = u64::from(index / 2);
        let size = self.ring_size(sends);
        // The transmit queue of a pair follows its receive queue.
        let (rings_before, slots_before) = if sends {
            (self.rings_len(self.ring_size_rx), self.ring_size_rx)
        } else {
            (0, 0)
        };
        let rings = pair
            .saturating_mul(self.rings_len_of_pair())
            .saturating_add(rings_before);
        let slots = pair
            .saturating_mul(self.slots_of_pair())
            .saturating_add(u64::from(slots_before));
        let buffers = u64::from(self.queue_pairs)
            .saturating_mul(self.rings_len_of_pair())
            .saturating_add(slots.saturating_mul(self.stride()));
        let (driver_area, device_area) = self.areas(size);
        Some(QueueLayout {
            size,
            descriptors: rings,
            driver_area: rings.saturating_add(driver_area),
            device_area: rings.saturating_add(device_area),
            buffers: buffers.saturating_add(BEFORE_HEADER),
            stride: self.stride(),
            buffer_size: self.buffer_size,
        })
    }

    /// Returns the address of an offset for the device: its guest address and its user address. The memory is one region,
    /// which begins at `address(0)`. The addresses are not addresses of a process: a device translates them with its memory
    /// table.
    #[must_use]
    pub const fn address(offset: u64) -> u64 {
        BASE.wrapping_add(offset)
    }

    /// Clears the rings of all queues, for a device that restarts. Receivers and senders of the previous connection are no
    /// longer valid; new ones write the rings' contents. Returns false if the mapping is shorter than the layout.
    #[must_use]
    pub fn write(&self, mapping: &Arc<Mapping>) -> bool {
        mapping.len() >= self.total() && (0..self.queues()).all(|index| self.clear(mapping, index))
    }

    /// Clears the rings of queue `index`. Returns false if they are not within the mapping.
    pub(crate) fn clear(&self, mapping: &Mapping, index: u32) -> bool {
        let Some(queue) = self.queue(index) else {
            return false;
        };
        let zeroes = [0_u8; 4096];
        let len = self.rings_len(queue.size);
        let end = queue.descriptors.saturating_add(len);
        let mut at = queue.descriptors;
        while at < end {
            let length = end.saturating_sub(at).min(zeroes.len() as u64);
            let Some(span) = mapping.span(at, usize::try_from(length).unwrap_or(0)) else {
                return false;
            };
            span.copy_from(&zeroes);
            at = at.saturating_add(length);
        }
        true
    }

    const fn ring_size(&self, sends: bool) -> u16 {
        if sends {
            self.ring_size_tx
        } else {
            self.ring_size_rx
        }
    }

    /// Returns the offsets of the driver's and the device's area from the descriptors.
    fn areas(&self, size: u16) -> (u64, u64) {
        if self.packed {
            let driver_area = (packed::ring_len(size) as u64).next_multiple_of(LINES);
            return (driver_area, driver_area.saturating_add(LINES));
        }
        let driver_area = (split::descriptors_len(size) as u64).next_multiple_of(LINES);
        let end = driver_area.saturating_add(split::avail_len(size) as u64);
        // The entries of the used ring begin on a cache line, and the four octets before them end the previous line: each
        // entry is then an aligned 64-bit word. The specification requires an alignment of four.
        let entries = end
            .saturating_add(split::USED_RING_OFFSET)
            .next_multiple_of(LINES)
            .saturating_add(LINES);
        (driver_area, entries.saturating_sub(split::USED_RING_OFFSET))
    }

    fn rings_len(&self, size: u16) -> u64 {
        let (_, device_area) = self.areas(size);
        let len = if self.packed {
            packed::EVENT_LEN
        } else {
            split::used_len(size)
        };
        device_area
            .saturating_add(len as u64)
            .next_multiple_of(PAGE)
    }

    fn rings_len_of_pair(&self) -> u64 {
        self.rings_len(self.ring_size_rx)
            .saturating_add(self.rings_len(self.ring_size_tx))
    }

    fn slots_of_pair(&self) -> u64 {
        u64::from(self.ring_size_rx).saturating_add(u64::from(self.ring_size_tx))
    }

    /// Returns an odd number of cache lines, so that buffers spread over all sets of the caches.
    fn stride(&self) -> u64 {
        let lines = u64::from(self.buffer_size)
            .div_ceil(DATA_ALIGN)
            .saturating_add(1);
        (lines | 1).saturating_mul(DATA_ALIGN)
    }

    fn total_octets(&self) -> u64 {
        let buffers = self.slots_of_pair().saturating_mul(self.stride());
        let pair = self.rings_len_of_pair().saturating_add(buffers);
        u64::from(self.queue_pairs).saturating_mul(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Receiver, Split};
    use crate::features::F_VERSION_1;
    use crate::ring::layout::DESCRIPTOR_ALIGN;
    use proptest::prelude::*;

    /// Returns the parts of a queue: offset, octets, alignment.
    fn parts(layout: &Layout, queue: &QueueLayout) -> Vec<(u64, u64, u64)> {
        let size = queue.size;
        let mut parts = if layout.is_packed() {
            vec![
                (queue.descriptors, packed::ring_len(size), DESCRIPTOR_ALIGN),
                (queue.driver_area, packed::EVENT_LEN, packed::EVENT_ALIGN),
                (queue.device_area, packed::EVENT_LEN, packed::EVENT_ALIGN),
            ]
        } else {
            vec![
                (
                    queue.descriptors,
                    split::descriptors_len(size),
                    DESCRIPTOR_ALIGN,
                ),
                (
                    queue.driver_area,
                    split::avail_len(size),
                    split::AVAIL_ALIGN,
                ),
                (queue.device_area, split::used_len(size), split::USED_ALIGN),
            ]
        };
        let buffer = HEADER_LEN + queue.buffer_size as usize;
        for slot in [0, 1, u64::from(size) - 1] {
            let start = queue.buffers + slot * queue.stride;
            assert_eq!((start + HEADER_LEN as u64) % DATA_ALIGN, 0);
            parts.push((start, buffer, 4));
        }
        let mut parts: Vec<_> = parts
            .into_iter()
            .map(|(start, len, align)| (start, len as u64, align))
            .collect();
        parts.dedup();
        parts
    }

    proptest! {
        #[test]
        fn parts_are_aligned_within_the_memory_and_do_not_overlap(
            pairs in 1_u16..5,
            rx in 1_u32..12,
            tx in 1_u32..12,
            buffer_size in 64_u32..10_000,
            packed in any::<bool>(),
        ) {
            let layout = Layout::new(pairs, 1 << rx, 1 << tx, buffer_size, packed).unwrap();
            prop_assert_eq!(layout.queues(), u32::from(pairs) * 2);
            prop_assert!(layout.queue(layout.queues()).is_none());
            let mut all = Vec::new();
            for index in 0..layout.queues() {
                let queue = layout.queue(index).unwrap();
                prop_assert_eq!(queue.size, if index % 2 == 0 { 1 << rx } else { 1 << tx });
                all.extend(parts(&layout, &queue));
            }
            all.sort_unstable();
            for (start, len, align) in &all {
                prop_assert_eq!(start % align, 0);
                prop_assert!(start + len <= layout.total() as u64);
            }
            for pair in all.windows(2) {
                let (before, behind) = (pair[0], pair[1]);
                prop_assert!(before == behind || before.0 + before.1 <= behind.0);
            }
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let new = |pairs, rx, tx, size| Layout::new(pairs, rx, tx, size, false);
        assert_eq!(new(0, 2, 2, 64), Err(LayoutError::QueuePairs(0)));
        assert_eq!(new(1, 3, 2, 64), Err(LayoutError::RingSize(3)));
        assert_eq!(new(1, 2, 1, 64), Err(LayoutError::RingSize(1)));
        assert_eq!(new(1, 2, 2, 63), Err(LayoutError::BufferSize(63)));
        assert!(
            new(
                QUEUE_PAIRS_MAX,
                RING_SIZE_MAX,
                RING_SIZE_MAX,
                BUFFER_SIZE_MAX
            )
            .is_ok()
        );
    }

    #[test]
    fn rings_have_no_address_of_the_process() {
        let layout = Layout::new(1, 4, 4, 64, false).unwrap();
        // Two mappings at once, at different addresses.
        let [first, second] = [0, 1].map(|_| {
            let (mapping, _file) = Mapping::create("quietwire-test", layout.total()).unwrap();
            let mapping = Arc::new(mapping);
            let receiver = Receiver::<Split>::new(&mapping, &layout, 0, F_VERSION_1).unwrap();
            (mapping, receiver)
        });
        let read = |mapping: &Mapping| {
            let mut octets = vec![0; mapping.len()];
            mapping.span(0, octets.len()).unwrap().copy_to(&mut octets);
            octets
        };
        let octets = read(&first.0);
        assert!(octets == read(&second.0));
        let address = octets
            .first_chunk()
            .map(|octets| u64::from_le_bytes(*octets));
        let buffers = layout.queue(0).unwrap().buffers;
        assert_eq!(address, Some(Layout::address(buffers)));
    }

    #[test]
    fn rings_are_cleared_and_buffers_are_not() {
        let layout = Layout::new(1, 4, 4, 64, false).unwrap();
        let (mapping, _file) = Mapping::create("quietwire-test", layout.total()).unwrap();
        let mapping = Arc::new(mapping);
        let queue = layout.queue(1).unwrap();
        for at in [queue.descriptors, queue.device_area, queue.buffers] {
            mapping.span(at, 4).unwrap().copy_from(b"abcd");
        }
        assert!(layout.write(&mapping));
        for at in [queue.descriptors, queue.device_area] {
            assert_eq!(mapping.span(at, 4).unwrap().read_array(), Some([0; 4]));
        }
        let kept = mapping.span(queue.buffers, 4).unwrap().read_array();
        assert_eq!(kept, Some(*b"abcd"));
        let larger = Layout::new(1, 64, 64, 4096, false).unwrap();
        assert!(!larger.write(&mapping));
    }
}
