// SPDX-License-Identifier: Apache-2.0
//! TripleO's environment for a role with OVS-DPDK or vRouter (tripleo-heat-templates: ovs-dpdk-permissions,
//! kernel-boot-params; contrail-tripleo-heat-templates).

use crate::partition::{Plan, Role};

pub(super) fn render(plan: &Plan) -> String {
    format!(
        "parameter_defaults:
  ComputeOvsDpdkParameters:
    KernelArgs: \"{}\"
    TunedProfileName: \"cpu-partitioning\"
    IsolCpusList: \"{}\"
    NovaVcpuPinSet: \"{}\"
    NovaComputeCpuDedicatedSet: \"{}\"
    NovaComputeCpuSharedSet: \"{}\"
    OvsPmdCoreList: \"{}\"
    OvsDpdkCoreList: \"{}\"
    OvsDpdkSocketMemory: \"{}\"
    SERVICE_CORE_MASK: \"{}\"
    DPDK_CTRL_THREAD_MASK: \"{}\"
",
        plan.command_line(),
        plan.isolated(),
        plan.cpus(Role::Guest),
        plan.cpus(Role::Guest),
        plan.cpus(Role::Host),
        plan.cpus(Role::Forwarding),
        super::cpus::control(plan),
        super::memory::socket_memory(plan),
        super::cpus::service(plan).to_mask(),
        super::cpus::control(plan).to_mask()
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{between, cpus, maybe_cpus};
    let value = |key: &str| between(text, &format!("    {key}: \""), "\"");
    assert_eq!(cpus(&value("IsolCpusList")), plan.isolated());
    assert_eq!(maybe_cpus(&value("NovaVcpuPinSet")), plan.cpus(Role::Guest));
    assert_eq!(
        cpus(&value("NovaComputeCpuSharedSet")),
        plan.cpus(Role::Host)
    );
    assert_eq!(cpus(&value("OvsPmdCoreList")), plan.cpus(Role::Forwarding));
    assert_eq!(
        maybe_cpus(&value("NovaComputeCpuDedicatedSet")),
        plan.cpus(Role::Guest)
    );
    assert_eq!(cpus(&value("OvsDpdkCoreList")), super::cpus::control(plan));
    assert_eq!(
        value("OvsDpdkSocketMemory"),
        super::memory::socket_memory(plan)
    );
    assert_eq!(
        cpus(&value("SERVICE_CORE_MASK")),
        super::cpus::service(plan)
    );
    assert_eq!(
        cpus(&value("DPDK_CTRL_THREAD_MASK")),
        super::cpus::control(plan)
    );
    super::kernel_cmdline::check(&value("KernelArgs"), plan);
}
