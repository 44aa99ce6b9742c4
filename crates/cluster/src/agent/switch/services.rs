// SPDX-License-Identifier: Apache-2.0
//! Routes, NAT, load balancers and steering rules of a `DataPlane`. They depend on ports and interfaces, so they are removed before these and
//! added after them.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use quietwire_switch::config::Change;
use quietwire_switch::config::balance::BackendSetting;
use quietwire_switch::config::layer3::{RouteSetting, VRF_MAIN};
use quietwire_switch::config::nat::PublishSetting;

use super::changes::SwitchChanges;
use super::made::{Leaving, OwnObjects};
use super::orders::{Names, Orders};
use super::settings;
use crate::resources::{
    Backend, BackendState, DataPlaneSpec, LoadBalancer, Nat, PublishedPort, Route, SteeringRule,
};

/// Weight of a backend without one.
const WEIGHT: u32 = 1;

fn vrf_of(route: &Route) -> &str {
    route.vrf.as_deref().unwrap_or(VRF_MAIN)
}

/// Returns the routes that a pass removes: those that the specification lacks or describes differently. All leave with an interface, because
/// the switch keeps routes for its return.
pub(super) fn leaving_routes(
    spec: &DataPlaneSpec,
    leaving: &Leaving,
    made: &OwnObjects,
) -> BTreeMap<String, Route> {
    let leaves = |route: &Route| {
        !leaving.interfaces.is_empty()
            || leaving.vrfs.contains(vrf_of(route))
            || !spec.routes.contains(route)
    };
    let routes = made.routes.iter().filter(|(_, route)| leaves(route));
    routes
        .map(|(key, route)| (key.clone(), route.clone()))
        .collect()
}

/// Returns the identity of a route: the prefix, and the VRF if it is not the main one.
fn key_of(route: &Route) -> String {
    let prefix = route.prefix.parse::<IpNet>();
    let prefix = prefix.map_or_else(|_| route.prefix.clone(), |it| it.trunc().to_string());
    match vrf_of(route) {
        VRF_MAIN => prefix,
        vrf => format!("{prefix} vrf {vrf}"),
    }
}

/// Returns true if two instances of NAT differ in published ports at most, which can change while mappings stay.
fn differ_in_ports_only(one: &Nat, other: &Nat) -> bool {
    let without = |nat: &Nat| Nat {
        publish: Vec::new(),
        ..nat.clone()
    };
    without(one) == without(other)
}

/// Returns true if two load balancers differ in backends at most, which can change while connections stay.
fn differ_in_backends_only(one: &LoadBalancer, other: &LoadBalancer) -> bool {
    let without = |balancer: &LoadBalancer| LoadBalancer {
        backends: Vec::new(),
        ..balancer.clone()
    };
    without(one) == without(other)
}

/// Returns the setting of a backend with weight and state: the switch keeps those that a change does not give.
fn backend_setting(backend: &Backend) -> Result<BackendSetting, String> {
    settings::of(&Backend {
        to: backend.to.clone(),
        weight: Some(backend.weight.unwrap_or(WEIGHT)),
        state: Some(backend.state.unwrap_or(BackendState::Up)),
    })
}

