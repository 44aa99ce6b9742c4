// SPDX-License-Identifier: Apache-2.0
//! The running switch whose bridges are networks.

use std::path::{Path, PathBuf};

use quietwire_base::Fault;
use quietwire_packet::VlanId;
use quietwire_switch::SwitchError;
use quietwire_switch::config::{AddPort, Change};
use quietwire_switch::control::{Request, Subject, ask};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::reply::{CniError, ErrorCode};

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

    /// Asks for one port: a report of all ports takes longer the more of them there are.
    fn find_port(&self, name: &str) -> Result<bool, SwitchError> {
        let port = name.to_owned();
        match ask::<Option<String>>(&self.socket, &Request::PortGroup { port }) {
            Ok(group) => Ok(group.is_some()),
            // A switch of an earlier version does not know the request.
            Err(SwitchError::Answer { .. }) => {
                let ports: Vec<SwitchPort> = ask(&self.socket, &Request::Show(Subject::Ports))?;
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
        ask::<IgnoredAny>(
            &self.socket,
            &Request::Change(Box::new(Change::AddPort(port))),
        )?;
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
        ask::<IgnoredAny>(
            &self.socket,
            &Request::Change(Box::new(Change::DelPort { name })),
        )?;
        Ok(true)
    }

    fn ports(&self) -> Result<Vec<SwitchPort>, CniError> {
        Ok(ask(&self.socket, &Request::Show(Subject::Ports))?)
    }

    fn has_port(&self, name: &str) -> Result<bool, CniError> {
        Ok(self.find_port(name)?)
    }

    fn interfaces(&self) -> Result<Vec<SwitchInterface>, CniError> {
        Ok(ask(&self.socket, &Request::Show(Subject::Interfaces))?)
    }

    fn bridges(&self) -> Result<Vec<String>, CniError> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        #[derive(Deserialize)]
        struct Bridges {
            #[serde(default)]
            bridge: Vec<Named>,
        }
        let text: String = ask(&self.socket, &Request::Show(Subject::Config))?;
        let bridges: Bridges = toml::from_str(&text).map_err(|error| {
            CniError::new(ErrorCode::Io, "the switch's configuration cannot be read")
                .with_details(error.to_string())
        })?;
        Ok(bridges.bridge.into_iter().map(|it| it.name).collect())
    }
}
