// SPDX-License-Identifier: Apache-2.0
//! Computed port blocks (RFC 7422): their requirements, and their hosts, which follow from the configuration alone.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

use serde::Serialize;

use super::{BlockAllocation, NatSetting, first_ipv4};
use crate::config::edit::wrong;
use crate::config::settings::Settings;
use crate::error::SwitchError;

/// An inside host, or an external endpoint, whose port block is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockQuery {
    /// Address of an inside host.
    Host(Ipv4Addr),
    /// An external address and one of its ports.
    External(SocketAddrV4),
}

impl FromStr for BlockQuery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inside = text.parse().map(Self::Host);
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
                BlockQuery::Host(host) => Some(host),
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
        let of_blocks = |size: u16| {
            let keys = KEYS.replace("block-size = 400", &format!("block-size = {size}"));
            let text = format!("{several}{keys}block-allocation = \"deterministic\"\n");
            let settings = Settings::parse(Path::new("switch.toml"), &text).unwrap();
            settings.plan(&"0-3".parse().unwrap())
        };
        assert!(of_blocks(400).is_ok());
        let error = of_blocks(1).unwrap_err().to_string();
        assert!(
            error.contains("1 ports of a computed block are too few for 2 forwarding CPUs"),
            "{error}"
        );
    }
}
