// SPDX-License-Identifier: Apache-2.0
mod connections;

use std::cell::{Cell, RefCell};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use quietwire_switch::config::Settings;
use quietwire_switch::config::balance::LoadBalancerSetting;
use quietwire_switch::config::layer3::RouteSetting;
use quietwire_switch::config::nat::NatSetting;
use quietwire_switch::config::steer::SteerSetting;
use serde_json::json;

use super::*;
use crate::resources::{Backend, LoadBalancer, Nat, Route, SteeringRule};

/// A switch that records changes, and rejects those of one object.
#[derive(Default)]
struct FakeSwitch {
    names: RefCell<Names>,
    /// VRFs and prefixes of static routes.
    routes: RefCell<BTreeSet<String>>,
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

/// Returns the text of a change.
fn text_of(change: &Change) -> String {
    match change {
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
        Change::SetConnections(setting) => format!("connections {}", setting.max_entries),
        Change::DelConnections => "-connections".to_owned(),
        Change::AddNat(nat) => format!("+nat {}", nat.name),
        Change::DelNat { name } => format!("-nat {name}"),
        Change::AddPublish { nat, publish } => format!("+publish {nat} {}", publish.port),
        Change::DelPublish { nat, port, .. } => format!("-publish {nat} {port}"),
        Change::AddLoadBalancer(balancer) => format!("+balancer {}", balancer.name),
        Change::DelLoadBalancer { name } => format!("-balancer {name}"),
        Change::AddBackend { backend, .. } => format!("+backend {}", backend.to),
        Change::SetBackend { backend, .. } => {
            format!("backend {} {}", backend.to, backend.weight.unwrap())
        }
        Change::DelBackend { to, .. } => format!("-backend {to}"),
        Change::AddSteer { rule, before } => match before {
            Some(before) => format!("+steer {} {before}", rule.name),
            None => format!("+steer {}", rule.name),
        },
        Change::DelSteer { name } => format!("-steer {name}"),
        other => panic!("{other:?}"),
    }
}

fn route_of(route: &RouteSetting) -> String {
    let vrf = route.vrf.as_deref().unwrap_or("main");
    format!("{vrf} {}", route.prefix.trunc())
}

impl FakeSwitch {
    /// Counts a change, unless the switch rejects it or the agent was killed.
    fn accept(&self, text: String) -> Result<(), String> {
        if self.rejects == Some(text.as_str()) {
            return Err(format!("{text}: no"));
        }
        match self.left.get() {
            Some(0) => return Err("killed".to_owned()),
            left => self.left.set(left.map(|left| left - 1)),
        }
        self.changes.borrow_mut().push(text);
        Ok(())
    }

