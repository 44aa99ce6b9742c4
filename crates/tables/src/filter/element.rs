// SPDX-License-Identifier: Apache-2.0
//! Elements of sets, and the fields that are compared with sets. Types have the names of nftables.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use quietwire_packet::MacAddress;
use serde::{Deserialize, Serialize};

use super::packet::{EtherType, as_text};
use super::port_name::PortName;

/// Type of the elements of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetType {
    /// IPv4 addresses, prefixes and ranges.
    Ipv4Addr,
    /// IPv6 addresses, prefixes and ranges.
    Ipv6Addr,
    /// MAC addresses.
    EtherAddr,
    /// Ports and ranges of ports.
    InetService,
    /// Names of ports of the switch.
    Ifname,
}

/// Field of packets that is compared with a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetField {
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// Source MAC address.
    SourceMac,
    /// Destination MAC address.
    DestinationMac,
}

/// Element of a set: a value or a range of values, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Element {
    /// IPv4 addresses.
    Ipv4(Ipv4Addr, Ipv4Addr),
    /// IPv6 addresses.
    Ipv6(Ipv6Addr, Ipv6Addr),
    /// A MAC address.
    Mac(MacAddress),
    /// Ports.
    Ports(u16, u16),
    /// Name of a port of the switch.
    Name(PortName),
}

impl SetType {
    /// Returns the EtherType of packets with such addresses.
    #[must_use]
    pub const fn ethertype(self) -> Option<EtherType> {
        match self {
            Self::Ipv4Addr => Some(EtherType(0x0800)),
            Self::Ipv6Addr => Some(EtherType(0x86dd)),
            Self::EtherAddr | Self::InetService | Self::Ifname => None,
        }
    }
}

impl fmt::Display for SetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4Addr => "ipv4_addr",
            Self::Ipv6Addr => "ipv6_addr",
            Self::EtherAddr => "ether_addr",
            Self::InetService => "inet_service",
            Self::Ifname => "ifname",
        })
    }
}

impl SetField {
    /// Number of fields.
    pub const COUNT: usize = 6;

    /// All fields.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Source,
        Self::Destination,
        Self::SourcePort,
        Self::DestinationPort,
        Self::SourceMac,
        Self::DestinationMac,
    ];

    /// Returns true if the field has values of this type.
    #[must_use]
    pub const fn accepts(self, kind: SetType) -> bool {
        match self {
            Self::Source | Self::Destination => {
                matches!(kind, SetType::Ipv4Addr | SetType::Ipv6Addr)
            }
            Self::SourcePort | Self::DestinationPort => matches!(kind, SetType::InetService),
            Self::SourceMac | Self::DestinationMac => matches!(kind, SetType::EtherAddr),
        }
    }

    /// Returns the types of the field as text.
    #[must_use]
    pub const fn types(self) -> &'static str {
        match self {
            Self::Source | Self::Destination => "ipv4_addr or ipv6_addr",
            Self::SourcePort | Self::DestinationPort => "inet_service",
            Self::SourceMac | Self::DestinationMac => "ether_addr",
        }
    }

    /// Returns true for MAC addresses.
    #[must_use]
    pub const fn is_mac(self) -> bool {
        matches!(self, Self::SourceMac | Self::DestinationMac)
    }
}

impl fmt::Display for SetField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::SourcePort => "source-port",
            Self::DestinationPort => "destination-port",
            Self::SourceMac => "source-mac",
            Self::DestinationMac => "destination-mac",
        })
    }
}

/// Returns the low bits of a number, all if `bits` is 128.
pub(super) fn low_bits(bits: u32) -> u128 {
    1u128
        .checked_shl(bits)
        .map_or(u128::MAX, |above| above.wrapping_sub(1))
}

/// Returns a prefix of its first address as a number, its length and the number of bits of addresses.
pub(super) fn prefix_of(bits: u128, length: u32, width: u32) -> Option<IpNet> {
    let address = match width {
        32 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits).ok()?)),
        _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    };
    IpNet::new(address, u8::try_from(length).ok()?).ok()
}

