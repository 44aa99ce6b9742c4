// SPDX-License-Identifier: Apache-2.0
//! Configures the running switch of the node as a `DataPlane` requests. A file lists the objects that the agent has made. The agent changes
//! and removes only these.

mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use quietwire_host::CpuList;
use quietwire_packet::VlanId;
use quietwire_switch::config::bridging::{AddBridge, BridgingSetting};
use quietwire_switch::config::layer3::{InterfaceSetting, VrfSetting};
use quietwire_switch::config::rules::RuleFile;
use quietwire_switch::config::{AddPort, Change};
use quietwire_switch::control::{Request, Subject, ask};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::state_file;
use crate::cni::{RunningSwitch, Switch as _};
use crate::resources::{Bridge, DataPlaneSpec, Interface, Port, RejectedChange, Vrf};

/// Most rejected changes that are reported.
const REJECTED_MAX: usize = 32;

/// Requests of the agent to a switch.
pub(super) trait Orders {
    /// Makes a change.
    ///
    /// # Errors
    /// The message of the switch.
    fn change(&self, change: Change) -> Result<(), String>;

    /// Returns the names of all objects, and the forwarding CPUs.
    ///
    /// # Errors
    /// No switch runs, or it does not reply.
    fn names(&self) -> Result<Names, String>;
}

/// Names of the objects of a switch, and its forwarding CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    ports: BTreeSet<String>,
    bridges: BTreeSet<String>,
    vrfs: BTreeSet<String>,
    interfaces: BTreeSet<String>,
    forwarding_cpus: CpuList,
    /// Identity of the running switch, which another start does not have. None if it is unknown.
    start: Option<String>,
}

/// The switch at a control socket.
#[derive(Clone, Debug)]
pub(super) struct Running {
    socket: PathBuf,
}

impl Running {
    pub(super) fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }
}

impl Orders for Running {
    fn change(&self, change: Change) -> Result<(), String> {
        ask::<IgnoredAny>(&self.socket, &Request::Change(Box::new(change)))
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    fn names(&self) -> Result<Names, String> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        #[derive(Deserialize)]
        struct Configured {
            #[serde(default)]
            bridge: Vec<Named>,
            #[serde(default)]
            vrf: Vec<Named>,
            #[serde(default)]
            interface: Vec<Named>,
            #[serde(default, rename = "forwarding-cpus")]
            forwarding_cpus: CpuList,
        }
        // Read first: a switch that starts meanwhile has another identity in the next pass.
        let start = start::identity(&self.socket);
        let switch = RunningSwitch::new(&self.socket);
        let ports = switch.ports().map_err(|error| error.to_string())?;
        let text: String = ask(&self.socket, &Request::Show(Subject::Config))
            .map_err(|error| error.to_string())?;
        let configured: Configured = toml::from_str(&text)
            .map_err(|error| format!("the switch's configuration cannot be read: {error}"))?;
        let names = |all: Vec<Named>| all.into_iter().map(|it| it.name).collect();
        Ok(Names {
            ports: ports.into_iter().map(|port| port.name).collect(),
            bridges: names(configured.bridge),
            vrfs: names(configured.vrf),
            interfaces: names(configured.interface),
            forwarding_cpus: configured.forwarding_cpus,
            start,
        })
    }
}

/// Objects that the agent has created in the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OwnObjects {
    bridges: BTreeSet<String>,
    ports: BTreeMap<String, Port>,
    vrfs: BTreeMap<String, Vrf>,
    interfaces: BTreeMap<String, Interface>,
    rules: Option<String>,
    /// Identity of the switch that has the rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules_of: Option<String>,
    forwarding_cpus: Option<String>,
    /// Objects that the agent is about to make. If it is killed meanwhile, it has made those that exist.
    #[serde(skip_serializing_if = "PendingObjects::is_empty")]
    coming: PendingObjects,
}

