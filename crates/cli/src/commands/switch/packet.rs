// SPDX-License-Identifier: Apache-2.0
//! Which packets a rule means: options of the commands that add rules, and their text in tables.

use clap::Args;
use ipnet::IpNet;
use quietwire_switch::config::{EtherType, PacketMatch, Ports, Protocol};

/// What a rule asks of packets.
#[derive(Debug, Args)]
pub(super) struct MatchArgs {
    /// What frames carry behind their tags: ipv4, ipv6, arp, lldp, or a number like 0x88cc. [default: anything]
    #[arg(long, value_name = "ETHERTYPE")]
    ethertype: Option<EtherType>,
    /// What IP packets carry: tcp, udp, icmp, ospf and the like, or a number. [default: anything]
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// Where packets are from. [default: anywhere]
    #[arg(long, value_name = "PREFIX")]
    source: Option<IpNet>,
    /// Destination of packets. [default: anywhere]
    #[arg(long, value_name = "PREFIX")]
    destination: Option<IpNet>,
    /// Their source port, or the first and the last: 179, 5000-5010. [default: any]
    #[arg(long, value_name = "PORTS")]
    source_port: Option<Ports>,
    /// Their destination port, or the first and the last. [default: any]
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

/// What a rule asks, in the words of the command that adds it.
pub(super) fn asked(words: impl Iterator<Item = (&'static str, String)>) -> String {
    let words: Vec<String> = words.map(|(key, value)| format!("{key} {value}")).collect();
    words.join(", ")
}
