// SPDX-License-Identifier: Apache-2.0
//! A resource of the device plugin: its devices, and what containers get for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::DOMAIN;
use super::config::{DevicesConfig, Kind, ResourceConfig};
use super::device::Device;
use super::functions::Functions;
use super::prefer::prefer;
use super::sockets::{Collected, SharedSwitch, Sockets};
use crate::cni::RunningSwitch;
use crate::kubelet::messages::ContainerAllocateResponse;

#[derive(Clone, Debug)]
enum Devices {
    Sockets(Sockets),
    Functions(Functions),
}

/// Numbers of devices of a resource on a NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceCounts {
    /// All devices.
    pub(crate) capacity: usize,
    /// Healthy devices.
    pub(crate) allocatable: usize,
    /// Healthy devices that no container has.
    pub(crate) available: usize,
}

/// A resource of kubelet: `quietwire.io/NAME`.
#[derive(Clone, Debug)]
pub struct Resource {
    short_name: String,
    devices: Devices,
}

/// Returns the resources of a configuration. `root` is the root directory of `/sys`, `/run` and `/var`.
#[must_use]
pub fn resources(config: &DevicesConfig, root: &Path) -> Vec<Resource> {
    let switch: SharedSwitch = Arc::new(RunningSwitch::new(&config.control_socket));
    let all = config.resources.iter();
    all.map(|resource| Resource::new(resource, config, root, &switch))
        .collect()
}

impl Resource {
    pub(super) fn new(
        resource: &ResourceConfig,
        config: &DevicesConfig,
        root: &Path,
        switch: &SharedSwitch,
    ) -> Self {
        let devices = match resource.kind {
            Kind::Function => Devices::Functions(Functions {
                resource: resource.name.clone(),
                cards: resource.cards.clone(),
                root: root.to_owned(),
            }),
            Kind::Memif | Kind::VhostUser => Devices::Sockets(Sockets::new(
                resource.clone(),
                config.socket_directory.clone(),
                root,
                Arc::clone(switch),
            )),
        };
        Self {
            short_name: resource.name.clone(),
            devices,
        }
    }

    /// Returns its name in kubelet: `quietwire.io/NAME`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{DOMAIN}/{}", self.short_name)
    }

    /// Returns the name of its socket in the directory of device plugins.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("quietwire-{}.sock", self.short_name)
    }

    pub(super) fn devices(&self) -> Vec<Device> {
        match &self.devices {
            Devices::Sockets(sockets) => sockets.devices(),
            Devices::Functions(functions) => functions.devices(),
        }
    }

    /// Counts its devices by NUMA node. `used` are the devices of all containers: names of resources and IDs. Devices without a NUMA node do
    /// not count.
    pub(crate) fn count(&self, used: &BTreeSet<(String, String)>) -> BTreeMap<u32, DeviceCounts> {
        let name = self.name();
        let mut counts: BTreeMap<u32, DeviceCounts> = BTreeMap::new();
        for device in self.devices() {
            let Some(node) = device.node else {
                continue;
            };
            let count = counts.entry(node).or_default();
            let is_used = used.contains(&(name.clone(), device.id));
            count.capacity = count.capacity.saturating_add(1);
            let healthy = usize::from(device.is_healthy);
            count.allocatable = count.allocatable.saturating_add(healthy);
            let free = usize::from(device.is_healthy && !is_used);
            count.available = count.available.saturating_add(free);
        }
        counts
    }

    pub(super) fn allocate(&self, ids: &[String]) -> Result<ContainerAllocateResponse, String> {
        match &self.devices {
            Devices::Sockets(sockets) => sockets.allocate(ids),
            Devices::Functions(functions) => functions.allocate(ids),
        }
    }

    pub(super) fn prefer(&self, available: &[String], must: &[String], size: usize) -> Vec<String> {
        let devices = self.devices();
        let node_of = |id: &str| {
            let mut devices = devices.iter();
            devices.find(|device| device.id == id)?.node
        };
        prefer(&node_of, available, must, size)
    }

    /// Closes devices that no container has any more, and opens those again that containers lack. `used` are the devices of all containers at the
    /// time `listed`.
    pub(super) fn collect(&self, used: &BTreeSet<String>, listed: Instant) -> Collected {
        match &self.devices {
            Devices::Sockets(sockets) => sockets.collect(used, listed),
            // Nothing is opened for functions.
            Devices::Functions(_) => Collected::default(),
        }
    }
}
