// SPDX-License-Identifier: Apache-2.0
//! Allocation of port blocks: `block-allocation` of a `[[nat]]`. Computed blocks, and their hosts, follow from the configuration alone.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use quietwire_tables::nat::PortPool;
use serde::{Deserialize, Serialize};

use super::{MAX_HOSTS, NatSetting, first_ipv4, ipv4_of};
use crate::config::edit::wrong;
use crate::config::settings::Settings;
use crate::error::SwitchError;

/// How hosts get port blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockAllocation {
    /// When they need them.
    #[default]
    Dynamic,
    /// Each address of `sources` has one block, which is computed from it (RFC 7422).
    Deterministic,
}

impl BlockAllocation {
    const ALL: [Self; 2] = [Self::Dynamic, Self::Deterministic];

    /// Returns its name in files and options.
    const fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Deterministic => "deterministic",
        }
    }
}

impl fmt::Display for BlockAllocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BlockAllocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("'{text}' is not an allocation of port blocks (use one of {names})")
        })
    }
}

/// An inside host, or an external endpoint, whose port block is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockQuery {
    /// Address of an inside host.
    Inside(Ipv4Addr),
    /// An external address and one of its ports.
    External(SocketAddrV4),
}

impl FromStr for BlockQuery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inside = text.parse().map(Self::Inside);
        let either = inside.or_else(|_| text.parse().map(Self::External));
        either.map_err(|_| {
            format!(
                "'{text}' is neither an inside address (like 10.0.0.5) nor an external address with a port (like 198.51.100.1:2048)"
            )
        })
    }
}

/// A computed port block and its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComputedBlock {
    /// Name of the instance of NAT.
    pub nat: String,
    /// Inside address of the host.
    pub host: Ipv4Addr,
    /// External address.
    pub address: Ipv4Addr,
    /// First port of the block.
    pub first_port: u16,
    /// Last port of the block.
    pub last_port: u16,
}

impl NatSetting {
    fn is_deterministic(&self) -> bool {
        self.block_allocation == BlockAllocation::Deterministic
    }

    /// Returns the prefixes of inside hosts whose blocks are computed.
    pub(super) fn deterministic(&self) -> Vec<Ipv4Net> {
        let sources = self.sources.iter().filter(|_| self.is_deterministic());
        let ipv4 = |net: &IpNet| match net {
            IpNet::V4(net) => Some(net.trunc()),
            IpNet::V6(_) => None,
        };
        sources.filter_map(ipv4).collect()
    }

    /// Returns the default of `max-hosts`: all hosts have space if their blocks are computed.
    pub(super) fn default_hosts(&self) -> u32 {
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
}

/// Checks what computed blocks require beside the numbers of the pool.
pub(super) fn check(setting: &NatSetting) -> Result<(), String> {
    if !setting.is_deterministic() {
        return Ok(());
    }
    let name = BlockAllocation::Deterministic;
    if setting.is_ipv6() {
        return Err(format!(
            "block-allocation \"{name}\" requires external addresses of IPv4 (remove the key)"
        ));
    }
    if setting.nat64.is_some() {
        return Err(format!(
            "block-allocation \"{name}\" excludes nat64, whose clients have no IPv4 address (remove the key, or use another NAT)"
        ));
    }
    if setting.sources.is_empty() {
        return Err(format!(
            "block-allocation \"{name}\" requires `sources`, the prefixes of the inside hosts (list them)"
        ));
    }
    Ok(())
}

/// Checks that one forwarding CPU has all computed blocks: an inside host that sends to the external address of a host of another CPU needs
/// a port of that CPU.
pub(super) fn check_threads(setting: &NatSetting, threads: usize) -> Result<(), String> {
    if threads <= 1 || !setting.is_deterministic() {
        return Ok(());
    }
    Err(format!(
        "block-allocation \"{}\" does not support {threads} forwarding CPUs (use one in forwarding-cpus, or remove the key)",
        BlockAllocation::Deterministic
    ))
}

impl Settings {
    /// Returns the computed port blocks of an inside host or of an external endpoint, one for each instance of NAT that has them. Requires
    /// neither a running switch nor its machine.
    ///
    /// # Errors
    /// [`SwitchError::Config`] for an instance with invalid addresses or ports.
    pub fn computed_blocks(&self, query: BlockQuery) -> Result<Vec<ComputedBlock>, SwitchError> {
        let mut blocks = Vec::new();
        let nats = self.nats.iter().flatten().map(|one| &one.value);
        for nat in nats.filter(|one| one.is_deterministic()) {
            let invalid = |what| wrong(&format!("nat '{}'", nat.name), what);
            check(nat).map_err(invalid)?;
            let pool = nat.offline_pool(self.first_address_of(&nat.interface));
            pool.check().map_err(|error| invalid(error.to_string()))?;
            let host = match query {
                BlockQuery::Inside(host) => Some(host),
                BlockQuery::External(external) => {
                    pool.host_of_port(*external.ip(), external.port())
                }
            };
            let block = host.and_then(|host| Some((host, pool.ports_of_host(host)?)));
            blocks.extend(
                block.map(|(host, (address, first_port, last_port))| ComputedBlock {
                    nat: nat.name.clone(),
                    host,
                    address,
                    first_port,
                    last_port,
                }),
            );
        }
        Ok(blocks)
    }

