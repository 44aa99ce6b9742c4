// SPDX-License-Identifier: Apache-2.0
//! Filter of captures and traces.

use std::net::IpAddr;

use ipnet::IpNet;
use quietwire_packet::{MacAddress, Parsed, Transport, VlanId, parse};
use quietwire_tables::filter::PacketMatch;
use serde::{Deserialize, Serialize};

/// Filter of watched frames. Fields that are not set match everything. Damaged frames match only the port and the MAC addresses. The
/// addresses of an ARP packet are those of its sender and its target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Filter {
    /// Name of the ingress port; for captures, the ingress or egress port.
    pub port: Option<String>,
    /// Source or destination MAC address.
    pub mac: Option<MacAddress>,
    /// VLAN of the outermost tag.
    pub vlan: Option<VlanId>,
    /// Prefix of the source or destination IP address.
    pub address: Option<IpNet>,
    /// UDP or TCP port, source or destination.
    pub l4_port: Option<u16>,
    /// Headers, as in filter rules.
    #[serde(flatten)]
    pub packet: PacketMatch,
}

/// A [`Filter`] with a resolved port number.
#[derive(Clone, Debug)]
pub(crate) struct FrameMatcher {
    filter: Filter,
    port: Option<u16>,
    /// A field behind the MAC addresses is set.
    looks_inside: bool,
}

impl FrameMatcher {
    pub(crate) fn new(filter: Filter, port: Option<u16>) -> Self {
        let outside = Filter {
            port: filter.port.clone(),
            mac: filter.mac,
            ..Filter::default()
        };
        Self {
            looks_inside: filter != outside,
            filter,
            port,
        }
    }

    /// Returns true for a matching frame received on or sent out of this port.
    pub(crate) fn accepts(&self, port: u16, frame: &[u8]) -> bool {
        if self.port.is_some_and(|wanted| wanted != port) {
            return false;
        }
        let filter = &self.filter;
        if let Some(mac) = filter.mac
            && !addresses_of(frame).is_some_and(|both| both.contains(&mac))
        {
            return false;
        }
        !self.looks_inside || parse(frame).is_ok_and(|parsed| filter.admits(&parsed, frame))
    }
}

/// Returns destination and source.
fn addresses_of(frame: &[u8]) -> Option<[MacAddress; 2]> {
    let number = |at: usize| {
        let octets = frame.get(at..)?.first_chunk::<6>()?;
        let number = octets
            .iter()
            .fold(0, |sum, octet| sum << 8 | u64::from(*octet));
        Some(MacAddress::from_u64(number))
    };
    Some([number(0)?, number(6)?])
}

impl Filter {
    fn admits(&self, parsed: &Parsed, frame: &[u8]) -> bool {
        let packet = &self.packet;
        let protocol = || parsed.ip().map(|ip| ip.protocol.0);
        self.vlan
            .is_none_or(|wanted| outer_vlan(parsed) == Some(wanted.get()))
            && packet
                .ethertype
                .is_none_or(|wanted| parsed.ethertype.0 == wanted.0)
            && packet
                .protocol
                .is_none_or(|wanted| protocol() == Some(wanted.0))
            && self.admits_ports(parsed)
            && self.admits_addresses(parsed, frame)
    }

    fn admits_ports(&self, parsed: &Parsed) -> bool {
        let wanted = (self.packet.source_port, self.packet.destination_port);
        if (self.l4_port, wanted) == (None, (None, None)) {
            return true;
        }
        let Some([source, destination]) = ports(parsed) else {
            return false;
        };
        self.l4_port
            .is_none_or(|wanted| [source, destination].contains(&wanted))
            && wanted.0.is_none_or(|wanted| wanted.contains(source))
            && wanted.1.is_none_or(|wanted| wanted.contains(destination))
    }

    fn admits_addresses(&self, parsed: &Parsed, frame: &[u8]) -> bool {
        let wanted = [self.address, self.packet.source, self.packet.destination];
        if wanted == [None; 3] {
            return true;
        }
        let Some([source, destination]) = ip_addresses(parsed, frame) else {
            return false;
        };
        let [either, from, to] = wanted;
        either.is_none_or(|wanted| wanted.contains(&source) || wanted.contains(&destination))
            && from.is_none_or(|wanted| wanted.contains(&source))
            && to.is_none_or(|wanted| wanted.contains(&destination))
    }
}

