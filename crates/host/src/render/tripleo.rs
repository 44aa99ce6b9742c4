// SPDX-License-Identifier: Apache-2.0
//! Renders TripleO's environment for a role: Open vSwitch with DPDK (tripleo-heat-templates: ovs-dpdk-permissions,
//! kernel-boot-params) or Contrail's vRouter with DPDK (contrail-tripleo-heat-templates: contrail-services.yaml).

use crate::partition::{DataPlaneRequest, Plan, Role};

pub(super) fn render(plan: &Plan) -> String {
    let (role, own) = match plan.data_plane {
        DataPlaneRequest::Ovs => ("ComputeOvsDpdkParameters", open_vswitch(plan)),
        DataPlaneRequest::Vrouter => ("ContrailDpdkParameters", vrouter(plan)),
    };
    format!(
        "parameter_defaults:
  {role}:
    KernelArgs: \"{}\"
    TunedProfileName: \"cpu-partitioning\"
    IsolCpusList: \"{}\"
    NovaVcpuPinSet: \"{}\"
    NovaComputeCpuDedicatedSet: \"{}\"
    NovaComputeCpuSharedSet: \"{}\"
{own}",
        plan.command_line(),
        plan.isolated(),
        plan.cpus(Role::Guest),
        plan.cpus(Role::Guest),
        plan.cpus(Role::Host),
    )
}

fn open_vswitch(plan: &Plan) -> String {
    format!(
        "    OvsPmdCoreList: \"{}\"
    OvsDpdkCoreList: \"{}\"
    OvsDpdkSocketMemory: \"{}\"
",
        plan.cpus(Role::Forwarding),
        super::cpus::control(plan),
        super::memory::socket_memory(plan),
    )
}

/// Renders the parameters of a vRouter. Its forwarding CPUs are in the template of its interface (`contrail_vrouter_dpdk`),
/// which becomes `CPU_LIST` of ifcfg-vhost0.
fn vrouter(plan: &Plan) -> String {
    format!(
        "    # cpu_list of the interface contrail_vrouter_dpdk, in the role's network template: \"{}\"
    ContrailDpdkOptions: \"{}\"
    ContrailSettings:
      SERVICE_CORE_MASK: \"{}\"
      DPDK_CTRL_THREAD_MASK: \"{}\"
",
        plan.cpus(Role::Forwarding).to_mask(),
        super::vrouter::options(plan),
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
    assert_eq!(
        maybe_cpus(&value("NovaComputeCpuDedicatedSet")),
        plan.cpus(Role::Guest)
    );
    super::kernel_cmdline::check(&value("KernelArgs"), plan);
    let is_vrouter = plan.data_plane == DataPlaneRequest::Vrouter;
    assert_eq!(text.contains("  ContrailDpdkParameters:\n"), is_vrouter);
    assert_eq!(text.contains("Ovs"), !is_vrouter);
    if is_vrouter {
        assert_eq!(
            cpus(&value("  SERVICE_CORE_MASK")),
            super::cpus::service(plan)
        );
        assert_eq!(
            cpus(&value("  DPDK_CTRL_THREAD_MASK")),
            super::cpus::control(plan)
        );
        assert_eq!(
            cpus(&between(text, "network template: \"", "\"")),
            plan.cpus(Role::Forwarding)
        );
        super::vrouter::check_options(&value("ContrailDpdkOptions"), plan);
        return;
    }
    assert_eq!(cpus(&value("OvsPmdCoreList")), plan.cpus(Role::Forwarding));
    assert_eq!(cpus(&value("OvsDpdkCoreList")), super::cpus::control(plan));
    assert_eq!(
        value("OvsDpdkSocketMemory"),
        super::memory::socket_memory(plan)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vrouter_gets_contrail_s_parameters_and_ovs_its_own() {
        let mut plan = super::super::tests::sample();
        check(&render(&plan), &plan);
        plan.data_plane = DataPlaneRequest::Vrouter;
        let text = render(&plan);
        check(&text, &plan);
        assert!(text.contains("ContrailSettings:\n"), "{text}");
    }
}