/// Splits a range of numbers of `width` bits into prefixes: their first number and their length. At most 2 × `width`.
pub(super) fn prefixes(first: u128, last: u128, width: u32) -> impl Iterator<Item = (u128, u32)> {
    let mut next = Some(first);
    std::iter::from_fn(move || {
        let at = next?;
        let mut free = at.trailing_zeros().min(width);
        while free > 0 && at | low_bits(free) > last {
            free = free.saturating_sub(1);
        }
        let end = at | low_bits(free);
        next = end.checked_add(1).filter(|_| end < last);
        // `free` is at most `width`.
        Some((at, width.saturating_sub(free)))
    })
}

impl Element {
    /// Returns its type.
    #[must_use]
    pub const fn kind(&self) -> SetType {
        match self {
            Self::Ipv4(..) => SetType::Ipv4Addr,
            Self::Ipv6(..) => SetType::Ipv6Addr,
            Self::Mac(_) => SetType::EtherAddr,
            Self::Ports(..) => SetType::InetService,
            Self::Name(_) => SetType::Ifname,
        }
    }

    /// Returns first and last address as numbers, and their number of bits; `None` for other elements.
    pub(super) fn addresses(&self) -> Option<(u128, u128, u32)> {
        match self {
            Self::Ipv4(first, last) => Some((first.to_bits().into(), last.to_bits().into(), 32)),
            Self::Ipv6(first, last) => Some((first.to_bits(), last.to_bits(), 128)),
            Self::Mac(_) | Self::Ports(..) | Self::Name(_) => None,
        }
    }

    /// Returns first and last value as numbers; `None` for MAC addresses and names.
    #[must_use]
    pub fn range(&self) -> Option<(u128, u128)> {
        match self {
            Self::Ports(first, last) => Some(((*first).into(), (*last).into())),
            _ => self.addresses().map(|(first, last, _)| (first, last)),
        }
    }

    /// Returns the highest value of a type; `None` for MAC addresses and names.
    #[must_use]
    pub const fn highest(kind: SetType) -> Option<u128> {
        match kind {
            SetType::Ipv4Addr => Some(0xffff_ffff),
            SetType::Ipv6Addr => Some(u128::MAX),
            SetType::InetService => Some(0xffff),
            SetType::EtherAddr | SetType::Ifname => None,
        }
    }

    /// Returns the element of a range of numbers; `None` if the type has no such values.
    #[must_use]
    pub fn of_range(kind: SetType, first: u128, last: u128) -> Option<Self> {
        let port = |number: u128| u16::try_from(number).ok();
        let ipv4 = |number: u128| {
            Some(IpAddr::from(Ipv4Addr::from_bits(
                u32::try_from(number).ok()?,
            )))
        };
        let ipv6 = |number: u128| IpAddr::from(Ipv6Addr::from_bits(number));
        match kind {
            SetType::InetService if first <= last => Some(Self::Ports(port(first)?, port(last)?)),
            SetType::Ipv4Addr => Self::between(ipv4(first)?, ipv4(last)?),
            SetType::Ipv6Addr => Self::between(ipv6(first), ipv6(last)),
            _ => None,
        }
    }

    /// Returns the prefixes of addresses; none for other elements.
    #[must_use]
    pub fn prefixes(&self) -> Vec<IpNet> {
        let Some((first, last, width)) = self.addresses() else {
            return Vec::new();
        };
        let list = prefixes(first, last, width);
        list.filter_map(|(bits, length)| prefix_of(bits, length, width))
            .collect()
    }

    /// Returns the number of compiled rules that the element requires.
    #[must_use]
    pub fn compiled_count(&self) -> usize {
        self.addresses().map_or(1, |(first, last, width)| {
            prefixes(first, last, width).count()
        })
    }

    /// Returns the elements of the addresses from first to last; `None` if there are none.
    fn between(first: IpAddr, last: IpAddr) -> Option<Self> {
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => Some(Self::Ipv4(first, last)),
            (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => Some(Self::Ipv6(first, last)),
            _ => None,
        }
    }