    /// Starts the switch again, without objects.
    fn start_again(&self, start: &str) {
        self.routes.borrow_mut().clear();
        *self.names.borrow_mut() = Names {
            start: Some(start.to_owned()),
            ..Names::default()
        };
    }
}

impl Orders for FakeSwitch {
    fn change(&self, change: Change) -> Result<(), String> {
        self.accept(text_of(&change))?;
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
            Change::AddNat(nat) => names.nats.insert(nat.name),
            Change::DelNat { name } => names.nats.remove(&name),
            Change::AddLoadBalancer(balancer) => names.load_balancers.insert(balancer.name),
            Change::DelLoadBalancer { name } => names.load_balancers.remove(&name),
            Change::AddSteer { rule, .. } => names.steering.insert(rule.name),
            Change::DelSteer { name } => names.steering.remove(&name),
            Change::SetThreads { forwarding_cpus } => {
                names.forwarding_cpus = forwarding_cpus;
                true
            }
            Change::SetConnections(setting) => {
                names.connections = Some(serde_json::to_value(setting).unwrap());
                true
            }
            Change::DelConnections => names.connections.take().is_some(),
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

    fn has_route(&self, route: &RouteSetting) -> Result<bool, String> {
        Ok(self.routes.borrow().contains(&route_of(route)))
    }

    fn add_route(&self, route: RouteSetting) -> Result<(), String> {
        let route = route_of(&route);
        self.accept(format!("+route {route}"))?;
        self.routes.borrow_mut().insert(route);
        Ok(())
    }

    fn delete_route(&self, route: RouteSetting) -> Result<(), String> {
        let route = route_of(&route);
        self.accept(format!("-route {route}"))?;
        assert!(self.routes.borrow_mut().remove(&route));
        Ok(())
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
fn a_running_switch_has_a_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("switch.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let answering = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        BufReader::new(&stream).read_line(&mut request).unwrap();
        let reply = format!("{}\n", json!({ "ok": "1".repeat(100) }));
        (&stream).write_all(reply.as_bytes()).unwrap();
        request
    });
    let switch = Running::new(&path);
    // The report has no space for a longer one.
    assert_eq!(switch.version(), Ok("1".repeat(64)));
    assert_eq!(answering.join().unwrap(), "\"version\"\n");
    let error = switch.version().unwrap_err();
    assert!(error.contains("no switch is listening"), "{error}");
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
    first.interfaces = vec![Interface {
        name: "lan0".to_owned(),
        bridge: Some("lan".to_owned()),
        ..Interface::default()
    }];
    first.routes = vec![
        route("10.0.0.0/8", "192.0.2.9"),
        route("10.1.0.0/16", "192.0.2.9"),
    ];
    first.steering = vec![steering("s1", "b"), steering("s2", "b")];
    let mut second = spec(&[port("a", "null:"), port("b", "null:?queues=2")]);
    second.interfaces = vec![interface];
    second.routes = vec![
        route("10.0.0.0/8", "192.0.2.9"),
        route("10.2.0.0/16", "192.0.2.9"),
    ];
    second.nats = vec![nat("wan", "a0")];
    second.connections = Some(connections::tracking(100));
    second.steering = vec![steering("s3", "a"), steering("s1", "b")];
    // The file is written after the last change before the kill, or not.
    for (left, is_written) in (0..20).flat_map(|left| [(left, true), (left, false)]) {
        let switch = FakeSwitch::default();
        switch.names.borrow_mut().ports.insert("other".to_owned());
        let mut made = OwnObjects::default();
        bring(&switch, &first, &mut made).unwrap();
        // What is in the file at the kill.
        let mut noted = made.clone();
        switch.left.set(Some(left));
        let note = |now: &OwnObjects| -> io::Result<()> {
            if is_written || switch.left.get() != Some(0) {
                noted = now.clone();
            }
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
        assert_eq!(*switch.routes.borrow(), BTreeSet::new(), "{left}");
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

fn route(prefix: &str, gateway: &str) -> Route {
    let route = json!({ "prefix": prefix, "via": [{ "address": gateway }] });
    serde_json::from_value(route).unwrap()
}

fn nat(name: &str, interface: &str) -> Nat {
    Nat {
        name: name.to_owned(),
        interface: interface.to_owned(),
        ..Nat::default()
    }
}

fn steering(name: &str, port: &str) -> SteeringRule {
    SteeringRule {
        name: name.to_owned(),
        port: port.to_owned(),
        ..SteeringRule::default()
    }
}

/// A switch of one start with a port that no resource has made, and a specification with an interface.
fn routed() -> (FakeSwitch, DataPlaneSpec) {
    let switch = FakeSwitch::default();
    switch.start_again("1");
    switch.names.borrow_mut().ports.insert("other".to_owned());
    let mut wanted = spec(&[]);
    wanted.interfaces = vec![Interface {
        name: "lan0".to_owned(),
        bridge: Some("lan".to_owned()),
        addresses: vec!["192.0.2.1/24".to_owned()],
        ..Interface::default()
    }];
    (switch, wanted)
}

#[test]
fn routes_follow_their_interfaces_and_the_start_of_the_switch() {
    let (switch, mut wanted) = routed();
    let mut made = OwnObjects::default();
    let of_file = "main 10.9.0.0/16".to_owned();
    switch.routes.borrow_mut().insert(of_file.clone());
    // Host bits do not count.
    wanted.routes = vec![
        route("10.0.0.1/8", "192.0.2.9"),
        route("10.9.0.0/16", "192.0.2.9"),
        route("10.0.0.0/8", "192.0.2.8"),
        route("10.1.0.0/16", "nowhere"),
    ];
    let rejected = bring(&switch, &wanted, &mut made).unwrap();
    let objects: Vec<&str> = rejected.iter().map(|it| it.object.as_str()).collect();
    let expected = ["route 10.9.0.0/16", "route 10.0.0.0/8", "route 10.1.0.0/16"];
    assert_eq!(objects, expected);
    assert!(rejected[0].message.contains("no DataPlane"), "{rejected:?}");
    let added = ["+bridge lan", "+interface lan0", "+route main 10.0.0.0/8"];
    assert_eq!(changes(&switch), added);
    wanted.routes.truncate(1);
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), [""; 0]);
    // An interface leaves with its routes, also if it is made again.
    wanted.interfaces[0].mtu = Some(1400);
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    let again = [
        "-route main 10.0.0.0/8",
        "-interface lan0",
        "+interface lan0",
        "+route main 10.0.0.0/8",
    ];
    assert_eq!(changes(&switch), again);
    // Another next hop.
    wanted.routes = vec![route("10.0.0.0/8", "192.0.2.8")];
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    let changed = ["-route main 10.0.0.0/8", "+route main 10.0.0.0/8"];
    assert_eq!(changes(&switch), changed);
    switch.start_again("2");
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), added);
    let none = DataPlaneSpec::default();
    // Another client has removed the route.
    switch.routes.borrow_mut().clear();
    assert_eq!(bring(&switch, &none, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), ["-interface lan0", "-bridge lan"]);
    assert!(made.is_empty(), "{made:?}");
}

#[test]
fn published_ports_and_backends_change_while_mappings_and_connections_stay() {
    let (switch, mut wanted) = routed();
    let mut made = OwnObjects::default();
    let published = |port: u16, to: &str| json!({ "protocol": "tcp", "port": port, "to": to });
    let with = |ports: &[serde_json::Value]| -> Nat {
        let nat = json!({ "name": "wan", "interface": "lan0", "publish": ports });
        serde_json::from_value(nat).unwrap()
    };
    let backend = |to: &str, weight: Option<u32>| Backend {
        to: to.to_owned(),
        weight,
        state: None,
    };
    let balancer = |backends: &[Backend]| LoadBalancer {
        name: "web".to_owned(),
        address: "192.0.2.80".to_owned(),
        port: 80,
        backends: backends.to_vec(),
        ..LoadBalancer::default()
    };
    let (one, two) = ("10.0.0.1:80", "10.0.0.2:80");
    wanted.nats = vec![with(&[published(80, one), published(81, one)])];
    wanted.load_balancers = vec![balancer(&[backend(one, Some(5)), backend(two, None)])];
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    let added = [
        "+bridge lan",
        "+interface lan0",
        "+nat wan",
        "+balancer web",
    ];
    assert_eq!(changes(&switch), added);
    wanted.nats = vec![with(&[published(80, two), published(82, one)])];
    let three = "10.0.0.3:80";
    wanted.load_balancers = vec![balancer(&[backend(three, None), backend(one, None)])];
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    let changed = [
        "-publish wan 80",
        "-publish wan 81",
        "+publish wan 80",
        "+publish wan 82",
        "-backend 10.0.0.2:80",
        "+backend 10.0.0.3:80",
        "backend 10.0.0.1:80 1",
    ];
    assert_eq!(changes(&switch), changed);
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), [""; 0]);
    // Other settings require another instance.
    wanted.nats[0].max_hosts = Some(7);
    wanted.load_balancers[0].port = 81;
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    let again = ["-balancer web", "-nat wan", "+nat wan", "+balancer web"];
    assert_eq!(changes(&switch), again);
    let none = DataPlaneSpec::default();
    assert_eq!(bring(&switch, &none, &mut made), Ok(Vec::new()));
    let removed = [
        "-balancer web",
        "-nat wan",
        "-interface lan0",
        "-bridge lan",
    ];
    assert_eq!(changes(&switch), removed);
    assert!(made.is_empty(), "{made:?}");
}

