// SPDX-License-Identifier: Apache-2.0
//! Rings of a device whose guest writes anything anywhere.

use std::sync::Arc;

use quietwire_memory::{Mapping, Span};

use crate::address_space::{AddressSpace, Iotlb, Miss, Permission, Region};
use crate::ring::{
    Counters, DirtyLog, InflightRegion, OCTETS_MAX, PIECES_MAX, PutResult, RawHeader, Receive,
    Received, Receiver, Ring, RingConfig, Sender, Transmit,
};

/// Octets of the guest's memory, in two regions that are adjacent.
const MEMORY: u64 = 0x8000;
/// Offsets of the parts of the ring, an inflight region and a log in the mapping.
const DESCRIPTORS: u64 = 0;
const DRIVER: u64 = 0x1000;
const DEVICE: u64 = 0x1800;
const INFLIGHT: u64 = MEMORY;
const LOG: u64 = MEMORY + 0x2000;
const ALL: u64 = LOG + 8;
const USER: u64 = 0x7000_0000;
const SIZE_MAX: u16 = 64;

/// Octets that control decisions; zeros after the end.
struct Octets<'o>(&'o [u8]);

impl<'o> Octets<'o> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn next_u16(&mut self) -> u16 {
        u16::from_le_bytes([self.next(), self.next()])
    }

    fn take(&mut self, len: usize) -> &'o [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// A guest that knows the location of its ring.
struct Guest {
    mapping: Arc<Mapping>,
    space: AddressSpace,
    features: u64,
    size: u16,
    log: Option<DirtyLog>,
    inflight: Option<InflightRegion>,
    /// Index, or slot and turns.
    next: u16,
}

impl Guest {
    fn new(octets: &mut Octets<'_>) -> Option<Self> {
        const FEATURES: [u64; 7] = [
            1 << 15,
            1 << 26,
            1 << 28,
            1 << 29,
            1 << 32,
            1 << 33,
            1 << 34,
        ];
        let bits = octets.next();
        let chosen = FEATURES.iter().enumerate();
        let features: u64 = chosen
            .filter(|(bit, _)| bits >> bit & 1 != 0)
            .map(|(_, feature)| feature)
            .sum();
        let size = match u16::from(octets.next()) % SIZE_MAX {
            any if features & 1 << 34 != 0 => any + 1,
            any => (any + 1).next_power_of_two(),
        };
        let (mapping, _file) = Mapping::create("quietwire-fuzz", ALL as usize).ok()?;
        let mapping = Arc::new(mapping);
        let half = MEMORY / 2;
        let regions = vec![
            Region::new(half, USER + half, half, &mapping, half)?,
            Region::new(0, USER, half, &mapping, 0)?,
        ];
        let iotlb = (features & 1 << 33 != 0).then(|| {
            let iotlb = Iotlb::new();
            iotlb.update(0, MEMORY, USER, Permission::from_bits(3));
            Arc::new(iotlb)
        });
        let inflight = (bits & 1 << 7 != 0).then(|| InflightRegion::new(&mapping, INFLIGHT));
        Some(Self {
            space: AddressSpace::new(regions, iotlb).ok()?,
            log: DirtyLog::new(&mapping, LOG, 1),
            mapping,
            features,
            size,
            inflight,
            next: 0,
        })
    }

