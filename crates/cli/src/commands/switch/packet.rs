// SPDX-License-Identifier: Apache-2.0
//! Packet conditions of rules, captures and traces: options of the commands, and their text in tables.

use clap::Args;
use ipnet::IpNet;
use quietwire_packet::MacAddress;
pub(super) use quietwire_switch::config::parse_prefix;
use quietwire_switch::config::{
    Dscp, EtherType, OrSet, PacketMatch, Ports, Protocol, RuleMatch, TcpFlags,
};

/// Packet conditions.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct MatchArgs {
    /// EtherType after the VLAN tags: ipv4, ipv6, arp, lldp, or a number such as 0x88cc. [default: any]
    #[arg(long, value_name = "ETHERTYPE")]
    ethertype: Option<EtherType>,
    /// IP protocol: tcp, udp, icmp, ospf and others, or a number. [default: any]
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// Source prefix. [default: any]
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    source: Option<IpNet>,
    /// Destination prefix. [default: any]
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    destination: Option<IpNet>,
    /// Source port or range, such as 179 or 5000-5010. [default: any]
    #[arg(long, value_name = "PORTS")]
    source_port: Option<Ports>,
    /// Destination port or range. [default: any]
    #[arg(long, value_name = "PORTS")]
    destination_port: Option<Ports>,
}

impl From<MatchArgs> for PacketMatch {
    fn from(args: MatchArgs) -> Self {
        let MatchArgs {
            ethertype,
            protocol,
            source,
            destination,
            source_port,
            destination_port,
        } = args;
        Self {
            ethertype,
            protocol,
            source,
            destination,
            source_port,
            destination_port,
        }
    }
}

/// Packet conditions of a filter rule, with sets.
#[derive(Debug, Args)]
pub(super) struct RuleMatchArgs {
    /// EtherType after the VLAN tags: ipv4, ipv6, arp, lldp, or a number such as 0x88cc. [default: any]
    #[arg(long, value_name = "ETHERTYPE")]
    ethertype: Option<EtherType>,
    /// IP protocol: tcp, udp, icmp, ospf and others, or a number. [default: any]
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// Source prefix, or a set such as @inside. [default: any]
    #[arg(long, value_name = "PREFIX|@SET")]
    source: Option<OrSet<IpNet>>,
    /// Destination prefix or set. [default: any]
    #[arg(long, value_name = "PREFIX|@SET")]
    destination: Option<OrSet<IpNet>>,
    /// Source port, range or set, such as 179, 5000-5010 or @web. [default: any]
    #[arg(long, value_name = "PORTS|@SET")]
    source_port: Option<OrSet<Ports>>,
    /// Destination port, range or set. [default: any]
    #[arg(long, value_name = "PORTS|@SET")]
    destination_port: Option<OrSet<Ports>>,
    /// Source MAC address or set. [default: any]
    #[arg(long, value_name = "MAC|@SET")]
    source_mac: Option<OrSet<MacAddress>>,
    /// Destination MAC address or set. [default: any]
    #[arg(long, value_name = "MAC|@SET")]
    destination_mac: Option<OrSet<MacAddress>>,
    /// TCP flags and the flags to compare, such as 'syn / syn,ack'. [default: any]
    #[arg(long, value_name = "FLAGS")]
    tcp_flags: Option<TcpFlags>,
    /// Type of ICMP or ICMPv6, 0 to 255. [default: any]
    #[arg(long, value_name = "N")]
    icmp_type: Option<u8>,
    /// Code of ICMP or ICMPv6, 0 to 255. [default: any]
    #[arg(long, value_name = "N")]
    icmp_code: Option<u8>,
    /// DSCP: a name such as ef or af11, or 0 to 63. [default: any]
    #[arg(long, value_name = "DSCP")]
    dscp: Option<Dscp>,
    /// Match frames with a VLAN tag only, or without one only. [default: any]
    #[arg(long, value_name = "BOOL")]
    tagged: Option<bool>,
}

impl From<RuleMatchArgs> for RuleMatch {
    fn from(args: RuleMatchArgs) -> Self {
        let RuleMatchArgs {
            ethertype,
            protocol,
            source,
            destination,
            source_port,
            destination_port,
            source_mac,
            destination_mac,
            tcp_flags,
            icmp_type,
            icmp_code,
            dscp,
            tagged,
        } = args;
        Self {
            ethertype,
            protocol,
            source,
            destination,
            source_port,
            destination_port,
            source_mac,
            destination_mac,
            tcp_flags,
            icmp_type,
            icmp_code,
            dscp,
            tagged,
        }
    }
}

/// Returns the conditions of a rule as text, with the options of the command that adds it.
pub(super) fn condition_text(options: impl Iterator<Item = (&'static str, String)>) -> String {
    let options: Vec<String> = options
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    options.join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn prefixes_of_rules_and_captures_may_be_addresses() {
        #[derive(Debug, clap::Parser)]
        struct Command<A: Args> {
            #[command(flatten)]
            packet: A,
        }
        let words = ["x", "--source", "10.0.0.1", "--destination", "2001:db8::1"];
        let rule = Command::<RuleMatchArgs>::try_parse_from(words).unwrap();
        let rule = RuleMatch::from(rule.packet).packet();
        let capture = Command::<MatchArgs>::try_parse_from(words).unwrap();
        let capture = PacketMatch::from(capture.packet);
        assert_eq!(rule, capture);
        let prefixes = [rule.source, rule.destination].map(|one| one.unwrap().to_string());
        assert_eq!(prefixes, ["10.0.0.1/32", "2001:db8::1/128"]);
        let set = Command::<RuleMatchArgs>::try_parse_from(["x", "--source", "@inside"]).unwrap();
        assert!(set.packet.source.unwrap().set().is_some());
        for wrong in ["10.0.0.0/33", "10.0.0", "inside"] {
            Command::<RuleMatchArgs>::try_parse_from(["x", "--source", wrong]).unwrap_err();
        }
    }
}
