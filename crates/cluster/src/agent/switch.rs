// SPDX-License-Identifier: Apache-2.0
//! Brings the switch of the node to what a `DataPlane` requests, while the switch runs. What the agent has made is noted in a file, and only
//! that is changed or removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::durable;
use quietwire_packet::VlanId;
use quietwire_switch::config::bridging::{AddBridge, BridgingSetting};
use quietwire_switch::config::rules::RuleFile;
use quietwire_switch::config::{AddPort, Change};
use quietwire_switch::control::{Request, ask};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::cni::{RunningSwitch, Switch as _};
use crate::resources::{Bridge, DataPlaneSpec, Port, RejectedChange};

/// Mode of the file with what was made.
const MODE: u32 = 0o600;
/// Most rejected changes that are reported.
const REJECTED_MAX: usize = 32;

/// What the agent asks of a switch.
pub(super) trait Orders {
    /// Makes a change.
    ///
    /// # Errors
    /// The message of the switch.
    fn change(&self, change: Change) -> Result<(), String>;

    /// Returns the names of all ports and of all bridges.
    ///
    /// # Errors
    /// No switch runs, or it does not reply.
    fn names(&self) -> Result<(BTreeSet<String>, BTreeSet<String>), String>;
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

    fn names(&self) -> Result<(BTreeSet<String>, BTreeSet<String>), String> {
        let switch = RunningSwitch::new(&self.socket);
        let ports = switch.ports().map_err(|error| error.to_string())?;
        let bridges = switch.bridges().map_err(|error| error.to_string())?;
        let ports = ports.into_iter().map(|port| port.name);
        Ok((ports.collect(), bridges.into_iter().collect()))
    }
}

/// What the agent has made in the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    bridges: BTreeSet<String>,
    ports: BTreeMap<String, Port>,
    rules: Option<String>,
}

impl Made {
    /// Reads the file. Nothing is made if it does not exist.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            read => serde_json::from_slice(&read?).map_err(io::Error::other),
        }
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(durable::directory_of(path))?;
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        durable::replace(path, &text, MODE)
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Makes the changes that lead from what was made to the specification. Continues after rejected changes and returns them.
///
/// # Errors
/// No switch runs, or it does not reply: nothing is changed then.
pub(super) fn bring(
    switch: &impl Orders,
    spec: &DataPlaneSpec,
    made: &mut Made,
) -> Result<Vec<RejectedChange>, String> {
    let (mut ports, bridges) = switch.names()?;
    let before = (made.ports.len(), made.bridges.len());
    made.ports.retain(|name, _| ports.contains(name));
    made.bridges.retain(|name| bridges.contains(name));
    if before != (made.ports.len(), made.bridges.len()) || ports.is_empty() {
        // The switch was started again, so its rules are unknown.
        made.rules = None;
    }
    let mut work = Work {
        switch,
        rejected: Vec::new(),
    };
    work.remove(spec, &mut ports, made);
    for bridge in &spec.bridges {
        work.add_bridge(bridge, &bridges, made);
    }
    for port in &spec.ports {
        work.add_port(port, &ports, made);
    }
    if spec.rules != made.rules {
        work.set_rules(spec.rules.as_deref(), made);
    }
    work.rejected.truncate(REJECTED_MAX);
    Ok(work.rejected)
}

struct Work<'a, O> {
    switch: &'a O,
    rejected: Vec<RejectedChange>,
}

impl<O: Orders> Work<'_, O> {
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

    /// Removes what the specification does not contain any more, and ports that it describes differently. Ports come first: they are members
    /// of bridges.
    fn remove(&mut self, spec: &DataPlaneSpec, ports: &mut BTreeSet<String>, made: &mut Made) {
        let unwanted: Vec<String> = made
            .ports
            .iter()
            .filter(|(_, port)| !spec.ports.contains(port))
            .map(|(name, _)| name.clone())
            .collect();
        for name in unwanted {
            let change = Change::DelPort { name: name.clone() };
            if self.change(format!("port {name}"), change) {
                made.ports.remove(&name);
                ports.remove(&name);
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

    fn add_bridge(&mut self, bridge: &Bridge, present: &BTreeSet<String>, made: &mut Made) {
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

    fn add_port(&mut self, port: &Port, present: &BTreeSet<String>, made: &mut Made) {
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

    fn set_rules(&mut self, text: Option<&str>, made: &mut Made) {
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A switch that records changes, and rejects those of one object.
    #[derive(Default)]
    struct FakeSwitch {
        ports: RefCell<BTreeSet<String>>,
        bridges: RefCell<BTreeSet<String>>,
        changes: RefCell<Vec<String>>,
        rejects: Option<&'static str>,
        is_absent: bool,
    }

    impl Orders for FakeSwitch {
        fn change(&self, change: Change) -> Result<(), String> {
            let text = match &change {
                Change::AddPort(port) => format!("+port {}", port.name),
                Change::DelPort { name } => format!("-port {name}"),
                Change::AddBridge(bridge) => format!("+bridge {}", bridge.name),
                Change::DelBridge { name } => format!("-bridge {name}"),
                Change::SetRules { rules, .. } => {
                    format!("rules {}", rules.as_ref().unwrap().len())
                }
                other => panic!("{other:?}"),
            };
            if self.rejects == Some(text.as_str()) {
                return Err(format!("{text}: no"));
            }
            self.changes.borrow_mut().push(text);
            match change {
                Change::AddPort(port) => self.ports.borrow_mut().insert(port.name),
                Change::DelPort { name } => self.ports.borrow_mut().remove(&name),
                Change::AddBridge(bridge) => self.bridges.borrow_mut().insert(bridge.name),
                Change::DelBridge { name } => self.bridges.borrow_mut().remove(&name),
                _ => true,
            };
            Ok(())
        }

        fn names(&self) -> Result<(BTreeSet<String>, BTreeSet<String>), String> {
            if self.is_absent {
                return Err("no switch".to_owned());
            }
            Ok((self.ports.borrow().clone(), self.bridges.borrow().clone()))
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
        let mut made = Made::default();
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
        switch.ports.borrow_mut().clear();
        switch.bridges.borrow_mut().clear();
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
    fn rejected_changes_are_reported_and_the_others_made() {
        let mut switch = FakeSwitch {
            rejects: Some("+port a"),
            ..FakeSwitch::default()
        };
        switch.ports.borrow_mut().insert("c".to_owned());
        let mut made = Made::default();
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
        assert!(switch.ports.borrow().contains("c"));
        switch.is_absent = true;
        assert_eq!(
            bring(&switch, &wanted, &mut made),
            Err("no switch".to_owned())
        );
    }
}
