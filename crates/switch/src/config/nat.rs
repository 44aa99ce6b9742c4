// SPDX-License-Identifier: Apache-2.0
//! Configuration of NAT: `[[nat]]`.

mod block_allocation;
mod change;
mod check;
mod computed;
mod filtering;
mod log_events;
mod mapping;
mod nat64;
mod nat66;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use quietwire_tables::filter::Protocol;
use quietwire_tables::nat::{
    Forward, HoldDown, NatProtocol, NatSettings, NatTimeouts, Pair, PortPool,
};
use quietwire_tables::nat66::external_number;
use serde::{Deserialize, Serialize};

use super::layer3::InterfacePlan;

pub use block_allocation::BlockAllocation;
pub(super) use check::{check, check_collector, check_tracking};
pub use computed::{BlockQuery, ComputedBlock};
pub use filtering::FilteringSetting;
pub(super) use log_events::check_log_events;
pub use log_events::{NatLogEvent, NatLogEvents};
pub use mapping::MappingSetting;
pub use nat64::Nat64Setting;
pub(crate) use nat64::inside_of;

/// Maximum length of a name, octets: messages to a standby and files of saved mappings have lengths of eight bits.
pub(crate) const NAME_MAX: usize = 255;
/// Maximum number of NAT instances: a message to a standby has the settings of all of them.
pub(crate) const NATS_MAX: usize = 16;
/// Default first port. Lower ones are well-known (RFC 6335, section 6).
const FIRST_PORT: u16 = 1024;
/// Default number of ports of a block, and of blocks of a host: 4096 ports for each protocol.
const BLOCK_SIZE: u16 = 512;
const BLOCKS_PER_HOST: u8 = 8;
/// Default seconds of a hold-down (RFC 6888, REQ-8).
const HOLD_DOWN_S: u32 = 120;
/// Default maximum number of mappings and of hosts.
const MAX_MAPPINGS: u32 = 65_536;
const MAX_HOSTS: u32 = 4096;

/// NAT at an interface: packets that leave by it get external source addresses, and answers return to the inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NatSetting {
    /// Its name.
    pub name: String,
    /// The outside interface.
    pub interface: String,
    /// External addresses, all of IPv4 or all of IPv6. Default: the first IPv4 address of the interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Prefixes of inside hosts. Default: all packets from other interfaces are translated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpNet>,
    /// Prefixes of destinations. Packets to them leave with their inside addresses. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_destinations: Vec<IpNet>,
    /// External ports. Default: 1024-65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortRange>,
    /// Ports of a block. Default: 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u16>,
    /// Maximum number of blocks of a host, 1 to 8. Default: 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks_per_host: Option<u8>,
    /// Allocation of blocks to hosts. Default: when they need them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub block_allocation: BlockAllocation,
    /// Seconds for which no other host gets a returned block. 0: none. Default: 120 (RFC 6888, REQ-8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_down: Option<u32>,
    /// Maximum number of held blocks of an external address. Default: a half of its blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_down_blocks: Option<u16>,
    /// Maximum number of mappings, without published ports. Default: 65536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_mappings: Option<u32>,
    /// Maximum number of hosts with mappings. Default: 4096, or all hosts with computed blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_hosts: Option<u32>,
    /// Mapping behaviour. Default: endpoint-independent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mapping: MappingSetting,
    /// Filtering behaviour of endpoint-independent mappings. Default: endpoint-independent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub filtering: FilteringSetting,
    /// Timeouts of mappings.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: NatTimeoutsSetting,
    /// NAT64. Default: packets of IPv6 are not translated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat64: Option<Nat64Setting>,
    /// Published ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<PublishSetting>,
    /// One-to-one translations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_to_one: Vec<PairSetting>,
}

