// SPDX-License-Identifier: Apache-2.0
//! Exclusive CPUs and devices of pods, from kubelet's pod-resources service.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_host::{CpuId, CpuList};
use tonic::transport::Endpoint;

use super::messages::{ListPodResourcesRequest, ListPodResourcesResponse};
use super::services::pod_resources::pod_resources_lister_client::PodResourcesListerClient;

/// Largest reply, octets.
const REPLY_MAX: usize = 16 << 20;

/// Exclusive CPUs and devices of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodCpus {
    /// Namespace of the pod.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Its exclusive CPUs. Empty if it has none.
    pub cpus: CpuList,
    /// Its devices, by resource name.
    pub devices: Vec<(String, String)>,
}

/// The service did not reply.
#[derive(Debug, thiserror::Error)]
#[error("{}: no reply of kubelet's pod-resources service: {cause}", socket.display())]
pub struct PodResourcesError {
    /// Its socket.
    pub socket: PathBuf,
    /// The problem.
    pub cause: String,
}

/// Returns exclusive CPUs and devices of all containers.
///
/// # Errors
/// [`PodResourcesError`]: no reply within `timeout`.
pub async fn pod_cpus(socket: &Path, timeout: Duration) -> Result<Vec<PodCpus>, PodResourcesError> {
    let failed = |cause: String| PodResourcesError {
        socket: socket.to_owned(),
        cause,
    };
    let uri = format!("unix://{}", socket.display());
    let endpoint = Endpoint::from_shared(uri).map_err(|error| failed(error.to_string()))?;
    let call = async {
        let channel = endpoint.connect().await.map_err(|error| chain(&error))?;
        let mut client =
            PodResourcesListerClient::new(channel).max_decoding_message_size(REPLY_MAX);
        let reply = client.list(ListPodResourcesRequest {}).await;
        reply.map_err(|status| format!("{}: {}", status.code(), status.message()))
    };
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(reply)) => Ok(containers(reply.into_inner())),
        Ok(Err(cause)) => Err(failed(cause)),
        Err(_) => Err(failed(format!("none within {timeout:?}"))),
    }
}

/// Joins an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Returns the containers of a reply. Numbers that are no CPUs are left out.
fn containers(reply: ListPodResourcesResponse) -> Vec<PodCpus> {
    let mut all = Vec::new();
    for pod in reply.pod_resources {
        for container in pod.containers {
            let cpus = container.cpu_ids.iter();
            let cpus = cpus.filter_map(|cpu| u32::try_from(*cpu).ok());
            let devices = container.devices.iter().flat_map(|of_one| {
                let resource = &of_one.resource_name;
                of_one
                    .device_ids
                    .iter()
                    .map(move |device| (resource.clone(), device.clone()))
            });
            all.push(PodCpus {
                namespace: pod.namespace.clone(),
                pod: pod.name.clone(),
                container: container.name.clone(),
                cpus: cpus.map(CpuId).collect(),
                devices: devices.collect(),
            });
        }
    }
    all
}