impl<O: Orders> SwitchChanges<'_, O> {
    /// Removes services other than routes that the specification does not contain any more, and those on objects that leave.
    pub(super) fn remove_services(
        &mut self,
        spec: &DataPlaneSpec,
        leaving: &Leaving,
        present: &mut Names,
        made: &mut OwnObjects,
    ) {
        self.remove_steering(spec, leaving, present, made);
        self.remove_load_balancers(spec, present, made);
        self.remove_nats(spec, leaving, present, made);
    }

    /// Adds what the specification contains. `routes` are the routes that the switch does not have.
    pub(super) fn add_services(
        &mut self,
        spec: &DataPlaneSpec,
        routes: BTreeMap<String, Route>,
        present: &Names,
        made: &mut OwnObjects,
    ) {
        for (key, route) in routes {
            let object = format!("route {key}");
            let setting = settings::of(&route);
            let added = setting.and_then(|setting| self.switch.add_route(setting));
            if self.accepted(object, added).is_some() {
                made.routes.insert(key, route);
            }
        }
        for nat in &spec.nats {
            self.add_nat(nat, present, made);
        }
        for balancer in &spec.load_balancers {
            self.add_load_balancer(balancer, present, made);
        }
        for (index, rule) in spec.steering.iter().enumerate() {
            let behind = spec.steering.iter().skip(index.saturating_add(1));
            self.add_steering_rule(rule, behind, present, made);
        }
    }

    /// Takes over the routes that a killed agent was about to make, as far as the switch has them.
    pub(super) fn adopt_routes(&mut self, routes: BTreeMap<String, Route>, made: &mut OwnObjects) {
        for (key, route) in routes {
            // A route that the switch cannot have was not added.
            let setting = settings::of::<RouteSetting>(&route);
            let has = setting.and_then(|setting| self.switch.has_route(&setting));
            if has == Ok(true) {
                made.routes.insert(key, route);
            }
        }
    }

    /// Returns the routes of a specification that were not made, except those to prefixes with another static route.
    pub(super) fn new_routes(
        &mut self,
        spec: &DataPlaneSpec,
        present: &Names,
        made: &OwnObjects,
    ) -> BTreeMap<String, Route> {
        let mut known = BTreeSet::new();
        let mut new = BTreeMap::new();
        for route in &spec.routes {
            let key = key_of(route);
            let object = format!("route {key}");
            if !known.insert(key.clone()) {
                let text = "routes has another route to this prefix (use one with several next hops in via)";
                self.reject(object, text.to_owned());
                continue;
            }
            if made.routes.contains_key(&key) {
                continue;
            }
            // A VRF that is added later has no routes.
            let vrf = vrf_of(route);
            let has_vrf = vrf == VRF_MAIN || present.vrfs.contains(vrf);
            let setting = settings::of::<RouteSetting>(route);
            let has = setting.and_then(|setting| match has_vrf {
                true => self.switch.has_route(&setting),
                false => Ok(false),
            });
            match self.accepted(object.clone(), has) {
                Some(false) => {
                    new.insert(key, route.clone());
                }
                Some(true) => {
                    let text = "a static route to this prefix exists that no DataPlane has made (remove it)";
                    self.reject(object, text.to_owned());
                }
                None => {}
            }
        }
        new
    }

    /// Removes routes. Those that the switch does not remove stay among the objects that were made.
    pub(super) fn remove_routes(&mut self, routes: BTreeMap<String, Route>, made: &mut OwnObjects) {
        for (key, route) in routes {
            let setting = settings::of::<RouteSetting>(&route);
            let switch = self.switch;
            let removed = setting.and_then(|setting| match switch.has_route(&setting)? {
                true => switch.delete_route(setting),
                false => Ok(()),
            });
            if self.accepted(format!("route {key}"), removed).is_none() {
                made.routes.insert(key, route);
            }
        }
    }

    fn remove_nats(
        &mut self,
        spec: &DataPlaneSpec,
        leaving: &Leaving,
        present: &mut Names,
        made: &mut OwnObjects,
    ) {
        let stays = |nat: &Nat| {
            let mut wanted = spec.nats.iter();
            !leaving.interfaces.contains(&nat.interface)
                && wanted.any(|one| differ_in_ports_only(one, nat))
        };
        let unwanted = made.nats.values().filter(|nat| !stays(nat));
        let unwanted: Vec<String> = unwanted.map(|nat| nat.name.clone()).collect();
        for name in unwanted {
            let change = Change::DelNat { name: name.clone() };
            if self.change(format!("NAT {name}"), change) {
                made.nats.remove(&name);
                present.nats.remove(&name);
            }
        }
    }

    fn add_nat(&mut self, nat: &Nat, present: &Names, made: &mut OwnObjects) {
        let (name, object) = (&nat.name, format!("NAT {}", nat.name));
        if let Some(former) = made.nats.get_mut(name) {
            if differ_in_ports_only(former, nat) {
                self.set_published(nat, former);
            }
            return;
        }
        if present.nats.contains(name) {
            let text = "a NAT of this name exists that no DataPlane has made (use another name)";
            return self.reject(object, text.to_owned());
        }
        let setting = settings::of(nat);
        let added = setting.and_then(|setting| self.switch.change(Change::AddNat(setting)));
        if self.accepted(object, added).is_some() {
            made.nats.insert(name.clone(), nat.clone());
        }
    }

    /// Changes the published ports of a NAT, which keeps its mappings.
    fn set_published(&mut self, nat: &Nat, made: &mut Nat) {
        let is_gone = |port: &PublishedPort| !nat.publish.contains(port);
        let gone: Vec<PublishedPort> = made
            .publish
            .iter()
            .filter(|port| is_gone(port))
            .cloned()
            .collect();
        for port in gone {
            let change = settings::of::<PublishSetting>(&port).map(|port| Change::DelPublish {
                nat: nat.name.clone(),
                protocol: port.protocol,
                port: port.port,
                address: port.address,
            });
            let removed = change.and_then(|change| self.switch.change(change));
            if self.accepted(object_of(nat, &port), removed).is_some() {
                made.publish.retain(|one| *one != port);
            }
        }
        for port in &nat.publish {
            if made.publish.contains(port) {
                continue;
            }
            let change = settings::of::<PublishSetting>(port).map(|publish| Change::AddPublish {
                nat: nat.name.clone(),
                publish,
            });
            let added = change.and_then(|change| self.switch.change(change));
            if self.accepted(object_of(nat, port), added).is_some() {
                made.publish.push(port.clone());
            }
        }
    }

    fn remove_load_balancers(
        &mut self,
        spec: &DataPlaneSpec,
        present: &mut Names,
        made: &mut OwnObjects,
    ) {
        let stays = |balancer: &LoadBalancer| {
            let mut wanted = spec.load_balancers.iter();
            wanted.any(|one| differ_in_backends_only(one, balancer))
        };
        let unwanted = made.load_balancers.values().filter(|it| !stays(it));
        let unwanted: Vec<String> = unwanted.map(|it| it.name.clone()).collect();
        for name in unwanted {
            let change = Change::DelLoadBalancer { name: name.clone() };
            if self.change(format!("load balancer {name}"), change) {
                made.load_balancers.remove(&name);
                present.load_balancers.remove(&name);
            }
        }
    }

    fn add_load_balancer(
        &mut self,
        balancer: &LoadBalancer,
        present: &Names,
        made: &mut OwnObjects,
    ) {
        let name = &balancer.name;
        let object = format!("load balancer {name}");
        if let Some(former) = made.load_balancers.get_mut(name) {
            if differ_in_backends_only(former, balancer) {
                self.set_backends(balancer, former);
            }
            return;
        }
        if present.load_balancers.contains(name) {
            let text =
                "a load balancer of this name exists that no DataPlane has made (use another name)";
            return self.reject(object, text.to_owned());
        }
        let setting = settings::of(balancer);
        let added =
            setting.and_then(|setting| self.switch.change(Change::AddLoadBalancer(setting)));
        if self.accepted(object, added).is_some() {
            made.load_balancers.insert(name.clone(), balancer.clone());
        }
    }

    /// Changes the backends of a load balancer, which keeps its other connections.
    fn set_backends(&mut self, balancer: &LoadBalancer, made: &mut LoadBalancer) {
        let name = &balancer.name;
        let is_gone = |one: &Backend| balancer.backends.iter().all(|wanted| wanted.to != one.to);
        let gone = made.backends.iter().filter(|one| is_gone(one));
        let gone: Vec<Backend> = gone.cloned().collect();
        for backend in gone {
            let change = backend_setting(&backend).map(|setting| Change::DelBackend {
                load_balancer: name.clone(),
                to: setting.to,
            });
            let removed = change.and_then(|change| self.switch.change(change));
            let object = format!("load balancer {name} backend {}", backend.to);
            if self.accepted(object, removed).is_some() {
                made.backends.retain(|one| one.to != backend.to);
            }
        }
        for backend in &balancer.backends {
            let former = made.backends.iter().find(|one| one.to == backend.to);
            if former == Some(backend) {
                continue;
            }
            let (load_balancer, is_new) = (name.clone(), former.is_none());
            let change = backend_setting(backend).map(|backend| match is_new {
                true => Change::AddBackend {
                    load_balancer,
                    backend,
                },
                false => Change::SetBackend {
                    load_balancer,
                    backend,
                },
            });
            let done = change.and_then(|change| self.switch.change(change));
            let object = format!("load balancer {name} backend {}", backend.to);
            if self.accepted(object, done).is_some() {
                made.backends.retain(|one| one.to != backend.to);
                made.backends.push(backend.clone());
            }
        }
    }

    /// Removes steering rules. Rules that stay have the order of the specification.
    fn remove_steering(
        &mut self,
        spec: &DataPlaneSpec,
        leaving: &Leaving,
        present: &mut Names,
        made: &mut OwnObjects,
    ) {
        let mut wanted = spec.steering.as_slice();
        for rule in std::mem::take(&mut made.steering) {
            let kernel_port = rule.kernel_port.as_ref();
            let is_leaving = leaving.ports.contains(&rule.port)
                || kernel_port.is_some_and(|port| leaving.ports.contains(port));
            let place = wanted.iter().position(|one| *one == rule);
            if let Some(place) = place.filter(|_| !is_leaving) {
                wanted = wanted.get(place.saturating_add(1)..).unwrap_or_default();
                made.steering.push(rule);
                continue;
            }
            let name = rule.name.clone();
            let change = Change::DelSteer { name: name.clone() };
            if self.change(format!("steering rule {name}"), change) {
                present.steering.remove(&name);
            } else {
                made.steering.push(rule);
            }
        }
    }

    /// Adds a steering rule before the first of the rules behind it that the switch has.
    fn add_steering_rule<'spec>(
        &mut self,
        rule: &SteeringRule,
        mut behind: impl Iterator<Item = &'spec SteeringRule>,
        present: &Names,
        made: &mut OwnObjects,
    ) {
        let (name, object) = (&rule.name, format!("steering rule {}", rule.name));
        if made.has_steering_rule(name) {
            return;
        }
        if present.steering.contains(name) {
            let text =
                "a steering rule of this name exists that no DataPlane has made (use another name)";
            return self.reject(object, text.to_owned());
        }
        let before = behind.find(|one| made.has_steering_rule(&one.name));
        let before = before.map(|one| one.name.clone());
        let change = settings::of(rule).map(|rule| Change::AddSteer {
            rule,
            before: before.clone(),
        });
        let added = change.and_then(|change| self.switch.change(change));
        if self.accepted(object, added).is_some() {
            let mut rules = made.steering.iter();
            let place = rules.position(|one| Some(&one.name) == before.as_ref());
            let place = place.unwrap_or(made.steering.len());
            made.steering.insert(place, rule.clone());
        }
    }
}

fn object_of(nat: &Nat, port: &PublishedPort) -> String {
    format!("NAT {} published port {}", nat.name, port.port)
}