/// Mappings to remove: those that match all given fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct MappingSelection {
    /// Name of the instance.
    pub nat: Option<String>,
    /// IP protocol.
    pub protocol: Option<Protocol>,
    /// Prefix of the inside or the external address, or of the remote one that the mapping depends on.
    pub address: Option<IpNet>,
    /// Inside or external port, or remote one that the mapping depends on.
    pub port: Option<u16>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Timeouts of mappings without packets from the inside, seconds. Default: those of [`NatTimeouts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct NatTimeoutsSetting {
    /// UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<u32>,
    /// TCP with packets in both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_established: Option<u32>,
    /// TCP that opens or closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_transitory: Option<u32>,
    /// ICMP echoes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp: Option<u32>,
}

/// Protocol of a published port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublishProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// An inside endpoint that is reached by an external port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PublishSetting {
    /// Protocol.
    pub protocol: PublishProtocol,
    /// External port.
    pub port: u16,
    /// Inside endpoint.
    pub to: SocketAddr,
    /// External address. Default: the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

/// An inside host with an external address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PairSetting {
    /// Inside address.
    pub inside: Ipv4Addr,
    /// External address.
    pub outside: Ipv4Addr,
}

/// A range of ports, such as `1024-65535`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (first, last) = text.split_once('-')?;
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(Self { first, last })
        };
        parsed().ok_or_else(|| {
            format!("'{text}' is not a range of ports (use FIRST-LAST, such as 1024-65535)")
        })
    }
}

impl TryFrom<String> for PortRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PortRange> for String {
    fn from(range: PortRange) -> Self {
        range.to_string()
    }
}

impl FromStr for PublishProtocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            _ => Err(format!(
                "'{text}' is not a protocol of published ports (use tcp or udp)"
            )),
        }
    }
}

impl fmt::Display for PublishProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// Returns the first IPv4 address of an interface.
fn address_of(interface: &InterfacePlan) -> Option<Ipv4Addr> {
    first_ipv4(&interface.addresses)
}

fn first_ipv4(nets: &[IpNet]) -> Option<Ipv4Addr> {
    nets.iter().find_map(|net| match net {
        IpNet::V4(net) => Some(net.addr()),
        IpNet::V6(_) => None,
    })
}

impl PublishProtocol {
    /// Returns the protocol of mappings.
    const fn of_mappings(self) -> NatProtocol {
        match self {
            Self::Tcp => NatProtocol::Tcp,
            Self::Udp => NatProtocol::Udp,
        }
    }
}

/// Returns an address of IPv4.
fn ipv4_of(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

impl PublishSetting {
    /// Returns the static forward to an IPv4 host. `first` is the first external address.
    fn forward(&self, first: Option<Ipv4Addr>) -> Option<Forward> {
        let SocketAddr::V4(internal) = self.to else {
            return None;
        };
        let address = match self.address {
            Some(address) => ipv4_of(address)?,
            None => first.unwrap_or(Ipv4Addr::UNSPECIFIED),
        };
        Some(Forward {
            protocol: self.protocol.of_mappings(),
            external: SocketAddrV4::new(address, self.port),
            internal,
        })
    }
}

impl NatSetting {
    /// Returns the external addresses: the configured ones, or that of the outside interface.
    pub(crate) fn external_addresses(&self, interface: &InterfacePlan) -> Vec<IpAddr> {
        if self.addresses.is_empty() {
            address_of(interface).map(IpAddr::V4).into_iter().collect()
        } else {
            self.addresses.clone()
        }
    }

    /// Returns the addresses of the pool: external ones of IPv4, or what stands for those of IPv6.
    fn pool_addresses(&self, interface: &InterfacePlan) -> Vec<Ipv4Addr> {
        let externals = self.external_addresses(interface).into_iter();
        match self.is_ipv6() {
            true => (0..externals.len()).map(external_number).collect(),
            false => externals.filter_map(ipv4_of).collect(),
        }
    }

    /// Returns the inside endpoints of IPv4 that this instance publishes and former settings of it do not, in ascending order.
    pub(crate) fn newly_published(&self, former: &Self) -> Vec<(NatProtocol, SocketAddrV4)> {
        let endpoints = |setting: &Self| -> BTreeSet<(NatProtocol, SocketAddrV4)> {
            let all = setting.publish.iter().filter_map(|one| match one.to {
                SocketAddr::V4(to) => Some((one.protocol.of_mappings(), to)),
                SocketAddr::V6(_) => None,
            });
            all.collect()
        };
        let (now, before) = (endpoints(self), endpoints(former));
        now.difference(&before).copied().collect()
    }

    /// Returns true if blocks are computed.
    fn is_deterministic(&self) -> bool {
        self.block_allocation == BlockAllocation::Deterministic
    }

    /// Returns the prefixes of inside hosts whose blocks are computed.
    fn deterministic(&self) -> Vec<Ipv4Net> {
        let sources = self.sources.iter().filter(|_| self.is_deterministic());
        let ipv4 = |net: &IpNet| match net {
            IpNet::V4(net) => Some(net.trunc()),
            IpNet::V6(_) => None,
        };
        sources.filter_map(ipv4).collect()
    }

    /// Returns the default of `max-hosts`: all hosts have space if their blocks are computed.
    fn default_hosts(&self) -> u32 {
        let count =
            |net: &Ipv4Net| 1_u32.checked_shl(u32::from(32_u8.saturating_sub(net.prefix_len())));
        let insides = self.deterministic();
        let counts = insides.iter().map(|net| count(net).unwrap_or(u32::MAX));
        match insides.is_empty() {
            true => MAX_HOSTS,
            false => counts.fold(0, u32::saturating_add),
        }
    }

    /// Returns the pool without an outside interface, whose first address is that one.
    fn offline_pool(&self, first: Option<Ipv4Addr>) -> PortPool {
        let addresses = match self.addresses.is_empty() {
            true => first.into_iter().collect(),
            false => self.addresses.iter().copied().filter_map(ipv4_of).collect(),
        };
        self.port_pool(addresses)
    }

    /// Returns the pool of these external addresses.
    fn port_pool(&self, addresses: Vec<Ipv4Addr>) -> PortPool {
        let ports = self.ports.unwrap_or(PortRange {
            first: FIRST_PORT,
            last: u16::MAX,
        });
        let deterministic = self.deterministic();
        let blocks_per_host = match deterministic.is_empty() {
            true => BLOCKS_PER_HOST,
            false => 1,
        };
        let mut pool = PortPool {
            addresses,
            first_port: ports.first,
            last_port: ports.last,
            block_size: self.block_size.unwrap_or(BLOCK_SIZE),
            blocks_per_host: self.blocks_per_host.unwrap_or(blocks_per_host),
            deterministic,
            hold_down: HoldDown::default(),
        };
        let half = u16::try_from(pool.blocks() / 2).unwrap_or(u16::MAX);
        pool.hold_down = HoldDown {
            seconds: self.hold_down.unwrap_or(HOLD_DOWN_S),
            blocks_max: self.hold_down_blocks.unwrap_or(half),
        };
        pool
    }

    /// Returns the settings of the tables, with static forwards to IPv4 hosts in ascending order.
    pub(crate) fn tables(&self, interface: &InterfacePlan) -> NatSettings {
        let addresses = self.pool_addresses(interface);
        let first = addresses.first().copied();
        let publish = self.publish.iter();
        let mut forwards: Vec<Forward> = publish.filter_map(|one| one.forward(first)).collect();
        forwards.sort_unstable();
        let defaults = NatTimeouts::default();
        let pair = |one: &PairSetting| Pair {
            internal: one.inside,
            external: one.outside,
        };
        NatSettings {
            pool: self.port_pool(addresses),
            forwards,
            pairs: self.one_to_one.iter().map(pair).collect(),
            mappings_max: self.max_mappings.unwrap_or(MAX_MAPPINGS),
            hosts_max: self.max_hosts.unwrap_or_else(|| self.default_hosts()),
            mapping: self.mapping.behaviour(),
            filtering: self.filtering.behaviour(),
            timeouts: NatTimeouts {
                udp_s: self.timeouts.udp.unwrap_or(defaults.udp_s),
                tcp_established_s: self
                    .timeouts
                    .tcp_established
                    .unwrap_or(defaults.tcp_established_s),
                tcp_transitory_s: self
                    .timeouts
                    .tcp_transitory
                    .unwrap_or(defaults.tcp_transitory_s),
                icmp_s: self.timeouts.icmp.unwrap_or(defaults.icmp_s),
            },
        }
    }
}
