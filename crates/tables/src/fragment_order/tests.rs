// SPDX-License-Identifier: Apache-2.0
//! Fragments in any order, compared with a list of those that wait.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const PORT: u16 = 3;

/// Source, identification, port, number and end of a fragment that waits.
type Waiting = (u32, u16, u16, u32, u32);

/// Returns the frame of a fragment with this number in its datagram, 24 octets each.
fn frame(source: u32, identification: u16, number: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 44]);
    frame.extend(identification.to_be_bytes());
    frame.extend((0x2000 | (number * 3)).to_be_bytes());
    frame.extend([64, 17, 0, 0]);
    frame.extend(source.to_be_bytes());
    frame.extend([198, 51, 100, 9]);
    frame.extend([0; 24]);
    frame
}

/// Returns the frame of an IPv6 fragment with this fragment field.
fn frame_v6(next: u8, field: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    frame.extend([0x60, 0, 0, 0, 0, 16, next, 64]);
    frame.extend([0x20; 32]);
    frame.extend([17, 0]);
    frame.extend(field.to_be_bytes());
    frame.extend([0, 0, 0, 7]);
    frame.extend([0; 8]);
    frame
}

fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat()
}

fn fragment(source: u32, identification: u16, number: u16) -> FrameFragment {
    FrameFragment::of_frame(&frame(source, identification, number), 0).unwrap()
}

/// A table, and the numbers of the stored fragments by place.
struct World {
    order: FragmentOrder,
    stored: Vec<Vec<u32>>,
}

impl World {
    fn new() -> Self {
        Self {
            order: FragmentOrder::new(),
            stored: vec![Vec::new(); HELD_DATAGRAMS],
        }
    }

    /// Returns the decision on a fragment, which is stored as this number if it waits.
    fn arrive(&mut self, fragment: &FrameFragment, port: u16, now: u32, number: u32) -> Arrival {
        let arrival = self.order.arrive(fragment, port, now);
        if let Arrival::Hold(place) = arrival {
            self.stored[place].push(number);
        }
        arrival
    }

    /// Returns all released fragments, with their port and the cause.
    fn release(&mut self, now: u32) -> Vec<(u16, ReleaseCause, Vec<u32>)> {
        let mut all = Vec::new();
        while let Some(one) = self.order.release(now) {
            let stored = std::mem::take(&mut self.stored[one.place]);
            all.push((one.port, one.cause, stored));
        }
        let left: usize = self.stored.iter().map(Vec::len).sum();
        assert_eq!(self.order.held(), left);
        all
    }
}

#[test]
fn fragments_are_recognised_behind_tags_in_both_versions() {
    for (octets, first) in [
        (frame(1, 7, 0), true),
        (frame(1, 7, 2), false),
        (frame_v6(44, 1), true),
        (frame_v6(44, 24), false),
    ] {
        for octets in [tagged(&octets), octets] {
            assert!(may_be_fragment(&octets));
            let fragment = FrameFragment::of_frame(&octets, 0).unwrap();
            assert_eq!(fragment.is_first(), first);
        }
    }
    let mut whole = frame(1, 7, 0);
    // DF alone.
    whole[20..22].copy_from_slice(&[0x40, 0]);
    assert!(!may_be_fragment(&whole));
    assert_eq!(FrameFragment::of_frame(&whole, 0), None);
    // An atomic fragment (RFC 6946).
    assert_eq!(FrameFragment::of_frame(&frame_v6(44, 0), 0), None);
    assert!(!may_be_fragment(&frame_v6(17, 24)));
    assert!(!may_be_fragment(&whole[..20]) && !may_be_fragment(&[]));
}

#[test]
fn later_fragments_wait_for_the_first_one_of_their_datagram() {
    let mut world = World::new();
    for number in [2, 1] {
        let arrival = world.arrive(&fragment(1, 7, number), PORT, 0, number.into());
        assert!(matches!(arrival, Arrival::Hold(_)));
    }
    // Another datagram, and another zone.
    assert_eq!(world.arrive(&fragment(1, 8, 0), PORT, 0, 0), Arrival::Pass);
    let other_zone = FrameFragment::of_frame(&frame(1, 7, 0), 5).unwrap();
    assert_eq!(world.arrive(&other_zone, PORT, 0, 0), Arrival::Pass);
    assert!(world.release(0).is_empty());
    // The first one may arrive at another port.
    assert_eq!(world.arrive(&fragment(1, 7, 0), 9, 1, 0), Arrival::Pass);
    assert_eq!(world.arrive(&fragment(1, 7, 3), PORT, 1, 3), Arrival::Pass);
    let released = world.release(1);
    assert_eq!(released, [(PORT, ReleaseCause::FirstArrived, vec![2, 1])]);
}

