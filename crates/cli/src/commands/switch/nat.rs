// SPDX-License-Identifier: Apache-2.0
//! Options of `quietwire switch add|del|show` for NAT.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use ipnet::{IpNet, Ipv6Net};
use quietwire_switch::config::Change;
use quietwire_switch::config::nat::{
    BlockAllocation, ComputedBlock, FilteringSetting, MappingSetting, Nat64Setting, NatSetting,
    NatTimeoutsSetting, PortRange, PublishProtocol, PublishSetting,
};
use quietwire_switch::report::NatReport;

use super::table::table;

/// NAT at an interface.
#[derive(Debug, Args)]
pub(super) struct NatArgs {
    /// Name.
    name: String,
    /// Outside interface: packets that leave by it get external source addresses.
    interface: String,
    /// External address of IPv4, or of IPv6 for NAT of IPv6; repeatable. [default: the first IPv4 address of the interface]
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<IpAddr>,
    /// Prefix of inside hosts; repeatable. Required with several forwarding CPUs. [default: packets from all other interfaces]
    #[arg(long = "source", value_name = "PREFIX")]
    sources: Vec<IpNet>,
    /// Prefix of destinations whose packets leave without translation; repeatable. [default: none]
    #[arg(long = "excluded-destination", value_name = "PREFIX")]
    excluded_destinations: Vec<IpNet>,
    /// External ports. [default: 1024-65535]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<PortRange>,
    /// Ports of a block. [default: 512]
    #[arg(long, value_name = "N")]
    block_size: Option<u16>,
    /// Maximum number of blocks of a host, 1 to 8. [default: 8, deterministic: 1]
    #[arg(long, value_name = "N")]
    blocks_per_host: Option<u8>,
    /// Allocation of port blocks: dynamic, or deterministic (computed from the inside address).
    #[arg(long, value_name = "ALLOCATION", default_value_t)]
    block_allocation: BlockAllocation,
    /// Time for which no other host gets a returned block, seconds, 0 to 2592000. [default: 120]
    #[arg(long, value_name = "SECONDS")]
    hold_down: Option<u32>,
    /// Maximum number of held blocks of an external address. [default: half of its blocks]
    #[arg(long, value_name = "N")]
    hold_down_blocks: Option<u16>,
    /// Maximum number of mappings. [default: 65536]
    #[arg(long, value_name = "N")]
    max_mappings: Option<u32>,
    /// Maximum number of hosts with mappings. [default: 4096, deterministic: all]
    #[arg(long, value_name = "N")]
    max_hosts: Option<u32>,
    /// Mapping behaviour: endpoint-independent, address-dependent or address-and-port-dependent.
    #[arg(long, value_name = "BEHAVIOUR", default_value_t)]
    mapping: MappingSetting,
    /// Filtering behaviour of endpoint-independent mappings: endpoint-independent or address-dependent.
    #[arg(long, value_name = "BEHAVIOUR", default_value_t)]
    filtering: FilteringSetting,
    /// NAT64: IPv6 prefix of IPv4 hosts, like 64:ff9b::/96. [default: no NAT64]
    #[arg(long, value_name = "PREFIX")]
    nat64_prefix: Option<Ipv6Net>,
    /// NAT64: prefix of IPv6 clients; repeatable. [default: all]
    #[arg(
        long = "nat64-client",
        value_name = "PREFIX",
        requires = "nat64_prefix"
    )]
    nat64_clients: Vec<Ipv6Net>,
    /// NAT64: clients reach private IPv4 addresses too.
    #[arg(long, requires = "nat64_prefix")]
    nat64_private_servers: bool,
    /// NAT64: largest IPv6 packet translated from an IPv4 packet that may be fragmented, octets. [default: 1280]
    #[arg(long, value_name = "OCTETS", requires = "nat64_prefix")]
    nat64_mtu: Option<u16>,
}

