// SPDX-License-Identifier: Apache-2.0
//! Device information file (Device Information Specification of the Network Plumbing Working Group, version 1.1.0).

use std::path::Path;

use quietwire_base::durable;
use serde_json::{Value, json};

use super::config::PortKind;
use super::reply::{CniError, ErrorCode};

/// Mode of the file.
const MODE: u32 = 0o644;

/// Returns the description of a port with a socket: the host creates the socket, the application in the container connects to it.
pub(super) fn describe(kind: PortKind, socket: &Path) -> Option<Value> {
    let path = socket.display().to_string();
    match kind {
        PortKind::Veth | PortKind::HostDevice => None,
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

/// Writes the description to a file, whole or not at all. The directory is created.
///
/// # Errors
/// [`ErrorCode::Io`].
pub(super) fn write(path: &Path, description: &Value) -> Result<(), CniError> {
    let written = std::fs::create_dir_all(durable::directory_of(path))
        .and_then(|()| durable::replace(path, description.to_string().as_bytes(), MODE));
    written.map_err(|error| {
        let what = format!("CNIDeviceInfoFile: writing {}: {error}", path.display());
        CniError::new(ErrorCode::Io, what)
    })
}
