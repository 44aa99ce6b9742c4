// SPDX-License-Identifier: Apache-2.0
//! Why frames are dropped. Counters, reports, metrics and tables are made of these lists: a further reason is one line here,
//! and the code that drops for it.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named;

named! {
    /// Why a frame is dropped at a port: by the port itself, its rules or its bridge. It is counted where the frame came in,
    /// except for `TxFull` and `NotSegmented`, which are counted where it would have gone out. The first are those that frames
    /// are dropped for most often: their counters share a cache line with the port's frames and octets.
    pub enum PortDrop {
        /// The transmit queue has no room.
        TxFull = "tx_full", "transmit queue full";
        /// Shorter than an Ethernet header ([`quietwire_packet::Damage::Short`]), or ending in a tag that the port looks at
        /// ([`quietwire_packet::Damage::TruncatedVlan`]).
        Short = "short", "shorter than an Ethernet header";
        /// The destination is on the port that the frame came from (IEEE 802.1Q, section 8.6.1).
        Filtered = "filtered", "hairpin (destination on this port)";
        /// To one of the addresses 01:80:C2:00:00:00 to 0F, which bridges do not forward (IEEE 802.1Q, section 8.6.3).
        ReservedAddress = "reserved_address", "reserved address";
        /// To a port without a queue; never, unless something is wrong with the switch.
        NoOutput = "no_output", "no such output";
        /// The rules of the port do not let it in.
        Denied = "denied", "by a rule";
        /// Tagged on a port that admits untagged and priority-tagged frames only, or one of those on a port that admits tagged
        /// frames only (IEEE 802.1Q, section 6.9).
        FrameType = "frame_type", "frame type not admitted";
        /// Of a VLAN that the port it came in by is not in (IEEE 802.1Q, section 8.6.2), or of the reserved VLAN 4095
        /// (section 9.6, table 9-2).
        NotMember = "not_member", "port not in the VLAN";
        /// The port of its destination is not in its VLAN, or in the bridge, any longer (IEEE 802.1Q, section 8.6.4).
        NoMember = "no_member", "destination port not in the VLAN";
        /// It came in by a port or an interface that the bridge does not have.
        NoInput = "no_input", "port not in the bridge";
        /// The destination is on a port of the same split-horizon group.
        SplitHorizon = "split_horizon", "split horizon";
        /// It would have to be flooded, and frames of its kind are flooded nowhere.
        NotFlooded = "not_flooded", "no port to flood to";
        /// It is for a station that is not known, and over the port's limit of such frames.
        StormUnknownUnicast = "storm_unknown_unicast", "unknown-unicast storm";
        /// It is for all stations, and over the port's limit of such frames.
        StormBroadcast = "storm_broadcast", "broadcast storm";
        /// It is for a group of stations, and over the port's limit of such frames.
        StormMulticast = "storm_multicast", "multicast storm";
        /// Its source address is over the learning limit of the port.
        OverLimit = "over_limit", "over the learning limit";
        /// Its TCP data was to be cut into segments and could not be: no such frame, too many segments, no buffers.
        NotSegmented = "not_segmented", "TCP data could not be segmented";
        /// The driver had no buffer to receive it.
        NoBuffers = "no_buffers", "no buffers";
        /// The receive queue was full, as the driver says; shared-memory ports cannot see it.
        RxMissed = "rx_missed", "receive queue full";
        /// It came in damaged, as the driver says.
        RxErrors = "rx_errors", "receive errors of the driver";
    }
}

named! {
    /// Why the router drops a packet.
    pub enum RouterDrop {
        /// No interface has frames of this VLAN, or without a tag.
        NoInterface = "no-interface";
        /// The frame is for another station.
        NotForUs = "not-for-us";
        /// Neither IPv4, IPv6 nor ARP, or the interface has no address of its kind.
        UnknownProtocol = "unknown-protocol";
        /// The header is shorter than it has to be, or lies about its lengths (RFC 1812, section 5.2.2).
        HeaderError = "header-error";
        /// The checksum of the IPv4 header is wrong.
        ChecksumError = "checksum-error";
        /// An address that nobody can have there (RFC 1812, section 5.3.7; RFC 3927; RFC 4291; RFC 6890).
        Martian = "martian";
        /// The source has no way back (RFC 3704).
        Urpf = "urpf";
        /// A packet to one station in a frame to many (RFC 1812, section 5.3.4).
        BroadcastFrame = "broadcast-frame";
        /// A group or broadcast address that is not forwarded.
        Multicast = "multicast";
        /// The sender chose the way (RFC 7126, sections 4.3 and 4.4).
        SourceRoute = "source-route";
        /// The route says so.
        Blackhole = "blackhole";
        /// A piece of a packet that would have to be cut once more, and ends beyond the largest packet (RFC 791, section 3.1).
        FragmentOffset = "fragment-offset";
    }
}

/// Frames dropped at a port, by reason. In JSON an object with the reasons' names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortDrops([u64; PortDrop::ALL.len()]);

impl PortDrops {
    /// Returns the counts that `count` gives for each reason.
    #[must_use]
    pub fn of(count: impl FnMut(PortDrop) -> u64) -> Self {
        Self(PortDrop::ALL.map(count))
    }

    /// Returns each reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (PortDrop, u64)> + '_ {
        PortDrop::ALL.into_iter().zip(self.0)
    }

    /// Returns the frames dropped for any reason.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Index<PortDrop> for PortDrops {
    type Output = u64;

    #[inline(always)]
    fn index(&self, reason: PortDrop) -> &u64 {
        &self.0[reason as usize]
    }
}

impl IndexMut<PortDrop> for PortDrops {
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

/// Reasons that are not there count 0, and those of other versions are not read.
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
        // Of an earlier and of a later version.
        text.as_object_mut().unwrap().remove("denied");
        text["later"] = 7.into();
        let read: PortDrops = serde_json::from_value(text).unwrap();
        assert_eq!(read.sum(), drops.sum() - drops[PortDrop::Denied]);
    }
}
