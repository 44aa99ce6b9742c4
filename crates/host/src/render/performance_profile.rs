// SPDX-License-Identifier: Apache-2.0
//! Renders OpenShift's PerformanceProfile (performance.openshift.io/v2). Its reserved and isolated CPUs are all CPUs together,
//! so neighbours are among the isolated ones. Parameters that it adds to the command line itself are omitted.

use crate::partition::Plan;

/// Parameters that the operator sets from the profile's other fields.
const ITS_OWN: [&str; 8] = [
    "isolcpus",
    "nohz_full",
    "rcu_nocbs",
    "irqaffinity",
    "default_hugepagesz",
    "hugepagesz",
    "hugepages",
    "nosoftlockup",
];

pub(super) fn render(plan: &Plan) -> String {
    let isolated = super::cpus::all(plan).difference(&plan.housekeeping);
    let mut text = format!(
        "apiVersion: performance.openshift.io/v2
kind: PerformanceProfile
metadata:
  name: quietwire
spec:
  cpu:
    isolated: \"{isolated}\"
    reserved: \"{}\"
  numa:
    topologyPolicy: single-numa-node
  nodeSelector:
    node-role.kubernetes.io/worker: \"\"
",
        plan.housekeeping
    );
    if let Some(first) = plan.huge_pages.first() {
        let size = super::memory::page_size(first.page_kib);
        text += &format!("  hugepages:\n    defaultHugepagesSize: {size}\n    pages:\n");
        for pool in &plan.huge_pages {
            text += &format!("    - size: {size}\n      count: {}\n", pool.pages);
            if let Some(node) = pool.node {
                text += &format!("      node: {node}\n");
            }
        }
    }
    let others = plan
        .boot
        .iter()
        .filter(|parameter| !ITS_OWN.contains(&parameter.name.as_str()));
    let others: Vec<String> = others
        .map(|parameter| format!("  - \"{parameter}\"\n"))
        .collect();
    if !others.is_empty() {
        text += &format!("  additionalKernelArgs:\n{}", others.concat());
    }
    text
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{between, cpus};
    let isolated = cpus(&between(text, "isolated: \"", "\""));
    let reserved = cpus(&between(text, "reserved: \"", "\""));
    assert_eq!(reserved, plan.housekeeping);
    assert!(plan.isolated().difference(&isolated).is_empty());
    assert_eq!(isolated.union(&reserved), super::cpus::all(plan));
    let counts = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("count: "))
        .map(|count| count.parse::<u64>().unwrap());
    assert_eq!(
        counts.sum::<u64>(),
        plan.huge_pages.iter().map(|pool| pool.pages).sum::<u64>()
    );
}
