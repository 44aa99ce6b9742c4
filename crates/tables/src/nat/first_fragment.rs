// SPDX-License-Identifier: Apache-2.0
//! Translation of the first fragment of a datagram, for the later ones.

use quietwire_packet::TCP_HEADER_MIN;

use super::names::{NatDrop, NatProtocol};
use crate::fragments::{Datagrams, FragmentPart};

/// Offset of the header length in a TCP header.
const TCP_LENGTH_AT: usize = 12;
/// Octets of the headers of UDP and of an ICMP echo.
const SHORT_HEADER: u32 = 8;

/// Data of the first fragment of a datagram for the later ones. `A` is an address, `I` an identification.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstFragment<A, I> {
    /// New addresses, as far as they change.
    pub(crate) source: Option<A>,
    pub(crate) destination: Option<A>,
    /// New identification of a datagram with a new source.
    pub(crate) identification: I,
    /// Octets of the payload up to the end of the transport header. No later fragment may contain some of them (RFC 1858, section 4).
    headers: u32,
    pub(crate) is_hairpinned: bool,
}

impl<A: Copy + PartialEq, I: Copy> FirstFragment<A, I> {
    /// Returns the data of a fragment in a packet that was translated from these addresses, source and destination, to others.
    pub(crate) fn new(
        (part, protocol): (&FragmentPart, NatProtocol),
        packet: &[u8],
        (before, after): ((A, A), (A, A)),
        identification: I,
        is_hairpinned: bool,
    ) -> Self {
        let headers = match protocol {
            NatProtocol::Tcp => {
                let length = packet.get(part.at.saturating_add(TCP_LENGTH_AT));
                let length = length.map_or(0, |length| usize::from(length >> 4).saturating_mul(4));
                // The sender may state less than every header has. At most 60 octets.
                u32::try_from(length.max(TCP_HEADER_MIN)).unwrap_or(u32::MAX)
            }
            NatProtocol::Udp | NatProtocol::Icmp => SHORT_HEADER,
        };
        let changed = |before: A, after: A| (before != after).then_some(after);
        Self {
            source: changed(before.0, after.0),
            destination: changed(before.1, after.1),
            identification,
            headers,
            is_hairpinned,
        }
    }

    /// Returns the data of the first fragment for a later one of its datagram.
    ///
    /// # Errors
    /// [`NatDrop::Fragment`]: the first one is not known, or the later one is within the transport header.
    pub(crate) fn of_later(
        datagrams: &Datagrams<Self>,
        part: &FragmentPart,
        now: u32,
    ) -> Result<Self, NatDrop> {
        let first = datagrams.find(&part.id, now);
        let first = first.filter(|first| part.offset >= first.headers);
        first.ok_or(NatDrop::Fragment)
    }
}
