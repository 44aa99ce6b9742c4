// SPDX-License-Identifier: Apache-2.0
//! Drop reasons of frames. Counters, reports, metrics and tables are generated from these lists: a new reason requires one line here and
//! the code that drops for it.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named;

named! {
    /// Reason for dropping a frame at a port: by the port itself, its filter rules or its bridge. Drops are counted at the ingress port,
    /// except `TxFull`, `DeniedOut` and `NotSegmented`, which are counted at the egress port. The most frequent reasons come first: their counters share
    /// a cache line with the port's frames and octets.
    pub enum PortDrop {
        /// The transmit queue has no space.
        TxFull = "tx_full", "transmit queue full";
        /// Shorter than an Ethernet header ([`quietwire_packet::Damage::Short`]), or truncated within a tag that the port examines
        /// ([`quietwire_packet::Damage::TruncatedVlan`]).
        Short = "short", "shorter than an Ethernet header";
        /// The destination is on the port that the frame came from (IEEE 802.1Q, section 8.6.1).
        Filtered = "filtered", "hairpin (destination on this port)";
        /// To one of the addresses 01:80:C2:00:00:00 to 0F, which bridges do not forward (IEEE 802.1Q, section 8.6.3).
        ReservedAddress = "reserved_address", "reserved address";
        /// The destination port has no queue. Indicates a bug in the switch.
        NoOutput = "no_output", "no such output";
        /// Refused by the filter rules of the port.
        Denied = "denied", "by a rule";
        /// Refused by the filter rules of the port, with an answer to the sender as far as one is allowed
        /// ([`crate::filter::Action::Reject`]).
        Rejected = "rejected", "by a rule, rejected";
        /// Refused by the filter rules for frames that leave by the port.
        DeniedOut = "denied_out", "by a rule for frames that leave";
        /// From a MAC address that the source guard of the port does not list ([`crate::filter::SourceGuard`]).
        GuardMac = "guard_mac", "source guard: MAC address";
        /// From an IP address that the source guard of the port does not list.
        GuardIp = "guard_ip", "source guard: IP address";
        /// ARP that claims an address that the source guard of the port does not list.
        GuardArp = "guard_arp", "source guard: ARP";
        /// Neighbour discovery that claims an address that the source guard of the port does not list, or acts as a router.
        GuardNd = "guard_nd", "source guard: neighbour discovery";
        /// Dropped by the filter or by the source guard because its headers are malformed ([`crate::filter::Malformation`]).
        Malformed = "malformed", "malformed headers";
        /// The first packet of a connection, for which the connection table or its zone has no space ([`crate::connections::Refusal`]).
        ConnectionRefused = "connection_refused", "no space for the connection";
        /// The first packet of a connection, while new connections take more than their share of the thread's time
        /// ([`crate::connections::NewShare`]).
        NewShare = "new_share", "new connections over their share of the time";
        /// A later fragment that has waited for the first one of its datagram until the timeout ([`crate::fragment_order`]).
        FragmentTimeout = "fragment_timeout", "first fragment missing";
        /// A later fragment without the first one of its datagram, for which there is no space to wait.
        FragmentOverflow = "fragment_overflow", "no space for a fragment before the first";
        /// By the verdict of an inspector ([`crate::filter::Inspect`]).
        Inspector = "inspector", "verdict of an inspector";
        /// Without a verdict of an inspector, by a rule that fails closed.
        NoVerdict = "no_verdict", "no verdict of the inspector";
        /// From an inspector, and no answer to a query that it has not answered yet.
        InvalidVerdict = "invalid_verdict", "invalid verdict";
        /// A tagged frame on a port that admits only untagged and priority-tagged frames, or one of those on a port that admits only tagged
        /// frames (IEEE 802.1Q, section 6.9).
        FrameType = "frame_type", "frame type not admitted";
        /// The ingress port is not in the frame's VLAN (IEEE 802.1Q, section 8.6.2), or the VLAN is the reserved VLAN 4095 (section 9.6,
        /// table 9-2).
        NotMember = "not_member", "port not in the VLAN";
        /// The destination port is no longer in the frame's VLAN, or in the bridge (IEEE 802.1Q, section 8.6.4).
        NoMember = "no_member", "destination port not in the VLAN";
        /// The ingress port or interface is not in the bridge.
        NoInput = "no_input", "port not in the bridge";
        /// The destination is on a port of the same split-horizon group.
        SplitHorizon = "split_horizon", "split horizon";
        /// The frame requires flooding, and no port floods frames of its kind.
        NotFlooded = "not_flooded", "no port to flood to";
        /// Unicast frame to an unknown destination over the port's storm limit.
        StormUnknownUnicast = "storm_unknown_unicast", "unknown-unicast storm";
        /// Broadcast frame over the port's storm limit.
        StormBroadcast = "storm_broadcast", "broadcast storm";
        /// Multicast frame over the port's storm limit.
        StormMulticast = "storm_multicast", "multicast storm";
        /// The source address exceeds the learning limit of the port.
        OverLimit = "over_limit", "over the learning limit";
        /// The TCP data could not be segmented: not a TCP frame, too many segments, or no buffers.
        NotSegmented = "not_segmented", "TCP data could not be segmented";
        /// The ring to the forwarding thread that has the connection of the frame is full.
        OwnerBusy = "owner_busy", "thread of the connection busy";
        /// The driver had no buffer for the received frame.
        NoBuffers = "no_buffers", "no buffers";
        /// The receive queue was full, as reported by the driver. Shared-memory ports cannot detect it.
        RxMissed = "rx_missed", "receive queue full";
        /// Received with an error, as reported by the driver.
        RxErrors = "rx_errors", "receive errors of the driver";
    }
}

