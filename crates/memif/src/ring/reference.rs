// SPDX-License-Identifier: Apache-2.0
//! One end of a ring in either role, slow and simple: it trusts its peer, and accesses the shared memory at each step.

use std::sync::Arc;

use quietwire_memory::Mapping;

use crate::message::{Direction, RingLocation};

const NEXT: u16 = 1;

pub(super) struct Plain {
    mapping: Arc<Mapping>,
    start: u64,
    size: u16,
    is_client: bool,
    is_sender: bool,
    buffer_size: u32,
    /// The next slot to fill or to consume.
    next: u16,
}

impl Plain {
    pub(super) fn new(
        mapping: &Arc<Mapping>,
        place: &RingLocation,
        is_client: bool,
        buffer_size: u32,
    ) -> Self {
        Self {
            mapping: Arc::clone(mapping),
            start: place.offset.into(),
            size: 1 << place.log2_size,
            is_client,
            is_sender: is_client == (place.direction == Direction::ClientToServer),
            buffer_size,
            next: 0,
        }
    }

    fn get<const N: usize>(&self, at: u64) -> [u8; N] {
        self.mapping.span(at, N).unwrap().read_array().unwrap()
    }

    fn set(&self, at: u64, octets: &[u8]) {
        self.mapping
            .span(at, octets.len())
            .unwrap()
            .copy_from(octets);
    }

    fn head(&self) -> u16 {
        u16::from_le_bytes(self.get(self.start + 6))
    }

    fn tail(&self) -> u16 {
        u16::from_le_bytes(self.get(self.start + 64))
    }

    fn descriptor(&self, index: u16) -> u64 {
        self.start + 128 + 16 * u64::from(index % self.size)
    }

    fn flags(&self, index: u16) -> u16 {
        u16::from_le_bytes(self.get(self.descriptor(index)))
    }

    fn length(&self, index: u16) -> u32 {
        u32::from_le_bytes(self.get(self.descriptor(index) + 4))
    }

    fn offset(&self, index: u16) -> u64 {
        u32::from_le_bytes(self.get(self.descriptor(index) + 8)).into()
    }

    fn describe(&self, index: u16, flags: u16, length: u32) {
        self.set(self.descriptor(index), &flags.to_le_bytes());
        self.set(self.descriptor(index) + 4, &length.to_le_bytes());
    }

    fn move_own_index(&self) {
        let (at, index) = match (self.is_client, self.is_sender) {
            (true, true) => (6, self.next),
            // Each consumed slot is offered again.
            (true, false) => (6, self.next.wrapping_add(self.size)),
            (false, _) => (64, self.next),
        };
        self.set(self.start + at, &index.to_le_bytes());
    }

    /// Returns the number of slots that may be filled or consumed.
    fn slots(&self) -> u16 {
        match (self.is_client, self.is_sender) {
            (true, true) => self.size - self.next.wrapping_sub(self.tail()),
            (true, false) => self.tail().wrapping_sub(self.next),
            (false, _) => self.head().wrapping_sub(self.next),
        }
    }

    /// Sends a frame; returns false if there is no space.
    pub(super) fn send(&mut self, frame: &[u8]) -> bool {
        assert!(self.is_sender);
        let space = |index| {
            if self.is_client {
                self.buffer_size
            } else {
                self.length(index)
            }
        };
        let mut rest = frame;
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let index = self.next.wrapping_add(parts.len() as u16);
            if parts.len() == usize::from(self.slots()) {
                return false;
            }
            let (part, more) = rest.split_at(rest.len().min(space(index) as usize));
            parts.push((index, part));
            rest = more;
        }
        for (number, (index, part)) in parts.iter().enumerate() {
            self.set(self.offset(*index), part);
            let flags = if number + 1 < parts.len() { NEXT } else { 0 };
            self.describe(*index, flags, part.len() as u32);
        }
        self.next = self.next.wrapping_add(parts.len() as u16);
        self.move_own_index();
        true
    }

    /// Receives a frame.
    pub(super) fn receive(&mut self) -> Option<Vec<u8>> {
        assert!(!self.is_sender);
        if self.slots() == 0 {
            return None;
        }
        let mut frame = Vec::new();
        loop {
            let index = self.next;
            let (flags, length) = (self.flags(index), self.length(index));
            let start = frame.len();
            frame.resize(start + length as usize, 0);
            let piece = self.mapping.span(self.offset(index), length as usize);
            piece.unwrap().copy_to(&mut frame[start..]);
            if self.is_client {
                self.describe(index, 0, self.buffer_size);
            }
            self.next = index.wrapping_add(1);
            if flags & NEXT == 0 {
                break;
            }
        }
        self.move_own_index();
        Some(frame)
    }
}
