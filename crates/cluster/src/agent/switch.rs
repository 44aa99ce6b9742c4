// SPDX-License-Identifier: Apache-2.0
//! Configures the running switch of the node as a `DataPlane` requests. A file lists the objects that the agent has made. The agent changes
//! and removes only these.

mod changes;
mod made;
mod orders;
pub(super) mod saved;
mod services;
mod settings;
pub(super) mod start;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use quietwire_host::CpuList;
use quietwire_packet::VlanId;
use quietwire_switch::config::bridging::{AddBridge, BridgingSetting};
use quietwire_switch::config::layer3::VrfSetting;
use quietwire_switch::config::rules::RuleFile;
use quietwire_switch::config::{AddPort, Change};

use crate::resources::{
    Bridge, ConnectionTracking, DataPlaneSpec, Interface, Port, RejectedChange, Vrf,
};
use changes::SwitchChanges;
use made::{Leaving, PendingObjects};
use orders::{Names, Orders};
use services::leaving_routes;

pub(super) use made::OwnObjects;
pub(super) use orders::Running;

/// Most rejected changes that are reported.
const REJECTED_MAX: usize = 32;
/// Object of a rejected change of connection tracking.
const CONNECTIONS: &str = "connections";

/// Makes the changes that lead from what was made to the specification. Continues after rejected changes and returns them. `note` keeps
/// what was made, and what is about to be made, for the case that the agent is killed.
///
/// # Errors
/// No switch runs, or it does not reply: nothing is changed then. The error of `note`: nothing is added then, and no route removed.
pub(super) fn bring(
    switch: &impl Orders,
    spec: &DataPlaneSpec,
    made: &mut OwnObjects,
    mut note: impl FnMut(&OwnObjects) -> io::Result<()>,
) -> Result<Vec<RejectedChange>, String> {
    let mut present = switch.names()?;
    let coming = made.adopt(&present);
    let before = made.len();
    made.retain_present(&present);
    if before != made.len() || present.ports.is_empty() || !made.has_cpus_of(&present) {
        // The switch was started again, so its rules are unknown.
        made.rules = None;
        made.forwarding_cpus = None;
    }
    // Also if it has all objects from its own file, or if the agent has made none.
    if made.rules_of != present.start {
        made.rules = None;
    }
    if made.rules.is_none() {
        made.rules_of = None;
    }
    let mut work = SwitchChanges::new(switch);
    if made.routes_of == present.start {
        work.adopt_routes(coming, made);
    } else {
        made.routes.clear();
        made.routes_of.clone_from(&present.start);
    }
    if spec.forwarding_cpus != made.forwarding_cpus {
        work.set_forwarding_cpus(spec.forwarding_cpus.as_deref(), made);
    }
    let leaving = Leaving::of(spec, made);
    work.remove_services(spec, &leaving, &mut present, made);
    let routes = leaving_routes(spec, &leaving, made);
    if !routes.is_empty() {
        made.routes.retain(|key, _| !routes.contains_key(key));
        made.coming.routes.clone_from(&routes);
        if let Err(error) = note(&*made) {
            made.routes.extend(routes);
            made.settle();
            return Err(format!(
                "cannot record the routes before removing them: {error}"
            ));
        }
        work.remove_routes(routes, made);
    }
    work.remove(spec, leaving, &mut present, made);
    let routes = work.new_routes(spec, &present, made);
    made.coming = PendingObjects::of(spec, made, &present, routes.clone());
    if !made.coming.is_empty()
        && let Err(error) = note(&*made)
    {
        made.settle();
        return Err(format!(
            "cannot record the objects before adding them: {error}"
        ));
    }
    for bridge in &spec.bridges {
        work.add_bridge(bridge, &present.bridges, made);
    }
    for port in &spec.ports {
        work.add_port(port, &present.ports, made);
    }
    for vrf in &spec.vrfs {
        work.add_vrf(vrf, &present.vrfs, made);
    }
    for interface in &spec.interfaces {
        work.add_interface(interface, &present.interfaces, made);
    }
    // Rules require it, and load balancers and NAT may exclude it.
    work.set_connections(spec.connections.as_ref(), &present, made);
    work.add_services(spec, routes, &present, made);
    if spec.rules != made.rules {
        work.set_rules(spec.rules.as_deref(), made);
        made.rules_of = made.rules.as_ref().and(present.start.clone());
    }
    work.end_connections(spec.connections.as_ref(), made);
    made.settle();
    work.rejected.truncate(REJECTED_MAX);
    Ok(work.rejected)
}