impl NatArgs {
    pub(super) fn change(self) -> Change {
        let nat64 = self.nat64_prefix.map(|prefix| Nat64Setting {
            prefix,
            clients: self.nat64_clients,
            private_servers: self.nat64_private_servers,
            mtu: self.nat64_mtu,
        });
        Change::AddNat(NatSetting {
            name: self.name,
            interface: self.interface,
            addresses: self.addresses,
            sources: self.sources,
            excluded_destinations: self.excluded_destinations,
            ports: self.ports,
            block_size: self.block_size,
            blocks_per_host: self.blocks_per_host,
            block_allocation: self.block_allocation,
            hold_down: self.hold_down,
            hold_down_blocks: self.hold_down_blocks,
            max_mappings: self.max_mappings,
            max_hosts: self.max_hosts,
            mapping: self.mapping,
            filtering: self.filtering,
            timeouts: NatTimeoutsSetting::default(),
            nat64,
            publish: Vec::new(),
            one_to_one: Vec::new(),
        })
    }
}

/// A published port.
#[derive(Debug, Args)]
pub(super) struct PublishArgs {
    /// Name of the NAT.
    nat: String,
    /// Protocol: tcp or udp.
    protocol: PublishProtocol,
    /// External port.
    port: u16,
    /// Inside endpoint, like 10.0.0.5:443. An IPv6 address is in brackets.
    to: SocketAddr,
    /// External address. [default: the first one]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
}

impl PublishArgs {
    pub(super) fn change(self) -> Change {
        Change::AddPublish {
            nat: self.nat,
            publish: PublishSetting {
                protocol: self.protocol,
                port: self.port,
                to: self.to,
                address: self.address,
            },
        }
    }
}

/// Choice of a published port.
#[derive(Debug, Args)]
pub(super) struct PublishedArgs {
    /// Name of the NAT.
    nat: String,
    /// Protocol: tcp or udp.
    protocol: PublishProtocol,
    /// External port.
    port: u16,
    /// External address, if the published port has one.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
}

impl PublishedArgs {
    pub(super) fn change(self) -> Change {
        Change::DelPublish {
            nat: self.nat,
            protocol: self.protocol,
            port: self.port,
            address: self.address,
        }
    }
}

/// Formats the instances of NAT.
pub(super) fn render(nats: &[NatReport]) -> String {
    let header = [
        "nat",
        "interface",
        "addresses",
        "mapping",
        "filtering",
        "mappings",
        "published",
        "hosts",
        "outbound",
        "inbound",
        "hairpinned",
        "refused",
    ];
    let mut table = table(header, 5);
    for nat in nats {
        let addresses: Vec<String> = nat.addresses.iter().map(IpAddr::to_string).collect();
        table.add_row([
            nat.name.clone(),
            nat.interface.clone(),
            addresses.join(" "),
            nat.mapping.clone(),
            nat.filtering.clone(),
            format!("{}/{}", nat.mappings, nat.max_mappings),
            nat.published.to_string(),
            nat.hosts.to_string(),
            nat.outbound.to_string(),
            nat.inbound.to_string(),
            nat.hairpinned.to_string(),
            nat.refused.values().sum::<u64>().to_string(),
        ]);
    }
    let mut lines = vec![table.to_string()];
    for nat in nats.iter().filter(|nat| nat.events_lost > 0) {
        let NatReport {
            name, events_lost, ..
        } = nat;
        lines.push(format!("{name}: {events_lost} events are not in the log"));
    }
    lines.join("\n")
}

/// Formats computed port blocks.
pub(super) fn blocks_text(blocks: &[ComputedBlock]) -> String {
    let mut table = table(["nat", "host", "address", "first port", "last port"], 3);
    for block in blocks {
        table.add_row([
            block.nat.clone(),
            block.host.to_string(),
            block.address.to_string(),
            block.first_port.to_string(),
            block.last_port.to_string(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_shown_if_there_are_some() {
        let report = |name: &str, events_lost| NatReport {
            name: name.to_owned(),
            events_lost,
            ..NatReport::default()
        };
        let text = render(&[report("internet", 0), report("ipv6", 7)]);
        assert!(!text.contains("internet:"), "{text}");
        assert!(
            text.ends_with("\nipv6: 7 events are not in the log"),
            "{text}"
        );
    }
}
