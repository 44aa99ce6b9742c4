// SPDX-License-Identifier: Apache-2.0
//! The running switch whose bridges are networks.

use std::path::{Path, PathBuf};

use quietwire_base::Fault;
use quietwire_host::CpuList;
use quietwire_packet::VlanId;
use quietwire_switch::SwitchError;
use quietwire_switch::config::{AddPort, Change};
use quietwire_switch::control::{Request, Subject, ask_up_to};
use quietwire_switch::report::ObjectsReport;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::reply::{CniError, ErrorCode};

/// Longest reply, octets, far below the memory of the agent's container. The longest one of a switch is that to `show ports`: 256 ports, each
/// with the counters of 128 queues.
const REPLY_MAX: u64 = 16 << 20;
/// Longest configuration that is read from a switch of an earlier version, octets. Its values take some times as much memory.
const CONFIG_MAX: u64 = 4 << 20;

/// A port of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SwitchPort {
    /// Its name.
    pub name: String,
    /// Its URI.
    pub uri: String,
    /// Its bridge, or `cross-connect`.
    pub group: String,
}

/// An interface of the router of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SwitchInterface {
    /// Its VRF.
    pub vrf: String,
    /// Its bridge.
    pub bridge: Option<String>,
    /// Its VLAN.
    pub vlan: Option<VlanId>,
}

/// Requests of the plugin to a switch.
pub trait Switch {
    /// Adds a port.
    ///
    /// # Errors
    /// The switch refuses, or does not run.
    fn add_port(&self, port: AddPort) -> Result<(), CniError>;

    /// Removes a port. Returns false if there is none, also if no switch runs: ports of a switch end with it.
    ///
    /// # Errors
    /// The switch does not reply, or fails.
    fn delete_port(&self, name: &str) -> Result<bool, CniError>;

    /// Returns all ports.
    ///
    /// # Errors
    /// No switch runs, or it does not reply.
    fn ports(&self) -> Result<Vec<SwitchPort>, CniError>;

    /// Returns true if the switch has a port.
    ///
    /// # Errors
    /// No switch runs, or it does not reply.
    fn has_port(&self, name: &str) -> Result<bool, CniError> {
        Ok(self.ports()?.iter().any(|port| port.name == name))
    }

    /// Returns the names of all bridges.
    ///
    /// # Errors
    /// No switch runs, or it does not reply.
    fn bridges(&self) -> Result<Vec<String>, CniError>;

    /// Returns all interfaces of the router.
    ///
    /// # Errors
    /// No switch runs, or it does not reply.
    fn interfaces(&self) -> Result<Vec<SwitchInterface>, CniError>;
}

/// An object in the configuration of a switch.
#[derive(Deserialize)]
struct Named {
    name: String,
}

/// The parts of the configuration of a switch that have names.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Configured {
    port: Vec<Named>,
    bridge: Vec<Named>,
    vrf: Vec<Named>,
    interface: Vec<Named>,
    nat: Vec<Named>,
    load_balancer: Vec<Named>,
    steer: Vec<Named>,
    connections: Option<Value>,
    forwarding_cpus: CpuList,
}

impl From<Configured> for ObjectsReport {
    fn from(configured: Configured) -> Self {
        let names = |all: Vec<Named>| all.into_iter().map(|it| it.name).collect();
        Self {
            ports: names(configured.port),
            bridges: names(configured.bridge),
            vrfs: names(configured.vrf),
            interfaces: names(configured.interface),
            nats: names(configured.nat),
            load_balancers: names(configured.load_balancer),
            steering: names(configured.steer),
            connections: configured.connections,
            forwarding_cpus: configured.forwarding_cpus,
        }
    }
}

/// The switch at a control socket.
#[derive(Clone, Debug)]
pub struct RunningSwitch {
    socket: PathBuf,
}

impl RunningSwitch {
    /// Creates a client of the switch at a control socket. The connection is made with each request.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }

    /// Returns the control socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a request with a short reply.
    ///
    /// # Errors
    /// No switch runs, it refuses or does not reply, or its reply is longer than 16 MiB.
    pub(crate) fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, SwitchError> {
        ask_up_to(&self.socket, request, REPLY_MAX)
    }

    /// Returns the names of the configured objects.
    ///
    /// # Errors
    /// No switch runs, or it does not reply.
    pub(crate) fn objects(&self) -> Result<ObjectsReport, CniError> {
        match self.ask(&Request::Objects) {
            // A switch of an earlier version does not know the request.
            Err(SwitchError::Answer { .. }) => self.configured(),
            objects => Ok(objects?),
        }
    }

