// SPDX-License-Identifier: Apache-2.0
//! What kubelet keeps for the host and gives to pods (KubeletConfiguration, kubelet.config.k8s.io/v1beta1): the static
//! CPU manager and the topology manager. Pods get the CPUs of guests and neighbours, or without any those of the host.

use crate::CpuList;
use crate::partition::{Plan, Role};

pub(super) fn render(plan: &Plan) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions:
  full-pcpus-only: \"true\"
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: \"{}\"
",
        super::cpus::all(plan).difference(&for_pods(plan))
    )
}

/// CPUs that pods may have.
pub(super) fn for_pods(plan: &Plan) -> CpuList {
    let given = plan.cpus(Role::Guest).union(&plan.cpus(Role::Neighbour));
    if !given.is_empty() {
        return given;
    }
    // The host keeps its first.
    plan.cpus(Role::Host).iter().skip(1).collect()
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{between, cpus};
    assert!(text.contains("\ncpuManagerPolicy: static\n"));
    let reserved = cpus(&between(text, "reservedSystemCPUs: \"", "\""));
    assert!(plan.cpus(Role::Forwarding).difference(&reserved).is_empty());
    assert!(plan.cpus(Role::Idle).difference(&reserved).is_empty());
    assert!(reserved.intersection(&plan.cpus(Role::Guest)).is_empty());
    assert!(
        reserved
            .intersection(&plan.cpus(Role::Neighbour))
            .is_empty()
    );
}
