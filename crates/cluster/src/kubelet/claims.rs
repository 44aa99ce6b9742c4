// SPDX-License-Identifier: Apache-2.0
//! Owners of exclusive CPUs, from the state file of the CPU manager and the pod-resources service.

use quietwire_host::CpuList;

use super::cpu_state::CpuManagerState;
use super::pod_resources::PodCpus;

/// Exclusive CPUs and their owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The owner: `container 'app' of pod 'default/fast'`.
    pub owner: String,
    /// Its CPUs.
    pub cpus: CpuList,
}

/// Returns all exclusive CPUs with their owners. The state file has UIDs of pods only, so a container that the service reports as well is
/// listed once, with the name of its pod.
#[must_use]
pub fn claims(state: Option<&CpuManagerState>, pods: &[PodCpus]) -> Vec<Claim> {
    let mut claims: Vec<Claim> = pods
        .iter()
        .filter(|pod| !pod.cpus.is_empty())
        .map(|pod| Claim {
            owner: format!(
                "container '{}' of pod '{}/{}'",
                pod.container, pod.namespace, pod.pod
            ),
            cpus: pod.cpus.clone(),
        })
        .collect();
    for ((uid, container), cpus) in state.into_iter().flat_map(|state| &state.exclusive) {
        let is_named = |pod: &PodCpus| pod.container == *container && pod.cpus == *cpus;
        if !cpus.is_empty() && !pods.iter().any(is_named) {
            claims.push(Claim {
                owner: format!("container '{container}' of the pod with UID {uid}"),
                cpus: cpus.clone(),
            });
        }
    }
    claims
}