    /// Returns the names of the objects in the configuration.
    fn configured(&self) -> Result<ObjectsReport, CniError> {
        let request = Request::Show(Subject::Config);
        let text: String = ask_up_to(&self.socket, &request, CONFIG_MAX)?;
        let configured: Configured = toml::from_str(&text).map_err(|error| {
            CniError::new(ErrorCode::Io, "the switch's configuration cannot be read")
                .with_details(error.to_string())
        })?;
        Ok(configured.into())
    }

    /// Asks for one port: a report of all ports takes longer the more of them there are.
    fn find_port(&self, name: &str) -> Result<bool, SwitchError> {
        let port = name.to_owned();
        match self.ask::<Option<String>>(&Request::PortGroup { port }) {
            Ok(group) => Ok(group.is_some()),
            // A switch of an earlier version does not know the request.
            Err(SwitchError::Answer { .. }) => {
                let ports: Vec<SwitchPort> = self.ask(&Request::Show(Subject::Ports))?;
                Ok(ports.iter().any(|port| port.name == name))
            }
            Err(error) => Err(error),
        }
    }

    fn is_absent(error: &SwitchError) -> bool {
        matches!(error, SwitchError::ControlSocket { .. }) && error.fault() == Fault::BadInput
    }
}

impl Switch for RunningSwitch {
    fn add_port(&self, port: AddPort) -> Result<(), CniError> {
        self.ask::<IgnoredAny>(&Request::Change(Box::new(Change::AddPort(port))))?;
        Ok(())
    }

    fn delete_port(&self, name: &str) -> Result<bool, CniError> {
        match self.find_port(name) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) if Self::is_absent(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let name = name.to_owned();
        self.ask::<IgnoredAny>(&Request::Change(Box::new(Change::DelPort { name })))?;
        Ok(true)
    }

    fn ports(&self) -> Result<Vec<SwitchPort>, CniError> {
        Ok(self.ask(&Request::Show(Subject::Ports))?)
    }

    fn has_port(&self, name: &str) -> Result<bool, CniError> {
        Ok(self.find_port(name)?)
    }

    fn interfaces(&self) -> Result<Vec<SwitchInterface>, CniError> {
        Ok(self.ask(&Request::Show(Subject::Interfaces))?)
    }

    fn bridges(&self) -> Result<Vec<String>, CniError> {
        Ok(self.objects()?.bridges)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quietwire_switch::PORTS_MAX;
    use quietwire_switch::report::{PortCounts, PortDrops, PortReport, RuleEffects};

    use super::*;

    #[test]
    fn the_longest_report_of_ports_is_read() {
        let mut driver = BTreeMap::new();
        for queue in 0..64 {
            for direction in ["rx", "tx"] {
                // Drivers count five events of a queue, or eight with shorter names.
                for name in [
                    "malformed_buffers",
                    "too_long",
                    "no_buffers",
                    "refused",
                    "notifications",
                ] {
                    driver.insert(format!("{direction}_q{queue}_{name}"), u64::MAX);
                }
            }
        }
        let report = PortReport {
            uri: "u".repeat(1024),
            waiting_reason: Some("w".repeat(1024)),
            driver,
            counts: PortCounts {
                name: "n".repeat(63),
                drops: PortDrops::of(|_| u64::MAX),
                effects: RuleEffects::of(|_| u64::MAX),
                ..PortCounts::default()
            },
            ..PortReport::default()
        };
        let octets = serde_json::to_vec(&report).unwrap().len();
        assert!(octets > 20_000, "{octets}");
        let octets = octets.checked_mul(PORTS_MAX).unwrap();
        assert!((octets as u64) < REPLY_MAX, "{octets}");
    }

    #[test]
    fn a_configuration_has_the_names_of_its_objects() {
        let text = "forwarding-cpus = \"2-3\"\nidle = \"poll\"\n[[port]]\nname = \"a\"\nuri = \"null:\"\n\
                    [[bridge]]\nname = \"lan\"\n[[load-balancer]]\nname = \"web\"\n[[rule]]\nname = \"r\"\n[connections]\nmax-entries = 7\n";
        let configured: Configured = toml::from_str(text).unwrap();
        let objects = ObjectsReport {
            ports: vec!["a".to_owned()],
            bridges: vec!["lan".to_owned()],
            load_balancers: vec!["web".to_owned()],
            connections: Some(serde_json::json!({"max-entries": 7})),
            forwarding_cpus: "2-3".parse().unwrap(),
            ..ObjectsReport::default()
        };
        assert_eq!(ObjectsReport::from(configured), objects);
        // A later version has other objects too.
        let later = r#"{"bridges":["lan"],"tunnels":["t"]}"#;
        let later: ObjectsReport = serde_json::from_str(later).unwrap();
        assert_eq!(later.bridges, ["lan"]);
    }
}