    fn read(text: &str) -> Option<Self> {
        if let Ok(prefix) = text.parse::<IpNet>() {
            return Self::between(prefix.network(), prefix.broadcast());
        }
        if let Ok(mac) = text.parse() {
            return Some(Self::Mac(mac));
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim(), last.trim());
        if let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) {
            return (first <= last).then_some(Self::Ports(first, last));
        }
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => Self::between(first, last),
            _ => PortName::new(text).map(Self::Name),
        }
    }
}

impl FromStr for Element {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).ok_or_else(|| {
            format!(
                "'{text}' is not an element of a set (examples: 10.0.0.1, 10.0.0.0/8, 10.0.0.1-10.0.0.9, 80, 5000-5010, 02:00:00:00:00:01, eth0)"
            )
        })
    }
}

/// Writes addresses as one address, as a prefix, or as a range.
fn write_addresses(
    f: &mut fmt::Formatter<'_>,
    ends: [&dyn fmt::Display; 2],
    (first, last, width): (u128, u128, u32),
) -> fmt::Result {
    let [from, to] = ends;
    let all: Vec<(u128, u32)> = prefixes(first, last, width).take(2).collect();
    match all.as_slice() {
        [(_, length)] if *length == width => write!(f, "{from}"),
        [(_, length)] => write!(f, "{from}/{length}"),
        _ => write!(f, "{from}-{to}"),
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = self.addresses().unwrap_or_default();
        match self {
            Self::Ipv4(first, last) => write_addresses(f, [first, last], numbers),
            Self::Ipv6(first, last) => write_addresses(f, [first, last], numbers),
            Self::Mac(mac) => mac.fmt(f),
            Self::Ports(first, last) if first == last => write!(f, "{first}"),
            Self::Ports(first, last) => write!(f, "{first}-{last}"),
            Self::Name(name) => name.fmt(f),
        }
    }
}

as_text!(Element);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_they_are_written() {
        for (text, kind) in [
            ("10.0.0.1", SetType::Ipv4Addr),
            ("10.0.0.0/8", SetType::Ipv4Addr),
            ("0.0.0.0/0", SetType::Ipv4Addr),
            ("10.0.0.1-10.0.0.9", SetType::Ipv4Addr),
            ("2001:db8::1", SetType::Ipv6Addr),
            ("2001:db8::/32", SetType::Ipv6Addr),
            ("::/0", SetType::Ipv6Addr),
            ("2001:db8::1-2001:db8::9", SetType::Ipv6Addr),
            ("02:00:00:00:00:01", SetType::EtherAddr),
            ("80", SetType::InetService),
            ("0-65535", SetType::InetService),
            ("eth0", SetType::Ifname),
            ("tap-guest_1.7", SetType::Ifname),
            ("a-b", SetType::Ifname),
        ] {
            let element: Element = text.parse().unwrap();
            assert_eq!((element.kind(), element.to_string().as_str()), (kind, text));
        }
        // Ranges that are prefixes are written as prefixes, and prefixes begin with their network.
        for (text, written) in [
            ("10.0.0.0-10.0.0.255", "10.0.0.0/24"),
            ("10.0.0.9/24", "10.0.0.0/24"),
            ("80-80", "80"),
        ] {
            assert_eq!(text.parse::<Element>().unwrap().to_string(), written);
        }
        for wrong in [
            "",
            "-",
            "10.0.0.9-10.0.0.1",
            "10.0.0.1-::1",
            "443-80",
            "65536",
            "10.0.0.0/33",
            "eth*",
            "@guests",
        ] {
            assert!(wrong.parse::<Element>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn prefixes_cover_exactly_their_range() {
        for first in 0..=255u128 {
            for last in first..=255 {
                let list: Vec<(u128, u32)> = prefixes(first, last, 8).collect();
                let numbers: Vec<u128> = list
                    .iter()
                    .flat_map(|(bits, length)| *bits..=bits | low_bits(8 - length))
                    .collect();
                assert_eq!(numbers, (first..=last).collect::<Vec<_>>());
                assert!(list.len() <= 16);
            }
        }
        assert!(prefixes(0, u128::MAX, 128).eq([(0, 0)]));
        assert_eq!(prefixes(1, u128::MAX, 128).count(), 128);
    }
}