named! {
    /// Reason for dropping a packet in the router.
    pub enum RouterDrop {
        /// No interface for frames of this VLAN, or for untagged frames.
        NoInterface = "no-interface";
        /// The destination MAC address is another station.
        NotForUs = "not-for-us";
        /// Neither IPv4, IPv6 nor ARP, or the interface has no address of that family.
        UnknownProtocol = "unknown-protocol";
        /// Truncated header or inconsistent lengths (RFC 1812, section 5.2.2).
        HeaderError = "header-error";
        /// The checksum of the IPv4 header is wrong.
        ChecksumError = "checksum-error";
        /// Invalid source or destination address (RFC 1812, section 5.3.7; RFC 3927; RFC 4291; RFC 6890).
        Martian = "martian";
        /// Reverse path check failed: no route to the source (RFC 3704).
        Urpf = "urpf";
        /// Unicast packet in a broadcast or multicast frame (RFC 1812, section 5.3.4).
        BroadcastFrame = "broadcast-frame";
        /// Multicast or broadcast destination that is not forwarded.
        Multicast = "multicast";
        /// Source routing option (RFC 7126, sections 4.3 and 4.4).
        SourceRoute = "source-route";
        /// Blackhole route.
        Blackhole = "blackhole";
        /// Fragment that requires further fragmentation and ends beyond the largest packet (RFC 791, section 3.1).
        FragmentOffset = "fragment-offset";
        /// NAT: truncated headers, or inconsistent lengths.
        NatMalformed = "nat-malformed";
        /// NAT: a later fragment of a datagram whose first one is not known.
        NatFragment = "nat-fragment";
        /// NAT: a protocol without ports.
        NatProtocol = "nat-protocol";
        /// NAT: an ICMP message other than an echo or an error.
        NatIcmpType = "nat-icmp-type";
        /// NAT: wrong checksum of an ICMP error, or of the IP header in it.
        NatChecksum = "nat-checksum";
        /// NAT: no mapping.
        NatNoMapping = "nat-no-mapping";
        /// NAT: the mapping depends on another remote endpoint than that of the packet.
        NatFiltered = "nat-filtered";
        /// NAT: the host has the maximum number of port blocks, and no free port in them.
        NatHostLimit = "nat-host-limit";
        /// NAT: no free port block.
        NatNoPorts = "nat-no-ports";
        /// NAT: the table is full.
        NatTableFull = "nat-table-full";
        /// NAT: the packet is of another VRF than the outside interface.
        NatOtherVrf = "nat-other-vrf";
        /// Load balancer: no backend is up.
        BalancerNoBackend = "balancer-no-backend";
        /// Load balancer: the table is full of established connections.
        BalancerTableFull = "balancer-table-full";
        /// Prefix translation: the address has no external one (RFC 6296, sections 3.4 and 3.5).
        PrefixAddress = "prefix-address";
    }
}

