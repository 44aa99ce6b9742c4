// SPDX-License-Identifier: Apache-2.0
//! Headers of a traffic description. Fields that it leaves out have the values of the tester's plain frames.

use serde::{Deserialize, Serialize};

use super::field::{
    DscpKind, Field, FlagsKind, Ipv4Kind, Ipv6Kind, Kind, LabelKind, MacKind, PortKind,
    PriorityKind, TtlKind, VlanIdKind, VniKind, WordKind,
};

/// TPID of a customer's tag (IEEE 802.1Q, table 9-1).
pub(crate) const CUSTOMER_TAG: u16 = 0x8100;
/// TPID of a provider's tag (IEEE 802.1Q, table 9-1).
pub(crate) const PROVIDER_TAG: u16 = 0x88a8;
/// UDP port of VXLAN (RFC 7348, section 5).
pub(crate) const VXLAN_PORT: u16 = 4789;

/// `[traffic.ethernet]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ethernet {
    /// Source address. Default: 02:00:00:00:00:00.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Field<MacKind>>,
    /// Destination address. Default: 02:01:00:00:00:00.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Field<MacKind>>,
}

/// TPID of a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TagType {
    /// 0x8100.
    #[default]
    #[serde(rename = "802.1q")]
    Customer,
    /// 0x88a8.
    #[serde(rename = "802.1ad")]
    Provider,
}

/// `[[traffic.vlan]]`: a tag, the outer one first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// VLAN id.
    pub id: Field<VlanIdKind>,
    /// Priority (PCP). Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Field<PriorityKind>>,
    /// TPID. Default: 802.1ad for the outer of two tags, otherwise 802.1q.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub tag_type: Option<TagType>,
}

/// `[traffic.ipv4]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ipv4 {
    /// Source address. Default: 198.18.0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Field<Ipv4Kind>>,
    /// Destination address. Default: 198.18.1.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Field<Ipv4Kind>>,
    /// DSCP. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Field<DscpKind>>,
    /// TTL. Default: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Field<TtlKind>>,
}

/// `[traffic.ipv6]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ipv6 {
    /// Source address. Default: 2001:2::1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Field<Ipv6Kind>>,
    /// Destination address. Default: 2001:2:0:1::1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Field<Ipv6Kind>>,
    /// DSCP. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Field<DscpKind>>,
    /// Hop limit. Default: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Field<TtlKind>>,
    /// Flow label. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Field<LabelKind>>,
}

/// `[traffic.udp]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Udp {
    /// Source port. Default: 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Field<PortKind>>,
    /// Destination port. Default: 7, or 4789 if VXLAN follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Field<PortKind>>,
    /// Whether the datagram has a checksum. It is optional over IPv4 (RFC 768) and before VXLAN (RFC 7348, section 5; RFC 6935 for IPv6),
    /// and required over IPv6 otherwise. Default: true, but false over IPv4 before VXLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<bool>,
}

/// `[traffic.tcp]`: single segments without a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// Source port. Default: 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Field<PortKind>>,
    /// Destination port. Default: 7.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Field<PortKind>>,
    /// Flags. Default: "A".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<Field<FlagsKind>>,
    /// Sequence number. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Field<WordKind>>,
}

/// `[traffic.vxlan]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vxlan {
    /// Network identifier.
    pub vni: Field<VniKind>,
}

/// Headers of one Ethernet frame: those of the whole frame, or those inside VXLAN (`[traffic.inner]`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Headers {
    /// Ethernet.
    #[serde(skip_serializing_if = "is_default")]
    pub ethernet: Ethernet,
    /// VLAN tags, the outer one first; at most two.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlan: Vec<Vlan>,
    /// IPv4. It is the default if IPv6 is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Ipv4>,
    /// IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6>,
    /// UDP. It is the default if TCP is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Udp>,
    /// TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Headers {
    /// Returns the largest number of values of any field.
    #[must_use]
    pub fn values_max(&self) -> u32 {
        let mut most = 1;
        self.each_count(|count| most = most.max(count));
        most
    }

    fn each_count(&self, mut take: impl FnMut(u32)) {
        fn of<K: Kind>(field: Option<&Field<K>>) -> u32 {
            field.map_or(1, Field::count)
        }
        take(of(self.ethernet.source.as_ref()));
        take(of(self.ethernet.destination.as_ref()));
        for tag in &self.vlan {
            take(tag.id.count());
            take(of(tag.priority.as_ref()));
        }
        if let Some(ip) = &self.ipv4 {
            take(of(ip.source.as_ref()));
            take(of(ip.destination.as_ref()));
            take(of(ip.dscp.as_ref()));
            take(of(ip.ttl.as_ref()));
        }
        if let Some(ip) = &self.ipv6 {
            take(of(ip.source.as_ref()));
            take(of(ip.destination.as_ref()));
            take(of(ip.dscp.as_ref()));
            take(of(ip.ttl.as_ref()));
            take(of(ip.label.as_ref()));
        }
        if let Some(udp) = &self.udp {
            take(of(udp.source.as_ref()));
            take(of(udp.destination.as_ref()));
        }
        if let Some(tcp) = &self.tcp {
            take(of(tcp.source.as_ref()));
            take(of(tcp.destination.as_ref()));
            take(of(tcp.flags.as_ref()));
            take(of(tcp.sequence.as_ref()));
        }
    }
}

/// Default addresses: source, and destination in the next constant.
pub(crate) const MAC_A: u128 = 0x0200_0000_0000;
pub(crate) const MAC_B: u128 = 0x0201_0000_0000;
/// 198.18.0.1 and 198.18.1.1 (RFC 2544, appendix C.2.2).
pub(crate) const IPV4_A: u128 = 0xc612_0001;
pub(crate) const IPV4_B: u128 = 0xc612_0101;
/// 2001:2::1 and 2001:2:0:1::1 (RFC 5180, section 8).
pub(crate) const IPV6_A: u128 = 0x2001_0002_0000_0000_0000_0000_0000_0001;
pub(crate) const IPV6_B: u128 = 0x2001_0002_0000_0001_0000_0000_0000_0001;
/// Default ports, the same in both directions.
pub(crate) const PORT_SOURCE: u16 = 1024;
pub(crate) const PORT_DESTINATION: u16 = 7;
