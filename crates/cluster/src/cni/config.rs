// SPDX-License-Identifier: Apache-2.0
//! Network configuration of the plugin (CNI specification, section 1).

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use quietwire_base::is_file_name;
use quietwire_packet::{MacAddress, VlanId};
use quietwire_switch::config::CONTROL_SOCKET_DEFAULT;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::environment::Environment;
use super::reply::{CniError, CniResult, ErrorCode, Route};
use super::version::VERSIONS;
use crate::addresses::{self, NetworkName};

/// Maximum length of a network configuration, octets.
pub const INPUT_MAX: usize = 256 * 1024;

/// Type of the IPAM section whose addresses the agent of the node gives.
const OWN: &str = "quietwire";
/// Default directory of records, and of the sockets of memif and vhost-user ports.
pub(crate) const SOCKET_DIRECTORY: &str = "/run/quietwire/cni";

/// Kind of the port of an attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortKind {
    /// A pair of kernel interfaces, whose far end is in the container.
    #[default]
    Veth,
    /// A tap of the kernel in the container, whose frames the switch reads and writes.
    Tap,
    /// Shared memory by the memif protocol. The application in the container is the client of a socket.
    Memif,
    /// Shared memory by vhost-user. The application in the container is the client of a socket.
    VhostUser,
    /// No port of the switch: an interface of the node, which is in the container for its lifetime.
    HostDevice,
}

impl PortKind {
    /// Returns true if the switch creates an interface in the container.
    pub(super) const fn creates_interface(self) -> bool {
        matches!(self, Self::Veth | Self::Tap)
    }
}

/// A network configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkConfig {
    /// Version of the specification.
    pub cni_version: String,
    /// Name of the network.
    pub name: String,
    /// File name of the plugin.
    #[serde(rename = "type")]
    pub plugin: String,
    /// Bridge of the switch. Empty for interfaces of the node only.
    #[serde(default)]
    pub bridge: String,
    /// Kind of the port.
    #[serde(default)]
    pub port: PortKind,
    /// VLAN of the port, in a VLAN-aware bridge.
    pub vlan: Option<VlanId>,
    /// VRF of an interface of the router on the bridge and the VLAN.
    pub vrf: Option<String>,
    /// MTU of the interface, octets.
    pub mtu: Option<u16>,
    /// Receive queues of the port, and the largest number of its transmit queues.
    pub queues: Option<u16>,
    /// Interface of the node that moves into the container: its name, or the PCI address of its device.
    pub device: Option<String>,
    /// Control socket of the switch.
    #[serde(default = "control_socket")]
    pub control_socket: PathBuf,
    /// Directory of the sockets of memif and vhost-user ports.
    #[serde(default = "socket_directory")]
    pub socket_directory: PathBuf,
    /// Source of addresses. Without one, the interface has no addresses beside those of `runtimeConfig`.
    #[serde(default, deserialize_with = "ipam")]
    pub ipam: Option<Ipam>,
    /// DNS settings for the result.
    pub dns: Option<Value>,
    /// Settings of the runtime for this attachment.
    #[serde(default)]
    pub runtime_config: RuntimeConfig,
    /// Result of the plugin before, or of ADD.
    pub prev_result: Option<CniResult>,
    /// The valid attachments, for GC.
    #[serde(
        rename = "cni.dev/valid-attachments",
        default,
        deserialize_with = "attachments"
    )]
    pub valid_attachments: Option<Vec<Attachment>>,
    /// Not used: libcni 1.3 gives the valid attachments by this name, too.
    #[serde(rename = "cni.dev/attachments")]
    attachments: Option<Value>,
    /// Device of the pod that Multus names, if the definition of the network names a resource. It takes the place of an absent `device`. A
    /// network with sockets takes its port, which the device plugin has opened.
    #[serde(rename = "deviceID")]
    device_id: Option<String>,
    /// Not used: Multus repeats the device by this name.
    #[serde(rename = "pciBusID")]
    pci_bus_id: Option<Value>,
    /// Not used: capabilities that the runtime may request.
    capabilities: Option<Map<String, Value>>,
    /// Not used: arguments for any plugin.
    args: Option<Value>,
    /// Not used: for runtimes.
    disable_check: Option<bool>,
    /// Not used: for runtimes.
    #[serde(rename = "disableGC")]
    disable_gc: Option<bool>,
}

/// Source of the addresses of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ipam {
    /// An IPAM plugin with this file name.
    Plugin(String),
    /// The agent of the node, for the addresses of a `Network`.
    Agent(OfAgent),
}

