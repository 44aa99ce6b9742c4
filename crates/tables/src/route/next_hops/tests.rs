// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::shares::{buckets_for, quotas, share_out};
use super::*;

fn counts(buckets: &[u32]) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for number in buckets {
        *counts.entry(*number).or_default() += 1;
    }
    counts
}

#[test]
fn words_hold_their_parts() {
    let mac = MacAddress::from_u64(0x0200_0000_0007);
    for next_hop in [
        NextHop::None,
        NextHop::Blackhole,
        NextHop::Unreachable,
        NextHop::Prohibit,
        NextHop::Local,
        NextHop::Glean { interface: 4095 },
        NextHop::Incomplete { interface: 1 },
        NextHop::Adjacency { interface: 7, mac },
        NextHop::Group(Buckets {
            first: u32::MAX,
            size_log2: 12,
            members: 64,
        }),
    ] {
        assert_eq!(NextHop::of_word(next_hop.word()), next_hop);
    }
}

/// Numbers of `bits` bits: all of them up to 16 bits; beyond, every value of each group of 16 bits, with the other bits all 0 or all 1.
fn values(bits: u32) -> impl Iterator<Item = u64> {
    let all = u64::MAX >> (u64::BITS - bits);
    let groups = (0..bits).step_by(16);
    let of_group = move |shift: u32| {
        let group = (0xffff << shift) & all;
        (0..=group >> shift).flat_map(move |value| {
            let value = value << shift;
            [value, value | (all & !group)]
        })
    };
    groups.flat_map(of_group)
}

/// Checks that a word has this next hop, and that the fast path agrees.
fn check_word(next_hop: NextHop) {
    let word = next_hop.word();
    assert_eq!(NextHop::of_word(word), next_hop);
    let expected = match next_hop {
        NextHop::Adjacency { interface, mac } => Some(Adjacency::new(interface, mac)),
        _ => None,
    };
    let resolved = (word >> KIND_SHIFT == ADJACENCY).then_some(Adjacency::of_word(word));
    assert_eq!(resolved, expected);
    if let Some(adjacency) = resolved {
        let parts = (Some(adjacency.interface()), adjacency.mac());
        assert!(matches!(next_hop, NextHop::Adjacency { mac, .. } if mac == parts.1));
        assert_eq!(parts.0, next_hop.interface());
    }
}

/// The fields of a word do not overlap: each takes all its values beside both extremes of the others.
#[test]
#[cfg_attr(miri, ignore = "too slow under Miri")]
fn words_hold_every_value_of_each_field() {
    for interface in values(12) {
        let interface = u16::try_from(interface).unwrap();
        check_word(NextHop::Glean { interface });
        check_word(NextHop::Incomplete { interface });
        for mac in [0, MAC_MASK].map(MacAddress::from_u64) {
            check_word(NextHop::Adjacency { interface, mac });
        }
    }
    for mac in values(48).map(MacAddress::from_u64) {
        for interface in [0, 4095] {
            check_word(NextHop::Adjacency { interface, mac });
        }
    }
    let group = |first: u64, size_log2: u64, members: u64| Buckets {
        first: u32::try_from(first).unwrap(),
        size_log2: u8::try_from(size_log2).unwrap(),
        members: u8::try_from(members).unwrap(),
    };
    for (size_log2, members) in values(5).flat_map(|size| values(7).map(move |one| (size, one))) {
        for first in [0, u64::from(u32::MAX)] {
            check_word(NextHop::Group(group(first, size_log2, members)));
        }
    }
    for first in values(32) {
        for (size_log2, members) in [(0, 0), (0, 127), (31, 0), (31, 127)] {
            check_word(NextHop::Group(group(first, size_log2, members)));
        }
    }
    // All sizes that occur have a place.
    assert!(shares::BUCKETS_MAX.ilog2() <= 31 && MEMBERS_MAX <= 127);
    // A word of an unknown kind is no route.
    for kind in (0..16).filter(|kind| !(1..=8).contains(kind)) {
        for rest in [0, (1 << KIND_SHIFT) - 1] {
            assert_eq!(NextHop::of_word(kind << KIND_SHIFT | rest), NextHop::None);
        }
    }
}