impl RouterDrop {
    /// Returns true if NAT has no space for a new mapping, so that the sender of the packet gets an error (RFC 6888, section 3, REQ-11).
    #[must_use]
    pub const fn is_without_space(self) -> bool {
        matches!(
            self,
            Self::NatHostLimit | Self::NatNoPorts | Self::NatTableFull
        )
    }
}

/// Frames dropped at a port, by reason. In JSON an object keyed by the reasons' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortDrops([u64; PortDrop::ALL.len()]);

impl Default for PortDrops {
    fn default() -> Self {
        Self([0; PortDrop::ALL.len()])
    }
}

impl PortDrops {
    /// Builds the counts from `count`, which returns the count of each reason.
    #[must_use]
    pub fn of(count: impl FnMut(PortDrop) -> u64) -> Self {
        Self(PortDrop::ALL.map(count))
    }

    /// Returns each reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (PortDrop, u64)> + '_ {
        PortDrop::ALL.into_iter().zip(self.0)
    }

    /// Returns the sum over all reasons.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Index<PortDrop> for PortDrops {
    type Output = u64;

    #[expect(clippy::indexing_slicing, reason = "each reason has its count")]
    #[inline(always)]
    fn index(&self, reason: PortDrop) -> &u64 {
        &self.0[reason as usize]
    }
}

impl IndexMut<PortDrop> for PortDrops {
    #[expect(clippy::indexing_slicing, reason = "each reason has its count")]
    #[inline(always)]
    fn index_mut(&mut self, reason: PortDrop) -> &mut u64 {
        &mut self.0[reason as usize]
    }
}

impl Serialize for PortDrops {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(reason, count)| (reason.name(), count)))
    }
}

/// Missing reasons count 0, and unknown reasons of other versions are ignored.
impl<'de> Deserialize<'de> for PortDrops {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let counts = BTreeMap::<String, u64>::deserialize(deserializer)?;
        Ok(Self::of(|reason| {
            counts.get(reason.name()).copied().unwrap_or_default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_are_places_and_names_differ() {
        for (place, reason) in PortDrop::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
        let names: BTreeSet<&str> = PortDrop::ALL.map(PortDrop::name).into();
        let texts: BTreeSet<&str> = PortDrop::ALL.map(PortDrop::text).into();
        assert_eq!(
            (names.len(), texts.len()),
            (PortDrop::ALL.len(), names.len())
        );
        let names: BTreeSet<&str> = RouterDrop::ALL.map(RouterDrop::name).into();
        assert_eq!(names.len(), RouterDrop::ALL.len());
    }

    #[test]
    fn counts_are_read_as_they_are_written() {
        let drops = PortDrops::of(|reason| 1 + reason as u64);
        let count = PortDrop::ALL.len() as u64;
        assert_eq!(drops.sum(), count * (count + 1) / 2);
        let pairs: Vec<(&str, u64)> = drops
            .iter()
            .map(|(one, count)| (one.name(), count))
            .collect();
        assert_eq!(pairs[0], ("tx_full", 1));
        assert_eq!(drops[PortDrop::RxErrors], count);
        let mut text = serde_json::to_value(drops).unwrap();
        assert_eq!(text["denied"], drops[PortDrop::Denied]);
        assert_eq!(
            serde_json::from_value::<PortDrops>(text.clone()).unwrap(),
            drops
        );
        // Reports of an earlier and of a later version.
        text.as_object_mut().unwrap().remove("denied");
        text["later"] = 7.into();
        let read: PortDrops = serde_json::from_value(text).unwrap();
        assert_eq!(read.sum(), drops.sum() - drops[PortDrop::Denied]);
    }
}