    /// Returns the first IPv4 address of an interface.
    fn first_address_of(&self, interface: &str) -> Option<Ipv4Addr> {
        let mut interfaces = self.interfaces.iter().flatten().map(|one| &one.value);
        let interface = interfaces.find(|one| one.name == interface)?;
        first_ipv4(&interface.addresses)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::mapping::tests::{FILE, plan};
    use super::*;

    const KEYS: &str =
        "sources = [\"10.0.0.0/26\", \"10.0.1.0/26\"]\nports = \"2000-65535\"\nblock-size = 400\n";

    fn computed(settings: &Settings, query: &str) -> Vec<(String, String, u16, u16)> {
        let blocks = settings.computed_blocks(query.parse().unwrap()).unwrap();
        let parts = |one: ComputedBlock| {
            let (host, address) = (one.host.to_string(), one.address.to_string());
            assert_eq!(one.nat, "internet");
            (host, address, one.first_port, one.last_port)
        };
        blocks.into_iter().map(parts).collect()
    }

    #[test]
    fn each_allocation_is_read_and_written_again() {
        for setting in BlockAllocation::ALL {
            assert_eq!(setting.to_string().parse::<BlockAllocation>(), Ok(setting));
            let planned = plan(&format!("{KEYS}block-allocation = \"{setting}\"\n")).unwrap();
            assert_eq!(planned.nats[0].block_allocation, setting);
            let tables = planned.nats[0].tables(&planned.layer3.interfaces[1]);
            let (pool, is_dynamic) = (&tables.pool, setting == BlockAllocation::Dynamic);
            assert_eq!(pool.deterministic.is_empty(), is_dynamic);
            let expected = if is_dynamic { (8, MAX_HOSTS) } else { (1, 128) };
            assert_eq!((pool.blocks_per_host, tables.hosts_max), expected);
            // 158 blocks.
            assert_eq!(
                (pool.hold_down.seconds, pool.hold_down.blocks_max),
                (120, 79)
            );
            let text = planned.to_toml().unwrap();
            assert_eq!(text.contains("block-allocation = "), !is_dynamic, "{text}");
            let written = Settings::parse(Path::new("written.toml"), &text).unwrap();
            let again = written.plan(&"0-3".parse().unwrap()).unwrap();
            assert_eq!(again.nats, planned.nats);
        }
        let error = "static".parse::<BlockAllocation>().unwrap_err();
        assert!(
            error.contains("use one of dynamic, deterministic"),
            "{error}"
        );
    }

    #[test]
    fn hosts_of_ports_are_found_without_a_switch() {
        let text = format!("{FILE}{KEYS}block-allocation = \"deterministic\"\n");
        let settings = Settings::parse(Path::new("switch.toml"), &text).unwrap();
        let block = |host: &str, first: u16| {
            let address = "198.51.100.1".to_owned();
            vec![(host.to_owned(), address, first, first + 399)]
        };
        assert_eq!(computed(&settings, "10.0.0.0"), block("10.0.0.0", 2000));
        // The first address of the second prefix.
        let second = block("10.0.1.0", 2000 + 64 * 400);
        assert_eq!(computed(&settings, "10.0.1.0"), second);
        assert_eq!(computed(&settings, "198.51.100.1:27600"), second);
        assert_eq!(computed(&settings, "198.51.100.1:27999"), second);
        assert_eq!(
            computed(&settings, "198.51.100.1:28000"),
            block("10.0.1.1", 28_000)
        );
        for absent in [
            "10.0.0.64",
            "198.51.100.1:1999",
            "198.51.100.1:65535",
            "198.51.100.2:2000",
        ] {
            assert!(computed(&settings, absent).is_empty(), "{absent}");
        }
        assert!(
            "10.0.0.5:"
                .parse::<BlockQuery>()
                .unwrap_err()
                .contains("neither")
        );
        // Hosts get blocks when they need them: there is nothing to compute.
        let dynamic = Settings::parse(Path::new("switch.toml"), &format!("{FILE}{KEYS}")).unwrap();
        assert!(computed(&dynamic, "10.0.0.0").is_empty());
        let small = text.replace("block-size = 400", "block-size = 4000");
        let small = Settings::parse(Path::new("switch.toml"), &small).unwrap();
        let error = small
            .computed_blocks("10.0.0.0".parse().unwrap())
            .unwrap_err();
        assert!(
            error.to_string().contains("128 inside addresses require"),
            "{error}"
        );
    }

    #[test]
    fn what_excludes_computed_blocks_is_refused_with_the_cure() {
        for (keys, printed) in [
            ("", "requires `sources`"),
            (
                "addresses = [\"2001:db8:f::1\"]\n",
                "requires external addresses of IPv4",
            ),
            (
                "sources = [\"10.0.0.0/26\"]\nnat64 = { prefix = \"64:ff9b::/96\" }\n",
                "excludes nat64",
            ),
            (
                "sources = [\"10.0.0.0/24\"]\n",
                "256 inside addresses require 256 port blocks, but 1 external addresses have 126 (use 3 external addresses",
            ),
            (
                "sources = [\"10.0.0.0/26\", \"10.0.0.32/28\"]\n",
                "inside prefixes 10.0.0.0/26 and 10.0.0.32/28 overlap",
            ),
            (
                "sources = [\"10.0.0.0/26\"]\nblocks-per-host = 2\n",
                "2 blocks per host are too many",
            ),
            (
                "sources = [\"10.0.0.0/26\"]\n[[nat.publish]]\nprotocol = \"tcp\"\nport = 8080\nto = \"10.0.0.5:80\"\n",
                "use a port outside of the pool",
            ),
        ] {
            let error = plan(&format!("block-allocation = \"deterministic\"\n{keys}")).unwrap_err();
            assert!(error.contains(printed), "{error}");
        }
        let published = "block-allocation = \"deterministic\"\nsources = [\"10.0.0.0/26\"]\n\
            [[nat.publish]]\nprotocol = \"tcp\"\nport = 80\nto = \"10.0.0.5:80\"\n";
        assert!(plan(published).is_ok());
        let several = FILE.replace("forwarding-cpus = \"1\"", "forwarding-cpus = \"1-2\"");
        let text = format!("{several}{KEYS}block-allocation = \"deterministic\"\n");
        let settings = Settings::parse(Path::new("switch.toml"), &text).unwrap();
        let error = settings.plan(&"0-3".parse().unwrap()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("does not support 2 forwarding CPUs"),
            "{error}"
        );
    }

    #[test]
    fn hold_downs_are_settings_of_the_tables() {
        let held = |keys: &str| {
            let planned = plan(keys).unwrap();
            let tables = planned.nats[0].tables(&planned.layer3.interfaces[1]);
            (
                tables.pool.hold_down.seconds,
                tables.pool.hold_down.blocks_max,
            )
        };
        assert_eq!(held(""), (120, 63));
        assert_eq!(held("hold-down = 0\n"), (0, 63));
        assert_eq!(held("hold-down = 7\nhold-down-blocks = 9\n"), (7, 9));
        let error = plan("hold-down = 2592001\n").unwrap_err();
        assert!(error.contains("hold-down is out of range"), "{error}");
    }
}
