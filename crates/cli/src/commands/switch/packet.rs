// SPDX-License-Identifier: Apache-2.0
//! Packet conditions of rules: options of the commands that add rules, and their text in tables.

use clap::Args;
use ipnet::IpNet;
use quietwire_switch::config::{EtherType, PacketMatch, Ports, Protocol};

/// Packet conditions of a rule.
#[derive(Debug, Args)]
pub(super) struct MatchArgs {
    /// EtherType after the VLAN tags: ipv4, ipv6, arp, lldp, or a number such as 0x88cc. [default: any]
    #[arg(long, value_name = "ETHERTYPE")]
    ethertype: Option<EtherType>,
    /// IP protocol: tcp, udp, icmp, ospf and others, or a number. [default: any]
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// Source prefix. [default: any]
    #[arg(long, value_name = "PREFIX")]
    source: Option<IpNet>,
    /// Destination prefix. [default: any]
    #[arg(long, value_name = "PREFIX")]
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

/// Returns the conditions of a rule as text, with the options of the command that adds it.
pub(super) fn condition_text(options: impl Iterator<Item = (&'static str, String)>) -> String {
    let options: Vec<String> = options
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    options.join(", ")
}
