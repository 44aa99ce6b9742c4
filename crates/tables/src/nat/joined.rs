// SPDX-License-Identifier: Apache-2.0
//! Fragments: all of a datagram are translated like the first one.

use std::hash::{BuildHasher, RandomState};

use super::first_fragment::FirstFragment;
use super::names::{NatDrop, NatProtocol};
use super::rewrite::{Which, translate_address, translate_identification};
use crate::fragments::{Datagrams, FragmentPart};
use crate::share::Share;

/// Offset in an IPv4 header.
const PROTOCOL_AT: usize = 9;

/// Datagrams whose first fragment has been translated.
#[derive(Debug)]
pub(super) struct Joined {
    datagrams: Datagrams<FirstFragment<u32, u16>>,
    /// Counter of identifications. Those of an external address differ, whatever the inside hosts (RFC 6864, section 5.3.1).
    count: u16,
    share: Share,
}

impl Joined {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "any bits of a random number do"
    )]
    pub(super) fn new(share: Share) -> Self {
        Self {
            datagrams: Datagrams::new(),
            count: RandomState::new().hash_one(0) as u16,
            share,
        }
    }

    /// Returns the memory of the table, octets.
    pub(super) fn octets(&self) -> usize {
        self.datagrams.octets()
    }

    /// Notes how the first fragment of a datagram was translated from these addresses to others, and gives it an identification.
    pub(super) fn note(
        &mut self,
        part: &FragmentPart,
        packet: &mut [u8],
        (before, after): ((u32, u32), (u32, u32)),
        is_hairpinned: bool,
        now: u32,
    ) {
        let protocol = packet.get(PROTOCOL_AT);
        let protocol = protocol.and_then(|number| NatProtocol::of_number(*number));
        let protocol = protocol.unwrap_or(NatProtocol::Udp);
        let first = FirstFragment::new(
            (part, protocol),
            packet,
            (before, after),
            self.next_identification(),
            is_hairpinned,
        );
        if first.source.is_some() {
            translate_identification(packet, first.identification);
        }
        self.datagrams.note(part.id, first, now);
    }

    /// Returns an identification that no other datagram of the external addresses has at this time.
    pub(super) fn next_identification(&mut self) -> u16 {
        self.count = self.count.wrapping_add(1);
        self.share.distinct(self.count)
    }

    /// Returns the destination that a later fragment gets, if it changes.
    pub(super) fn destination_of(&self, part: &FragmentPart, now: u32) -> Option<u32> {
        self.datagrams.find(&part.id, now)?.destination
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
            translate_identification(packet, first.identification);
        }
        if let Some(destination) = first.destination {
            translate_address(packet, Which::Destination, destination);
        }
        Ok(first.is_hairpinned)
    }
}
