// SPDX-License-Identifier: Apache-2.0
//! The configuration file: TOML, with the same keys as the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quietwire_base::locate::Lines;
use quietwire_base::{Idle, Seccomp};
use quietwire_host::{CpuList, CpuSequence};
use serde::Deserialize;
use toml::Spanned;

use super::balance::LoadBalancerSetting;
use super::bridging::{BridgingSetting, FloodingSetting, StaticSetting};
use super::connections::{ConnectionsSetting, ReplicationSetting};
use super::kernel_filter::KernelFilterSetting;
use super::later_ports::LaterPorts;
use super::layer3::{InterfaceSetting, NeighbourSetting, RouteSetting, VrfSetting};
use super::location::{Located, Location, read_text, wrong};
use super::nat::{NatLogEvents, NatSetting};
use super::rebalance::Rules;
use super::rules::{Action, MalformedAction, RuleSetting, SetSetting};
use super::settings::{
    BridgeSetting, CrossConnectSetting, HugePages, Pinning, PortSetting, Settings,
};
use super::shared_list::SharedList;
use super::steer::SteerSetting;
use crate::error::SwitchError;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    port: Option<Vec<Spanned<Port>>>,
    cross_connect: Option<Vec<Spanned<CrossConnect>>>,
    bridge: Option<Vec<Spanned<Bridge>>>,
    forwarding_cpus: Option<CpuList>,
    service_cpus: Option<CpuList>,
    control_cpus: Option<CpuList>,
    rx_ring_size: Option<u16>,
    tx_ring_size: Option<u16>,
    frame_size_max: Option<u16>,
    idle: Option<Idle>,
    pinning: Option<Pinning>,
    huge_pages: Option<HugePages>,
    memory_mib: Option<u32>,
    control_socket: Option<PathBuf>,
    user: Option<String>,
    seccomp: Option<Seccomp>,
    later_ports: Option<LaterPorts>,
    metrics: Option<std::net::SocketAddr>,
    max_entries: Option<u32>,
    ageing_s: Option<u32>,
    kernel_forwarding: Option<bool>,
    fdb: Option<Vec<Spanned<StaticSetting>>>,
    vrf: Option<Vec<Spanned<VrfSetting>>>,
    interface: Option<Vec<Spanned<InterfaceSetting>>>,
    kernel_filter: Option<Vec<Spanned<KernelFilterSetting>>>,
    steer: Option<Vec<Spanned<SteerSetting>>>,
    route: Option<Vec<Spanned<RouteSetting>>>,
    rule_default: Option<Action>,
    rule_malformed: Option<MalformedAction>,
    rule: Option<Vec<Spanned<RuleSetting>>>,
    set: Option<Vec<Spanned<SetSetting>>>,
    neighbour: Option<Vec<Spanned<NeighbourSetting>>>,
    rebalance: Option<Rules>,
    connections: Option<ConnectionsSetting>,
    replication: Option<ReplicationSetting>,
    nat: Option<Vec<Spanned<NatSetting>>>,
    load_balancer: Option<Vec<Spanned<LoadBalancerSetting>>>,
    nat_log: Option<PathBuf>,
    nat_log_collector: Option<std::net::SocketAddr>,
    nat_log_events: Option<NatLogEvents>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Port {
    name: String,
    uri: String,
    rx_queues: Option<u16>,
    tx_queues: Option<u16>,
    rx_cpus: Option<CpuSequence>,
    #[serde(default)]
    bridging: BridgingSetting,
}