/// Objects that did not exist before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct PendingObjects {
    bridges: BTreeSet<String>,
    ports: BTreeMap<String, Port>,
    vrfs: BTreeMap<String, Vrf>,
    interfaces: BTreeMap<String, Interface>,
}

impl PendingObjects {
    /// Returns the objects of a specification that were not made, and that the switch does not have.
    fn of(spec: &DataPlaneSpec, made: &OwnObjects, present: &Names) -> Self {
        let bridges = spec.bridges.iter().map(|bridge| &bridge.name);
        let bridges = bridges.filter(|name| !made.bridges.contains(*name));
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
        }
    }

    fn is_empty(&self) -> bool {
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
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Ok(state_file::read(path)?.unwrap_or_default())
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        state_file::write(path, self)
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the number of objects.
    fn len(&self) -> usize {
        [
            self.bridges.len(),
            self.ports.len(),
            self.vrfs.len(),
            self.interfaces.len(),
        ]
        .iter()
        .sum()
    }

    /// Returns true unless the switch has other forwarding CPUs than those that were set.
    fn has_cpus_of(&self, names: &Names) -> bool {
        let set = self.forwarding_cpus.as_ref();
        let set = set.and_then(|text| text.parse::<CpuList>().ok());
        set.is_none_or(|cpus| cpus == names.forwarding_cpus)
    }

    /// Adds the objects that a killed agent was about to make, as far as the switch has them.
    fn adopt(&mut self, names: &Names) {
        let PendingObjects {
            mut bridges,
            mut ports,
            mut vrfs,
            mut interfaces,
        } = std::mem::take(&mut self.coming);
        bridges.retain(|name| names.bridges.contains(name));
        ports.retain(|name, _| names.ports.contains(name));
        vrfs.retain(|name, _| names.vrfs.contains(name));
        interfaces.retain(|name, _| names.interfaces.contains(name));
        self.bridges.extend(bridges);
        self.ports.extend(ports);
        self.vrfs.extend(vrfs);
        self.interfaces.extend(interfaces);
    }

    /// Forgets objects that the switch does not have any more.
    fn retain_present(&mut self, names: &Names) {
        self.ports.retain(|name, _| names.ports.contains(name));
        self.bridges.retain(|name| names.bridges.contains(name));
        self.vrfs.retain(|name, _| names.vrfs.contains(name));
        self.interfaces
            .retain(|name, _| names.interfaces.contains(name));
    }
}

/// Makes the changes that lead from what was made to the specification. Continues after rejected changes and returns them. `note` keeps
/// what was made, and what is about to be made, for the case that the agent is killed.
///
/// # Errors
/// No switch runs, or it does not reply: nothing is changed then. The error of `note`: nothing is added then.
pub(super) fn bring(
    switch: &impl Orders,
    spec: &DataPlaneSpec,
    made: &mut OwnObjects,
    note: impl FnOnce(&OwnObjects) -> io::Result<()>,
) -> Result<Vec<RejectedChange>, String> {
    let mut present = switch.names()?;
    made.adopt(&present);
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
    let mut work = SwitchChanges {
        switch,
        rejected: Vec::new(),
    };
    if spec.forwarding_cpus != made.forwarding_cpus {
        work.set_forwarding_cpus(spec.forwarding_cpus.as_deref(), made);
    }
    work.remove(spec, &mut present, made);
    made.coming = PendingObjects::of(spec, made, &present);
    if !made.coming.is_empty()
        && let Err(error) = note(&*made)
    {
        made.coming = PendingObjects::default();
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
    if spec.rules != made.rules {
        work.set_rules(spec.rules.as_deref(), made);
        made.rules_of = made.rules.as_ref().and(present.start.clone());
    }
    made.coming = PendingObjects::default();
    work.rejected.truncate(REJECTED_MAX);
    Ok(work.rejected)
}

struct SwitchChanges<'a, O> {
    switch: &'a O,
    rejected: Vec<RejectedChange>,
}

