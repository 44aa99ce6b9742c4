// SPDX-License-Identifier: Apache-2.0
//! Device information file (Device Information Specification of the Network Plumbing Working Group, version 1.1.0).

use std::path::{Path, PathBuf};

use quietwire_base::durable;
use serde_json::{Value, json};

use super::config::PortKind;
use super::reply::{CniError, ErrorCode};

/// Directory of the files of device plugins (section 4.1).
pub(crate) const OF_DEVICE_PLUGINS: &str = "/var/run/k8s.cni.cncf.io/devinfo/dp";
/// Mode of the file.
const MODE: u32 = 0o644;

/// Returns the description of a port with a socket: the host creates the socket, the application in the container connects to it.
pub(crate) fn describe(kind: PortKind, socket: &Path) -> Option<Value> {
    let path = socket.display().to_string();
    match kind {
        PortKind::Veth | PortKind::Tap | PortKind::HostDevice => None,
        PortKind::Memif => Some(json!({
            "type": "memif",
            "version": "1.1.0",
            // Of the socket: the specification calls a socket that the host creates that of a slave.
            "memif": { "role": "slave", "path": path, "mode": "ethernet" },
        })),
        PortKind::VhostUser => Some(json!({
            "type": "vhost-user",
            "version": "1.1.0",
            "vhost-user": { "mode": "client", "path": path },
        })),
    }
}

/// Returns the description of an interface of the node that is in the container, by the PCI address of its device.
pub(super) fn describe_pci(address: &str) -> Value {
    json!({ "type": "pci", "version": "1.1.0", "pci": { "pci-address": address } })
}

/// Returns the file of a device plugin for a device, in the directory of such files (section 4.1). Multus reads it.
pub(crate) fn of_device_plugin(directory: &Path, resource: &str, id: &str) -> PathBuf {
    directory.join(format!("{resource}-{id}-device.json").replace('/', "-"))
}

/// Writes the description to a file, whole or not at all. The directory is created.
///
/// # Errors
/// [`ErrorCode::Io`].
pub(crate) fn write(path: &Path, description: &Value) -> Result<(), CniError> {
    let written = std::fs::create_dir_all(durable::directory_of(path))
        .and_then(|()| durable::replace(path, description.to_string().as_bytes(), MODE));
    written.map_err(|error| {
        let what = format!("device-info file: writing {}: {error}", path.display());
        CniError::new(ErrorCode::Io, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_type_and_the_address_of_the_specification() {
        let pci = describe_pci("0000:17:02.1");
        assert_eq!(pci["type"], "pci");
        assert_eq!(pci["version"], "1.1.0");
        assert_eq!(pci["pci"], json!({ "pci-address": "0000:17:02.1" }));
        let socket = Path::new("/run/it/vhost.sock");
        let vhost = describe(PortKind::VhostUser, socket).unwrap();
        assert_eq!(vhost["vhost-user"]["path"], json!(socket));
        let directory = Path::new(OF_DEVICE_PLUGINS);
        assert_eq!(
            of_device_plugin(directory, "quietwire.io/memif", "memif-0"),
            directory.join("quietwire.io-memif-memif-0-device.json")
        );
        for kind in [PortKind::Veth, PortKind::Tap, PortKind::HostDevice] {
            assert_eq!(describe(kind, socket), None);
        }
    }
}