#[test]
fn steering_rules_have_the_order_of_the_specification() {
    let mut switch = FakeSwitch {
        rejects: Some("+steer b c"),
        ..FakeSwitch::default()
    };
    let mut made = OwnObjects::default();
    let mut wanted = spec(&[port("p", "null:"), port("q", "null:")]);
    wanted.steering = vec![steering("a", "p"), steering("c", "q")];
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    let added = ["+bridge lan", "+port p", "+port q", "+steer a", "+steer c"];
    assert_eq!(changes(&switch), added);
    // A rejected rule does not move the others.
    wanted.steering.insert(1, steering("b", "p"));
    for _ in 0..2 {
        let rejected = bring(&switch, &wanted, &mut made).unwrap();
        assert_eq!(rejected[0].object, "steering rule b");
        assert_eq!(changes(&switch), [""; 0]);
    }
    switch.rejects = None;
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), ["+steer b c"]);
    wanted.steering.swap(0, 2);
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    let moved = ["-steer b", "-steer c", "+steer c a", "+steer b a"];
    assert_eq!(changes(&switch), moved);
    // A port leaves with its rules.
    wanted.ports[1] = port("q", "null:?queues=2");
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    let again = ["-steer c", "-port q", "+port q", "+steer c b"];
    assert_eq!(changes(&switch), again);
}

