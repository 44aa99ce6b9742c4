// SPDX-License-Identifier: Apache-2.0
//! Objects that the agent has made in a switch, and those that it is about to make or remove.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use quietwire_host::CpuList;
use serde::{Deserialize, Serialize};

use super::orders::Names;
use crate::agent::state_file;
use crate::resources::{
    ConnectionTracking, DataPlaneSpec, Interface, LoadBalancer, Nat, Port, Route, SteeringRule, Vrf,
};

/// Objects that the agent has created in the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::agent) struct OwnObjects {
    pub(super) bridges: BTreeSet<String>,
    pub(super) ports: BTreeMap<String, Port>,
    pub(super) vrfs: BTreeMap<String, Vrf>,
    pub(super) interfaces: BTreeMap<String, Interface>,
    pub(super) nats: BTreeMap<String, Nat>,
    pub(super) load_balancers: BTreeMap<String, LoadBalancer>,
    /// In their order.
    pub(super) steering: Vec<SteeringRule>,
    /// By VRF and prefix.
    pub(super) routes: BTreeMap<String, Route>,
    /// Identity of the switch that has the routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) routes_of: Option<String>,
    pub(super) connections: Option<ConnectionTracking>,
    /// Identity of the switch whose connection tracking the agent has started or is about to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) connections_of: Option<String>,
    pub(super) rules: Option<String>,
    /// Identity of the switch that has the rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rules_of: Option<String>,
    pub(super) forwarding_cpus: Option<String>,
    /// Objects that the agent is about to make. If it is killed meanwhile, it has made those that exist.
    #[serde(skip_serializing_if = "PendingObjects::is_empty")]
    pub(super) coming: PendingObjects,
}

/// Objects that did not exist before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PendingObjects {
    bridges: BTreeSet<String>,
    ports: BTreeMap<String, Port>,
    vrfs: BTreeMap<String, Vrf>,
    interfaces: BTreeMap<String, Interface>,
    nats: BTreeMap<String, Nat>,
    load_balancers: BTreeMap<String, LoadBalancer>,
    steering: Vec<SteeringRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<ConnectionTracking>,
    /// Also those that it is about to remove.
    pub(super) routes: BTreeMap<String, Route>,
}

