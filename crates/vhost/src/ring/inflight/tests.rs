// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;
use std::sync::atomic::Ordering;

use quietwire_memory::{Mapping, SharedSlice};

use super::super::layout::{PackedWord, packed};
use super::super::position::Position;
use super::*;
use proptest::prelude::*;

fn mapping() -> Arc<Mapping> {
    Arc::new(Mapping::create("quietwire-inflight", 1 << 16).unwrap().0)
}

fn u16_at(mapping: &Arc<Mapping>, at: u64) -> u16 {
    u16::from_le_bytes(mapping.span(at, 2).unwrap().read_array().unwrap())
}

#[test]
fn split_regions_are_laid_out_as_specified() {
    let mapping = mapping();
    let region = InflightRegion::new(&mapping, 64);
    let mut inflight = SplitInflight::new(&region, 8, 40).unwrap();
    assert_eq!(inflight_region_len(8, false), 192);
    // version, desc_num, last_batch_head, used_idx
    let fields = |at: u64| [0, 2, 4, 6].map(|field| u16_at(&mapping, at + field));
    assert_eq!(fields(64 + 8), [1, 8, 0, 40]);
    inflight.take(5);
    inflight.take(3);
    // inflight, padding, next; counter
    assert_eq!(fields(64 + 16 + 16 * 5), [1, 0, 0, 0]);
    assert_eq!(fields(64 + 16 + 16 * 3), [1, 0, 0, 5]);
    assert_eq!(u16_at(&mapping, 64 + 16 + 16 * 3 + 8), 1);
    assert_eq!(fields(64 + 8), [1, 8, 3, 40]);
    // A second device finds both in the order in which they were taken.
    let mut other = SplitInflight::new(&region, 8, 40).unwrap();
    assert_eq!(other.pending(), 2);
    assert_eq!(
        [other.resubmit(), other.resubmit(), other.resubmit()],
        [Some(5), Some(3), None]
    );
    // A device that finds a changed used index does not: the guest has them.
    let copy = SplitInflight::new(&region, 8, 42).unwrap();
    assert_eq!(copy.pending(), 0);
    inflight.commit(42);
    assert_eq!(fields(64 + 16 + 16 * 5), [0, 0, 0, 0]);
    assert_eq!(fields(64 + 8), [1, 8, 3, 42]);
    assert!(SplitInflight::new(&region, 16, 42).is_none());
}

