// SPDX-License-Identifier: Apache-2.0
//! Configuration and assignments of kubelet on this node: its configuration file, the state files of its CPU and memory manager, and its
//! gRPC services on Unix sockets.

// Files and messages of another program: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod claims;
mod configuration;
mod cpu_state;
mod file;
#[cfg(test)]
mod fuzz;
mod memory_state;
pub mod messages;
mod pod_resources;
pub mod services;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

pub use claims::{Claim, claims};
pub use configuration::{Configuration, STATIC, STRICT};
pub use cpu_state::CpuManagerState;
pub use file::KubeletFileError;
pub use memory_state::{MemoryManagerState, NodeMemory, STATIC_MEMORY};
pub use pod_resources::{PodCpus, PodResourcesError, pod_cpus};

/// Time for a reply of the pod-resources service.
const REPLY: Duration = Duration::from_secs(5);

/// Paths of the files and sockets of kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletPaths {
    /// Configuration file (`--config`).
    pub configuration: PathBuf,
    /// State file of the CPU manager, in kubelet's root directory.
    pub cpu_state: PathBuf,
    /// State file of the memory manager, in kubelet's root directory.
    pub memory_state: PathBuf,
    /// Socket of the pod-resources service.
    pub pod_resources: PathBuf,
    /// Directory of the sockets of device plugins, and of kubelet's registration service. The same for every root directory of kubelet.
    pub device_plugins: PathBuf,
}

impl Default for KubeletPaths {
    fn default() -> Self {
        let root = PathBuf::from("/var/lib/kubelet");
        Self {
            configuration: root.join("config.yaml"),
            cpu_state: root.join("cpu_manager_state"),
            memory_state: root.join("memory_manager_state"),
            pod_resources: root.join("pod-resources/kubelet.sock"),
            device_plugins: root.join("device-plugins"),
        }
    }
}

/// Configuration and assignments of kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// Its configuration.
    pub configuration: Configuration,
    /// State of its CPU manager. `None` if the file does not exist: kubelet has not run yet.
    pub cpu_state: Option<CpuManagerState>,
    /// State of its memory manager. `None` if the file does not exist.
    pub memory_state: Option<MemoryManagerState>,
    /// Exclusive CPUs of containers.
    pub claims: Vec<Claim>,
    /// Devices of containers: names of resources and IDs. `None`: the pod-resources service did not reply.
    pub devices: Option<BTreeSet<(String, String)>>,
}

impl Kubelet {
    /// Reads the files. `pods` are the exclusive CPUs that the pod-resources service reported, if it replied.
    ///
    /// # Errors
    /// [`KubeletFileError`]: a file cannot be read or parsed.
    pub fn read(places: &KubeletPaths, pods: &[PodCpus]) -> Result<Self, KubeletFileError> {
        let configuration = Configuration::read(&places.configuration)?;
        let cpu_state = CpuManagerState::read(&places.cpu_state)?;
        let memory_state = MemoryManagerState::read(&places.memory_state)?;
        let claims = claims(cpu_state.as_ref(), pods);
        Ok(Self {
            configuration,
            cpu_state,
            memory_state,
            claims,
            devices: None,
        })
    }

    /// Asks the pod-resources service and reads the files. Without a reply, containers are known by the UIDs of their pods only.
    ///
    /// # Errors
    /// The problem: a file cannot be read or parsed.
    pub async fn observe(places: &KubeletPaths) -> Result<Self, String> {
        let (pods, devices) = match pod_cpus(&places.pod_resources, REPLY).await {
            Ok(pods) => {
                let devices = pods.iter().flat_map(|pod| pod.devices.iter().cloned());
                let devices: BTreeSet<(String, String)> = devices.collect();
                (pods, Some(devices))
            }
            Err(error) => {
                // The state file has the CPUs as well, without names of pods.
                tracing::debug!("{error}");
                (Vec::new(), None)
            }
        };
        let places = places.clone();
        let read = tokio::task::spawn_blocking(move || Self::read(&places, &pods)).await;
        let read = read.map_err(|error| error.to_string())?;
        let kubelet = read.map_err(|error| error.to_string())?;
        Ok(Self { devices, ..kubelet })
    }
}
