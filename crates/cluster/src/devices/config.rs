// SPDX-License-Identifier: Apache-2.0
//! File with the resources of the device plugin (TOML).

use std::collections::BTreeSet;
use std::path::PathBuf;

use quietwire_base::is_file_name;
use quietwire_packet::VlanId;
use quietwire_switch::PORTS_MAX;
use quietwire_switch::config::CONTROL_SOCKET_DEFAULT;
use serde::Deserialize;

/// Directory of the sockets of devices.
const SOCKET_DIRECTORY: &str = "/run/quietwire/devices";
/// Longest name of a resource. A name with the domain has at most 63 characters after it.
const NAME_MAX: usize = 40;

/// Kind of the devices of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Sockets of memif ports. The application in the container is the client.
    Memif,
    /// Sockets of vhost-user ports. The application in the container is the client.
    VhostUser,
    /// Virtual functions of network cards.
    Function,
}

/// One resource.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ResourceConfig {
    /// Its name, after `quietwire.io/`.
    pub name: String,
    /// Kind of its devices.
    pub kind: Kind,
    /// Number of sockets. All resources together have at most [`PORTS_MAX`], because each socket is a port of the switch.
    #[serde(default)]
    pub count: u16,
    /// Bridge of the ports of the sockets.
    pub bridge: Option<String>,
    /// VLAN of these ports, in a VLAN-aware bridge.
    pub vlan: Option<VlanId>,
    /// NUMA node of the sockets: that of the switch's forwarding CPUs. Default: none.
    pub node: Option<u32>,
    /// PCI addresses of the cards whose virtual functions are the devices.
    #[serde(default)]
    pub cards: Vec<String>,
}

/// All resources.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DevicesConfig {
    /// Control socket of the switch.
    #[serde(default = "control_socket")]
    pub control_socket: PathBuf,
    /// Directory of the sockets of devices.
    #[serde(default = "socket_directory")]
    pub socket_directory: PathBuf,
    /// The resources.
    #[serde(default, rename = "resource")]
    pub resources: Vec<ResourceConfig>,
}

fn control_socket() -> PathBuf {
    CONTROL_SOCKET_DEFAULT.into()
}

fn socket_directory() -> PathBuf {
    SOCKET_DIRECTORY.into()
}

impl DevicesConfig {
    /// Parses the file.
    ///
    /// # Errors
    /// The key and the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if !config.control_socket.is_absolute() {
            return Err("control-socket: the path is not absolute".to_owned());
        }
        let directory = config.socket_directory.to_string_lossy();
        // The path becomes a part of a URI.
        if !config.socket_directory.is_absolute() || directory.contains(['?', '&', '=', '%']) {
            return Err("socket-directory: not an absolute path without ?, &, = and %".to_owned());
        }
        let mut names = BTreeSet::new();
        for resource in &config.resources {
            resource
                .check()
                .map_err(|problem| format!("resource '{}': {problem}", resource.name))?;
            if !names.insert(&resource.name) {
                return Err(format!("resource '{}' exists twice", resource.name));
            }
        }
        let counts = config.resources.iter();
        let sockets: usize = counts.map(|resource| usize::from(resource.count)).sum();
        if sockets > PORTS_MAX {
            return Err(format!(
                "count: the resources have {sockets} sockets, but a switch has at most {PORTS_MAX} ports (lower count)"
            ));
        }
        Ok(config)
    }
}

impl ResourceConfig {
    fn check(&self) -> Result<(), String> {
        let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let ends = |c: char| c != '-';
        if !is_file_name(&self.name)
            || self.name.len() > NAME_MAX
            || !self.name.chars().all(is_fine)
            || !self.name.starts_with(ends)
            || !self.name.ends_with(ends)
        {
            return Err(format!(
                "name: expected 1 to {NAME_MAX} of a-z, 0-9 and -, not at the ends"
            ));
        }
        match self.kind {
            Kind::Function => self.check_functions(),
            Kind::Memif | Kind::VhostUser => self.check_sockets(),
        }
    }

    fn check_functions(&self) -> Result<(), String> {
        if self.cards.is_empty() {
            return Err("cards: name at least one card".to_owned());
        }
        if self.count != 0 || self.bridge.is_some() || self.vlan.is_some() || self.node.is_some() {
            return Err("count, bridge, vlan and node are keys of sockets".to_owned());
        }
        Ok(())
    }

    fn check_sockets(&self) -> Result<(), String> {
        if !(1..=PORTS_MAX).contains(&usize::from(self.count)) {
            return Err(format!(
                "count: expected 1 to {PORTS_MAX}, the maximum number of ports of a switch"
            ));
        }
        if !self.cards.is_empty() {
            return Err("cards is a key of functions".to_owned());
        }
        if self.vlan.is_some() && self.bridge.is_none() {
            return Err("vlan requires bridge".to_owned());
        }
        Ok(())
    }
}
