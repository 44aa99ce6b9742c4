// SPDX-License-Identifier: Apache-2.0
//! Validation of NAT.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use quietwire_tables::nat::is_client_number;

use super::{
    FilteringSetting, MappingSetting, NAME_MAX, NATS_MAX, Nat64Setting, NatSetting, computed,
    ipv4_of, nat64, nat66,
};
use crate::config::layer3::{InterfacePlan, Layer3Plan};
use crate::config::location::{Located, Location};
use crate::error::SwitchError;

/// Maximum number of source prefixes of an instance, and of destination prefixes.
const SOURCES_MAX: usize = 64;
/// Maximum timeout, seconds: 30 days.
const TIMEOUT_MAX_S: u32 = 30 * 24 * 3600;

/// Checks that the configuration has a log if it has a collector of events.
///
/// # Errors
/// [`SwitchError::Config`].
pub(in crate::config) fn check_collector(
    has_log: bool,
    collector: Option<SocketAddr>,
) -> Result<(), SwitchError> {
    match collector {
        Some(collector) if !has_log => Err(SwitchError::Config {
            location: "nat-log-collector".to_owned(),
            what: format!(
                "{collector} gets the events of nat-log, which is not set (set nat-log too)"
            ),
        }),
        _ => Ok(()),
    }
}

/// Checks the instances of NAT, their interfaces and addresses, and the number of forwarding threads. Returns them.
///
/// # Errors
/// [`SwitchError::Config`].
pub(in crate::config) fn check(
    settings: &[Located<NatSetting>],
    layer3: &Layer3Plan,
    threads: usize,
) -> Result<Vec<NatSetting>, SwitchError> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut outside: BTreeMap<(&str, bool), &str> = BTreeMap::new();
    let mut external: BTreeMap<(usize, IpAddr), &str> = BTreeMap::new();
    for (count, Located { value, location }) in settings.iter().enumerate() {
        if value.name.is_empty() {
            return Err(location.wrong("the NAT has no name"));
        }
        let octets = value.name.len();
        if octets > NAME_MAX {
            return Err(location.wrong(format!(
                "the name of the NAT has {octets} octets (use at most {NAME_MAX})"
            )));
        }
        let wrong = |what: String| location.wrong(format!("nat '{}': {what}", value.name));
        if count == NATS_MAX {
            return Err(wrong(format!(
                "too many instances of NAT (maximum: {NATS_MAX})"
            )));
        }
        if !names.insert(&value.name) {
            return Err(wrong(
                "another NAT has this name (use unique names)".to_owned(),
            ));
        }
        let place = (value.interface.as_str(), value.is_ipv6());
        if let Some(other) = outside.insert(place, &value.name) {
            return Err(wrong(format!(
                "nat '{other}' is at the interface '{}' already (use one for each interface and version of IP)",
                value.interface
            )));
        }
        let interface = interface_of(value, layer3, location)?;
        for address in check_one(value, interface, layer3).map_err(wrong)? {
            if let Some(other) = external.insert((interface.vrf, address), &value.name) {
                return Err(location.wrong(format!(
                    "nat '{}': nat '{other}' has the external address {address} too (use another address)",
                    value.name
                )));
            }
        }
        check_threads(value, interface, threads).map_err(wrong)?;
        check_insides(value).map_err(wrong)?;
        if let Some(setting) = &value.nat64 {
            nat64::check(setting, interface, layer3).map_err(wrong)?;
            let others = settings.iter().take(count).map(|one| &one.value);
            let mut of_vrf = others.filter(|one| vrf_of(one, layer3) == Some(interface.vrf));
            let overlaps = |other: &Nat64Setting| other.overlaps(setting);
            if let Some(other) = of_vrf.find(|one| one.nat64.as_ref().is_some_and(overlaps)) {
                return Err(wrong(format!(
                    "nat64: nat '{}' has a prefix that overlaps (use another prefix)",
                    other.name
                )));
            }
        }
    }
    Ok(settings.iter().map(|one| one.value.clone()).collect())
}

fn interface_of<'plan>(
    setting: &NatSetting,
    layer3: &'plan Layer3Plan,
    location: &Location,
) -> Result<&'plan InterfacePlan, SwitchError> {
    let mut interfaces = layer3.interfaces.iter();
    interfaces
        .find(|one| one.name == setting.interface)
        .ok_or_else(|| {
            location.wrong(format!(
                "nat '{}': no such interface: '{}' (define it with [[interface]]; to delete an interface, delete its NAT first)",
                setting.name, setting.interface
            ))
        })
}

/// Checks that no inside host has an address that stands for an IPv6 client.
fn check_insides(setting: &NatSetting) -> Result<(), String> {
    let pairs = setting.one_to_one.iter().map(|pair| pair.inside);
    let publish = setting.publish.iter();
    let mut insides = pairs.chain(publish.filter_map(|one| ipv4_of(one.to.ip())));
    match insides.find(|inside| is_client_number(inside.to_bits())) {
        None => Ok(()),
        Some(inside) => Err(format!(
            "inside address {inside} is of 240.0.0.0/8, which has no hosts (use another address)"
        )),
    }
}

