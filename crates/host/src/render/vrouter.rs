// SPDX-License-Identifier: Apache-2.0
//! Renders the configuration of Contrail's vRouter with DPDK (contrail-container-builder: vrouter/agent-dpdk). Without a
//! service core mask, its service threads run on the forwarding CPUs. The container adds both masks to the command line.

use crate::partition::{Idle, Plan, Role};

pub(super) fn render(plan: &Plan) -> String {
    format!(
        "CPU_CORE_MASK={}\nSERVICE_CORE_MASK={}\nDPDK_CTRL_THREAD_MASK={}\nDPDK_COMMAND_ADDITIONAL_ARGS=\"{}\"\n",
        plan.cpus(Role::Forwarding).to_mask(),
        super::cpus::service(plan).to_mask(),
        super::cpus::control(plan).to_mask(),
        options(plan)
    )
}

/// Returns the command line options without a variable. vRouter either polls or yields: if the plan lets forwarding threads
/// sleep, they yield.
pub(super) fn options(plan: &Plan) -> String {
    format!(
        "--vr_dpdk_rx_ring_sz {} --vr_dpdk_tx_ring_sz {} --yield_option {}",
        plan.rx_ring_size,
        plan.tx_ring_size,
        u8::from(plan.idle != Idle::Poll)
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{between, cpus, value};
    assert_eq!(
        cpus(&value(text, "CPU_CORE_MASK=")),
        plan.cpus(Role::Forwarding)
    );
    assert_eq!(
        cpus(&value(text, "SERVICE_CORE_MASK=")),
        super::cpus::service(plan)
    );
    assert_eq!(
        cpus(&value(text, "DPDK_CTRL_THREAD_MASK=")),
        super::cpus::control(plan)
    );
    let options = between(text, "DPDK_COMMAND_ADDITIONAL_ARGS=\"", "\"");
    check_options(&options, plan);
}

#[cfg(test)]
pub(super) fn check_options(options: &str, plan: &Plan) {
    use super::tests::word;
    for (option, wanted) in [
        ("--vr_dpdk_rx_ring_sz ", plan.rx_ring_size),
        ("--vr_dpdk_tx_ring_sz ", plan.tx_ring_size),
        ("--yield_option ", u16::from(plan.idle != Idle::Poll)),
    ] {
        assert_eq!(word(options, option), wanted.to_string(), "{option}");
    }
    assert!(!options.contains("mask"), "{options}");
}