#[test]
fn packed_regions_are_laid_out_as_specified() {
    let mapping = mapping();
    let region = InflightRegion::new(&mapping, 0);
    let ring = SharedSlice::new(&mapping, 4096, 16).unwrap();
    let start = Position {
        slot: 6,
        wrap: true,
    };
    let mut inflight = PackedInflight::new(&region, 8, start, &ring).unwrap();
    assert_eq!(inflight_region_len(8, true), 320);
    let fields = |at: u64| [0, 2, 4, 6].map(|field| u16_at(&mapping, at + field));
    // version, desc_num, free_head, old_free_head; used_idx, old_used_idx, both wrap counters
    assert_eq!(fields(8), [1, 8, 0, 0]);
    assert_eq!(fields(16), [6, 6, 0x101, 0]);
    let descriptor = |address, flags| (address, PackedWord::new(60, 9, flags));
    inflight.take([descriptor(0x1000, 1), descriptor(0x2000, 0)].into_iter());
    inflight.take([descriptor(0x3000, 4)].into_iter());
    // inflight and padding, next, last, num; counter; id, flags, len; addr
    assert_eq!(fields(32), [1, 1, 1, 2]);
    assert_eq!(fields(32 + 16), [9, 1, 60, 0]);
    assert_eq!(fields(32 + 32 + 24), [0x2000, 0, 0, 0]);
    assert_eq!(fields(32 + 64), [1, 3, 2, 1]);
    assert_eq!(u16_at(&mapping, 32 + 64 + 8), 1);
    assert_eq!(fields(8), [1, 8, 3, 3]);

    let mut other = PackedInflight::new(&region, 8, start, &ring).unwrap();
    assert_eq!((other.pending(), other.position()), (3, start));
    let chain = other.resubmit(10).unwrap();
    assert_eq!(chain, [descriptor(0x1000, 1), descriptor(0x2000, 0)]);
    assert_eq!(other.resubmit(10).unwrap(), [descriptor(0x3000, 4)]);
    assert!(other.resubmit(10).is_none());

    let mut inflight = other;
    inflight.take([].into_iter());
    inflight.take([].into_iter());
    let end = Position {
        slot: 1,
        wrap: false,
    };
    inflight.prepare(end);
    // A crash before the guest sees them: the slot is still available, and both are in flight.
    let word = PackedWord::new(0, 0, packed::avail_flags(true));
    ring[6][1].store(word.0, Ordering::Relaxed);
    let before = mapping.span(0, 320).unwrap().read_array::<320>().unwrap();
    let rolled_back = PackedInflight::new(&region, 8, start, &ring).unwrap();
    assert_eq!((rolled_back.pending(), rolled_back.position()), (3, start));
    // After a crash later than that, none is in flight.
    mapping.span(0, 320).unwrap().copy_from(&before);
    let word = PackedWord::new(0, 0, packed::used_flags(true));
    ring[6][1].store(word.0, Ordering::Relaxed);
    let finished = PackedInflight::new(&region, 8, start, &ring).unwrap();
    assert_eq!((finished.pending(), finished.position()), (0, end));
    mapping.span(0, 320).unwrap().copy_from(&before);
    inflight.commit();
    assert_eq!(fields(16), [1, 1, 0, 0]);
    let after = PackedInflight::new(&region, 8, start, &ring).unwrap();
    assert_eq!((after.pending(), after.position()), (0, end));
}

proptest! {
    #[test]
    fn any_region_is_taken_over_or_refused(
        octets in proptest::collection::vec(any::<u8>(), 32 + 8 * 32),
        small in any::<bool>(),
        size in 1..9_u16,
        used in any::<u16>(),
    ) {
        let mapping = mapping();
        let mut octets = octets;
        if small {
            // Fields that are likely to pass the checks.
            for octet in &mut octets {
                *octet %= 9;
            }
            for at in (1..octets.len()).step_by(2) {
                octets[at] = 0;
            }
            octets[8..12].copy_from_slice(&[1, 0, size as u8, 0]);
        }
        mapping.span(0, octets.len()).unwrap().copy_from(&octets);
        let region = InflightRegion::new(&mapping, 0);
        if let Some(mut inflight) = SplitInflight::new(&region, size, used) {
            let pending = inflight.pending();
            prop_assert!(pending <= size);
            while let Some(head) = inflight.resubmit() {
                prop_assert!(head < size);
                inflight.take(head);
            }
            inflight.commit(used.wrapping_add(pending));
            let next = used.wrapping_add(pending);
            prop_assert_eq!(SplitInflight::new(&region, size, next).unwrap().pending(), 0);
        }
        mapping.span(0, octets.len()).unwrap().copy_from(&octets);
        let ring = SharedSlice::new(&mapping, 4096, 16).unwrap();
        let start = Position { slot: 0, wrap: true };
        if let Some(mut inflight) = PackedInflight::new(&region, size, start, &ring) {
            let pending = inflight.pending();
            prop_assert!(pending <= size);
            let position = inflight.position();
            prop_assert!(position.slot < size);
            let mut slots = 0;
            while let Some(chain) = inflight.resubmit(256) {
                slots += chain.len();
                inflight.take(chain.into_iter());
            }
            prop_assert_eq!(slots, usize::from(pending));
            let end = position.advanced(pending, size);
            inflight.prepare(end);
            inflight.commit();
            let next = PackedInflight::new(&region, size, start, &ring).unwrap();
            prop_assert_eq!((next.pending(), next.position()), (0, end));
        }
    }
}
