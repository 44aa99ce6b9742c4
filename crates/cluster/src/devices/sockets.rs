// SPDX-License-Identifier: Apache-2.0
//! Sockets of ports of the switch as devices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quietwire_base::durable::remove_if_exists;
use quietwire_switch::PORTS_MAX;
use quietwire_switch::config::AddPort;
use quietwire_switch::config::bridging::BridgingSetting;

use super::DOMAIN;
use super::allocation::add_socket;
use super::config::{Kind, ResourceConfig};
use super::device::Device;
use crate::cni::{CniError, PortKind, SOCKET_DIRECTORY, Switch, device_info, pod_device};
use crate::kubelet::messages::ContainerAllocateResponse;

/// Time for which an allocated device is kept although no container has it: kubelet lists a pod after it has allocated its devices.
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// A switch that several threads use.
pub(super) type SharedSwitch = Arc<dyn Switch + Send + Sync>;

/// Result of a round that collects devices.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Collected {
    /// Devices that were closed.
    pub(super) closed: Vec<String>,
    /// Error of the first device that could not be closed or opened, with the number of the others.
    pub(super) error: Option<String>,
}

/// Sockets of one resource.
#[derive(Clone)]
pub(super) struct Sockets {
    resource: ResourceConfig,
    directory: PathBuf,
    /// Directory of the device-info files of device plugins.
    descriptions: PathBuf,
    /// Directory of the records of the CNI plugin.
    records: PathBuf,
    switch: SharedSwitch,
    /// Times of allocation, by device.
    allocated: Arc<Mutex<BTreeMap<String, Instant>>>,
    /// Locked while devices are opened and closed: kubelet may allocate a device that a round is about to close.
    changing: Arc<Mutex<()>>,
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets")
            .field("resource", &self.resource)
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

impl Sockets {
    /// `root` is the root directory of `/run` and `/var`.
    pub(super) fn new(
        resource: ResourceConfig,
        directory: PathBuf,
        root: &Path,
        switch: SharedSwitch,
    ) -> Self {
        let below = |path: &str| root.join(path.trim_start_matches('/'));
        Self {
            resource,
            directory,
            descriptions: below(device_info::OF_DEVICE_PLUGINS),
            records: below(SOCKET_DIRECTORY),
            switch,
            allocated: Arc::default(),
            changing: Arc::default(),
        }
    }

    fn ids(&self) -> impl Iterator<Item = String> + '_ {
        let name = &self.resource.name;
        (0..self.resource.count).map(move |number| format!("{name}-{number}"))
    }

    /// Returns the device-info file of a device.
    fn description(&self, id: &str) -> PathBuf {
        let resource = format!("{DOMAIN}/{}", self.resource.name);
        device_info::of_device_plugin(&self.descriptions, &resource, id)
    }

    fn port_kind(&self) -> PortKind {
        match self.resource.kind {
            Kind::VhostUser => PortKind::VhostUser,
            Kind::Memif | Kind::Function => PortKind::Memif,
        }
    }

    /// Describes a device, with the path that its container sees, for Multus. Pods without Multus require no description.
    fn describe(&self, id: &str) {
        let kind = self.port_kind();
        let description = pod_device::socket_inside(kind, id)
            .and_then(|socket| device_info::describe(kind, &socket));
        let Some(description) = description else {
            return;
        };
        if let Err(error) = device_info::write(&self.description(id), &description) {
            tracing::warn!("device {id}: {error}");
        }
    }

    /// Returns all sockets. Those whose ports are open are healthy, and as many others as the switch has space for: kubelet would admit pods
    /// whose ports the switch refuses. If the switch does not reply, none is healthy.
    pub(super) fn devices(&self) -> Vec<Device> {
        let ports = self.switch.ports().ok();
        let ports = ports.as_deref();
        let mut free = ports.map_or(0, |ports| PORTS_MAX.saturating_sub(ports.len()));
        let mut devices = Vec::new();
        for id in self.ids() {
            let port = pod_device::port_name(&id);
            let is_open = ports.is_some_and(|ports| ports.iter().any(|open| open.name == port));
            let is_healthy = is_open || free > 0;
            if !is_open {
                free = free.saturating_sub(1);
            }
            devices.push(Device {
                id,
                node: self.resource.node,
                is_healthy,
            });
        }
        devices
    }