impl<O: Orders> SwitchChanges<'_, O> {
    /// Removes what the specification does not contain any more, and what it describes differently. Interfaces come first, because they
    /// are on ports and bridges and in VRFs. Ports come before bridges, whose members they are.
    fn remove(
        &mut self,
        spec: &DataPlaneSpec,
        leaving: Leaving,
        present: &mut Names,
        made: &mut OwnObjects,
    ) {
        let Leaving {
            ports,
            vrfs,
            interfaces,
        } = leaving;
        for name in interfaces {
            let change = Change::DelInterface { name: name.clone() };
            if self.change(format!("interface {name}"), change) {
                made.interfaces.remove(&name);
                present.interfaces.remove(&name);
            }
        }
        for name in ports {
            let change = Change::DelPort { name: name.clone() };
            if self.change(format!("port {name}"), change) {
                made.ports.remove(&name);
                present.ports.remove(&name);
            }
        }
        for name in vrfs {
            let change = Change::DelVrf { name: name.clone() };
            if self.change(format!("VRF {name}"), change) {
                made.vrfs.remove(&name);
                present.vrfs.remove(&name);
            }
        }
        let is_wanted = |name: &String| spec.bridges.iter().any(|bridge| bridge.name == *name);
        let unwanted: Vec<String> = made
            .bridges
            .iter()
            .filter(|name| !is_wanted(name))
            .cloned()
            .collect();
        for name in unwanted {
            let change = Change::DelBridge { name: name.clone() };
            if self.change(format!("bridge {name}"), change) {
                made.bridges.remove(&name);
            }
        }
    }

    /// Sets the forwarding CPUs. Without a list, those of now stay.
    fn set_forwarding_cpus(&mut self, text: Option<&str>, made: &mut OwnObjects) {
        let Some(text) = text else {
            made.forwarding_cpus = None;
            return;
        };
        let object = "forwardingCpus".to_owned();
        let forwarding_cpus: CpuList = match text.parse() {
            Ok(list) => list,
            Err(error) => return self.reject(object, error.to_string()),
        };
        let change = Change::SetThreads { forwarding_cpus };
        if self.change(object, change) {
            made.forwarding_cpus = Some(text.to_owned());
        }
    }

    /// Starts connection tracking, or changes it. That of others stays.
    fn set_connections(
        &mut self,
        wanted: Option<&ConnectionTracking>,
        present: &Names,
        made: &mut OwnObjects,
    ) {
        let wanted = wanted.filter(|one| Some(*one) != made.connections.as_ref());
        let Some(wanted) = wanted else {
            return;
        };
        let setting = match settings::connections(wanted) {
            Ok(setting) => setting,
            Err(problem) => return self.reject(CONNECTIONS.to_owned(), problem),
        };
        let of_others = present.connections.as_ref();
        let of_others = of_others.filter(|_| made.connections.is_none());
        match of_others {
            Some(other) if wanted.is_enabled() && settings::is_same(other, &setting) => {}
            Some(_) => {
                let text = "the switch tracks connections with other settings that no DataPlane has made (remove [connections] from its file)";
                self.reject(CONNECTIONS.to_owned(), text.to_owned());
            }
            // It ends last, because rules may require it.
            None if !wanted.is_enabled() => {}
            None => {
                if self.change(CONNECTIONS.to_owned(), Change::SetConnections(setting)) {
                    made.connections = Some(wanted.clone());
                }
            }
        }
    }

    /// Ends the connection tracking that the agent has started, if it is not wanted any more.
    fn end_connections(&mut self, wanted: Option<&ConnectionTracking>, made: &mut OwnObjects) {
        let is_wanted = wanted.is_some_and(ConnectionTracking::is_enabled);
        if made.connections.is_some()
            && !is_wanted
            && self.change(CONNECTIONS.to_owned(), Change::DelConnections)
        {
            made.connections = None;
        }
    }

    fn add_vrf(&mut self, vrf: &Vrf, present: &BTreeSet<String>, made: &mut OwnObjects) {
        let name = &vrf.name;
        // A VRF of others may be used, like a bridge.
        if made.vrfs.contains_key(name) || present.contains(name) {
            return;
        }
        let change = Change::AddVrf(VrfSetting {
            name: name.clone(),
            kernel_table: vrf.kernel_table,
        });
        if self.change(format!("VRF {name}"), change) {
            made.vrfs.insert(name.clone(), vrf.clone());
        }
    }

    fn add_interface(
        &mut self,
        interface: &Interface,
        present: &BTreeSet<String>,
        made: &mut OwnObjects,
    ) {
        let name = &interface.name;
        let object = format!("interface {name}");
        if made.interfaces.contains_key(name) {
            return;
        }
        if present.contains(name) {
            let text =
                "an interface of this name exists that no DataPlane has made (use another name)";
            return self.reject(object, text.to_owned());
        }
        let setting = match settings::interface(interface) {
            Ok(setting) => setting,
            Err(problem) => return self.reject(object, problem),
        };
        if self.change(object, Change::AddInterface(setting)) {
            made.interfaces.insert(name.clone(), interface.clone());
        }
    }

    fn add_bridge(&mut self, bridge: &Bridge, present: &BTreeSet<String>, made: &mut OwnObjects) {
        let name = &bridge.name;
        // A bridge of others may be used: pods are attached to it as well.
        if made.bridges.contains(name) || present.contains(name) {
            return;
        }
        let change = Change::AddBridge(AddBridge {
            name: name.clone(),
            ports: Vec::new(),
            max_entries: None,
            ageing_s: None,
            kernel_forwarding: None,
        });
        if self.change(format!("bridge {name}"), change) {
            made.bridges.insert(name.clone());
        }
    }

    fn add_port(&mut self, port: &Port, present: &BTreeSet<String>, made: &mut OwnObjects) {
        let (name, object) = (&port.name, format!("port {}", port.name));
        if made.ports.contains_key(name) {
            return;
        }
        if present.contains(name) {
            let text = "a port of this name exists that no DataPlane has made (use another name)";
            return self.reject(object, text.to_owned());
        }
        let access = match port.vlan.map(VlanId::try_from).transpose() {
            Ok(access) => access,
            Err(error) => return self.reject(object, error.to_string()),
        };
        let change = Change::AddPort(AddPort {
            name: name.clone(),
            uri: port.uri.clone(),
            rx_queues: None,
            tx_queues: None,
            rx_cpus: None,
            bridge: port.bridge.clone(),
            bridging: BridgingSetting {
                access,
                ..BridgingSetting::default()
            },
        });
        if self.change(object, change) {
            made.ports.insert(name.clone(), port.clone());
        }
    }

    fn set_rules(&mut self, text: Option<&str>, made: &mut OwnObjects) {
        let parsed = RuleFile::parse(&PathBuf::from("spec.rules"), text.unwrap_or_default());
        let file = match parsed {
            Ok(file) => file,
            Err(error) => return self.reject("rules".to_owned(), error.to_string()),
        };
        let change = Change::SetRules {
            rules: Some(file.rules.into_iter().map(|rule| rule.value).collect()),
            sets: Some(file.sets.into_iter().map(|set| set.value).collect()),
            staged: None,
            default: file.default,
            malformed: file.malformed,
        };
        if self.change("rules".to_owned(), change) {
            made.rules = text.map(str::to_owned);
        }
    }
}
