// SPDX-License-Identifier: Apache-2.0
//! A slow and simple device: it accesses octets of the memory at the offsets of the specification.

use std::sync::Arc;

use quietwire_memory::Mapping;

use crate::driver::{Layout, QueueLayout};
use crate::ring::header::HEADER_LEN;

/// Octets that a device may read or write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) is_writable: bool,
}

/// Chain that the driver made available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) id: u16,
    pub(super) parts: Vec<Part>,
}

pub(super) struct Device {
    mapping: Arc<Mapping>,
    queue: QueueLayout,
    packed: bool,
    event_index: bool,
    /// Split: indices. Packed: positions in the ring and wrap counters.
    available: u16,
    used: u16,
    available_wrap: bool,
    used_wrap: bool,
}

impl Device {
    pub(super) fn new(
        mapping: &Arc<Mapping>,
        queue: QueueLayout,
        packed: bool,
        event_index: bool,
    ) -> Self {
        Self {
            mapping: Arc::clone(mapping),
            queue,
            packed,
            event_index,
            available: 0,
            used: 0,
            available_wrap: true,
            used_wrap: true,
        }
    }

    pub(super) fn read<const N: usize>(&self, offset: u64) -> [u8; N] {
        self.mapping.span(offset, N).unwrap().read_array().unwrap()
    }

    fn read_u16(&self, offset: u64) -> u16 {
        u16::from_le_bytes(self.read(offset))
    }

    pub(super) fn write(&self, offset: u64, octets: &[u8]) {
        let span = self.mapping.span(offset, octets.len()).unwrap();
        assert_eq!(span.copy_from(octets), octets.len());
    }

    fn part(&self, descriptor: u64, flags: u16) -> Part {
        let address = u64::from_le_bytes(self.read(descriptor));
        let len = u32::from_le_bytes(self.read(descriptor + 8));
        let offset = address - Layout::address(0);
        assert!(offset + u64::from(len) <= self.mapping.len() as u64);
        assert_eq!(flags & !(0x8080 | 3), 0, "unknown flags");
        Part {
            offset,
            len: len as usize,
            is_writable: flags & 2 != 0,
        }
    }

    /// Returns the next chain that is available.
    pub(super) fn take(&mut self) -> Option<Chain> {
        if self.packed {
            self.take_packed()
        } else {
            self.take_split()
        }
    }

    fn take_split(&mut self) -> Option<Chain> {
        if self.read_u16(self.queue.driver_area + 2) == self.available {
            return None;
        }
        let entry = u64::from(self.available % self.queue.size);
        let id = self.read_u16(self.queue.driver_area + 4 + 2 * entry);
        self.available = self.available.wrapping_add(1);
        let mut parts = Vec::new();
        let mut next = id;
        loop {
            assert!(next < self.queue.size);
            let descriptor = self.queue.descriptors + 16 * u64::from(next);
            let flags = self.read_u16(descriptor + 12);
            parts.push(self.part(descriptor, flags));
            if flags & 1 == 0 {
                return Some(Chain { id, parts });
            }
            next = self.read_u16(descriptor + 14);
        }
    }

    fn take_packed(&mut self) -> Option<Chain> {
        let mut parts = Vec::new();
        loop {
            let descriptor = self.queue.descriptors + 16 * u64::from(self.available);
            let flags = self.read_u16(descriptor + 14);
            let is_available = (flags >> 7 & 1 == 1) == self.available_wrap
                && (flags >> 15 & 1 == 1) != self.available_wrap;
            if !is_available {
                assert!(parts.is_empty(), "a chain is only partly available");
                return None;
            }
            parts.push(self.part(descriptor, flags));
            self.available += 1;
            if self.available == self.queue.size {
                self.available = 0;
                self.available_wrap = !self.available_wrap;
            }
            if flags & 1 == 0 {
                let id = self.read_u16(descriptor + 12);
                return Some(Chain { id, parts });
            }
        }
    }

    /// Returns a chain to the driver, of which `len` octets were written.
    pub(super) fn give(&mut self, chain: &Chain, len: u32) {
        if !self.packed {
            let at = self.queue.device_area + 4 + 8 * u64::from(self.used % self.queue.size);
            self.write(at, &u32::from(chain.id).to_le_bytes());
            self.write(at + 4, &len.to_le_bytes());
            self.used = self.used.wrapping_add(1);
            self.write(self.queue.device_area + 2, &self.used.to_le_bytes());
            return;
        }
        let descriptor = self.queue.descriptors + 16 * u64::from(self.used);
        self.write(descriptor + 8, &len.to_le_bytes());
        self.write(descriptor + 12, &chain.id.to_le_bytes());
        let flags: u16 = if self.used_wrap { 0x8080 } else { 0 };
        self.write(descriptor + 14, &flags.to_le_bytes());
        self.used += chain.parts.len() as u16;
        if self.used >= self.queue.size {
            self.used -= self.queue.size;
            self.used_wrap = !self.used_wrap;
        }
    }

    /// Sets whether the driver must notify of what it makes available from now on.
    pub(super) fn want_kick(&self, wanted: bool) {
        let area = self.queue.device_area;
        if self.packed {
            let off_wrap = self.available | u16::from(self.available_wrap) << 15;
            let flags: u16 = match (wanted, self.event_index) {
                (false, _) => 1,
                (true, false) => 0,
                (true, true) => 2,
            };
            self.write(area, &off_wrap.to_le_bytes());
            self.write(area + 2, &flags.to_le_bytes());
        } else if self.event_index {
            // If no notification is wanted, the event is one that has passed.
            let event = self.available.wrapping_sub(u16::from(!wanted));
            let at = area + 4 + 8 * u64::from(self.queue.size);
            self.write(at, &event.to_le_bytes());
        } else {
            self.write(area, &u16::from(!wanted).to_le_bytes());
        }
    }

    /// Returns the octets of a chain that the device reads.
    pub(super) fn octets(&self, chain: &Chain) -> Vec<u8> {
        let mut octets = Vec::new();
        for part in &chain.parts {
            assert!(!part.is_writable);
            let mut copy = vec![0; part.len];
            self.mapping
                .span(part.offset, part.len)
                .unwrap()
                .copy_to(&mut copy);
            octets.extend(copy);
        }
        octets
    }

    /// Writes a frame to the chains that it requires; `chains` are used in the given order. Returns the number of chains.
    pub(super) fn write_frame(&mut self, chains: &[Chain], header: &[u8], data: &[u8]) -> usize {
        assert_eq!(header.len(), HEADER_LEN);
        let whole: Vec<u8> = header.iter().chain(data).copied().collect();
        let mut left = whole.as_slice();
        let mut lengths = Vec::new();
        for chain in chains {
            if left.is_empty() {
                break;
            }
            let [part] = chain.parts.as_slice() else {
                panic!("a receive buffer has several descriptors: {chain:?}");
            };
            assert!(part.is_writable);
            let (now, later) = left.split_at(left.len().min(part.len));
            self.write(part.offset, now);
            lengths.push(now.len());
            left = later;
        }
        assert!(left.is_empty());
        let count = lengths.len() as u16;
        self.write(chains[0].parts[0].offset + 10, &count.to_le_bytes());
        for (chain, len) in chains.iter().zip(&lengths) {
            self.give(chain, *len as u32);
        }
        lengths.len()
    }
}