/// Addresses of a `Network` that the agent of the node gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfAgent {
    /// The network.
    pub(super) network: NetworkName,
    /// Socket of the agent.
    pub(super) socket: PathBuf,
    /// Routes through the interface.
    pub(super) routes: Vec<Route>,
}

/// A container's interface in a network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Attachment {
    /// ID of the container.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// Name of the interface.
    pub ifname: String,
}

/// Values that the runtime gives for capabilities (CNI conventions). Others are ignored.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeConfig {
    /// Capability `mac`: MAC address of the interface.
    pub mac: Option<MacAddress>,
    /// Capability `ips`: addresses of the interface, for the IPAM plugin or instead of one.
    pub ips: Vec<String>,
    /// Capability `CNIDeviceInfoFile`: file for the description of the port (device information specification, section 5).
    #[serde(rename = "CNIDeviceInfoFile")]
    pub device_info_file: Option<PathBuf>,
}

fn control_socket() -> PathBuf {
    CONTROL_SOCKET_DEFAULT.into()
}

fn socket_directory() -> PathBuf {
    SOCKET_DIRECTORY.into()
}

fn agent_socket() -> PathBuf {
    addresses::SOCKET.into()
}

/// Reads the section of the IPAM plugin. An empty one is none, as other plugins have it.
fn ipam<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ipam>, D::Error> {
    use serde::de::Error as _;
    let section = Map::<String, Value>::deserialize(deserializer)?;
    if section.is_empty() {
        return Ok(None);
    }
    if section.get("type").and_then(Value::as_str) == Some(OWN) {
        let of_agent = of_agent(section);
        return of_agent
            .map(|it| Some(Ipam::Agent(it)))
            .map_err(|problem| D::Error::custom(format!("ipam: {problem}")));
    }
    match section.get("type").and_then(Value::as_str) {
        Some(plugin) if is_file_name(plugin) => Ok(Some(Ipam::Plugin(plugin.to_owned()))),
        Some(plugin) => Err(D::Error::custom(format!(
            "ipam.type: '{plugin}' is not the name of a plugin"
        ))),
        None => Err(D::Error::custom("ipam.type: required but absent")),
    }
}

/// Reads the valid attachments. libcni writes an empty list as `null`.
fn attachments<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<Attachment>>, D::Error> {
    let listed = Option::<Vec<Attachment>>::deserialize(deserializer)?;
    Ok(Some(listed.unwrap_or_default()))
}

fn of_agent(section: Map<String, Value>) -> Result<OfAgent, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Section {
        #[serde(rename = "type")]
        _plugin: String,
        network: NetworkName,
        #[serde(default = "agent_socket")]
        socket: PathBuf,
        #[serde(default)]
        routes: Vec<Route>,
    }
    let section: Section =
        serde_json::from_value(Value::Object(section)).map_err(|error| error.to_string())?;
    if !section.socket.is_absolute() {
        return Err(format!(
            "socket: '{}' is not an absolute path",
            section.socket.display()
        ));
    }
    Ok(OfAgent {
        network: section.network,
        socket: section.socket,
        routes: section.routes,
    })
}

impl NetworkConfig {
    /// Parses and checks a configuration.
    ///
    /// # Errors
    /// [`ErrorCode::Decode`], [`ErrorCode::IncompatibleVersion`], [`ErrorCode::InvalidConfig`].
    pub fn parse(input: &str) -> Result<Self, CniError> {
        if input.len() > INPUT_MAX {
            let what = format!("the network configuration is longer than {INPUT_MAX} octets");
            return Err(CniError::new(ErrorCode::Decode, what));
        }
        let value: Value = serde_json::from_str(input).map_err(|error| {
            CniError::new(ErrorCode::Decode, "the network configuration is not JSON")
                .with_details(error.to_string())
        })?;
        check_version(&value)?;
        let config: Self =
            serde_json::from_value(value).map_err(|error| invalid(error.to_string()))?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), CniError> {
        let mut name = self.name.bytes();
        let begins = name.next().is_some_and(|it| it.is_ascii_alphanumeric());
        if !begins || !name.all(|it| it.is_ascii_alphanumeric() || b"_.-".contains(&it)) {
            return Err(invalid(format!(
                "name: '{}' must begin with a letter or digit, and have letters, digits, '_', '.' and '-' only",
                self.name
            )));
        }
        let paths = [
            ("controlSocket", &self.control_socket),
            ("socketDirectory", &self.socket_directory),
        ];
        for (key, path) in paths {
            let text = path.to_string_lossy();
            if !path.is_absolute() || text.contains(['?', '&', '=']) {
                return Err(invalid(format!(
                    "{key}: '{text}' is not an absolute path without '?', '&' and '='"
                )));
            }
        }
        if !self.port.creates_interface() && self.mtu.is_some() {
            return Err(invalid(
                "mtu: only ports of the kinds veth and tap have one (the application sets that of others)",
            ));
        }
        self.check_kind()
    }

