// SPDX-License-Identifier: Apache-2.0
//! Account of the fragmented datagrams that arrive.

use std::net::{Ipv4Addr, Ipv6Addr};

use quietwire_packet::{Fragment, IpProtocol, UDP_HEADER_LENGTH, parse};

use super::count;
use super::fragments::ArrivedFragments;
use super::piece::{Shape, bit};
use super::plan::AddressRange;

/// Datagrams that may be on their way at a time.
const SLOTS: u64 = 1 << 14;

/// Account of the datagrams that arrive.
#[derive(Debug)]
pub(crate) struct PieceCount {
    shape: Shape,
    sources: AddressRange,
    /// Number of a datagram plus one, and its fragments that arrived, by the last digits of the number.
    slots: Box<[(u64, u32)]>,
    counts: ArrivedFragments,
}

impl PieceCount {
    pub(crate) fn new(shape: Shape, sources: AddressRange) -> Self {
        Self {
            shape,
            sources,
            slots: (0..SLOTS).map(|_| (0, 0)).collect(),
            counts: ArrivedFragments::default(),
        }
    }

    pub(crate) fn counts(&self) -> ArrivedFragments {
        self.counts
    }

    /// Returns true if an address is a source of fragmented datagrams.
    pub(crate) fn is_source(&self, address: Ipv6Addr) -> bool {
        self.sources.number(address).is_some()
    }

    /// Takes a frame. Returns false if it is no fragment of these datagrams.
    pub(crate) fn receive(&mut self, frame: &[u8]) -> bool {
        let Ok(parsed) = parse(frame) else {
            return false;
        };
        let source = match (parsed.ipv4(frame), parsed.ipv6(frame)) {
            (Some(header), _) => Ipv4Addr::to_ipv6_mapped(&header.source()),
            (None, Some(header)) => header.source(),
            (None, None) => return false,
        };
        let Some(ip) = parsed.ip() else {
            return false;
        };
        let is_fragment = ip.fragment != Fragment::Whole && ip.protocol == IpProtocol::UDP;
        if !is_fragment || !self.is_source(source) {
            return false;
        }
        let (start, end) = (usize::from(ip.transport_offset), usize::from(ip.end));
        let octets = frame.get(start..end).unwrap_or_default();
        let data = match ip.fragment {
            Fragment::First => octets.get(UDP_HEADER_LENGTH..).unwrap_or_default(),
            Fragment::Whole | Fragment::Later => octets,
        };
        count(&mut self.counts.fragments);
        match self.shape.read(data) {
            Some((number, index)) => self.note(number, bit(index)),
            None => count(&mut self.counts.damaged),
        }
        true
    }

    /// Takes the data of a datagram that the device has reassembled.
    pub(crate) fn receive_whole(&mut self, data: &[u8]) {
        count(&mut self.counts.reassembled);
        let (shape, octets) = (self.shape, usize::from(self.shape.octets));
        let is_whole = data.len() == shape.data_length();
        let mut found = data.chunks(octets.max(1)).map(|data| shape.read(data));
        let first = found.next().flatten().filter(|(_, index)| *index == 0);
        let rest = |number| (1..shape.count).map(move |index| Some((number, index)));
        let is_right = first.is_some_and(|(number, _)| is_whole && found.eq(rest(number)));
        match first.filter(|_| is_right) {
            Some((number, _)) => self.note(number, shape.all()),
            None => count(&mut self.counts.damaged),
        }
    }

    /// Notes fragments of a datagram.
    fn note(&mut self, number: u64, fragments: u32) {
        let all = self.shape.all();
        let place = usize::try_from(number % SLOTS).unwrap_or(0);
        let Some((known, arrived)) = self.slots.get_mut(place) else {
            return;
        };
        let number = number.saturating_add(1);
        if *known < number {
            (*known, *arrived) = (number, 0);
        }
        if *known == number && *arrived != all {
            *arrived |= fragments;
            if *arrived == all {
                count(&mut self.counts.complete);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(fragments: u8) -> PieceCount {
        let shape = Shape {
            seed: 7,
            count: fragments,
            octets: 24,
        };
        let sources = AddressRange::new("198.19.201.1".parse().unwrap(), 4);
        PieceCount::new(shape, sources)
    }

    /// Returns the data of a fragment.
    fn data(shape: Shape, number: u64, index: u8) -> Vec<u8> {
        let mut data = shape.mark(number, index).to_vec();
        data.resize(usize::from(shape.octets), 0);
        data
    }

    #[test]
    fn datagrams_are_complete_once_all_octets_arrived() {
        let mut count = count(3);
        let shape = count.shape;
        for (number, fragments, complete) in [
            (0, &[0, 1][..], 0),
            (1, &[2, 0, 1][..], 1),
            // A fragment arrives twice, and one after the datagram was complete.
            (1, &[0][..], 1),
            (2, &[1, 1, 0][..], 1),
            (0, &[2][..], 2),
        ] {
            for index in fragments {
                count.note(number, bit(*index));
            }
            assert_eq!(count.counts.complete, complete, "{number} {fragments:?}");
        }
        let whole = |number| -> Vec<u8> {
            (0..3)
                .flat_map(|index| data(shape, number, index))
                .collect()
        };
        count.receive_whole(&whole(3));
        assert_eq!((count.counts.complete, count.counts.damaged), (3, 0));
        let mut exchanged = whole(4);
        exchanged.rotate_left(24);
        let mut changed = whole(4);
        changed[60] = 1;
        for other in [&exchanged[..], &changed, &whole(4)[..71], &[]] {
            count.receive_whole(other);
        }
        let counts = count.counts();
        assert_eq!((counts.reassembled, counts.damaged), (5, 4));
        assert_eq!(counts.complete, 3);
        // A datagram that is so late that another one has its place does not replace it.
        count.note(5 + SLOTS, bit(0) | bit(1));
        count.note(5, bit(2));
        count.note(5 + SLOTS, bit(2));
        assert_eq!(count.counts.complete, 4);
    }
}
