// SPDX-License-Identifier: Apache-2.0
//! Buffers of a queue: one per slot, at fixed offsets.

use std::sync::Arc;

use quietwire_memory::atomic::AtomicU8;
use quietwire_memory::{Mapping, SharedSlice, Span};

use super::PREFETCH_OCTETS;
use super::layout::{Layout, QueueLayout};
use crate::ring::header::HEADER_LEN;

/// Copies of the values of [`Buffers`], which remain in registers while frames are written to memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferView<'queue> {
    octets: Span<'queue>,
    stride: usize,
    capacity: usize,
}

impl<'queue> BufferView<'queue> {
    /// Returns the octets of a buffer, header included.
    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline(always)]
    fn offset(&self, slot: u16) -> usize {
        usize::from(slot).wrapping_mul(self.stride)
    }

    /// Returns the header in a slot's buffer.
    #[inline(always)]
    pub(super) fn header(&self, slot: u16) -> Option<Span<'queue>> {
        self.octets.sub(self.offset(slot), HEADER_LEN)
    }

    /// Returns `len` octets after the header in a slot's buffer.
    #[inline(always)]
    pub(super) fn data(&self, slot: u16, len: usize) -> Option<Span<'queue>> {
        self.octets
            .sub(self.offset(slot).wrapping_add(HEADER_LEN), len)
    }

    /// Prefetches the first octets of a used buffer with `len` octets, with or without the header.
    #[inline(always)]
    pub(super) fn prefetch(&self, slot: u16, len: usize, with_header: bool) {
        let len = len.min(PREFETCH_OCTETS);
        let span = if with_header {
            self.octets.sub(self.offset(slot), len)
        } else {
            self.data(slot, len.saturating_sub(HEADER_LEN))
        };
        if let Some(span) = span {
            span.prefetch(PREFETCH_OCTETS);
        }
    }
}

/// Buffers of all slots of a queue.
#[derive(Debug)]
pub(super) struct Buffers {
    octets: SharedSlice<AtomicU8>,
    /// Address of the first buffer for the device.
    address: u64,
    stride: u64,
    /// Octets of a buffer, header included: more than [`HEADER_LEN`].
    capacity: usize,
}

impl Buffers {
    /// Returns copies of the values.
    #[inline(always)]
    pub(super) fn view(&self) -> BufferView<'_> {
        let octets = self.octets.span(0, self.octets.len());
        BufferView {
            octets: octets.unwrap_or(Span::EMPTY),
            stride: usize::try_from(self.stride).unwrap_or(0),
            capacity: self.capacity,
        }
    }

    /// Returns the buffers of a queue; `None` if the mapping does not contain them.
    pub(super) fn new(mapping: &Arc<Mapping>, queue: &QueueLayout) -> Option<Self> {
        let capacity = (queue.buffer_size as usize).checked_add(HEADER_LEN)?;
        let last = u64::from(queue.size.checked_sub(1)?);
        let before_last = last.checked_mul(queue.stride)?;
        let len = usize::try_from(before_last).ok()?.checked_add(capacity)?;
        Some(Self {
            octets: SharedSlice::new(mapping, queue.buffers, len)?,
            address: Layout::address(queue.buffers),
            stride: queue.stride,
            capacity,
        })
    }

    /// Returns the octets of a buffer, header included.
    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the octets of a frame that a buffer has space for, after the header.
    #[inline(always)]
    pub(super) fn space(&self) -> usize {
        self.capacity.wrapping_sub(HEADER_LEN)
    }

    /// Returns the memory that contains the buffers.
    pub(super) fn mapping(&self) -> &Mapping {
        self.octets.mapping()
    }

    /// Returns the buffers.
    #[inline(always)]
    pub(super) fn octets(&self) -> &SharedSlice<AtomicU8> {
        &self.octets
    }

    /// Returns the offset of a slot's buffer in [`Self::octets`].
    #[inline(always)]
    pub(super) fn offset(&self, slot: u16) -> u64 {
        u64::from(slot).wrapping_mul(self.stride)
    }

    /// Returns the first `len` octets of a slot's buffer; `None` if they are not within the memory.
    #[inline(always)]
    pub(super) fn span(&self, slot: u16, len: usize) -> Option<Span<'_>> {
        self.octets.span(self.offset(slot), len)
    }

    /// Returns the header in a slot's buffer.
    #[inline(always)]
    pub(super) fn header(&self, slot: u16) -> Option<Span<'_>> {
        self.octets.span(self.offset(slot), HEADER_LEN)
    }

    /// Returns `len` octets after the header in a slot's buffer.
    #[inline(always)]
    pub(super) fn data(&self, slot: u16, len: usize) -> Option<Span<'_>> {
        let offset = self.offset(slot).wrapping_add(HEADER_LEN as u64);
        self.octets.span(offset, len)
    }

    /// Returns the address of a slot's buffer for the device.
    pub(super) fn address(&self, slot: u16) -> u64 {
        self.address.wrapping_add(self.offset(slot))
    }
}
