// SPDX-License-Identifier: Apache-2.0
//! Contrail's vRouter with DPDK. Without a service core mask its service threads float over the forwarding CPUs.

use crate::partition::{Idle, Plan, Role};

pub(super) fn render(plan: &Plan) -> String {
    let yields = u8::from(plan.idle == Idle::Yield);
    format!(
        "CPU_CORE_MASK={}\nDPDK_COMMAND_ADDITIONAL_ARGS=\"--service_core_mask {} --dpdk_ctrl_thread_mask {} --vr_dpdk_rx_ring_sz {} --vr_dpdk_tx_ring_sz {} --yield_option {yields}\"\n",
        plan.cpus(Role::Forwarding).to_mask(),
        super::cpus::service(plan).to_mask(),
        super::cpus::control(plan).to_mask(),
        plan.rx_ring_size,
        plan.tx_ring_size
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{cpus, word};
    assert_eq!(
        cpus(&word(text, "CPU_CORE_MASK=")),
        plan.cpus(Role::Forwarding)
    );
    assert_eq!(
        cpus(&word(text, "--service_core_mask ")),
        super::cpus::service(plan)
    );
    assert_eq!(
        cpus(&word(text, "--dpdk_ctrl_thread_mask ")),
        super::cpus::control(plan)
    );
    assert_eq!(
        word(text, "--vr_dpdk_rx_ring_sz "),
        plan.rx_ring_size.to_string()
    );
    assert_eq!(
        word(text, "--vr_dpdk_tx_ring_sz "),
        plan.tx_ring_size.to_string()
    );
    let yields = u8::from(plan.idle == Idle::Yield);
    assert_eq!(word(text, "--yield_option "), yields.to_string());
}