#[test]
fn fragments_wait_for_one_to_two_seconds() {
    let mut world = World::new();
    world.arrive(&fragment(1, 7, 1), PORT, 4, 1);
    world.arrive(&fragment(1, 7, 2), PORT, 5, 2);
    assert!(world.release(4).is_empty() && world.release(5).is_empty());
    let released = world.release(6);
    assert_eq!(released, [(PORT, ReleaseCause::Timeout, vec![1, 2])]);
    // The first one is too late, and no fragment waits for it.
    assert_eq!(world.arrive(&fragment(1, 7, 0), PORT, 6, 0), Arrival::Pass);
    assert!(world.release(6).is_empty());
}

#[test]
fn a_flood_of_later_fragments_has_bounded_space() {
    let mut world = World::new();
    // One datagram.
    for number in 1..1000u16 {
        let arrival = world.arrive(&fragment(1, 7, number), PORT, 0, 0);
        let has_space = usize::from(number) <= HELD_OF_SOURCE;
        assert_eq!(arrival != Arrival::Overflow, has_space, "{number}");
    }
    assert_eq!(world.order.held(), HELD_OF_SOURCE);
    world.release(2);
    // Many datagrams of one source.
    for identification in 0..1000 {
        world.arrive(&fragment(1, identification, 1), PORT, 2, 0);
    }
    assert_eq!(world.order.held(), WAYS);
    // Many sources.
    for source in 0..10_000 {
        world.arrive(&fragment(source, 7, 1), PORT, 2, 0);
        world.arrive(&fragment(source, 7, 2), PORT, 2, 0);
    }
    assert!(world.order.held() <= HELD_FRAGMENTS);
    // Fragments behind their first ones need no space.
    assert_eq!(world.arrive(&fragment(5, 9, 0), PORT, 2, 0), Arrival::Pass);
    assert_eq!(world.arrive(&fragment(5, 9, 1), PORT, 2, 0), Arrival::Pass);
    assert!(!world.release(4).is_empty());
    assert_eq!(world.order.held(), 0);
}

#[test]
fn other_sources_have_space_beside_one_that_floods() {
    let mut world = World::new();
    for number in 0..10_000u16 {
        world.arrive(&fragment(1, number / 60, 1 + number % 60), PORT, 0, 0);
    }
    let has_space = |world: &mut World, source| {
        matches!(
            world.arrive(&fragment(source, 7, 1), PORT, 0, 0),
            Arrival::Hold(_)
        )
    };
    let others = (2..34).filter(|source| has_space(&mut world, *source));
    // Those of the same set have none.
    assert!(others.count() >= 16);
}

