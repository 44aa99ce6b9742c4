// SPDX-License-Identifier: Apache-2.0
//! Sockets of ports of the switch as devices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quietwire_switch::PORTS_MAX;
use quietwire_switch::config::AddPort;
use quietwire_switch::config::bridging::BridgingSetting;

use super::allocation::add_socket;
use super::config::{Kind, ResourceConfig};
use super::device::Device;
use crate::cni::{CniError, Switch};
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
    switch: SharedSwitch,
    /// Times of allocation, by device.
    allocated: Arc<Mutex<BTreeMap<String, Instant>>>,
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
    pub(super) fn new(resource: ResourceConfig, directory: PathBuf, switch: SharedSwitch) -> Self {
        Self {
            resource,
            directory,
            switch,
            allocated: Arc::default(),
        }
    }

    fn ids(&self) -> impl Iterator<Item = String> + '_ {
        let name = &self.resource.name;
        (0..self.resource.count).map(move |number| format!("{name}-{number}"))
    }

    /// Returns the name of the port of a device.
    fn port(id: &str) -> String {
        format!("pod-{id}")
    }

    /// Returns all sockets. Those whose ports are open are healthy, and as many others as the switch has space for: kubelet would admit pods
    /// whose ports the switch refuses. If the switch does not reply, none is healthy.
    pub(super) fn devices(&self) -> Vec<Device> {
        let ports = self.switch.ports().ok();
        let ports = ports.as_deref();
        let mut free = ports.map_or(0, |ports| PORTS_MAX.saturating_sub(ports.len()));
        let mut devices = Vec::new();
        for id in self.ids() {
            let port = Self::port(&id);
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
        for id in ids {
            let opened = match self.ids().any(|known| known == *id) {
                true => self.close(id).and_then(|()| self.open(id)),
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

    fn allocations(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Instant>> {
        self.allocated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, id: &str) -> Result<(), String> {
        let directory = self.directory.join(id);
        fs::create_dir_all(&directory)
            .map_err(|error| format!("creating {}: {error}", directory.display()))?;
        let socket = directory.join(self.file());
        let kind = match self.resource.kind {
            Kind::VhostUser => "vhost",
            Kind::Memif | Kind::Function => "memif",
        };
        let port = AddPort {
            name: Self::port(id),
            uri: format!("{kind}:{}?role=server", socket.display()),
            rx_queues: None,
            tx_queues: None,
            rx_cpus: None,
            bridge: self.resource.bridge.clone(),
            bridging: BridgingSetting {
                access: self.resource.vlan,
                ..BridgingSetting::default()
            },
        };
        self.switch.add_port(port).map_err(message)
    }

    /// Closes the port of a device and removes the directory of its socket.
    fn close(&self, id: &str) -> Result<(), String> {
        self.switch.delete_port(&Self::port(id)).map_err(message)?;
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
    /// `used` are the devices of all containers. Continues after failures: the next round tries those devices again.
    pub(super) fn collect(&self, used: &BTreeSet<String>, now: Instant) -> Collected {
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
            let is_open = open.contains(Self::port(&id).as_str());
            if used.contains(&id) {
                self.allocations().remove(&id);
                if !is_open && let Err(error) = self.open(&id) {
                    failures.push(format!("device {id}: {error}"));
                }
                continue;
            }
            let since = self.allocations().get(&id).copied();
            let is_new = since.is_some_and(|since| now.saturating_duration_since(since) < GRACE);
            if is_new || !(is_open || self.directory.join(&id).exists()) {
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