impl Port {
    fn setting(self, location: Location) -> PortSetting {
        PortSetting {
            name: self.name,
            uri: self.uri,
            rx_queues: self.rx_queues,
            tx_queues: self.tx_queues,
            rx_cpus: self.rx_cpus,
            bridging: self.bridging,
            location,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct CrossConnect {
    ports: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Bridge {
    name: String,
    ports: Vec<String>,
    max_entries: Option<u32>,
    ageing_s: Option<u32>,
    kernel_forwarding: Option<bool>,
    flooding: Option<FloodingSetting>,
}

impl Bridge {
    fn setting(self, location: Location) -> BridgeSetting {
        BridgeSetting {
            name: self.name,
            ports: self.ports,
            max_entries: self.max_entries,
            ageing_s: self.ageing_s,
            kernel_forwarding: self.kernel_forwarding,
            flooding: self.flooding,
            location,
        }
    }
}

/// Attaches its location in the file to each element.
fn located<T>(
    list: Vec<Spanned<T>>,
    key: &'static str,
    location: &impl Fn(usize, &'static str) -> Location,
) -> Vec<Located<T>> {
    let one = |spanned: Spanned<T>| Located {
        location: location(spanned.span().start, key),
        value: spanned.into_inner(),
    };
    list.into_iter().map(one).collect()
}

/// Attaches its location in the file to each element of a long list.
fn shared<T>(
    list: Vec<Spanned<T>>,
    key: &'static str,
    location: &impl Fn(usize, &'static str) -> Location,
) -> SharedList<Located<Arc<T>>> {
    let all = located(list, key, location);
    all.into_iter().map(Located::shared).collect()
}

impl Settings {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`SwitchError::Unreadable`]; [`SwitchError::Config`] with file, line and key.
    pub fn read(path: &Path) -> Result<Self, SwitchError> {
        Self::parse(path, &read_text(path)?)
    }

    /// Parses the text of a TOML file. `path` appears in messages.
    ///
    /// # Errors
    /// [`SwitchError::Config`] with file, line and key.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SwitchError> {
        parse(path, text)
    }
}

fn parse(path: &Path, text: &str) -> Result<Settings, SwitchError> {
    let file: File = toml::from_str(text).map_err(|error| wrong(path, text, &error))?;
    let lines = Lines::of(text);
    let path: Arc<Path> = path.into();
    let location = |offset: usize, key: &'static str| Location::File {
        path: Arc::clone(&path),
        line: lines.line(offset),
        key,
    };
    Ok(Settings {
        ports: file.port.map(|ports| {
            let setting = |port: Spanned<Port>| {
                let location = location(port.span().start, "port");
                port.into_inner().setting(location)
            };
            ports.into_iter().map(setting).collect()
        }),
        cross_connects: file.cross_connect.map(|pairs| {
            let setting = |pair: Spanned<CrossConnect>| CrossConnectSetting {
                location: location(pair.span().start, "cross-connect"),
                ports: pair.into_inner().ports,
            };
            pairs.into_iter().map(setting).collect()
        }),
        bridges: file.bridge.map(|bridges| {
            let setting = |bridge: Spanned<Bridge>| {
                let location = location(bridge.span().start, "bridge");
                bridge.into_inner().setting(location)
            };
            bridges.into_iter().map(setting).collect()
        }),
        forwarding_cpus: file.forwarding_cpus,
        service_cpus: file.service_cpus,
        control_cpus: file.control_cpus,
        rx_ring_size: file.rx_ring_size,
        tx_ring_size: file.tx_ring_size,
        frame_size_max: file.frame_size_max,
        idle: file.idle,
        pinning: file.pinning,
        huge_pages: file.huge_pages,
        memory_mib: file.memory_mib,
        control_socket: file.control_socket,
        user: file.user,
        seccomp: file.seccomp,
        later_ports: file.later_ports,
        metrics: file.metrics,
        max_entries: file.max_entries,
        ageing_s: file.ageing_s,
        kernel_forwarding: file.kernel_forwarding,
        statics: file.fdb.map(|list| shared(list, "fdb", &location)),
        vrfs: file.vrf.map(|list| located(list, "vrf", &location)),
        interfaces: file
            .interface
            .map(|list| located(list, "interface", &location)),
        kernel_filters: file
            .kernel_filter
            .map(|list| located(list, "kernel-filter", &location)),
        steer: file.steer.map(|list| located(list, "steer", &location)),
        routes: file.route.map(|list| located(list, "route", &location)),
        neighbours: file
            .neighbour
            .map(|list| located(list, "neighbour", &location)),
        rules: file.rule.map(|list| shared(list, "rule", &location)),
        sets: file.set.map(|list| shared(list, "set", &location)),
        rule_default: file.rule_default,
        rule_malformed: file.rule_malformed,
        rebalance: file.rebalance,
        connections: file.connections,
        replication: file.replication,
        nats: file.nat.map(|list| located(list, "nat", &location)),
        load_balancers: file
            .load_balancer
            .map(|list| located(list, "load-balancer", &location)),
        nat_log: file.nat_log,
        nat_log_collector: file.nat_log_collector,
        nat_log_events: file.nat_log_events,
    })
}