    fn config(&self, base: u32) -> RingConfig<'_> {
        let start = if self.features & 1 << 33 == 0 {
            USER
        } else {
            0
        };
        RingConfig {
            size: self.size,
            descriptors: start + DESCRIPTORS,
            driver: start + DRIVER,
            device: start + DEVICE,
            space: &self.space,
            base,
            features: self.features,
            log: self.log.clone(),
            ring_log_address: None,
            inflight: self.inflight.clone(),
        }
    }

    fn write(&self, offset: u64, octets: &[u8]) {
        if let Some(span) = self.mapping.span(offset, octets.len()) {
            span.copy_from(octets);
        }
    }

    /// Writes a descriptor that is likely to be valid, at the driver's next position.
    fn offer(&mut self, octets: &mut Octets<'_>) {
        let bits = octets.next();
        let address = u64::from(octets.next_u16() % MEMORY as u16);
        let len = u32::from(octets.next_u16() >> (bits % 12));
        let slot = self.next % self.size;
        let flags = u16::from(bits >> 4 & 7);
        let entry = DESCRIPTORS + 16 * u64::from(slot);
        self.write(entry, &address.to_le_bytes());
        self.write(entry + 8, &len.to_le_bytes());
        if self.features & 1 << 34 != 0 {
            let turn = self.next / self.size;
            let wrap = if turn.is_multiple_of(2) {
                1 << 7
            } else {
                1 << 15
            };
            let (id, flags) = (slot, flags | wrap);
            self.write(entry + 12, &id.to_le_bytes());
            self.write(entry + 14, &flags.to_le_bytes());
            self.next = (self.next + 1) % (2 * self.size);
            return;
        }
        let following = (slot + 1) % self.size;
        self.write(entry + 12, &flags.to_le_bytes());
        self.write(entry + 14, &following.to_le_bytes());
        self.write(DRIVER + 4 + 2 * u64::from(slot), &slot.to_le_bytes());
        self.next = self.next.wrapping_add(1);
        self.write(DRIVER + 2, &self.next.to_le_bytes());
    }

    /// Writes arbitrary values, mostly to the ring.
    fn scribble(&self, octets: &mut Octets<'_>) {
        let place = u64::from(octets.next_u16());
        let offset = match octets.next() % 8 {
            0 => place % ALL,
            1 => INFLIGHT + place % 0x100,
            2 | 3 => DRIVER + place % 0x100,
            4 => DEVICE + place % 0x200,
            _ => DESCRIPTORS + place % (16 * u64::from(SIZE_MAX)),
        };
        let len = usize::from(octets.next() % 32);
        self.write(offset, octets.take(len));
    }

    /// Changes the IOTLB.
    fn translate(&self, octets: &mut Octets<'_>) {
        let Some(iotlb) = self.space.iotlb() else {
            return;
        };
        let (iova, len) = (u64::from(octets.next_u16()), u64::from(octets.next_u16()));
        let user = USER + u64::from(octets.next_u16());
        match octets.next() {
            0 => iotlb.clear(),
            bits if bits & 4 == 0 => {
                iotlb.update(iova, len, user, Permission::from_bits(bits));
            }
            _ => {
                iotlb.invalidate(iova, len);
            }
        }
    }

    fn answer(&self, miss: Miss) {
        if let Some(iotlb) = self.space.iotlb() {
            iotlb.update(
                miss.iova & !255,
                256,
                USER.wrapping_add(miss.iova & !255),
                Permission::from_bits(3),
            );
        }
    }
}

/// Copies out of each span; returns the number of octets.
fn copy<'s>(spans: impl Iterator<Item = Span<'s>>) -> u64 {
    let mut octets = 0;
    let mut buffer = [0; 256];
    for span in spans {
        octets += span.len() as u64;
        assert!(!span.is_empty() && span.len() as u64 <= MEMORY);
        span.copy_to(&mut buffer);
        if let Some(end) = span.sub(span.len() - 1, 1) {
            end.copy_to(&mut buffer);
        }
    }
    octets
}

/// Receives a burst of frames; returns their number.
fn receive(guest: &Guest, receiver: &mut Receiver, octets: &mut Octets<'_>) -> u64 {
    let most = usize::from(octets.next());
    let ready = receiver.ready(most);
    assert!(ready <= most.min(64) && ready <= usize::from(guest.size));
    let wanted = octets.next();
    let (mut taken, mut bad) = (0, 0);
    let mut miss = None;
    while taken < wanted {
        if taken % 2 == 0 {
            let mut passed = 0;
            let most = usize::from(wanted - taken);
            let count = receiver.take_contiguous(most, usize::MAX, |span, _| {
                passed += 1;
                assert!(span.len() <= OCTETS_MAX as usize && !span.is_empty());
                assert_eq!(copy(std::iter::once(span)), span.len() as u64);
            });
            assert!(count == passed && count <= most);
            if count > 0 {
                taken += count as u8;
                continue;
            }
        }
        match receiver.next() {
            None => break,
            Some(Received::Bad) => {
                taken += 1;
                bad += 1;
            }
            Some(Received::Miss(missed)) => {
                miss = Some(missed);
                break;
            }
            Some(Received::Frame {
                first,
                rest,
                length,
                ..
            }) => {
                taken += 1;
                assert!(length <= OCTETS_MAX && rest.len() < PIECES_MAX);
                assert_eq!(copy(std::iter::once(first).chain(rest)), u64::from(length));
            }
        }
    }
    assert!(usize::from(taken) <= ready);
    if let Some(miss) = miss {
        assert!(guest.features & 1 << 33 != 0 && receiver.next().is_none());
        guest.answer(miss);
    }
    u64::from(taken - bad)
}