/// The conversion has no list of keys, so each key is compared with the configuration file.
#[test]
fn settings_are_those_of_the_configuration_file() {
    let resource: DataPlaneSpec = serde_json::from_value(json!({
        "nodeSelector": { "role": "edge" },
        "routes": [
            { "prefix": "10.0.0.0/8", "vrf": "blue", "via": [
                { "address": "192.0.2.9", "interface": "lan0", "weight": 2, "onlink": true },
            ] },
            { "prefix": "fd00::/8", "kind": "unreachable" },
        ],
        "nats": [{
            "name": "wan", "interface": "lan0", "addresses": ["198.51.100.1"], "sources": ["10.0.0.0/8"],
            "ports": "2000-3000", "blockSize": 64, "blocksPerHost": 2, "maxMappings": 100, "maxHosts": 10,
            "mapping": "address-and-port-dependent", "filtering": "address-dependent",
            "timeouts": { "udp": 200, "tcpEstablished": 8000, "tcpTransitory": 300, "icmp": 70 },
            "nat64": { "prefix": "64:ff9b::/96", "clients": ["fd00::/64"], "privateServers": true, "mtu": 1400 },
            "publish": [{ "protocol": "udp", "port": 53, "to": "10.0.0.5:53", "address": "198.51.100.1" }],
            "oneToOne": [{ "inside": "10.0.0.6", "outside": "198.51.100.6" }],
        }],
        "loadBalancers": [{
            "name": "web", "protocol": "udp", "address": "192.0.2.80", "port": 80, "maxConnections": 100,
            "directReturn": true, "backends": [{ "to": "10.0.0.1:80", "weight": 3, "state": "draining" }],
        }],
        "steering": [{
            "name": "dns", "port": "p", "to": "virtual-function", "kernelPort": "tap0", "queue": 3, "virtualFunction": 1,
            "sourceMac": "02:00:00:00:00:01", "destinationMac": "02:00:00:00:00:02", "vlan": 7, "ethertype": "ipv4",
            "protocol": "udp", "source": "10.0.0.0/8", "destination": "192.0.2.7", "sourcePort": "5000-5010",
            "destinationPort": "53",
        }],
    }))
    .unwrap();
    let text = r#"
[[route]]
prefix = "10.0.0.0/8"
vrf = "blue"
via = [{ address = "192.0.2.9", interface = "lan0", weight = 2, onlink = true }]
[[route]]
prefix = "fd00::/8"
kind = "unreachable"
[[nat]]
name = "wan"
interface = "lan0"
addresses = ["198.51.100.1"]
sources = ["10.0.0.0/8"]
ports = "2000-3000"
block-size = 64
blocks-per-host = 2
max-mappings = 100
max-hosts = 10
mapping = "address-and-port-dependent"
filtering = "address-dependent"
timeouts = { udp = 200, tcp-established = 8000, tcp-transitory = 300, icmp = 70 }
nat64 = { prefix = "64:ff9b::/96", clients = ["fd00::/64"], private-servers = true, mtu = 1400 }
publish = [{ protocol = "udp", port = 53, to = "10.0.0.5:53", address = "198.51.100.1" }]
one-to-one = [{ inside = "10.0.0.6", outside = "198.51.100.6" }]
[[load-balancer]]
name = "web"
protocol = "udp"
address = "192.0.2.80"
port = 80
max-connections = 100
direct-return = true
backend = [{ to = "10.0.0.1:80", weight = 3, state = "draining" }]
[[steer]]
name = "dns"
port = "p"
to = "virtual-function"
kernel-port = "tap0"
queue = 3
virtual-function = 1
source-mac = "02:00:00:00:00:01"
destination-mac = "02:00:00:00:00:02"
vlan = 7
ethertype = "ipv4"
protocol = "udp"
source = "10.0.0.0/8"
destination = "192.0.2.7"
source-port = "5000-5010"
destination-port = "53"
"#;
    let file = Settings::parse(Path::new("switch.toml"), text).unwrap();
    let (routes, expected) = (resource.routes.iter(), file.routes.unwrap());
    let routes: Vec<RouteSetting> = routes.map(|it| settings::of(it).unwrap()).collect();
    let expected: Vec<RouteSetting> = expected.into_iter().map(|it| it.value).collect();
    assert_eq!(routes, expected);
    let nat: NatSetting = settings::of(&resource.nats[0]).unwrap();
    assert_eq!(nat, file.nats.unwrap()[0].value);
    let balancer: LoadBalancerSetting = settings::of(&resource.load_balancers[0]).unwrap();
    assert_eq!(balancer, file.load_balancers.unwrap()[0].value);
    let rule: SteerSetting = settings::of(&resource.steering[0]).unwrap();
    assert_eq!(rule, file.steer.unwrap()[0].value);
}
