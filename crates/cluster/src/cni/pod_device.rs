// SPDX-License-Identifier: Apache-2.0
//! Ports of devices of pods: the device plugin opens them when kubelet allocates the device, and closes them when no container has it any
//! more. An attachment puts the port of a device into its network.

use std::path::{Path, PathBuf};

use quietwire_switch::config::AddPort;

use super::config::{NetworkConfig, PortKind};
use super::port;
use super::record::{self, Record};
use super::reply::{CniError, ErrorCode};
use super::running::Switch;

/// Directory in containers below which the directories of devices are mounted.
const MOUNTED: &str = "/run/quietwire";

/// Returns the name of the port of a device.
pub(crate) fn port_name(id: &str) -> String {
    format!("pod-{id}")
}

/// Returns the directory of a device in containers.
pub(crate) fn directory_inside(id: &str) -> PathBuf {
    Path::new(MOUNTED).join(id)
}

/// Returns the socket of a device in containers, if its kind has one.
pub(crate) fn socket_inside(kind: PortKind, id: &str) -> Option<PathBuf> {
    port::socket_in(Path::new(MOUNTED), kind, id)
}

/// Returns the port of a device as the network has it.
///
/// # Errors
/// [`ErrorCode::TryAgain`]: the switch has no such port. [`ErrorCode::InvalidConfig`]: the device has another kind.
pub(super) fn port_in_network(
    config: &NetworkConfig,
    id: &str,
    switch: &impl Switch,
) -> Result<AddPort, CniError> {
    let name = port_name(id);
    let ports = switch.ports()?;
    let Some(present) = ports.iter().find(|port| port.name == name) else {
        let what = format!(
            "the switch has no port {name} of device {id} of the pod (resourceName must be a resource of the device plugin of quietwire)"
        );
        return Err(CniError::new(ErrorCode::TryAgain, what));
    };
    port::of_device(config, &name, &present.uri).ok_or_else(|| {
        let what = format!(
            "port: the network has another kind than device {id} of the pod ({})",
            present.uri
        );
        CniError::new(ErrorCode::InvalidConfig, what)
    })
}

/// Replaces the port of a device by the same one in the network. No container runs yet, so that no peer is connected.
///
/// # Errors
/// Those of the switch. The agent then opens the port again.
pub(super) fn replace(switch: &impl Switch, port: &AddPort) -> Result<(), CniError> {
    switch.delete_port(&port.name)?;
    match switch.add_port(port.clone()) {
        Err(error) if error.code() == ErrorCode::Refused as u64 => {
            // The agent was faster, and has opened the port as the record of the attachment requires.
            let is_open = switch
                .ports()?
                .iter()
                .any(|it| it.name == port.name && Some(&it.group) == port.bridge.as_ref());
            if is_open { Ok(()) } else { Err(error) }
        }
        added => added,
    }
}

/// Returns the port of a device as the network of its pod has it, from the records in a directory. `None` if no attachment has the device.
///
/// # Errors
/// [`ErrorCode::Io`]. [`ErrorCode::TryAgain`]: attachments of several networks name the device, of which all but one have ended.
pub(crate) fn recorded_port(directory: &Path, id: &str) -> Result<Option<AddPort>, CniError> {
    let wanted = port_name(id);
    let mut found: Option<AddPort> = None;
    for name in record::names(directory)? {
        let record = Record::read(&port::record_in(directory, &name));
        let Some(port) = record.and_then(|record| record.device) else {
            continue;
        };
        if port.name != wanted || found.as_ref() == Some(&port) {
            continue;
        }
        if found.is_some() {
            let what = format!("attachments of several networks have port {wanted}");
            return Err(CniError::new(ErrorCode::TryAgain, what));
        }
        found = Some(port);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Node, ONE, TWO, memif};
    use super::*;

    #[test]
    fn the_port_of_a_device_is_that_of_its_only_network() {
        let node = Node::new();
        let port = |bridge: &str| AddPort {
            bridge: Some(bridge.to_owned()),
            ..memif("pod-memif-0")
        };
        let found = || recorded_port(&node.records(), "memif-0");
        let record = |name: &str, device: Option<AddPort>| {
            let record = Record {
                device,
                ..node.record(name, "pod-1", None)
            };
            record.write(&node.file(name)).unwrap();
        };
        record(ONE, None);
        assert_eq!(found().unwrap(), None);
        record(ONE, Some(port("lan")));
        assert_eq!(found().unwrap(), Some(port("lan")));
        assert_eq!(recorded_port(&node.records(), "memif-1").unwrap(), None);
        record(TWO, Some(port("lan")));
        assert_eq!(found().unwrap(), Some(port("lan")));
        record(TWO, Some(port("wan")));
        let error = found().unwrap_err();
        assert_eq!(error.code(), ErrorCode::TryAgain as u64);
    }
}