    fn file(&self) -> &'static str {
        match self.resource.kind {
            Kind::VhostUser => "vhost.sock",
            Kind::Memif | Kind::Function => "memif.sock",
        }
    }

    /// Opens the ports of devices, and returns what the container gets. A port that is open belongs to a container that has ended: kubelet
    /// allocates no device twice.
    ///
    /// # Errors
    /// A device that does not belong to the resource, or the message of the switch. No port of these devices is open then.
    pub(super) fn allocate(&self, ids: &[String]) -> Result<ContainerAllocateResponse, String> {
        let mut response = ContainerAllocateResponse::default();
        let _changing = self.changing();
        for id in ids {
            let opened = match self.ids().any(|known| known == *id) {
                true => self
                    .close(id)
                    .and_then(|()| self.open(id, self.port_of_resource(id))),
                false => Err(format!(
                    "no device {id} in resource '{}'",
                    self.resource.name
                )),
            };
            if let Err(error) = opened {
                self.close_all(ids);
                return Err(error);
            }
            self.allocations().insert(id.clone(), Instant::now());
            let directory = self.directory.join(id);
            add_socket(
                &mut response,
                &self.resource.name,
                id,
                &directory,
                self.file(),
            );
        }
        Ok(response)
    }

    fn allocations(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.allocated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the port of a device as the resource has it.
    fn port_of_resource(&self, id: &str) -> AddPort {
        let socket = self.directory.join(id).join(self.file());
        let kind = match self.resource.kind {
            Kind::VhostUser => "vhost",
            Kind::Memif | Kind::Function => "memif",
        };
        AddPort {
            name: pod_device::port_name(id),
            uri: format!("{kind}:{}?role=server", socket.display()),
            rx_queues: None,
            tx_queues: None,
            rx_cpus: None,
            bridge: self.resource.bridge.clone(),
            bridging: BridgingSetting {
                access: self.resource.vlan,
                ..BridgingSetting::default()
            },
        }
    }

    fn open(&self, id: &str, port: AddPort) -> Result<(), String> {
        let directory = self.directory.join(id);
        fs::create_dir_all(&directory)
            .map_err(|error| format!("creating {}: {error}", directory.display()))?;
        self.switch.add_port(port).map_err(message)?;
        self.describe(id);
        Ok(())
    }

    /// Opens the port of a running container's device, in the network to which the CNI plugin has attached it.
    fn open_again(&self, id: &str) -> Result<(), String> {
        let of_network = pod_device::recorded_port(&self.records, id).map_err(message)?;
        let port = of_network.unwrap_or_else(|| self.port_of_resource(id));
        self.open(id, port)
    }

    /// Closes the port of a device, and removes its description and the directory of its socket.
    fn close(&self, id: &str) -> Result<(), String> {
        let port = pod_device::port_name(id);
        self.switch.delete_port(&port).map_err(message)?;
        let description = self.description(id);
        remove_if_exists(&description)
            .map_err(|error| format!("removing {}: {error}", description.display()))?;
        let directory = self.directory.join(id);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("removing {}: {error}", directory.display()))
            }
            _ => Ok(()),
        }
    }

    /// Closes ports after a failure. Those that cannot be closed are collected later.
    fn close_all(&self, ids: &[String]) {
        for id in ids {
            if self.ids().any(|known| known == *id)
                && let Err(error) = self.close(id)
            {
                tracing::warn!("device {id}: {error}");
            }
            self.allocations().remove(id);
        }
    }

    /// Closes the ports of devices that no container has, and opens those of containers that the switch lacks: it was started again.
    /// `used` are the devices of all containers at the time `listed`. Continues after failures: the next round tries those devices again.
    pub(super) fn collect(&self, used: &BTreeSet<String>, listed: Instant) -> Collected {
        let ports = match self.switch.ports() {
            Ok(ports) => ports,
            Err(error) => {
                return Collected {
                    error: Some(message(error)),
                    ..Collected::default()
                };
            }
        };
        let open: BTreeSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        let mut closed = Vec::new();
        let mut failures = Vec::new();
        for id in self.ids() {
            let _changing = self.changing();
            let since = self.allocations().get(&id).copied();
            // The list may have the container that had the device before, or none. `open` may be as old.
            if since.is_some_and(|since| since > listed) {
                continue;
            }
            let is_open = open.contains(pod_device::port_name(&id).as_str());
            if used.contains(&id) {
                self.allocations().remove(&id);
                if !is_open && let Err(error) = self.open_again(&id) {
                    failures.push(format!("device {id}: {error}"));
                }
                continue;
            }
            let is_new = since.is_some_and(|since| listed.saturating_duration_since(since) < GRACE);
            let has_files = self.directory.join(&id).exists() || self.description(&id).exists();
            if is_new || !(is_open || has_files) {
                continue;
            }
            if let Err(error) = self.close(&id) {
                failures.push(format!("device {id}: {error}"));
                continue;
            }
            self.allocations().remove(&id);
            closed.push(id);
        }
        let others = failures.len().saturating_sub(1);
        let error = failures.into_iter().next().map(|first| match others {
            0 => first,
            _ => format!("{first} ({others} other devices failed, too)"),
        });
        Collected { closed, error }
    }
}

fn message(error: CniError) -> String {
    error.to_string()
}