/// Returns the VLAN of the outermost tag.
fn outer_vlan(parsed: &Parsed) -> Option<u16> {
    parsed.tags[0].map(|tag| tag.tci & 0xfff)
}

/// Returns source and destination port of UDP or TCP.
fn ports(parsed: &Parsed) -> Option<[u16; 2]> {
    match parsed.ip()?.transport {
        Transport::Udp {
            source_port,
            destination_port,
        }
        | Transport::Tcp {
            source_port,
            destination_port,
            ..
        } => Some([source_port, destination_port]),
        _ => None,
    }
}

/// Returns source and destination of an IP packet, or sender and target of an ARP packet.
pub(super) fn ip_addresses(parsed: &Parsed, frame: &[u8]) -> Option<[IpAddr; 2]> {
    if let Some(header) = parsed.ipv4(frame) {
        return Some([header.source().into(), header.destination().into()]);
    }
    if let Some(header) = parsed.ipv6(frame) {
        return Some([header.source().into(), header.destination().into()]);
    }
    let arp = parsed.arp(frame)?;
    Some([arp.sender_ip().into(), arp.target_ip().into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Vec<u8> {
        let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .single_vlan(etherparse::VlanId::try_new(7).unwrap())
            .ipv4([10, 0, 0, 1], [10, 0, 1, 1], 9)
            .udp(1000, 53);
        let mut frame = Vec::new();
        builder.write(&mut frame, &[0; 8]).unwrap();
        frame
    }

    #[test]
    fn each_condition_of_a_filter_selects_and_excludes_frames() {
        for (says, fits) in [
            ("{}", true),
            (r#"{"mac":"02:00:00:00:00:01"}"#, true),
            (r#"{"mac":"02:00:00:00:00:02","vlan":7}"#, true),
            (r#"{"mac":"02:00:00:00:00:03"}"#, false),
            (r#"{"vlan":8}"#, false),
            (r#"{"ethertype":"ipv4"}"#, true),
            (r#"{"ethertype":"arp"}"#, false),
            (r#"{"address":"10.0.1.0/24"}"#, true),
            (r#"{"source":"10.0.1.0/24"}"#, false),
            (
                r#"{"source":"10.0.0.0/24","destination":"10.0.1.1/32"}"#,
                true,
            ),
            (r#"{"destination":"10.0.0.0/24"}"#, false),
            (r#"{"protocol":"udp","l4-port":53}"#, true),
            (r#"{"l4-port":1000}"#, true),
            (r#"{"l4-port":54}"#, false),
            (r#"{"protocol":"6"}"#, false),
            (r#"{"source-port":"1000"}"#, true),
            (r#"{"source-port":"53"}"#, false),
            (
                r#"{"source-port":"0-2000","destination-port":"50-53"}"#,
                true,
            ),
            (r#"{"destination-port":"54-60"}"#, false),
            (r#"{"l4-port":53,"destination-port":"1000"}"#, false),
            (r#"{"address":"::/0"}"#, false),
        ] {
            let filter: Filter = serde_json::from_str(says).unwrap();
            let matcher = FrameMatcher::new(filter.clone(), None);
            assert_eq!(matcher.accepts(3, &frame()), fits, "{says}");
            assert!(
                !FrameMatcher::new(filter, Some(4)).accepts(3, &frame()),
                "{says}"
            );
        }
    }

    #[test]
    fn a_filter_with_unknown_fields_or_wrong_values_is_refused() {
        for text in [
            r#"{"l4-ports":53}"#,
            r#"{"source_port":"53"}"#,
            r#"{"protocol":17}"#,
            r#"{"ethertype":"0x12345"}"#,
        ] {
            assert!(serde_json::from_str::<Filter>(text).is_err(), "{text}");
        }
        let text =
            r#"{"port":"a","mac":null,"vlan":7,"address":null,"l4-port":53,"protocol":"udp"}"#;
        let filter: Filter = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&filter).unwrap(), text);
    }

    #[test]
    fn damaged_frames_only_match_what_is_reported_of_their_outside() {
        let cut = &frame()[..20];
        let matcher = |filter| FrameMatcher::new(filter, Some(1));
        assert!(matcher(Filter::default()).accepts(1, cut));
        assert!(matcher(Filter::default()).accepts(1, &[]));
        let inside: Filter = serde_json::from_str(r#"{"protocol":"udp"}"#).unwrap();
        assert!(!matcher(inside).accepts(1, cut));
    }
}
