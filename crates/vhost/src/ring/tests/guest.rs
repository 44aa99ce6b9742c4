// SPDX-License-Identifier: Apache-2.0
//! A slow and simple driver: it accesses octets at the offsets of the specification.

use std::collections::HashMap;
use std::sync::Arc;

use quietwire_memory::Mapping;

use crate::address_space::{AddressSpace, Iotlb, Permission, Region};
use crate::ring::config::RingConfig;
use crate::ring::{DirtyLog, InflightRegion};

/// Octets of the memory for rings, for data, and in total.
const RINGS: u64 = 0x1_0000;
const DATA: u64 = 0x20_0000;
pub(super) const MEMORY: u64 = RINGS + DATA;
/// Guest addresses: the rings, and two halves of the data that are adjacent for the guest and swapped in the mapping.
const GUEST_RINGS: u64 = 0x4000_0000;
pub(super) const GUEST_DATA: u64 = 0x8000_0000;
const HALF: u64 = DATA / 2;
/// User addresses, and the distance of I/O virtual addresses from guest addresses.
const USER_RINGS: u64 = 0x7f00_0000_0000;
const USER_DATA: u64 = 0x7f80_0000_0000;
const IOVA: u64 = 0x10_0000_0000;

pub(super) const CSUM: u64 = 1 << 0;
pub(super) const INDIRECT: u64 = 1 << 28;
pub(super) const EVENT_INDEX: u64 = 1 << 29;
pub(super) const VERSION_1: u64 = 1 << 32;
pub(super) const ACCESS_PLATFORM: u64 = 1 << 33;
pub(super) const PACKED: u64 = 1 << 34;
pub(super) const MERGEABLE: u64 = 1 << 15;
pub(super) const LOG_ALL: u64 = 1 << 26;

/// A buffer: guest address, octets, and whether the device writes to it.
pub(super) type Buffer = (u64, u32, bool);

/// A guest with one queue.
pub(super) struct Guest {
    pub(super) mapping: Arc<Mapping>,
    pub(super) space: AddressSpace,
    pub(super) features: u64,
    pub(super) size: u16,
    pub(super) log: Option<(Arc<Mapping>, DirtyLog)>,
    pub(super) inflight: Option<InflightRegion>,
    /// Split: indices. Packed: slots.
    avail: u16,
    used: u16,
    avail_wrap: bool,
    used_wrap: bool,
    /// Free descriptors (split) or identifiers (packed).
    free: Vec<u16>,
    free_slots: u16,
    /// Descriptors and token of each chain by its identifier.
    chains: HashMap<u16, (Vec<u16>, u64)>,
    next_data: u64,
}

impl Guest {
    pub(super) fn new(features: u64, size: u16) -> Self {
        let mapping = Arc::new(
            Mapping::create("quietwire-guest", MEMORY as usize)
                .unwrap()
                .0,
        );
        let region = |guest, user, len, offset| Region::new(guest, user, len, &mapping, offset);
        let regions = vec![
            region(GUEST_DATA + HALF, USER_DATA + HALF, HALF, RINGS).unwrap(),
            region(GUEST_RINGS, USER_RINGS, RINGS, 0).unwrap(),
            region(GUEST_DATA, USER_DATA, HALF, RINGS + HALF).unwrap(),
        ];
        let iotlb = (features & ACCESS_PLATFORM != 0).then(|| {
            let iotlb = Iotlb::new();
            let both = Permission::from_bits(3);
            iotlb.update(GUEST_RINGS + IOVA, RINGS, USER_RINGS, both);
            Arc::new(iotlb)
        });
        let log = (features & LOG_ALL != 0).then(|| {
            let len = (GUEST_DATA + DATA) / 4096 / 8;
            let mapping = Arc::new(Mapping::create("quietwire-log", len as usize).unwrap().0);
            let log = DirtyLog::new(&mapping, 0, len).unwrap();
            (mapping, log)
        });
        Self {
            space: AddressSpace::new(regions, iotlb).unwrap(),
            mapping,
            features,
            size,
            log,
            inflight: None,
            avail: 0,
            used: 0,
            avail_wrap: true,
            used_wrap: true,
            free: (0..size).rev().collect(),
            free_slots: size,
            chains: HashMap::new(),
            next_data: 0,
        }
    }

