// SPDX-License-Identifier: Apache-2.0
//! Buffers of a queue: one for each slot, at a fixed place.

use std::sync::Arc;

use quietwire_memory::{Mapping, Span};

use super::layout::{Layout, QueueLayout};
use crate::ring::header::HEADER_LEN;

/// Buffers of all slots of a queue.
#[derive(Debug)]
pub(super) struct Buffers {
    mapping: Arc<Mapping>,
    start: u64,
    stride: u64,
    /// Octets of a buffer, header included.
    capacity: usize,
}

impl Buffers {
    pub(super) fn new(mapping: &Arc<Mapping>, queue: &QueueLayout) -> Self {
        Self {
            mapping: Arc::clone(mapping),
            start: queue.buffers,
            stride: queue.stride,
            capacity: queue.buffer_size as usize + HEADER_LEN,
        }
    }

    /// Returns the octets of a buffer, header included.
    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the memory that the buffers are in.
    #[inline(always)]
    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Returns the offset of a slot's buffer.
    #[inline(always)]
    pub(super) fn offset(&self, slot: u16) -> u64 {
        self.start + u64::from(slot) * self.stride
    }

    /// Returns the first `len` octets of a slot's buffer; `None` when the memory does not have them.
    #[inline(always)]
    pub(super) fn span(&self, slot: u16, len: usize) -> Option<Span<'_>> {
        self.mapping.span(self.offset(slot), len)
    }

    /// Returns the header in a slot's buffer.
    #[inline(always)]
    pub(super) fn header(&self, slot: u16) -> Option<Span<'_>> {
        self.mapping.span(self.offset(slot), HEADER_LEN)
    }

    /// Returns `len` octets behind the header in a slot's buffer.
    #[inline(always)]
    pub(super) fn data(&self, slot: u16, len: usize) -> Option<Span<'_>> {
        self.mapping
            .span(self.offset(slot) + HEADER_LEN as u64, len)
    }

    /// Returns the address of a slot's buffer for the device.
    pub(super) fn address(&self, slot: u16) -> u64 {
        Layout::address(&self.mapping, self.offset(slot))
    }
}
