// SPDX-License-Identifier: Apache-2.0
//! Decision for one packet with its next hop.

use quietwire_packet::ETHERNET_HEADER_LENGTH;

use super::decision::{Adjacency, Decision, Punt};
use super::flow_hash::flow_hash;
use super::fragment;
use super::header::PacketSummary;
use super::next_hops::NextHop;
use super::router::Router;
use crate::drops::RouterDrop;

/// Returns the decision for a packet with this next hop.
#[inline(always)]
pub(super) fn follow(router: &Router, brief: PacketSummary, hop: u32, frame: &[u8]) -> Decision {
    let to = match router.next_hops.adjacency(hop) {
        Some(to) => to,
        None => match choose(router, brief, hop, frame) {
            Ok(to) => to,
            Err(decision) => return decision,
        },
    };
    if let Some(instead) = time_is_over(brief) {
        return instead;
    }
    let Some(out) = router.interfaces.get(to.interface()) else {
        return Decision::Punt(Punt::Unreachable);
    };
    if brief.length <= out.mtu {
        Decision::Forward(to)
    } else {
        too_long(brief, frame, to)
    }
}

/// Selects a group member for a packet, or returns the decision if this thread does not forward the packet.
#[inline(never)]
fn choose(
    router: &Router,
    brief: PacketSummary,
    hop: u32,
    frame: &[u8],
) -> Result<Adjacency, Decision> {
    let next_hop = match router.next_hops.get(hop) {
        NextHop::Group(group) => router.next_hops.choose(group, flow_hash(frame)),
        next_hop => next_hop,
    };
    match next_hop {
        NextHop::Adjacency { interface, mac } => Ok(Adjacency::new(interface, mac)),
        other => Err(Decision::from_other(other, brief)),
    }
}

/// Returns the decision for a packet that exceeds the MTU of the next link.
#[inline(never)]
fn too_long(brief: PacketSummary, frame: &[u8], to: Adjacency) -> Decision {
    let packet = frame.get(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
    if !brief.may_fragment {
        Decision::Punt(Punt::TooBig)
    } else if fragment::ends_beyond(packet) {
        Decision::Drop(RouterDrop::FragmentOffset)
    } else {
        Decision::Fragment(to)
    }
}

/// Returns the decision for a packet whose TTL is exceeded, or with link-local addresses, which are never forwarded (RFC 3927, section 7;
/// RFC 4291, section 2.5.6).
#[inline(always)]
fn time_is_over(brief: PacketSummary) -> Option<Decision> {
    if brief.is_of_a_link {
        return Some(Decision::Drop(RouterDrop::Martian));
    }
    (brief.ttl <= 1).then_some(Decision::Punt(Punt::TimeExceeded))
}

impl Decision {
    /// Returns the decision for a next hop other than a neighbour.
    fn from_other(next_hop: NextHop, brief: PacketSummary) -> Self {
        match next_hop {
            NextHop::Local => Self::Punt(Punt::ForUs),
            NextHop::Blackhole => Self::Drop(RouterDrop::Blackhole),
            NextHop::Unreachable => Self::Punt(Punt::Unreachable),
            NextHop::Prohibit => Self::Punt(Punt::Prohibited),
            NextHop::Glean { .. } | NextHop::Incomplete { .. } => {
                time_is_over(brief).unwrap_or(Self::Punt(Punt::Neighbour))
            }
            // Nested groups do not exist.
            NextHop::None | NextHop::Group(_) | NextHop::Adjacency { .. } => {
                Self::Punt(Punt::NoRoute)
            }
        }
    }
}
