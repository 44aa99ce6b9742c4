// SPDX-License-Identifier: Apache-2.0
//! Fragments: all of a datagram are translated like the first one.

use std::hash::{BuildHasher, RandomState};

use super::packet::{DESTINATION_AT, SOURCE_AT, address_at};
use super::rewrite::{translate_address, translate_identification};
use crate::fragments::{Datagrams, FragmentPart};
use crate::nat::first_fragment::FirstFragment;
use crate::nat::rewrite::Which;
use crate::nat::{NatDrop, NatProtocol};
use crate::share::Share;

/// Rounds of the Feistel network.
const ROUNDS: u8 = 4;

/// Datagrams whose first fragment has been translated.
#[derive(Debug)]
pub(super) struct Joined {
    datagrams: Datagrams<FirstFragment<u128, u32>>,
    identifications: Identifications,
}

/// Identifications for datagrams of external addresses. No two of 2^32 in a row are equal, whatever the inside hosts (RFC 8200, section
/// 4.5), and no host can predict the next one (RFC 7739, section 5.2). With several forwarding CPUs, the lowest bits are those of the CPU,
/// and the others take all values in a row.
#[derive(Debug)]
struct Identifications {
    count: u32,
    /// Bits of half of the network, and of the number of the CPU.
    half_bits: u32,
    tag_bits: u32,
    tag: u32,
    /// Secret of the hash.
    random: RandomState,
}

impl Identifications {
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most 16 bits are those of the CPU"
    )]
    fn new(share: Share) -> Self {
        let (tag_bits, tag) = share.tag();
        Self {
            count: 0,
            // At most 16 bits are those of the CPU.
            half_bits: (u32::BITS - tag_bits) / 2,
            tag_bits,
            tag,
            random: RandomState::new(),
        }
    }

    /// Returns another one: a Feistel network (Luby, Rackoff: How to construct pseudorandom permutations, 1988) over a counter.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "shifts are below 32, and any bits of the hash do"
    )]
    fn draw(&mut self) -> u32 {
        self.count = self.count.wrapping_add(1);
        let mask = (1 << self.half_bits) - 1;
        let [mut left, mut right] = [self.count >> self.half_bits & mask, self.count & mask];
        for round in 0..ROUNDS {
            let word = self.random.hash_one((round, right)) as u32 & mask;
            (left, right) = (right, left ^ word);
        }
        (left << self.half_bits | right) << self.tag_bits | self.tag
    }
}

/// Returns source and destination of a packet.
pub(super) fn ends(packet: &[u8]) -> Result<(u128, u128), NatDrop> {
    let ends = address_at(packet, SOURCE_AT).zip(address_at(packet, DESTINATION_AT));
    ends.ok_or(NatDrop::Malformed)
}

impl Joined {
    pub(super) fn new(share: Share) -> Self {
        Self {
            datagrams: Datagrams::new(),
            identifications: Identifications::new(share),
        }
    }

    /// Returns the memory of the table, octets.
    pub(super) fn octets(&self) -> usize {
        self.datagrams.octets()
    }

    /// Notes how the first fragment of a datagram was translated from these addresses to others, and gives it an identification.
    pub(super) fn note(
        &mut self,
        (part, protocol): (&FragmentPart, NatProtocol),
        packet: &mut [u8],
        (before, after): ((u128, u128), (u128, u128)),
        is_hairpinned: bool,
        now: u32,
    ) {
        let first = FirstFragment::new(
            (part, protocol),
            packet,
            (before, after),
            self.identifications.draw(),
            is_hairpinned,
        );
        if first.source.is_some() {
            translate_identification(packet, part.at, first.identification);
        }
        self.datagrams.note(part.id, first, now);
    }

    /// Translates a later fragment. Returns true if it is between inside hosts.
    pub(super) fn translate(
        &self,
        part: &FragmentPart,
        packet: &mut [u8],
        now: u32,
    ) -> Result<bool, NatDrop> {
        let first = FirstFragment::of_later(&self.datagrams, part, now)?;
        if let Some(source) = first.source {
            translate_address(packet, Which::Source, source);
            translate_identification(packet, part.at, first.identification);
        }
        if let Some(destination) = first.destination {
            translate_address(packet, Which::Destination, destination);
        }
        Ok(first.is_hairpinned)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn identifications_differ_and_do_not_follow_one_another() {
        let mut identifications = Identifications::new(Share::WHOLE);
        let list: Vec<u32> = (0..20_000).map(|_| identifications.draw()).collect();
        let distinct: HashSet<&u32> = list.iter().collect();
        assert_eq!(distinct.len(), list.len());
        let pairs = list.windows(2);
        let steps: HashSet<u32> = pairs.map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert!(steps.len() > 19_000, "{}", steps.len());
        // Another secret, another sequence.
        let mut others = Identifications::new(Share::WHOLE);
        assert!((0..8).map(|_| others.draw()).ne(list[..8].iter().copied()));
    }

    #[test]
    fn cpus_have_different_identifications() {
        let mut all = HashSet::new();
        for number in 0..5 {
            let share = Share::new(number, 5).unwrap();
            let mut identifications = Identifications::new(share);
            for _ in 0..10_000 {
                assert!(all.insert(identifications.draw()));
            }
        }
    }
}
