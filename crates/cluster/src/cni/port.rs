// SPDX-License-Identifier: Apache-2.0
//! The port of an attachment: its name, URI and socket.

use std::path::{Path, PathBuf};

use quietwire_packet::MacAddress;
use quietwire_switch::config::AddPort;
use quietwire_switch::config::bridging::BridgingSetting;

use super::config::{NetworkConfig, PortKind};
use super::environment::Environment;
use crate::hash::hash;

/// Octets of the hash in the prefix of a network's ports, and in the rest of a port's name. With its letter a name has 15 characters, as the
/// kernel permits for an interface. Two networks can have the same prefix, so [`record`] has the whole name.
const NETWORK_OCTETS: usize = 2;
const ATTACHMENT_OCTETS: usize = 5;
/// Hexadecimal digits of a name.
const DIGITS: usize = 2 * (NETWORK_OCTETS + ATTACHMENT_OCTETS);
/// End of the names of files with records.
pub(super) const RECORD: &str = ".network";

/// Returns the prefix of the names of a network's ports.
pub(super) fn prefix(network: &str) -> String {
    format!("c{}", hash(&[network], NETWORK_OCTETS))
}

/// Returns the name of the port of a container's interface in a network.
pub(super) fn name(network: &str, container_id: &str, interface: &str) -> String {
    let attachment = hash(&[network, container_id, interface], ATTACHMENT_OCTETS);
    format!("{}{attachment}", prefix(network))
}

/// Returns true if a port of the plugin can have this name.
pub(super) fn is_name(name: &str) -> bool {
    name.strip_prefix('c').is_some_and(|digits| {
        digits.len() == DIGITS && digits.bytes().all(|it| it.is_ascii_hexdigit())
    })
}

/// Returns the file with the record of a port.
pub(super) fn record(config: &NetworkConfig, name: &str) -> PathBuf {
    record_in(&config.socket_directory, name)
}

/// Returns the file with the record of a port in a directory.
pub(super) fn record_in(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}{RECORD}"))
}

/// Returns the directory of a port's socket, if its kind has one.
pub(super) fn socket_directory(config: &NetworkConfig, name: &str) -> Option<PathBuf> {
    let socket = socket(config, name)?;
    socket.parent().map(Path::to_owned)
}

/// Returns the socket of a port, if its kind has one.
pub(super) fn socket(config: &NetworkConfig, name: &str) -> Option<PathBuf> {
    socket_in(&config.socket_directory, config.port, name)
}

/// Returns the socket of a port in a directory, if its kind has one. It is alone in a directory with the port's name.
pub(super) fn socket_in(directory: &Path, kind: PortKind, name: &str) -> Option<PathBuf> {
    let file = match kind {
        PortKind::Veth | PortKind::Tap | PortKind::HostDevice => return None,
        PortKind::Memif => "memif.sock",
        PortKind::VhostUser => "vhost.sock",
    };
    Some(directory.join(name).join(file))
}

/// Returns the port of an attachment.
pub(super) fn port(
    config: &NetworkConfig,
    environment: &Environment,
    mac: Option<MacAddress>,
) -> AddPort {
    let name = name(
        &config.name,
        &environment.container_id,
        &environment.interface,
    );
    AddPort {
        uri: uri(config, environment, &name, mac),
        name,
        rx_queues: None,
        tx_queues: None,
        rx_cpus: None,
        bridge: Some(config.bridge.clone()),
        bridging: bridging(config),
    }
}

/// Returns the scheme of the URI of a port with a socket.
fn scheme(kind: PortKind) -> Option<&'static str> {
    match kind {
        PortKind::Veth | PortKind::Tap | PortKind::HostDevice => None,
        PortKind::Memif => Some("memif"),
        PortKind::VhostUser => Some("vhost"),
    }
}

/// Returns the port of a device as the network has it: its name and socket are those of the device plugin. `uri` is its URI in the switch.
/// `None` if the device has another kind.
pub(super) fn of_device(config: &NetworkConfig, name: &str, uri: &str) -> Option<AddPort> {
    let scheme = scheme(config.port)?;
    let rest = uri.strip_prefix(scheme)?.strip_prefix(':')?;
    let socket = rest.split('?').next()?;
    let queues = config.queues.map(|queues| format!("&queues={queues}"));
    let queues = queues.unwrap_or_default();
    Some(AddPort {
        name: name.to_owned(),
        uri: format!("{scheme}:{socket}?role=server{queues}"),
        rx_queues: None,
        tx_queues: None,
        rx_cpus: None,
        bridge: Some(config.bridge.clone()),
        bridging: bridging(config),
    })
}

fn bridging(config: &NetworkConfig) -> BridgingSetting {
    BridgingSetting {
        access: config.vlan,
        ..BridgingSetting::default()
    }
}

fn uri(
    config: &NetworkConfig,
    environment: &Environment,
    name: &str,
    mac: Option<MacAddress>,
) -> String {
    let socket = socket(config, name).unwrap_or_default();
    let socket = socket.display();
    let netns = environment.netns.as_deref().unwrap_or_default();
    let interface = &environment.interface;
    // With the key of the MAC address of the interface in the container.
    let (mut uri, mac_key) = match config.port {
        // An interface of the node becomes no port.
        PortKind::Veth | PortKind::HostDevice => (
            format!("veth:{name}?netns={netns}&peer={interface}"),
            Some("peer-mac"),
        ),
        PortKind::Tap => (format!("tap:{interface}?netns={netns}"), Some("mac")),
        PortKind::Memif => (format!("memif:{socket}?role=server"), None),
        PortKind::VhostUser => (format!("vhost:{socket}?role=server"), None),
    };
    let mut option = |key: &str, value: String| uri += &format!("&{key}={value}");
    if let Some(mac_key) = mac_key {
        if let Some(mtu) = config.mtu {
            option("mtu", mtu.to_string());
        }
        if let Some(mac) = mac {
            option(mac_key, mac.to_string());
        }
    }
    if let Some(queues) = config.queues {
        option("queues", queues.to_string());
    }
    uri
}