/// Checks that there is no NAT64 if packets are tracked: the tracker would see another version of IP in each direction. Two VRFs then have no
/// common external address: the tracker classifies packets before their VRF is known.
///
/// # Errors
/// [`SwitchError::Config`].
pub(in crate::config) fn check_tracking(
    nats: &[NatSetting],
    layer3: &Layer3Plan,
    is_tracked: bool,
) -> Result<(), SwitchError> {
    if !is_tracked {
        return Ok(());
    }
    check_distinct(nats, layer3)?;
    match nats.iter().find(|nat| nat.nat64.is_some()) {
        None => Ok(()),
        Some(nat) => Err(SwitchError::Config {
            location: format!("nat '{}'", nat.name),
            what: "connection tracking does not follow nat64 (remove it, or the section [connections]; for a standby, use [replication])"
                .to_owned(),
        }),
    }
}

/// Checks that no two instances have one external address. Two of one VRF have none already.
fn check_distinct(nats: &[NatSetting], layer3: &Layer3Plan) -> Result<(), SwitchError> {
    let mut known: BTreeMap<IpAddr, &str> = BTreeMap::new();
    for nat in nats {
        let mut interfaces = layer3.interfaces.iter();
        let outside = interfaces.find(|one| one.name == nat.interface);
        let pool = outside.map(|outside| nat.external_addresses(outside));
        let pairs = nat.one_to_one.iter();
        let pairs = pairs.map(|pair| IpAddr::V4(pair.outside));
        for address in pool.unwrap_or_default().into_iter().chain(pairs) {
            if let Some(other) = known.insert(address, &nat.name) {
                return Err(SwitchError::Config {
                    location: format!("nat '{}'", nat.name),
                    what: format!(
                        "nat '{other}' of another VRF has the external address {address} too, and connection tracking cannot distinguish \
                         their packets (use another address, or remove the section [connections])"
                    ),
                });
            }
        }
    }
    Ok(())
}

/// Returns the VRF of an instance.
fn vrf_of(setting: &NatSetting, layer3: &Layer3Plan) -> Option<usize> {
    let mut interfaces = layer3.interfaces.iter();
    let outside = interfaces.find(|one| one.name == setting.interface)?;
    Some(outside.vrf)
}

/// Checks that several forwarding threads can share an instance: an inside host has its mappings on one of them, and each has port blocks.
fn check_threads(
    setting: &NatSetting,
    interface: &InterfacePlan,
    threads: usize,
) -> Result<(), String> {
    if threads <= 1 {
        return Ok(());
    }
    let sources = &setting.sources;
    if sources.is_empty() || sources.iter().any(|net| net.prefix_len() == 0) {
        let all = if setting.is_ipv6() {
            "::/0"
        } else {
            "0.0.0.0/0"
        };
        return Err(format!(
            "{threads} forwarding CPUs require `sources`, the prefixes of the inside hosts, because each host belongs to one CPU \
             (list them, without {all}, or use one CPU in forwarding-cpus)"
        ));
    }
    let tables = setting.tables(interface);
    tables
        .check_shares(threads)
        .map_err(|error| error.to_string())
}

/// Checks one instance. Returns its external addresses.
fn check_one(
    setting: &NatSetting,
    interface: &InterfacePlan,
    layer3: &Layer3Plan,
) -> Result<Vec<IpAddr>, String> {
    nat66::check_versions(setting)?;
    check_mapping(setting)?;
    check_filtering(setting)?;
    computed::check(setting)?;
    let is_ipv6 = setting.is_ipv6();
    let mut nets = interface.addresses.iter();
    if !nets.any(|net| net.addr().is_ipv6() == is_ipv6) {
        return Err(format!(
            "interface '{}' has no {} address (add one)",
            interface.name,
            if is_ipv6 { "IPv6" } else { "IPv4" }
        ));
    }
    if setting.sources.len() > SOURCES_MAX {
        return Err(format!("too many sources (maximum: {SOURCES_MAX})"));
    }
    check_excluded(setting)?;
    for (name, seconds) in [
        ("udp", setting.timeouts.udp),
        ("tcp-established", setting.timeouts.tcp_established),
        ("tcp-transitory", setting.timeouts.tcp_transitory),
        ("icmp", setting.timeouts.icmp),
    ] {
        if seconds.is_some_and(|seconds| !(1..=TIMEOUT_MAX_S).contains(&seconds)) {
            return Err(format!(
                "timeout '{name}' is out of range (allowed: 1 to {TIMEOUT_MAX_S} s)"
            ));
        }
    }
    if setting
        .hold_down
        .is_some_and(|seconds| seconds > TIMEOUT_MAX_S)
    {
        return Err(format!(
            "hold-down is out of range (allowed: 0 to {TIMEOUT_MAX_S} s)"
        ));
    }
    let tables = setting.tables(interface);
    tables.check().map_err(|error| error.to_string())?;
    if is_ipv6 {
        nat66::check(setting, interface)?;
    }
    check_published(setting)?;
    let pairs = tables.pairs.iter();
    let mut all = setting.external_addresses(interface);
    all.extend(pairs.map(|pair| IpAddr::V4(pair.external)));
    for address in &all {
        check_address(*address, interface, layer3)?;
    }
    Ok(all)
}