    pub(super) fn is_packed(&self) -> bool {
        self.features & PACKED != 0
    }

    /// Returns the length of the header before a frame, octets.
    pub(super) fn header_len(&self) -> usize {
        if self.features & (VERSION_1 | MERGEABLE) == 0 {
            10
        } else {
            12
        }
    }

    /// Returns the distance of the addresses that the device sees from guest addresses.
    fn shift(&self) -> u64 {
        if self.features & ACCESS_PLATFORM != 0 {
            IOVA
        } else {
            0
        }
    }

    /// Offsets in the ring's memory: descriptors, driver's part, device's part.
    pub(super) fn parts(&self) -> [u64; 3] {
        [0x1000, 0x1000 + 16 * u64::from(self.size), 0x8000]
    }

    pub(super) fn config(&self, base: u32) -> RingConfig<'_> {
        let start = match self.features & ACCESS_PLATFORM {
            0 => USER_RINGS,
            _ => GUEST_RINGS + IOVA,
        };
        let [descriptors, driver, device] = self.parts().map(|part| start + part);
        RingConfig {
            size: self.size,
            descriptors,
            driver,
            device,
            space: &self.space,
            base,
            features: self.features,
            log: self.log.as_ref().map(|(_, log)| log.clone()),
            ring_log_address: None,
            inflight: self.inflight.clone(),
        }
    }

    /// Returns the base of a new queue.
    pub(super) fn first_base(&self) -> u32 {
        if self.is_packed() { 0x8000_8000 } else { 0 }
    }

    /// Returns the offset in the mapping of each octet of guest memory.
    fn offset(guest: u64) -> u64 {
        match guest {
            GUEST_RINGS.. if guest < GUEST_RINGS + RINGS => guest - GUEST_RINGS,
            _ if guest < GUEST_DATA + HALF => guest - GUEST_DATA + RINGS + HALF,
            _ => guest - GUEST_DATA - HALF + RINGS,
        }
    }

    pub(super) fn guest_of_offset(offset: u64) -> u64 {
        match offset {
            ..RINGS => GUEST_RINGS + offset,
            _ if offset < RINGS + HALF => GUEST_DATA + HALF + offset - RINGS,
            _ => GUEST_DATA + offset - RINGS - HALF,
        }
    }

    pub(super) fn write(&self, guest: u64, octets: &[u8]) {
        for (at, octet) in octets.iter().enumerate() {
            let offset = Self::offset(guest + at as u64);
            self.mapping.span(offset, 1).unwrap().copy_from(&[*octet]);
        }
    }

    pub(super) fn read(&self, guest: u64, len: usize) -> Vec<u8> {
        let octet = |at| {
            let offset = Self::offset(guest + at as u64);
            let octet: [u8; 1] = self.mapping.span(offset, 1).unwrap().read_array().unwrap();
            octet[0]
        };
        (0..len).map(octet).collect()
    }

    fn read_u16(&self, offset: u64) -> u16 {
        let octets = self.read(GUEST_RINGS + offset, 2);
        u16::from_le_bytes([octets[0], octets[1]])
    }

    fn write_u16(&self, offset: u64, value: u16) {
        self.write(GUEST_RINGS + offset, &value.to_le_bytes());
    }

    fn read_u32(&self, offset: u64) -> u32 {
        u32::from(self.read_u16(offset)) | u32::from(self.read_u16(offset + 2)) << 16
    }

    /// Returns unused guest memory: each call continues where the last ended, in a circle.
    pub(super) fn data(&mut self, len: u64) -> u64 {
        if self.next_data + len > DATA {
            self.next_data = 0;
        }
        self.next_data += len;
        GUEST_DATA + self.next_data - len
    }

    /// Makes the next buffers span the border of the two regions.
    pub(super) fn go_to_border(&mut self, before: u64) {
        self.next_data = HALF - before;
    }

    /// Adds the page of a miss to the IOTLB.
    pub(super) fn answer_miss(&self, iova: u64) {
        let page = (iova - IOVA) & !4095;
        let user = if page >= GUEST_DATA {
            page - GUEST_DATA + USER_DATA
        } else {
            page - GUEST_RINGS + USER_RINGS
        };
        let both = Permission::from_bits(3);
        let iotlb = self.space.iotlb().unwrap();
        assert!(iotlb.update(page + IOVA, 4096, user, both));
    }

    fn descriptor(&self, (address, len, is_writable): Buffer) -> ([u8; 12], u16) {
        let mut octets = [0; 12];
        octets[..8].copy_from_slice(&(address + self.shift()).to_le_bytes());
        octets[8..].copy_from_slice(&len.to_le_bytes());
        (octets, if is_writable { 2 } else { 0 })
    }

    /// Writes an indirect table; returns the buffer that contains it.
    fn table(&mut self, buffers: &[Buffer]) -> Buffer {
        let len = 16 * buffers.len() as u64;
        let table = self.data(len);
        for (at, buffer) in buffers.iter().enumerate() {
            let (octets, flags) = self.descriptor(*buffer);
            let next = if at + 1 < buffers.len() { 1 } else { 0 };
            let entry = table + 16 * at as u64;
            self.write(entry, &octets);
            let words = if self.is_packed() {
                [0, flags]
            } else {
                [flags | next, at as u16 + 1]
            };
            self.write(entry + 12, &words[0].to_le_bytes());
            self.write(entry + 14, &words[1].to_le_bytes());
        }
        (table, len as u32, false)
    }

    /// Returns the descriptors that are free.
    pub(super) fn free_slots(&self) -> usize {
        usize::from(self.free_slots)
    }

    /// Makes a chain available; returns false if the ring has no space.
    pub(super) fn offer(&mut self, buffers: &[Buffer], is_indirect: bool, token: u64) -> bool {
        let count = if is_indirect { 1 } else { buffers.len() };
        if count > self.free_slots() {
            return false;
        }
        if is_indirect {
            let table = self.table(buffers);
            self.offer_direct(&[table], 4, token);
        } else {
            self.offer_direct(buffers, 0, token);
        }
        true
    }

    fn offer_direct(&mut self, buffers: &[Buffer], flags: u16, token: u64) {
        self.free_slots -= buffers.len() as u16;
        if self.is_packed() {
            self.offer_packed(buffers, flags, token);
        } else {
            self.offer_split(buffers, flags, token);
        }
    }

    fn offer_split(&mut self, buffers: &[Buffer], more: u16, token: u64) {
        let [descriptors, avail, _] = self.parts();
        let taken: Vec<u16> = buffers.iter().map(|_| self.free.pop().unwrap()).collect();
        for (at, buffer) in buffers.iter().enumerate() {
            let (octets, flags) = self.descriptor(*buffer);
            let entry = descriptors + 16 * u64::from(taken[at]);
            self.write(GUEST_RINGS + entry, &octets);
            let next = taken.get(at + 1);
            self.write_u16(entry + 12, flags | more | u16::from(next.is_some()));
            self.write_u16(entry + 14, next.copied().unwrap_or(0xffff));
        }
        let slot = u64::from(self.avail % self.size);
        self.write_u16(avail + 4 + 2 * slot, taken[0]);
        self.avail = self.avail.wrapping_add(1);
        self.write_u16(avail + 2, self.avail);
        self.chains.insert(taken[0], (taken, token));
    }

    fn offer_packed(&mut self, buffers: &[Buffer], more: u16, token: u64) {
        let [descriptors, ..] = self.parts();
        let id = self.free.pop().unwrap();
        let mut head = None;
        for (at, buffer) in buffers.iter().enumerate() {
            let (octets, flags) = self.descriptor(*buffer);
            let entry = descriptors + 16 * u64::from(self.avail);
            self.write(GUEST_RINGS + entry, &octets);
            self.write_u16(
                entry + 12,
                if at + 1 == buffers.len() { id } else { 0xdead },
            );
            let wrap = if self.avail_wrap { 1 << 7 } else { 1 << 15 };
            let next = u16::from(at + 1 < buffers.len());
            let flags = flags | more | next | wrap;
            if at == 0 {
                head = Some((entry + 14, flags));
            } else {
                self.write_u16(entry + 14, flags);
            }
            self.avail += 1;
            if self.avail == self.size {
                self.avail = 0;
                self.avail_wrap = !self.avail_wrap;
            }
        }
        let (place, flags) = head.unwrap();
        self.write_u16(place, flags);
        self.chains.insert(id, (vec![0; buffers.len()], token));
    }

    /// Collects the next used chain: its token and the number of octets that the device wrote.
    pub(super) fn collect(&mut self) -> Option<(u64, u32)> {
        let [descriptors, _, used] = self.parts();
        let (id, len);
        if self.is_packed() {
            let entry = descriptors + 16 * u64::from(self.used);
            let flags = self.read_u16(entry + 14);
            let is_used = if self.used_wrap { 0x8080 } else { 0 };
            if flags & 0x8080 != is_used {
                return None;
            }
            id = self.read_u16(entry + 12);
            len = self.read_u32(entry + 8);
            assert_eq!(flags & 2 != 0, len > 0);
        } else {
            if self.read_u16(used + 2) == self.used {
                return None;
            }
            let entry = used + 4 + 8 * u64::from(self.used % self.size);
            id = u16::try_from(self.read_u32(entry)).unwrap();
            len = self.read_u32(entry + 4);
            self.used = self.used.wrapping_add(1);
        }
        let (slots, token) = self.chains.remove(&id).expect("an identifier in use");
        self.free_slots += slots.len() as u16;
        if self.is_packed() {
            self.free.push(id);
            self.used += slots.len() as u16;
            if self.used >= self.size {
                self.used -= self.size;
                self.used_wrap = !self.used_wrap;
            }
        } else {
            self.free.extend(slots);
        }
        Some((token, len))
    }

    /// Requests a notification when the device has used the next chain, or none; without the event index, all or none.
    pub(super) fn want_notification(&self, wanted: bool) {
        let [_, driver, _] = self.parts();
        let has_events = self.features & EVENT_INDEX != 0;
        if self.is_packed() {
            let wrap = u16::from(self.used_wrap) << 15;
            self.write_u16(driver, self.used | wrap);
            let flags = match (wanted, has_events) {
                (false, _) => 1,
                (true, true) => 2,
                (true, false) => 0,
            };
            self.write_u16(driver + 2, flags);
        } else if has_events {
            let event = if wanted {
                self.used
            } else {
                self.used.wrapping_sub(1)
            };
            self.write_u16(driver + 4 + 2 * u64::from(self.size), event);
        } else {
            self.write_u16(driver, u16::from(!wanted));
        }
    }

    /// Returns true if the device wants a notification of the last chain made available.
    pub(super) fn device_wants_notification(&self) -> bool {
        let [_, _, device] = self.parts();
        if self.is_packed() {
            return self.read_u16(device + 2) == 0;
        }
        if self.features & EVENT_INDEX != 0 {
            let event = self.read_u16(device + 4 + 8 * u64::from(self.size));
            return event == self.avail.wrapping_sub(1);
        }
        self.read_u16(device) & 1 == 0
    }

    /// Returns all octets of the mapping.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        let mut octets = vec![0; MEMORY as usize];
        self.mapping
            .span(0, octets.len())
            .unwrap()
            .copy_to(&mut octets);
        octets
    }

    /// Clears the log, like a front end that has copied the pages.
    pub(super) fn clear_log(&self) {
        let (mapping, _) = self.log.as_ref().unwrap();
        let span = mapping.span(0, mapping.len()).unwrap();
        span.copy_from(&vec![0; span.len()]);
    }

    /// Returns true if the page of a guest address is marked in the log.
    pub(super) fn is_logged(&self, guest: u64) -> bool {
        let (mapping, _) = self.log.as_ref().unwrap();
        let octet: [u8; 1] = mapping
            .span(guest / 4096 / 8, 1)
            .unwrap()
            .read_array()
            .unwrap();
        octet[0] >> (guest / 4096 % 8) & 1 == 1
    }
}