impl PendingObjects {
    /// Returns the objects of a specification that were not made, and that the switch does not have. `routes` are those of its routes.
    pub(super) fn of(
        spec: &DataPlaneSpec,
        made: &OwnObjects,
        present: &Names,
        routes: BTreeMap<String, Route>,
    ) -> Self {
        let bridges = spec.bridges.iter().map(|bridge| &bridge.name);
        let bridges = bridges.filter(|name| !made.bridges.contains(*name));
        let steering = spec.steering.iter();
        let steering = steering.filter(|rule| !made.has_steering_rule(&rule.name));
        let is_tracked = made.connections.is_some() || present.connections.is_some();
        let connections = spec.connections.as_ref();
        let connections = connections.filter(|one| one.is_enabled() && !is_tracked);
        Self {
            bridges: bridges
                .filter(|name| !present.bridges.contains(*name))
                .cloned()
                .collect(),
            ports: coming(&spec.ports, |it| &it.name, &made.ports, &present.ports),
            vrfs: coming(&spec.vrfs, |it| &it.name, &made.vrfs, &present.vrfs),
            interfaces: coming(
                &spec.interfaces,
                |it| &it.name,
                &made.interfaces,
                &present.interfaces,
            ),
            nats: coming(&spec.nats, |it| &it.name, &made.nats, &present.nats),
            load_balancers: coming(
                &spec.load_balancers,
                |it| &it.name,
                &made.load_balancers,
                &present.load_balancers,
            ),
            steering: steering
                .filter(|rule| !present.steering.contains(&rule.name))
                .cloned()
                .collect(),
            connections: connections.cloned(),
            routes,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn coming<T: Clone>(
    wanted: &[T],
    name_of: impl Fn(&T) -> &String,
    made: &BTreeMap<String, T>,
    present: &BTreeSet<String>,
) -> BTreeMap<String, T> {
    let named = wanted.iter().map(|one| (name_of(one), one));
    named
        .filter(|(name, _)| !made.contains_key(*name) && !present.contains(*name))
        .map(|(name, one)| (name.clone(), one.clone()))
        .collect()
}

impl OwnObjects {
    /// Reads the file. Nothing is made if it does not exist.
    pub(in crate::agent) fn read(path: &Path) -> io::Result<Self> {
        Ok(state_file::read(path)?.unwrap_or_default())
    }

    pub(in crate::agent) fn write(&self, path: &Path) -> io::Result<()> {
        state_file::write(path, self)
    }

    pub(in crate::agent) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the number of objects that have names in the switch.
    pub(super) fn len(&self) -> usize {
        [
            self.bridges.len(),
            self.ports.len(),
            self.vrfs.len(),
            self.interfaces.len(),
            self.nats.len(),
            self.load_balancers.len(),
            self.steering.len(),
        ]
        .iter()
        .sum()
    }

    /// Returns true unless the switch has other forwarding CPUs than those that were set.
    pub(super) fn has_cpus_of(&self, names: &Names) -> bool {
        let set = self.forwarding_cpus.as_ref();
        let set = set.and_then(|text| text.parse::<CpuList>().ok());
        set.is_none_or(|cpus| cpus == names.forwarding_cpus)
    }

    pub(super) fn has_steering_rule(&self, name: &str) -> bool {
        self.steering.iter().any(|rule| rule.name == name)
    }

    /// Adds the objects that a killed agent was about to make, as far as the switch has them. Returns the routes that it was about to make.
    pub(super) fn adopt(&mut self, names: &Names) -> BTreeMap<String, Route> {
        let PendingObjects {
            mut bridges,
            mut ports,
            mut vrfs,
            mut interfaces,
            mut nats,
            mut load_balancers,
            mut steering,
            connections,
            routes,
        } = std::mem::take(&mut self.coming);
        bridges.retain(|name| names.bridges.contains(name));
        ports.retain(|name, _| names.ports.contains(name));
        vrfs.retain(|name, _| names.vrfs.contains(name));
        interfaces.retain(|name, _| names.interfaces.contains(name));
        nats.retain(|name, _| names.nats.contains(name));
        load_balancers.retain(|name, _| names.load_balancers.contains(name));
        steering.retain(|rule| names.steering.contains(&rule.name));
        self.bridges.extend(bridges);
        self.ports.extend(ports);
        self.vrfs.extend(vrfs);
        self.interfaces.extend(interfaces);
        self.nats.extend(nats);
        self.load_balancers.extend(load_balancers);
        self.steering.extend(steering);
        if names.connections.is_some() && self.connections_of == names.start {
            self.connections = self.connections.take().or(connections);
        }
        routes
    }

    /// Forgets objects that the switch does not have any more.
    pub(super) fn retain_present(&mut self, names: &Names) {
        self.ports.retain(|name, _| names.ports.contains(name));
        self.bridges.retain(|name| names.bridges.contains(name));
        self.vrfs.retain(|name, _| names.vrfs.contains(name));
        self.interfaces
            .retain(|name, _| names.interfaces.contains(name));
        self.nats.retain(|name, _| names.nats.contains(name));
        self.load_balancers
            .retain(|name, _| names.load_balancers.contains(name));
        self.steering
            .retain(|rule| names.steering.contains(&rule.name));
        // After another start, the switch has the connection tracking of its file.
        if names.connections.is_none() || self.connections_of != names.start {
            self.connections = None;
        }
        self.connections_of.clone_from(&names.start);
    }

    /// Ends a pass: no object is about to be made.
    pub(super) fn settle(&mut self) {
        self.coming = PendingObjects::default();
        if self.routes.is_empty() {
            self.routes_of = None;
        }
        if self.connections.is_none() {
            self.connections_of = None;
        }
    }
}

/// Objects that a pass removes: those that the specification lacks or describes differently, and those on them.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    pub(super) ports: BTreeSet<String>,
    pub(super) vrfs: BTreeSet<String>,
    pub(super) interfaces: BTreeSet<String>,
}

impl Leaving {
    pub(super) fn of(spec: &DataPlaneSpec, made: &OwnObjects) -> Self {
        let ports = unwanted(&made.ports, &spec.ports);
        let vrfs = unwanted(&made.vrfs, &spec.vrfs);
        let mut interfaces = unwanted(&made.interfaces, &spec.interfaces);
        let is_of = |place: Option<&String>, places: &BTreeSet<String>| {
            place.is_some_and(|place| places.contains(place))
        };
        // An interface leaves with its port and its VRF, also if these are made again.
        let leaving = made.interfaces.values().filter(|interface| {
            is_of(interface.port.as_ref(), &ports) || is_of(interface.vrf.as_ref(), &vrfs)
        });
        interfaces.extend(leaving.map(|interface| interface.name.clone()));
        Self {
            ports,
            vrfs,
            interfaces,
        }
    }
}

/// Returns the names of objects that were made and that a specification does not contain, or describes differently.
fn unwanted<T: PartialEq>(made: &BTreeMap<String, T>, wanted: &[T]) -> BTreeSet<String> {
    let unwanted = made.iter().filter(|(_, object)| !wanted.contains(object));
    unwanted.map(|(name, _)| name.clone()).collect()
}
