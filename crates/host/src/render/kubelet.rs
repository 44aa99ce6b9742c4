// SPDX-License-Identifier: Apache-2.0
//! Renders kubelet's configuration (KubeletConfiguration, kubelet.config.k8s.io/v1beta1): reserved CPUs, static CPU manager
//! and topology manager. Pods get the CPUs of guests and neighbours, or those of the host if there are none.

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

/// Returns the CPUs of pods.
pub(super) fn for_pods(plan: &Plan) -> CpuList {
    let given = plan.cpus(Role::Guest).union(&plan.cpus(Role::Neighbour));
    if !given.is_empty() {
        return given;
    }
    // The host keeps its first CPU.
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
