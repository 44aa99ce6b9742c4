// SPDX-License-Identifier: Apache-2.0
//! The plan in the words of whoever needs it: one file here for each program. All is made from the plan and nothing
//! else, so that no two programs are told different things.

#[cfg(test)]
mod accepted;
mod grub;
mod guest;
mod irqbalance;
mod kernel_cmdline;
mod kubelet;
mod libvirt;
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

use crate::CpuList;
use crate::partition::{Plan, Role};

/// Who the plan can be printed for.
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

/// One file for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Where the program looks for it, or what to call it where there is no such place.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// A name that is no target's.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is nobody the plan can be printed for; there are {all}", all = names())]
pub struct UnknownTarget(String);

fn names() -> String {
    Target::ALL.map(Target::name).join(", ")
}

impl Target {
    /// All of them.
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

    /// Its name on the command line.
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

    /// The files for it: one, or for libvirt and QEMU one for each guest.
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
                "/etc/systemd/system.conf.d/90-quietwire.conf",
                systemd::render(plan),
            ),
            Self::Irqbalance => ("/etc/default/irqbalance", irqbalance::render(plan)),
            Self::Ovs => ("ovs.sh", ovs::render(plan)),
            Self::Vpp => ("/etc/vpp/startup.conf", vpp::render(plan)),
            Self::Testpmd => ("testpmd.sh", testpmd::render(plan)),
            Self::Quietwire => ("switch.toml", quietwire::render(plan)),
            Self::Vrouter => ("/etc/contrail/common_vrouter.env", vrouter::render(plan)),
            Self::Kubelet => (
                "/etc/kubernetes/kubelet.conf.d/90-quietwire.conf",
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
                "/etc/nova/nova.conf.d/90-quietwire.conf",
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

/// CPUs of control threads: their own, or those of service, or of the host.
fn control(plan: &Plan) -> CpuList {
    first_of(plan, &[Role::Control, Role::Service, Role::Host])
}

/// CPUs of service threads: their own, or those of control, or of the host.
fn service(plan: &Plan) -> CpuList {
    first_of(plan, &[Role::Service, Role::Control, Role::Host])
}

fn first_of(plan: &Plan, roles: &[Role]) -> CpuList {
    let lists = roles.iter().map(|role| plan.cpus(*role));
    lists
        .into_iter()
        .find(|cpus| !cpus.is_empty())
        .unwrap_or_default()
}

/// CPUs of every group.
fn all(plan: &Plan) -> CpuList {
    plan.groups
        .iter()
        .flat_map(|group| group.cpus.iter())
        .collect()
}

/// Memory of the data plane by node, MiB, from node 0 on: `1024,0,1024`.
fn socket_memory(plan: &Plan) -> String {
    let last = plan
        .huge_pages
        .iter()
        .map(|pool| pool.node)
        .max()
        .unwrap_or(0);
    let on = |node: u32| {
        let pool = plan.huge_pages.iter().find(|pool| pool.node == node);
        pool.map_or(0, |pool| pool.data_plane_mib).to_string()
    };
    (0..=last).map(on).collect::<Vec<_>>().join(",")
}

/// Size of huge pages as Linux and its users write it: `2M`, `1G`.
fn page_size(page_kib: u64) -> String {
    if page_kib.is_multiple_of(1 << 20) {
        format!("{}G", page_kib >> 20)
    } else if page_kib.is_multiple_of(1 << 10) {
        format!("{}M", page_kib >> 10)
    } else {
        format!("{page_kib}K")
    }
}