/// Sends a few frames; returns how many were sent.
fn send(guest: &Guest, sender: &mut Sender, octets: &mut Octets<'_>) -> u64 {
    static FRAME: [u8; 4096] = [0x55; 4096];
    let mut sent = 0;
    sender.ready(usize::from(octets.next()));
    for _ in 0..octets.next() % 8 {
        let length = usize::from(octets.next_u16() % 4097);
        let frame = FRAME.get(..length).unwrap_or_default();
        let segments = frame.chunks(1 + usize::from(octets.next_u16()));
        if segments.len() == 1 {
            let (count, octets) = sender.put_contiguous(|first| segments.clone().skip(first));
            assert!(count <= 1 && octets == (count * length) as u64);
            if count == 1 {
                sent += 1;
                continue;
            }
        }
        match sender.put(RawHeader::PLAIN, segments, length as u32) {
            PutResult::Miss(miss) => {
                assert!(guest.features & 1 << 33 != 0);
                guest.answer(miss);
            }
            PutResult::Full => break,
            PutResult::Sent => sent += 1,
            PutResult::Bad | PutResult::TooLong => {}
        }
    }
    sent
}

/// Runs the device's side of a ring while a guest writes what the octets say. Returns the numbers of received and sent frames, and the
/// counters of the last receiver and sender; `None` if the octets describe no ring.
pub fn fuzz_device_ring(octets: &[u8]) -> Option<([u64; 2], Counters, Counters)> {
    let mut octets = Octets(octets);
    let mut guest = Guest::new(&mut octets)?;
    let base = if guest.features & 1 << 34 == 0 {
        0
    } else {
        0x8000_8000
    };
    let mut receiver = Receiver::new(&guest.config(base)).ok()?;
    let mut sender = Sender::new(&guest.config(base)).ok()?;
    // One of them is enough: both on the same ring would be two devices.
    let receives = octets.next() & 1 == 0;
    let mut frames = [0; 2];
    while !octets.0.is_empty() {
        match octets.next() % 16 {
            0..=2 => guest.scribble(&mut octets),
            3..=6 => guest.offer(&mut octets),
            7..=9 if receives => frames[0] += receive(&guest, &mut receiver, &mut octets),
            7..=9 => frames[1] += send(&guest, &mut sender, &mut octets),
            10 | 11 if receives => {
                receiver.release();
            }
            10 | 11 => {
                sender.publish();
            }
            12 => guest.translate(&mut octets),
            13 => {
                let wanted = octets.next() & 1 == 0;
                receiver.request_notifications(wanted);
                sender.request_notifications(!wanted);
            }
            14 => {
                let is_on = octets.next() & 1 == 0;
                receiver.set_logging(is_on);
                sender.set_logging(is_on);
            }
            _ => {
                let base = if receives {
                    receiver.base()
                } else {
                    sender.base()
                };
                // An inflight region that was written to may be refused.
                if octets.next() & 1 == 0 {
                    guest.inflight = None;
                }
                if let Ok(again) = Receiver::new(&guest.config(base)) {
                    receiver = again;
                }
                if let Ok(again) = Sender::new(&guest.config(base)) {
                    sender = again;
                }
            }
        }
    }
    assert!(!receiver.has_faulted() && !sender.has_faulted());
    Some((frames, receiver.counters(), sender.counters()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_device_survives_any_octets_of_the_guest(
            octets in proptest::collection::vec(any::<u8>(), 0..2000),
        ) {
            super::fuzz_device_ring(&octets);
        }
    }

    #[test]
    fn guests_at_random_get_far() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let strategy = proptest::collection::vec(any::<u8>(), 500..1500);
        let mut all = [0; 5];
        for _ in 0..500 {
            let octets = strategy.new_tree(&mut runner).unwrap().current();
            let Some(([taken, sent], receiver, sender)) = super::fuzz_device_ring(&octets) else {
                continue;
            };
            let observed = [taken, receiver.bad, receiver.resyncs, sent, sender.bad];
            for (sum, observed) in all.iter_mut().zip(observed) {
                *sum += observed;
            }
        }
        assert!(all.iter().all(|sum| *sum >= 20), "{all:?}");
    }
}
