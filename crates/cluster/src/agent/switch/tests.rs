// SPDX-License-Identifier: Apache-2.0
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