impl<O: Orders> SwitchChanges<'_, O> {
    /// Makes a change. Returns whether the switch accepted it.
    fn change(&mut self, object: String, change: Change) -> bool {
        match self.switch.change(change) {
            Ok(()) => true,
            Err(message) => {
                self.reject(object, message);
                false
            }
        }
    }

    fn reject(&mut self, object: String, message: String) {
        self.rejected.push(RejectedChange { object, message });
    }

    /// Removes what the specification does not contain any more, and what it describes differently. Interfaces come first, because they
    /// are on ports and bridges and in VRFs. Ports come before bridges, whose members they are.
    fn remove(&mut self, spec: &DataPlaneSpec, present: &mut Names, made: &mut OwnObjects) {
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
        let setting = match setting(interface) {
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

/// Returns the names of objects that were made and that a specification does not contain, or describes differently.
fn unwanted<T: PartialEq>(made: &BTreeMap<String, T>, wanted: &[T]) -> BTreeSet<String> {
    let unwanted = made.iter().filter(|(_, object)| !wanted.contains(object));
    unwanted.map(|(name, _)| name.clone()).collect()
}

/// Returns the settings of an interface.
fn setting(interface: &Interface) -> Result<InterfaceSetting, String> {
    let vlan = interface.vlan.map(VlanId::try_from).transpose();
    let parse = |text: &String| {
        text.parse::<IpNet>()
            .map_err(|_| format!("addresses: '{text}' is not an address with a prefix length"))
    };
    let addresses: Result<Vec<IpNet>, String> = interface.addresses.iter().map(parse).collect();
    Ok(InterfaceSetting {
        name: interface.name.clone(),
        port: interface.port.clone(),
        bridge: interface.bridge.clone(),
        vlan: vlan.map_err(|error| error.to_string())?,
        addresses: addresses?,
        vrf: interface.vrf.clone(),
        mac: None,
        mtu: interface.mtu,
        urpf: None,
        kernel: None,
        prefix_translation: None,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A switch that records changes, and rejects those of one object.
    #[derive(Default)]
    struct FakeSwitch {
        names: RefCell<Names>,
        changes: RefCell<Vec<String>>,
        rejects: Option<&'static str>,
        is_absent: bool,
        /// Changes until the agent is killed.
        left: Cell<Option<usize>>,
    }

    /// Brings a switch to a specification. Nothing is noted.
    fn bring(
        switch: &FakeSwitch,
        spec: &DataPlaneSpec,
        made: &mut OwnObjects,
    ) -> Result<Vec<RejectedChange>, String> {
        super::bring(switch, spec, made, |_| Ok(()))
    }

    impl Orders for FakeSwitch {
        fn change(&self, change: Change) -> Result<(), String> {
            let text = match &change {
                Change::AddPort(port) => format!("+port {}", port.name),
                Change::DelPort { name } => format!("-port {name}"),
                Change::AddBridge(bridge) => format!("+bridge {}", bridge.name),
                Change::DelBridge { name } => format!("-bridge {name}"),
                Change::AddVrf(vrf) => format!("+vrf {}", vrf.name),
                Change::DelVrf { name } => format!("-vrf {name}"),
                Change::AddInterface(interface) => format!("+interface {}", interface.name),
                Change::DelInterface { name } => format!("-interface {name}"),
                Change::SetThreads { forwarding_cpus } => format!("cpus {forwarding_cpus}"),
                Change::SetRules { rules, .. } => {
                    format!("rules {}", rules.as_ref().unwrap().len())
                }
                other => panic!("{other:?}"),
            };
            if self.rejects == Some(text.as_str()) {
                return Err(format!("{text}: no"));
            }
            match self.left.get() {
                Some(0) => return Err("killed".to_owned()),
                left => self.left.set(left.map(|left| left - 1)),
            }
            self.changes.borrow_mut().push(text);
            let mut names = self.names.borrow_mut();
            match change {
                Change::AddPort(port) => names.ports.insert(port.name),
                Change::DelPort { name } => names.ports.remove(&name),
                Change::AddBridge(bridge) => names.bridges.insert(bridge.name),
                Change::DelBridge { name } => names.bridges.remove(&name),
                Change::AddVrf(vrf) => names.vrfs.insert(vrf.name),
                Change::DelVrf { name } => names.vrfs.remove(&name),
                Change::AddInterface(interface) => names.interfaces.insert(interface.name),
                Change::DelInterface { name } => names.interfaces.remove(&name),
                Change::SetThreads { forwarding_cpus } => {
                    names.forwarding_cpus = forwarding_cpus;
                    true
                }
                _ => true,
            };
            Ok(())
        }

        fn names(&self) -> Result<Names, String> {
            if self.is_absent {
                return Err("no switch".to_owned());
            }
            Ok(self.names.borrow().clone())
        }
    }

    fn port(name: &str, uri: &str) -> Port {
        Port {
            name: name.to_owned(),
            uri: uri.to_owned(),
            bridge: Some("lan".to_owned()),
            vlan: None,
        }
    }

    fn spec(ports: &[Port]) -> DataPlaneSpec {
        DataPlaneSpec {
            bridges: vec![Bridge {
                name: "lan".to_owned(),
            }],
            ports: ports.to_vec(),
            ..DataPlaneSpec::default()
        }
    }

    fn changes(switch: &FakeSwitch) -> Vec<String> {
        switch.changes.take()
    }

    #[test]
    fn changes_are_those_between_two_specifications() {
        let switch = FakeSwitch::default();
        let mut made = OwnObjects::default();
        let first = spec(&[port("a", "null:"), port("b", "null:")]);
        assert_eq!(bring(&switch, &first, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), ["+bridge lan", "+port a", "+port b"]);
        assert_eq!(bring(&switch, &first, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), [""; 0]);
        let mut second = spec(&[port("b", "null:?queues=2"), port("c", "null:")]);
        second.rules = Some("[[rule]]\nname = \"x\"\naction = \"drop\"\n".to_owned());
        assert_eq!(bring(&switch, &second, &mut made), Ok(Vec::new()));
        assert_eq!(
            changes(&switch),
            ["-port a", "-port b", "+port b", "+port c", "rules 1"]
        );
        // The switch was started again.
        *switch.names.borrow_mut() = Names::default();
        assert_eq!(bring(&switch, &second, &mut made), Ok(Vec::new()));
        assert_eq!(
            changes(&switch),
            ["+bridge lan", "+port b", "+port c", "rules 1"]
        );
        assert_eq!(
            bring(&switch, &DataPlaneSpec::default(), &mut made),
            Ok(Vec::new())
        );
        assert_eq!(
            changes(&switch),
            ["-port b", "-port c", "-bridge lan", "rules 0"]
        );
        assert!(made.is_empty());
    }

    #[test]
    fn a_switch_that_was_started_again_gets_its_rules_also_without_other_objects() {
        let switch = FakeSwitch::default();
        {
            let mut names = switch.names.borrow_mut();
            names.ports.insert("of-the-file".to_owned());
            names.start = Some("1".to_owned());
        }
        let mut made = OwnObjects::default();
        let wanted = DataPlaneSpec {
            rules: Some("[[rule]]\nname = \"x\"\naction = \"drop\"\n".to_owned()),
            ..DataPlaneSpec::default()
        };
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), ["rules 1"]);
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), [""; 0]);
        // It has the ports of its file again, and no other difference.
        switch.names.borrow_mut().start = Some("2".to_owned());
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), ["rules 1"]);
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), [""; 0]);
        let none = DataPlaneSpec::default();
        assert_eq!(bring(&switch, &none, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), ["rules 0"]);
        assert!(made.is_empty(), "{made:?}");
    }

    #[test]
    fn interfaces_leave_with_their_ports_and_vrfs() {
        let interface = |name: &str, port: Option<&str>, vrf: Option<&str>| Interface {
            name: name.to_owned(),
            port: port.map(str::to_owned),
            bridge: port.is_none().then(|| "lan".to_owned()),
            addresses: vec!["192.0.2.1/24".to_owned()],
            vrf: vrf.map(str::to_owned),
            ..Interface::default()
        };
        let vrf = |kernel_table: u32| Vrf {
            name: "blue".to_owned(),
            kernel_table: Some(kernel_table),
        };
        let switch = FakeSwitch::default();
        let mut made = OwnObjects::default();
        let free = |uri: &str| Port {
            bridge: None,
            ..port("a", uri)
        };
        let mut wanted = spec(&[free("null:")]);
        wanted.vrfs = vec![vrf(7)];
        wanted.interfaces = vec![
            interface("a0", Some("a"), None),
            interface("lan0", None, Some("blue")),
        ];
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(
            changes(&switch),
            [
                "+bridge lan",
                "+port a",
                "+vrf blue",
                "+interface a0",
                "+interface lan0"
            ]
        );
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), [""; 0]);

        wanted.ports = vec![free("null:?queues=2")];
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(
            changes(&switch),
            ["-interface a0", "-port a", "+port a", "+interface a0"]
        );
        wanted.vrfs = vec![vrf(8)];
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(
            changes(&switch),
            [
                "-interface lan0",
                "-vrf blue",
                "+vrf blue",
                "+interface lan0"
            ]
        );
        // What the agent wrote is what it reads.
        let text = serde_json::to_string(&made).unwrap();
        assert_eq!(serde_json::from_str::<OwnObjects>(&text).unwrap(), made);
        // Notes of an earlier version have neither VRFs nor interfaces.
        let earlier = r#"{"bridges":["lan"],"ports":{},"rules":null}"#;
        assert_eq!(
            serde_json::from_str::<OwnObjects>(earlier).unwrap().len(),
            1
        );

        wanted.interfaces[0].addresses = vec!["192.0.2.1".to_owned()];
        let rejected = bring(&switch, &wanted, &mut made).unwrap();
        assert_eq!(rejected[0].object, "interface a0");
        let message = "addresses: '192.0.2.1' is not an address with a prefix length";
        assert_eq!(rejected[0].message, message);
        changes(&switch);
        let none = DataPlaneSpec::default();
        assert_eq!(bring(&switch, &none, &mut made), Ok(Vec::new()));
        assert_eq!(
            changes(&switch),
            ["-interface lan0", "-port a", "-vrf blue", "-bridge lan"]
        );
        assert!(made.is_empty());
    }

    #[test]
    fn an_agent_that_was_killed_at_any_moment_knows_what_it_has_made() {
        let interface = Interface {
            name: "a0".to_owned(),
            port: Some("a".to_owned()),
            addresses: vec!["192.0.2.1/24".to_owned()],
            ..Interface::default()
        };
        let vrf = Vrf {
            name: "blue".to_owned(),
            kernel_table: None,
        };
        let mut first = spec(&[port("b", "null:"), port("d", "null:")]);
        first.vrfs = vec![vrf];
        let mut second = spec(&[port("a", "null:"), port("b", "null:?queues=2")]);
        second.interfaces = vec![interface];
        for left in 0..10 {
            let switch = FakeSwitch::default();
            switch.names.borrow_mut().ports.insert("other".to_owned());
            let mut made = OwnObjects::default();
            bring(&switch, &first, &mut made).unwrap();
            // What is in the file at the kill.
            let mut noted = made.clone();
            switch.left.set(Some(left));
            let note = |now: &OwnObjects| -> io::Result<()> {
                noted = now.clone();
                Ok(())
            };
            super::bring(&switch, &second, &mut made, note).unwrap();
            switch.left.set(None);
            let text = serde_json::to_string(&noted).unwrap();
            let mut made: OwnObjects = serde_json::from_str(&text).unwrap();
            assert_eq!(bring(&switch, &second, &mut made), Ok(Vec::new()), "{left}");
            let none = DataPlaneSpec::default();
            assert_eq!(bring(&switch, &none, &mut made), Ok(Vec::new()), "{left}");
            assert!(made.is_empty(), "{left}: {made:?}");
            let names = switch.names.take();
            let others = BTreeSet::from(["other".to_owned()]);
            let expected = Names {
                ports: others,
                ..Names::default()
            };
            assert_eq!(names, expected, "{left}");
        }
    }

    #[test]
    fn objects_that_cannot_be_recorded_are_not_added() {
        let switch = FakeSwitch::default();
        let mut made = OwnObjects::default();
        let full =
            |_: &OwnObjects| -> io::Result<()> { Err(io::Error::from(io::ErrorKind::StorageFull)) };
        let wanted = spec(&[port("a", "null:")]);
        let error = super::bring(&switch, &wanted, &mut made, full).unwrap_err();
        assert!(error.contains("cannot record"), "{error}");
        assert_eq!(changes(&switch), [""; 0]);
        assert!(made.is_empty(), "{made:?}");
    }

    #[test]
    fn forwarding_cpus_are_set_once_and_stay() {
        let switch = FakeSwitch::default();
        let mut made = OwnObjects::default();
        let mut wanted = spec(&[port("a", "null:")]);
        wanted.forwarding_cpus = Some("3,2".to_owned());
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), ["cpus 2-3", "+bridge lan", "+port a"]);
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), [""; 0]);
        // The switch was started again.
        *switch.names.borrow_mut() = Names::default();
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), ["cpus 2-3", "+bridge lan", "+port a"]);
        // It was started again with all names that the specification has, and with rules and CPUs of its file.
        wanted.rules = Some("[[rule]]\nname = \"x\"\naction = \"drop\"\n".to_owned());
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), ["rules 1"]);
        switch.names.borrow_mut().forwarding_cpus = "7".parse().unwrap();
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), ["cpus 2-3", "rules 1"]);
        wanted.forwarding_cpus = Some("3-2".to_owned());
        let rejected = bring(&switch, &wanted, &mut made).unwrap();
        assert_eq!(rejected[0].object, "forwardingCpus");
        wanted.forwarding_cpus = None;
        assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
        assert_eq!(changes(&switch), [""; 0]);
    }

    #[test]
    fn rejected_changes_are_reported_and_the_others_made() {
        let mut switch = FakeSwitch {
            rejects: Some("+port a"),
            ..FakeSwitch::default()
        };
        switch.names.borrow_mut().ports.insert("c".to_owned());
        let mut made = OwnObjects::default();
        let mut wanted = spec(&[port("a", "null:"), port("b", "null:"), port("c", "null:")]);
        wanted.rules = Some("[[rule]]\nfoo = 1\n".to_owned());
        let rejected = bring(&switch, &wanted, &mut made).unwrap();
        let objects: Vec<&str> = rejected.iter().map(|it| it.object.as_str()).collect();
        assert_eq!(objects, ["port a", "port c", "rules"]);
        assert_eq!(rejected[0].message, "+port a: no");
        assert!(rejected[2].message.contains("rule[0]"), "{rejected:?}");
        assert_eq!(changes(&switch), ["+bridge lan", "+port b"]);
        // The port of others stays.
        bring(&switch, &DataPlaneSpec::default(), &mut made).unwrap();
        assert!(switch.names.borrow().ports.contains("c"));
        switch.is_absent = true;
        assert_eq!(
            bring(&switch, &wanted, &mut made),
            Err("no switch".to_owned())
        );
    }
}