#[test]
fn fragments_of_a_port_that_leaves_and_those_without_a_buffer_have_no_space() {
    let mut world = World::new();
    world.arrive(&fragment(1, 7, 1), PORT, 0, 1);
    world.arrive(&fragment(1, 7, 2), 9, 0, 2);
    world.arrive(&fragment(2, 7, 2), PORT, 0, 3);
    while let Some(place) = world.order.forget(PORT) {
        world.stored[place].clear();
    }
    assert_eq!(world.order.held(), 1);
    let waiting: Vec<u16> = world.order.waiting().map(|(_, port)| port).collect();
    assert_eq!(waiting, [9]);
    // Another one for which there is no buffer, in the same place.
    let Arrival::Hold(place) = world.order.arrive(&fragment(1, 7, 3), 9, 0) else {
        panic!("there is space");
    };
    world.order.cancel(place);
    assert_eq!(world.order.held(), 1);
    world.arrive(&fragment(1, 7, 0), 9, 0, 0);
    assert_eq!(world.release(0), [(9, ReleaseCause::FirstArrived, vec![2])]);
    let Arrival::Hold(place) = world.order.arrive(&fragment(1, 8, 3), 9, 0) else {
        panic!("there is space");
    };
    world.order.cancel(place);
    world.order.cancel(place);
    assert!(world.release(9).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Up to four datagrams of four sources, each in two to eight fragments.
    #[test]
    fn any_order_leads_to_the_fragments_behind_their_first_ones(
        datagrams in prop::collection::vec((0..4u32, 2..9u16), 1..16),
        keys in prop::collection::vec(any::<u64>(), 128),
    ) {
        let mut all = Vec::new();
        for (identification, (source, count)) in (0u16..).zip(&datagrams) {
            all.extend((0..*count).map(|number| (*source, identification, number)));
        }
        let mut shuffled: Vec<_> = all.iter().zip(&keys).collect();
        shuffled.sort_by_key(|(_, key)| **key);
        let sent: Vec<_> = shuffled.into_iter().map(|(one, _)| *one).collect();
        let mut world = World::new();
        let mut left = Vec::new();
        for (place, (source, identification, number)) in (0u32..).zip(&sent) {
            let fragment = fragment(*source, *identification, *number);
            match world.arrive(&fragment, PORT, 0, place) {
                Arrival::Pass => left.push(sent[place as usize]),
                Arrival::Hold(_) => {}
                // At most 15 datagrams, but all may be of one set.
                Arrival::Overflow => prop_assert!(world.order.held() >= HELD_OF_SOURCE),
            }
            let released = world.release(0).into_iter().flat_map(|(.., stored)| stored);
            left.extend(released.map(|place| sent[place as usize]));
        }
        prop_assert_eq!(world.order.held(), 0);
        let mut begun = BTreeSet::new();
        for (_, identification, number) in &left {
            if *number == 0 {
                begun.insert(*identification);
            }
            prop_assert!(begun.contains(identification));
        }
        // None is lost or there twice, unless a set was full.
        let distinct: BTreeSet<_> = left.iter().collect();
        prop_assert_eq!(distinct.len(), left.len());
        if all.len() <= HELD_OF_SOURCE {
            prop_assert_eq!(left.len(), all.len());
        }
    }

    #[test]
    fn the_table_agrees_with_a_list(
        steps in prop::collection::vec((0..3u32, 0..2u16, 0..3u16, 0..2u16, 0..3u32), 1..100),
    ) {
        let mut world = World::new();
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut firsts = Vec::new();
        let mut now = 0;
        for (count, (source, identification, number, port, seconds)) in (0u32..).zip(steps) {
            now += seconds;
            let mut expected = BTreeSet::new();
            waiting.retain(|one| {
                let is_over = one.4 <= now;
                if is_over {
                    expected.insert((ReleaseCause::Timeout as u8, one.3));
                }
                !is_over
            });
            let found = |released: Vec<(u16, ReleaseCause, Vec<u32>)>| -> BTreeSet<(u8, u32)> {
                let each = |(_, cause, stored): (u16, ReleaseCause, Vec<u32>)| {
                    stored.into_iter().map(move |number| (cause as u8, number))
                };
                released.into_iter().flat_map(each).collect()
            };
            prop_assert_eq!(found(world.release(now)), expected);
            firsts.retain(|(_, _, ends_at)| *ends_at > now);
            let arrival = world.arrive(&fragment(source, identification, number), port, now, count);
            let is_known = firsts
                .iter()
                .any(|(of, number, _)| (*of, *number) == (source, identification));
            let is_same = |one: &Waiting| (one.0, one.1) == (source, identification);
            let mut expected = BTreeSet::new();
            if number == 0 {
                prop_assert_eq!(arrival, Arrival::Pass);
                firsts.push((source, identification, now + crate::fragments::TIMEOUT_S));
                let ready = waiting.iter().filter(|one| is_same(one));
                expected.extend(ready.map(|one| (ReleaseCause::FirstArrived as u8, one.3)));
                waiting.retain(|one| !is_same(one));
            } else if is_known {
                prop_assert_eq!(arrival, Arrival::Pass);
            } else {
                prop_assert!(matches!(arrival, Arrival::Hold(_)));
                let mut own = waiting.iter().filter(|one| is_same(one) && one.2 == port);
                let ends_at = own.next().map_or(now + TIMEOUT_S, |one| one.4);
                waiting.push((source, identification, port, count, ends_at));
            }
            prop_assert_eq!(found(world.release(now)), expected);
        }
    }
}
