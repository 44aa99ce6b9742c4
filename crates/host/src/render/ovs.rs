// SPDX-License-Identifier: Apache-2.0
//! Renders the configuration of Open vSwitch with DPDK (ovs-vswitchd.conf.db(5)). A poll thread with an assigned queue gets
//! no unassigned queues, so every queue is assigned.

use crate::partition::{Plan, Role};

pub(super) fn render(plan: &Plan) -> String {
    let mut text = format!(
        "#!/bin/sh
set -eu
ovs-vsctl --no-wait set Open_vSwitch . \\
    other_config:dpdk-init=true \\
    other_config:pmd-cpu-mask={} \\
    other_config:dpdk-lcore-mask={} \\
    other_config:dpdk-socket-mem='\"{}\"'
",
        plan.cpus(Role::Forwarding).to_mask(),
        super::cpus::control(plan).to_mask(),
        super::memory::socket_memory(plan),
    );
    if plan.nics.is_empty() {
        return text;
    }
    text += "bridge=${BRIDGE:-br-phy}\novs-vsctl --no-wait --may-exist add-br \"$bridge\" -- set Bridge \"$bridge\" datapath_type=netdev\n";
    for (index, nic) in plan.nics.iter().enumerate() {
        let affinity: Vec<String> = nic
            .queues
            .iter()
            .map(|queue| format!("{}:{}", queue.queue, queue.cpu))
            .collect();
        text += &format!(
            "ovs-vsctl --no-wait --may-exist add-port \"$bridge\" dpdk{index} -- set Interface dpdk{index} type=dpdk \\
    options:dpdk-devargs={} \\
    options:n_rxq={} options:n_rxq_desc={} options:n_txq_desc={} \\
    mtu_request={} other_config:pmd-rxq-affinity='\"{}\"'
",
            nic.pci_address,
            nic.queues.len(),
            plan.rx_ring_size,
            plan.tx_ring_size,
            nic.mtu,
            affinity.join(",")
        );
    }
    text
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{between, cpus, word};
    assert_eq!(
        cpus(&word(text, "pmd-cpu-mask=")),
        plan.cpus(Role::Forwarding)
    );
    assert_eq!(
        cpus(&word(text, "dpdk-lcore-mask=")),
        super::cpus::control(plan)
    );
    let memory = between(text, "dpdk-socket-mem='\"", "\"");
    assert_eq!(memory, super::memory::socket_memory(plan));
    let affinities = text
        .lines()
        .filter_map(|line| line.split_once("pmd-rxq-affinity="))
        .map(|(_, affinity)| affinity);
    let affinities: Vec<String> = affinities
        .map(|affinity| affinity.replace(['\'', '"'], ""))
        .collect();
    assert_eq!(affinities.len(), plan.nics.len());
    for (nic, affinity) in plan.nics.iter().zip(affinities) {
        let pairs = affinity
            .split(',')
            .map(|pair| pair.split_once(':').unwrap());
        let pairs: Vec<(u16, u32)> = pairs
            .map(|(queue, cpu)| (queue.parse().unwrap(), cpu.parse().unwrap()))
            .collect();
        let planned: Vec<(u16, u32)> = nic
            .queues
            .iter()
            .map(|queue| (queue.queue, queue.cpu.0))
            .collect();
        assert_eq!(pairs, planned);
    }
}
