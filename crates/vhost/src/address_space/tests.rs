// SPDX-License-Identifier: Apache-2.0

use super::*;
use proptest::prelude::*;

fn mapping(len: usize) -> Arc<Mapping> {
    Arc::new(Mapping::create("quietwire-test", len).unwrap().0)
}

/// Returns two regions that are adjacent for the guest but swapped in the mapping, and one far away.
fn regions(mapping: &Arc<Mapping>) -> Vec<Region> {
    vec![
        Region::new(0x1_0000, 0x7000_0000, 4096, mapping, 4096).unwrap(),
        Region::new(0x1_1000, 0x5000_0000, 4096, mapping, 0).unwrap(),
        Region::new(0x10_0000, 0x6000_0000, 100, mapping, 8192).unwrap(),
    ]
}

fn found(translation: Translation) -> Piece {
    match translation {
        Translation::Piece(piece) => piece,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_buffer_continues_in_the_adjacent_region() {
    let mapping = mapping(12_288);
    let space = AddressSpace::new(regions(&mapping), None).unwrap();
    let mut translator = space.translator();
    let first = found(translator.translate_guest(0x1_0ffe, 10, Access::Read));
    assert_eq!(first.len(), 2);
    let second = found(translator.translate_guest(0x1_1000, 8, Access::Read));
    assert_eq!(second.len(), 8);
    mapping.span(8190, 2).unwrap().copy_from(&[1, 2]);
    mapping.span(0, 2).unwrap().copy_from(&[3, 4]);
    assert_eq!(translator.span(first).unwrap().read_array(), Some([1, 2]));
    assert_eq!(translator.span(second).unwrap().read_array(), Some([3, 4]));
    let (low, high) = (
        translator.cache_region(0x1_0ffe),
        translator.cache_region(0x1_1000),
    );
    assert_eq!((low.index(), high.index()), (0, 1));
    assert!(low.has(0x1_0ffe) && !low.has(0x1_1000) && high.has(0x1_1000));
    let octets = low.octets(0x1_0ffe, 2).unwrap();
    assert_eq!(octets.read_array(), Some([1, 2]));
    assert!(low.octets(0x1_0ffe, 3).is_none());
    assert!(high.octets(0x1_1000, 4096).is_some());
    assert!(high.octets(0x1_1000, 4097).is_none());
    assert!(high.octets(0x1_0ffe, 2).is_none());
    translator.stay(0);
    assert!(translator.near().has(0x1_0ffe));
    translator.stay(3);
    assert!(!translator.near().has(0x1_0ffe) && translator.near().octets(0x1_0ffe, 1).is_none());
    assert_eq!(translator.guest_address(second), Some(0x1_1000));
}

#[test]
fn addresses_of_no_region_are_outside() {
    let mapping = mapping(12_288);
    let space = AddressSpace::new(regions(&mapping), None).unwrap();
    let mut translator = space.translator();
    for address in [0, 0xffff, 0x1_2000, 0x10_0064, u64::MAX] {
        let result = translator.translate_guest(address, 1, Access::Write);
        assert_eq!(result, Translation::Outside, "{address:x}");
        let near = translator.cache_region(address);
        assert!(!near.has(address) && near.octets(address, 1).is_none());
    }
    let last = found(translator.translate_guest(0x10_0060, 100, Access::Read));
    assert_eq!(last.len(), 4);
}

#[test]
fn regions_that_overlap_or_are_too_many_are_refused() {
    let mapping = mapping(4096);
    let region = |guest, user| Region::new(guest, user, 4096, &mapping, 0).unwrap();
    let overlap = AddressSpace::new(vec![region(0, 0), region(4095, 8192)], None);
    assert_eq!(overlap.unwrap_err(), AddressSpaceError::Overlap(0, 1));
    let overlap = AddressSpace::new(vec![region(8192, 4095), region(0, 0)], None);
    assert_eq!(overlap.unwrap_err(), AddressSpaceError::Overlap(0, 1));
    let many = (0..33_u64).map(|at| region(at << 12, at << 12)).collect();
    let error = AddressSpace::new(many, None).unwrap_err();
    assert_eq!(error, AddressSpaceError::TooMany(33));
    assert!(Region::new(0, 0, 0, &mapping, 0).is_none());
    assert!(Region::new(0, 0, 4097, &mapping, 0).is_none());
    assert!(Region::new(u64::MAX - 4094, 0, 4096, &mapping, 0).is_none());
    assert!(Region::new(u64::MAX - 4095, 0, 4096, &mapping, 0).is_some());
}

#[test]
fn rings_are_found_by_user_address_in_one_region() {
    let mapping = mapping(12_288);
    let space = AddressSpace::new(regions(&mapping), None).unwrap();
    let part = space.ring_part(0x7000_0800, 2048, Access::Write).unwrap();
    assert_eq!(part.guest_address(), 0x1_0800);
    assert!(part.words::<AtomicU8>(0, 2048).is_some());
    assert!(part.words::<AtomicU8>(1, 2048).is_none());
    let outside = space.ring_part(0x7000_0800, 2049, Access::Write);
    assert_eq!(outside.unwrap_err(), PartError::Outside);
}

#[test]
fn the_iotlb_translates_and_misses() {
    let mapping = mapping(12_288);
    let iotlb = Arc::new(Iotlb::new());
    let space = AddressSpace::new(regions(&mapping), Some(Arc::clone(&iotlb))).unwrap();
    let mut translator = space.translator();
    let miss = |iova, write| Translation::Miss(Miss { iova, write });
    let read = Access::Read;
    assert_eq!(
        translator.translate_guest(0x9000, 4, read),
        miss(0x9000, false)
    );
    let both = Permission::from_bits(3);
    assert!(iotlb.update(0x9000, 0x100, 0x7000_0f80, both));
    // The entry is longer than the region.
    let piece = found(translator.translate_guest(0x9000, 0x100, read));
    assert_eq!(piece.len(), 0x80);
    assert_eq!(translator.guest_address(piece), Some(0x1_0f80));
    let beyond = translator.translate_guest(0x9080, 1, read);
    assert_eq!(beyond, Translation::Outside);
    // A read-only entry in its place.
    assert!(iotlb.update(0x90ff, 1, 0x7000_0000, Permission::from_bits(1)));
    assert_eq!(
        translator.translate_guest(0x9000, 4, read),
        miss(0x9000, false)
    );
    let write = translator.translate_guest(0x90ff, 4, Access::Write);
    assert_eq!(write, miss(0x90ff, true));
    assert_eq!(found(translator.translate_guest(0x90ff, 4, read)).len(), 1);
    assert!(iotlb.invalidate(0, u64::MAX));
    assert_eq!(
        translator.translate_guest(0x90ff, 4, read),
        miss(0x90ff, false)
    );
    assert!(!iotlb.update(2, u64::MAX, 0, both) && !iotlb.update(1, 0, 0, both));
}

#[test]
fn rings_may_span_entries_that_continue_one_another() {
    let mapping = mapping(12_288);
    let iotlb = Arc::new(Iotlb::new());
    let space = AddressSpace::new(regions(&mapping), Some(Arc::clone(&iotlb))).unwrap();
    let both = Permission::from_bits(3);
    iotlb.update(0x9000, 0x100, 0x7000_0000, both);
    let part = |len| {
        space
            .ring_part(0x9000, len, Access::Read)
            .map(|part| part.offset)
    };
    assert_eq!(part(0x100), Ok(0));
    let miss = Miss {
        iova: 0x9100,
        write: false,
    };
    assert_eq!(part(0x101), Err(PartError::Miss(miss)));
    iotlb.update(0x9100, 0x100, 0x7000_0100, both);
    assert_eq!(part(0x200), Ok(0));
    iotlb.update(0x9200, 0x100, 0x7000_0700, both);
    assert_eq!(part(0x201), Err(PartError::Outside));
}

#[test]
fn the_iotlb_is_bounded_and_forgets_the_oldest() {
    let iotlb = Iotlb::new();
    let both = Permission::from_bits(3);
    for at in 0..IOTLB_ENTRIES_MAX as u64 + 1 {
        iotlb.update(at << 12, 4096, at << 20, both);
    }
    assert_eq!(iotlb.len(), IOTLB_ENTRIES_MAX);
    assert!(iotlb.find(0).is_none());
    assert_eq!(
        iotlb.find(4096).unwrap().translate(4097),
        Some(((1 << 20) + 1, 4095))
    );
    iotlb.clear();
    assert!(iotlb.is_empty() && iotlb.find(4096).is_none());
}

#[test]
fn readers_see_whole_entries_while_the_table_changes() {
    let iotlb = Arc::new(Iotlb::new());
    let both = Permission::from_bits(3);
    // Each entry translates an address to its double, for any start.
    let writer = {
        let iotlb = Arc::clone(&iotlb);
        std::thread::spawn(move || {
            for turn in 0..20_000_u64 {
                let first = (turn * 37) % 1000;
                let len = 1 + turn % 50;
                // Of length 1, so that the rule holds for each.
                for at in first..first + len.min(3) {
                    iotlb.update(at, 1, at * 2, both);
                }
                if turn % 7 == 0 {
                    iotlb.invalidate(first, len);
                }
            }
        })
    };
    while !writer.is_finished() {
        for iova in 0..1000 {
            if let Some(hit) = iotlb.find(iova) {
                assert_eq!(hit.translate(iova), Some((iova * 2, 1)));
            }
        }
    }
    writer.join().unwrap();
}

proptest! {
    #[test]
    fn no_translation_leaves_its_region(address in 0..0x20_0000_u64, len in 0..10_000_u32) {
        let mapping = mapping(12_288);
        let space = AddressSpace::new(regions(&mapping), None).unwrap();
        let mut translator = space.translator();
        if let Translation::Piece(piece) = translator.translate_guest(address, len, Access::Read) {
            prop_assert!(piece.len() <= len);
            prop_assert_eq!(translator.span(piece).unwrap().len(), piece.len() as usize);
            prop_assert_eq!(translator.guest_address(piece), Some(address));
            prop_assert!(translator.span(piece.skip(5)).is_some());
        }
        let first = translator.translate_guest(address, 1, Access::Read);
        let is_inside = first != Translation::Outside;
        let near = translator.cache_region(address);
        near.prefetch(address);
        near.prefetch_write(address);
        prop_assert_eq!(near.has(address), is_inside);
        if let Some(span) = near.octets(address, len as usize) {
            prop_assert_eq!(span.len(), len as usize);
        }
    }
}