    /// Checks the keys that ports of the switch have, and those of interfaces of the node.
    fn check_kind(&self) -> Result<(), CniError> {
        if self.port != PortKind::HostDevice {
            return match (self.bridge.is_empty(), &self.device) {
                (true, _) => Err(invalid("bridge: required but absent or empty")),
                (false, Some(_)) => Err(invalid("device: a key of the port host-device")),
                (false, None) => Ok(()),
            };
        }
        let has_vlan_or_vrf = self.vlan.is_some() || self.vrf.is_some();
        if !self.bridge.is_empty() || has_vlan_or_vrf || self.queues.is_some() {
            return Err(invalid(
                "bridge, vlan, vrf and queues: keys of ports of the switch, which host-device is not",
            ));
        }
        let is_sound = |device: &String| is_file_name(device) && !device.contains(' ');
        match self
            .device
            .iter()
            .chain(&self.device_id)
            .find(|it| !is_sound(it))
        {
            Some(device) => Err(invalid(format!(
                "device: '{device}' is neither the name of an interface nor a PCI address"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the device of an attachment of the kind [`PortKind::HostDevice`].
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`].
    pub(super) fn host_device(&self) -> Result<&str, CniError> {
        let device = self.device.as_deref().or(self.device_id.as_deref());
        device.ok_or_else(|| {
            invalid("device: required by the port host-device but absent (or a resource in the definition of the network)")
        })
    }

    /// Returns the ID of the device whose socket is the port of an attachment. `None`: the attachment has a port of its own.
    pub(super) fn socket_device(&self) -> Option<&str> {
        match self.port {
            PortKind::Veth | PortKind::Tap | PortKind::HostDevice => None,
            PortKind::Memif | PortKind::VhostUser => self.device_id.as_deref(),
        }
    }

    /// Returns the MAC address that the runtime asks for: of `runtimeConfig`, or of `CNI_ARGS`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidEnvironment`].
    pub(super) fn mac(&self, environment: &Environment) -> Result<Option<MacAddress>, CniError> {
        let Some(text) = environment.arguments.get("MAC") else {
            return Ok(self.runtime_config.mac);
        };
        if self.runtime_config.mac.is_some() {
            return Ok(self.runtime_config.mac);
        }
        let mac = text.parse().map_err(|_| {
            let what = format!("CNI_ARGS: '{text}' is not a MAC address");
            CniError::new(ErrorCode::InvalidEnvironment, what)
        })?;
        Ok(Some(mac))
    }

    /// Returns the addresses that the runtime asks for, for networks without IPAM plugin. Without a prefix length they are hosts.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`].
    pub(super) fn requested_ips(&self) -> Result<Vec<IpNet>, CniError> {
        let parse = |text: &String| {
            let host = || text.parse::<IpAddr>().map(IpNet::from);
            text.parse::<IpNet>()
                .or_else(|_| host())
                .map_err(|_| invalid(format!("runtimeConfig.ips: '{text}' is not an IP address")))
        };
        self.runtime_config.ips.iter().map(parse).collect()
    }

    /// Returns whether the version has the fields that came with 1.1.0.
    pub(super) fn is_1_1(&self) -> bool {
        self.cni_version != "1.0.0"
    }
}

fn invalid(what: impl Into<String>) -> CniError {
    CniError::new(
        ErrorCode::InvalidConfig,
        "the network configuration is invalid",
    )
    .with_details(what)
}

fn check_version(config: &Value) -> Result<(), CniError> {
    let version = config.get("cniVersion").and_then(Value::as_str);
    match version {
        Some(version) if VERSIONS.contains(&version) => Ok(()),
        Some(version) => Err(CniError::new(
            ErrorCode::IncompatibleVersion,
            format!("cniVersion '{version}' is not supported"),
        )
        .with_details(format!("supported: {}", VERSIONS.join(", ")))),
        None => Err(invalid("cniVersion: required but absent")),
    }
}
