// SPDX-License-Identifier: Apache-2.0
//! Mounts, device nodes and variables of a container with devices.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cni::pod_device;
use crate::kubelet::messages::{ContainerAllocateResponse, DeviceSpec, Mount};

/// Returns the name of an environment variable for a resource: `QUIETWIRE_FAST_MEMIF` for `fast-memif`.
pub(super) fn variable(prefix: &str, resource: &str) -> String {
    let word = resource.to_ascii_uppercase().replace('-', "_");
    format!("{prefix}_{word}")
}

/// Adds a directory with a socket: a mount, and the path in the container to the variable of the resource.
pub(super) fn add_socket(
    to: &mut ContainerAllocateResponse,
    resource: &str,
    id: &str,
    directory: &Path,
    file: &str,
) {
    let inside = pod_device::directory_inside(id).display().to_string();
    append(
        &mut to.envs,
        variable("QUIETWIRE", resource),
        &format!("{inside}/{file}"),
    );
    to.mounts.push(Mount {
        container_path: inside,
        host_path: directory.display().to_string(),
        read_only: false,
    });
}

/// Adds a virtual function: its address to the variable of the resource, and the device nodes of VFIO if it is bound to `vfio-pci`.
pub(super) fn add_function(
    to: &mut ContainerAllocateResponse,
    resource: &str,
    address: &str,
    vfio_group: Option<u32>,
) {
    append(
        &mut to.envs,
        variable("PCIDEVICE_QUIETWIRE_IO", resource),
        address,
    );
    let Some(group) = vfio_group else {
        return;
    };
    for path in ["/dev/vfio/vfio".to_owned(), format!("/dev/vfio/{group}")] {
        if to.devices.iter().all(|device| device.host_path != path) {
            to.devices.push(DeviceSpec {
                container_path: path.clone(),
                host_path: path,
                permissions: "rw".to_owned(),
            });
        }
    }
}

/// Appends a value to a variable, after a comma.
fn append(variables: &mut BTreeMap<String, String>, name: String, value: &str) {
    let text = variables.entry(name).or_default();
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(value);
}