#[test]
fn numbers_are_used_again_after_their_epoch() {
    let mut writer = NextHopWriter::new(16).unwrap();
    let numbers: Vec<u32> = (0..16)
        .map(|_| writer.add(NextHop::Local).unwrap())
        .collect();
    assert_eq!(numbers, (1..=16).collect::<Vec<u32>>());
    assert_eq!(writer.add(NextHop::Local), Err(NextHopError::Full));
    writer.set_epoch(3);
    writer.remove(5);
    writer.reclaim(3);
    assert_eq!(writer.add(NextHop::Local), Err(NextHopError::Full));
    // A reader with the old number still finds its former next hop.
    assert_eq!(writer.shared().get(5), NextHop::Local);
    writer.reclaim(4);
    assert_eq!(writer.add(NextHop::Blackhole), Ok(5));
    assert_eq!(writer.len(), 16);
}

#[test]
fn shares_follow_weights() {
    let mut writer = NextHopWriter::new(64).unwrap();
    let group = writer.add_group(&[(1, 1), (2, 3)]).unwrap();
    let NextHop::Group(buckets) = writer.shared().get(group) else {
        panic!();
    };
    assert_eq!(
        counts(&writer.read(buckets)),
        BTreeMap::from([(1, 8), (2, 24)])
    );
    assert_eq!(writer.add_group(&[]), Err(NextHopError::Members(0)));
    assert_eq!(
        writer.set_group(group, &[(1, 1); 65]),
        Err(NextHopError::Members(65))
    );
}

/// Many large groups change within one epoch, as when an interface is removed: more than fit twice.
#[test]
fn groups_change_without_space_for_a_second_one() {
    let mut writer = NextHopWriter::new(64).unwrap();
    let members: Vec<Member> = (1..=8).map(|number| (number, 64)).collect();
    let groups: Vec<u32> = (0..)
        .map_while(|_| writer.add_group(&members).ok())
        .collect();
    assert!(groups.len() >= 4);
    let read = |writer: &NextHopWriter, group| match writer.shared().get(group) {
        NextHop::Group(buckets) => (buckets, counts(&writer.read(buckets))),
        other => panic!("{other:?}"),
    };
    for left in [1, 4, 8] {
        for group in &groups {
            writer.set_group(*group, &members[..left]).unwrap();
            let (buckets, counts) = read(&writer, *group);
            assert_eq!(counts.len(), left);
            assert!(counts.values().all(|count| *count == 4096 / left));
            assert_eq!(usize::from(buckets.members), left);
        }
    }
    // A new group must wait for the epoch.
    writer.set_epoch(1);
    writer.remove(groups[0]);
    assert_eq!(writer.add_group(&members), Err(NextHopError::Full));
    writer.reclaim(2);
    assert!(writer.add_group(&members).is_ok());
}

#[test]
fn a_strict_check_finds_all_members() {
    let mut writer = NextHopWriter::new(64).unwrap();
    let on = |interface| NextHop::Incomplete { interface };
    let (a, b) = (writer.add(on(3)).unwrap(), writer.add(on(4)).unwrap());
    let group = writer.add_group(&[(a, 1), (b, 1)]).unwrap();
    let shared = writer.shared();
    let NextHop::Group(buckets) = shared.get(group) else {
        panic!();
    };
    assert!(shared.leaves_by(buckets, 3) && shared.leaves_by(buckets, 4));
    assert!(!shared.leaves_by(buckets, 5));
    assert!((0..100).all(|flow| shared.choose(buckets, flow).interface().is_some()));
}

proptest! {
    #[test]
    fn members_that_stay_keep_their_flows(
        before in prop::collection::btree_map(1..20u32, 1..5u8, 1..8),
        after in prop::collection::btree_map(1..20u32, 1..5u8, 1..8),
    ) {
        let before: Vec<Member> = before.into_iter().collect();
        let after: Vec<Member> = after.into_iter().collect();
        let size = buckets_for(&before).max(buckets_for(&after)) as usize;
        let first = share_out(&[], size, &before);
        let second = share_out(&first, size, &after);
        let quota = |members: &[Member], number| {
            let at = members.iter().position(|(one, _)| *one == number);
            at.map_or(0, |at| quotas(size, members)[at])
        };
        for (number, _) in before.iter().chain(&after) {
            prop_assert_eq!(counts(&first).get(number).copied().unwrap_or(0), quota(&before, *number));
            prop_assert_eq!(counts(&second).get(number).copied().unwrap_or(0), quota(&after, *number));
            // As many buckets as possible stay: the smaller of both shares.
            let stayed = first.iter().zip(&second).filter(|(a, b)| a == b && *a == number).count();
            prop_assert_eq!(stayed, quota(&before, *number).min(quota(&after, *number)));
        }
    }
}