/// Checks the number and the version of IP of destinations without translation.
fn check_excluded(setting: &NatSetting) -> Result<(), String> {
    let excluded = &setting.excluded_destinations;
    if excluded.len() > SOURCES_MAX {
        return Err(format!(
            "too many excluded destinations (maximum: {SOURCES_MAX})"
        ));
    }
    let is_ipv6 = setting.is_ipv6();
    let mut excluded = excluded.iter();
    match excluded.find(|net| net.addr().is_ipv6() != is_ipv6) {
        None => Ok(()),
        Some(net) => Err(format!(
            "excluded destination {net} is not of the IP version of the external addresses (remove it, or use another NAT)"
        )),
    }
}

/// Checks that mappings that depend on remote IPv4 addresses are those of IPv4 hosts.
fn check_mapping(setting: &NatSetting) -> Result<(), String> {
    let (mapping, independent) = (setting.mapping, MappingSetting::EndpointIndependent);
    if mapping == independent {
        Ok(())
    } else if setting.is_ipv6() {
        Err(format!(
            "mapping \"{mapping}\" requires external addresses of IPv4 (use \"{independent}\")"
        ))
    } else if setting.nat64.is_some() {
        Err(format!(
            "mapping \"{mapping}\" excludes nat64, whose mappings are endpoint-independent (use \"{independent}\", or another NAT)"
        ))
    } else {
        Ok(())
    }
}

/// Checks that only endpoint-independent mappings of IPv4 hosts are filtered.
fn check_filtering(setting: &NatSetting) -> Result<(), String> {
    let (filtering, mapping) = (setting.filtering, setting.mapping);
    if filtering == FilteringSetting::default() {
        Ok(())
    } else if mapping != MappingSetting::EndpointIndependent {
        Err(format!(
            "mapping \"{mapping}\" excludes filtering, because such mappings accept packets of their remote hosts only (remove one of the keys)"
        ))
    } else if setting.is_ipv6() {
        Err(format!(
            "filtering \"{filtering}\" requires external addresses of IPv4 (remove the key)"
        ))
    } else if setting.nat64.is_some() {
        Err(format!(
            "filtering \"{filtering}\" excludes nat64, whose filtering is endpoint-independent (remove the key, or use another NAT)"
        ))
    } else {
        Ok(())
    }
}

/// Checks that packets of published hosts are translated: answers of other hosts would leave with their inside addresses.
fn check_published(setting: &NatSetting) -> Result<(), String> {
    let sources = &setting.sources;
    let publish = setting.publish.iter().map(|one| one.to.ip());
    let pairs = setting.one_to_one.iter();
    let pairs = pairs.map(|pair| IpAddr::V4(pair.inside));
    let is_source = |host: &IpAddr| sources.iter().any(|net| net.contains(host));
    match publish.chain(pairs).find(|host| !is_source(host)) {
        Some(host) if !sources.is_empty() => Err(format!(
            "published host {host} is not in sources, so its answers would leave without translation (add its prefix to sources)"
        )),
        _ => Ok(()),
    }
}

/// Checks that an external address is a unicast address, that no other interface of the VRF has it, and that the router answers hosts on
/// the link that ask for it (ARP, Neighbor Discovery).
fn check_address(
    address: IpAddr,
    interface: &InterfacePlan,
    layer3: &Layer3Plan,
) -> Result<(), String> {
    let is_unicast = match address {
        IpAddr::V4(address) => {
            let [first, ..] = address.octets();
            !matches!(first, 0 | 127 | 224..)
        }
        IpAddr::V6(address) => nat66::is_unicast(address),
    };
    if !is_unicast {
        return Err(format!("{address} is not a unicast address"));
    }
    let has = |one: &InterfacePlan| one.addresses.iter().any(|net| net.addr() == address);
    if has(interface) {
        return Ok(());
    }
    let mut of_vrf = layer3
        .interfaces
        .iter()
        .filter(|one| one.vrf == interface.vrf);
    if let Some(other) = of_vrf.find(|one| has(one)) {
        return Err(format!(
            "external address {address} is an address of interface '{}' (use one of '{}')",
            other.name, interface.name
        ));
    }
    let mut nets = interface.addresses.iter();
    match nets.find(|net| net.contains(&address)) {
        None => Ok(()),
        Some(net) => Err(format!(
            "external address {address} is in {}, so its neighbours ask for it (add {} to the addresses of interface '{}')",
            net.trunc(),
            IpNet::from(address),
            interface.name
        )),
    }
}
