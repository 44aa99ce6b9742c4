// SPDX-License-Identifier: Apache-2.0
//! Owners of fragments to external addresses of NAT: the first one has the port that determines the owner, and the later ones follow it.

use super::{
    Flow, IPV4, IPV6, Owners, addresses_of, flow_of, packet_of, ports_at, ports_of_first_ipv6,
};
use crate::fragments::{Datagrams, FragmentPart};

/// Owners of the datagrams whose first fragment a forwarding thread has processed. Half a MiB.
#[derive(Debug)]
pub struct FragmentOwners {
    datagrams: Datagrams<u16>,
}

impl FragmentOwners {
    /// Creates the table, without datagrams and with all of its memory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            datagrams: Datagrams::new(),
        }
    }
}

impl Default for FragmentOwners {
    fn default() -> Self {
        Self::new()
    }
}

impl Owners {
    /// As [`Owners::of_frame`], for a frame on the thread that its addresses determine, in the second `now`. Fragments to an external address
    /// of NAT have the owner of the first one, if this thread has processed it before.
    #[inline]
    #[must_use]
    pub fn of_ordered(
        &self,
        octets: &[u8],
        fragments: &mut FragmentOwners,
        now: u32,
    ) -> Option<u16> {
        let (ethertype, packet) = packet_of(octets)?;
        match ethertype {
            IPV4 => {
                let flow = flow_of(packet)?;
                let joined = match flow.ports {
                    Some(_) => None,
                    None => self.of_fragment(packet, &flow, fragments, now),
                };
                Some(joined.unwrap_or_else(|| self.ipv4.of_flow(&flow, self.count)))
            }
            IPV6 => {
                let joined = match self.ipv6.nats.is_empty() {
                    true => None,
                    false => self.of_ipv6_fragment(packet, fragments, now),
                };
                joined.or_else(|| self.of_ipv6(packet))
            }
            _ => None,
        }
    }

    /// Returns the owner of a fragment to an external address. `None` for other packets, and for later fragments of unknown datagrams.
    #[cold]
    fn of_fragment(
        &self,
        packet: &[u8],
        flow: &Flow,
        fragments: &mut FragmentOwners,
        now: u32,
    ) -> Option<u16> {
        let mut nats = self.ipv4.nats.iter();
        let nat = nats.find(|nat| nat.number_of(flow.destination).is_some())?;
        let part = FragmentPart::of_ipv4(packet, 0)?;
        if part.offset > 0 {
            return fragments.datagrams.find(&part.id, now);
        }
        let ports = ports_at(packet, part.id.protocol, part.at);
        let flow = Flow { ports, ..*flow };
        let owner = self.ipv4.of_external(nat, &flow, self.count)?;
        fragments.datagrams.note(part.id, owner, now);
        Some(owner)
    }

    /// As [`Self::of_fragment`], for a fragment to an external address of NAT66.
    fn of_ipv6_fragment(
        &self,
        packet: &[u8],
        fragments: &mut FragmentOwners,
        now: u32,
    ) -> Option<u16> {
        let part = FragmentPart::of_ipv6(packet, 0)?;
        let (source, destination) = addresses_of(packet)?;
        let mut nats = self.ipv6.nats.iter();
        let nat = nats.find(|nat| nat.number_of(destination).is_some())?;
        if part.offset > 0 {
            return fragments.datagrams.find(&part.id, now);
        }
        let flow = Flow {
            source,
            destination,
            ports: ports_of_first_ipv6(packet),
        };
        let owner = self.ipv6.of_external(nat, &flow, self.count)?;
        fragments.datagrams.note(part.id, owner, now);
        Some(owner)
    }
}
