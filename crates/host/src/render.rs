// SPDX-License-Identifier: Apache-2.0
//! Renderers: the plan as configuration for other programs, one module for each program. All output is generated from the
//! plan only, so all programs get consistent settings.

#[cfg(test)]
mod accepted;
mod cpus;
mod file;
mod grub;
mod guest;
mod irqbalance;
mod kernel_cmdline;
mod kubelet;
mod libvirt;
mod memory;
mod nova;
mod ovs;
mod performance_profile;
mod pqos;
mod qemu;
mod quietwire;
mod resctrl;
mod systemd;
mod testpmd;
#[cfg(test)]
mod tests;
mod tripleo;
mod tuned;
mod vpp;
mod vrouter;

use std::str::FromStr;

use crate::partition::Plan;

pub use file::Rendered;

/// Programs for which the plan can be rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The kernel's command line.
    KernelCmdline,
    /// GRUB's defaults.
    Grub,
    /// tuned's profile cpu-partitioning.
    Tuned,
    /// systemd.
    Systemd,
    /// irqbalance.
    Irqbalance,
    /// Open vSwitch with DPDK.
    Ovs,
    /// VPP.
    Vpp,
    /// dpdk-testpmd.
    Testpmd,
    /// `quietwire switch run`.
    Quietwire,
    /// Contrail's vRouter with DPDK.
    Vrouter,
    /// libvirt's domains.
    Libvirt,
    /// QEMU's command line.
    Qemu,
    /// Kubernetes' kubelet.
    Kubelet,
    /// TripleO's environment.
    Tripleo,
    /// OpenShift's node tuning operator.
    PerformanceProfile,
    /// resctrl's groups.
    Resctrl,
    /// pqos of intel-cmt-cat.
    Pqos,
    /// OpenStack's Nova.
    Nova,
}

/// Unknown name of a renderer.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown renderer '{0}' (available: {all})", all = names())]
pub struct UnknownTarget(String);

fn names() -> String {
    Target::ALL.map(Target::name).join(", ")
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 18] = [
        Self::KernelCmdline,
        Self::Grub,
        Self::Tuned,
        Self::Systemd,
        Self::Irqbalance,
        Self::Ovs,
        Self::Vpp,
        Self::Testpmd,
        Self::Quietwire,
        Self::Vrouter,
        Self::Libvirt,
        Self::Qemu,
        Self::Kubelet,
        Self::Tripleo,
        Self::PerformanceProfile,
        Self::Resctrl,
        Self::Pqos,
        Self::Nova,
    ];

    /// Returns the target's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KernelCmdline => "kernel-cmdline",
            Self::Grub => "grub",
            Self::Tuned => "tuned",
            Self::Systemd => "systemd",
            Self::Irqbalance => "irqbalance",
            Self::Ovs => "ovs",
            Self::Vpp => "vpp",
            Self::Testpmd => "testpmd",
            Self::Quietwire => "quietwire",
            Self::Vrouter => "vrouter",
            Self::Libvirt => "libvirt",
            Self::Qemu => "qemu",
            Self::Kubelet => "kubelet",
            Self::Tripleo => "tripleo",
            Self::PerformanceProfile => "performance-profile",
            Self::Resctrl => "resctrl",
            Self::Pqos => "pqos",
            Self::Nova => "nova",
        }
    }

    /// Renders the files for the target: one file, or for libvirt and QEMU one for each guest.
    #[must_use]
    pub fn render(self, plan: &Plan) -> Vec<Rendered> {
        let (path, text) = match self {
            Self::Libvirt => return libvirt::render(plan),
            Self::Qemu => return qemu::render(plan),
            Self::KernelCmdline => ("/etc/kernel/cmdline", kernel_cmdline::render(plan)),
            Self::Grub => ("/etc/default/grub.d/90-quietwire.cfg", grub::render(plan)),
            Self::Tuned => (
                "/etc/tuned/cpu-partitioning-variables.conf",
                tuned::render(plan),
            ),
            Self::Systemd => (
                "/etc/systemd/system.conf.d/90-quietwire-systemd.conf",
                systemd::render(plan),
            ),
            Self::Irqbalance => ("/etc/default/irqbalance", irqbalance::render(plan)),
            Self::Ovs => ("ovs.sh", ovs::render(plan)),
            Self::Vpp => ("/etc/vpp/startup.conf", vpp::render(plan)),
            Self::Testpmd => ("testpmd.sh", testpmd::render(plan)),
            Self::Quietwire => ("switch.toml", quietwire::render(plan)),
            Self::Vrouter => ("/etc/contrail/common_vrouter.env", vrouter::render(plan)),
            Self::Kubelet => (
                "/etc/kubernetes/kubelet.conf.d/90-quietwire-kubelet.conf",
                kubelet::render(plan),
            ),
            Self::Tripleo => ("quietwire-environment.yaml", tripleo::render(plan)),
            Self::PerformanceProfile => (
                "performance-profile.yaml",
                performance_profile::render(plan),
            ),
            Self::Resctrl => ("resctrl.sh", resctrl::render(plan)),
            Self::Pqos => ("pqos.sh", pqos::render(plan)),
            Self::Nova => (
                "/etc/nova/nova.conf.d/90-quietwire-nova.conf",
                nova::render(plan),
            ),
        };
        vec![Rendered {
            path: path.to_owned(),
            text,
        }]
    }
}

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(name: &str) -> Result<Self, UnknownTarget> {
        let found = Self::ALL.into_iter().find(|target| target.name() == name);
        found.ok_or_else(|| UnknownTarget(name.to_owned()))
    }
}
