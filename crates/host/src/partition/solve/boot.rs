// SPDX-License-Identifier: Apache-2.0
//! Kernel command line parameters (kernel documentation: admin-guide/kernel-parameters.rst).

use crate::inventory::Vendor;

use super::super::plan::{BootParameter, Plan};
use super::Attempt;

/// Smallest page size, KiB, that is reserved at boot: later, memory is too fragmented for pages of this size.
const AT_BOOT_KIB: u64 = 1 << 20;
/// First kernel release that supports `hugepages=NODE:COUNT,…`.
const PAGES_BY_NODE: (u32, u32) = (5, 16);

/// Boot parameters in their order on the kernel command line.
#[derive(Default)]
struct Parameters(Vec<BootParameter>);

impl Parameters {
    fn add(&mut self, name: &str, value: Option<String>, reason: &str) {
        self.0.push(BootParameter {
            name: name.to_owned(),
            value,
            reason: reason.to_owned(),
        });
    }
}

impl Attempt<'_> {
    /// Adds the boot parameters to the plan.
    pub(super) fn boot_parameters(&mut self, plan: &mut Plan) {
        let mut boot = Parameters::default();
        self.add_isolation(plan, &mut boot);
        self.add_pstate(&mut boot);
        self.add_huge_pages(plan, &mut boot);
        self.add_iommu(plan, &mut boot);
        plan.boot = boot.0;
        self.explain_boot(plan);
    }

    /// Adds the parameters that isolate CPUs, unless the request disables them.
    fn add_isolation(&self, plan: &Plan, boot: &mut Parameters) {
        let isolated = plan.isolated();
        if self.request.machine.boot_isolation == Some(false) || isolated.is_empty() {
            return;
        }
        let list = isolated.to_string();
        boot.add(
            "isolcpus",
            Some(format!("managed_irq,domain,{list}")),
            "keeps tasks and managed interrupts off the isolated CPUs",
        );
        boot.add(
            "nohz_full",
            Some(list.clone()),
            "stops the tick while only one thread runs on the CPU",
        );
        boot.add("rcu_nocbs", Some(list), "runs RCU callbacks on other CPUs");
        boot.add(
            "irqaffinity",
            Some(plan.housekeeping.to_string()),
            "sends interrupts to the housekeeping CPUs from boot on",
        );
        boot.add(
            "skew_tick",
            Some("1".to_owned()),
            "staggers the ticks of different CPUs, which avoids lock contention",
        );
        boot.add(
            "nosoftlockup",
            None,
            "disables the soft lockup watchdog, which a poll loop would trigger",
        );
    }

    /// Adds the mode of the driver intel_pstate in which it obeys a governor, unless cores have high priority.
    fn add_pstate(&self, boot: &mut Parameters) {
        let has_pstate = self
            .machine
            .cpus
            .iter()
            .filter_map(|place| place.frequency.as_ref())
            .any(|frequency| frequency.driver.as_deref() == Some("intel_pstate"));
        if has_pstate && self.machine.high_priority().is_empty() {
            boot.add(
                "intel_pstate",
                Some("passive".to_owned()),
                "makes the driver obey the configured governor",
            );
        }
    }

    /// Adds the huge pages that must be reserved at boot.
    fn add_huge_pages(&self, plan: &Plan, boot: &mut Parameters) {
        let large: Vec<_> = plan
            .huge_pages
            .iter()
            .filter(|pool| pool.page_kib >= AT_BOOT_KIB)
            .collect();
        if let Some(first) = large.first() {
            let size = format!("{}G", first.page_kib >> 20);
            boot.add(
                "default_hugepagesz",
                Some(size.clone()),
                "sets the page size of hugetlbfs mounts without a size",
            );
            boot.add(
                "hugepagesz",
                Some(size),
                "sets the page size for the next parameter",
            );
            boot.add(
                "hugepages",
                Some(self.boot_pages(&large)),
                "reserves pages before memory fragments",
            );
        }
    }

    /// Enables the IOMMU for devices of user-space drivers, by the vendor of the CPU.
    fn add_iommu(&self, plan: &Plan, boot: &mut Parameters) {
        const WHY: &str =
            "restricts user-space devices to their own memory without slowing kernel devices";
        let has_devices = !plan.nics.is_empty();
        if !self.request.machine.iommu.unwrap_or(has_devices)
            || self.machine.is_virtual == Some(true)
        {
            return;
        }
        match self.machine.vendor() {
            Vendor::Intel => {
                boot.add("intel_iommu", Some("on".to_owned()), WHY);
                boot.add("iommu", Some("pt".to_owned()), WHY);
            }
            Vendor::Amd => boot.add("iommu", Some("pt".to_owned()), WHY),
            Vendor::Arm => boot.add("iommu.passthrough", Some("1".to_owned()), WHY),
            Vendor::Other => {}
        }
    }

    /// Returns the page counts by node if the kernel supports this, or else the total, which the kernel spreads evenly.
    fn boot_pages(&self, pools: &[&super::super::plan::HugePages]) -> String {
        let release = self.machine.kernel_release.as_deref().unwrap_or_default();
        let mut parts = release
            .split('.')
            .map(|part| part.parse::<u32>().unwrap_or(0));
        let release = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        let are_known = pools.iter().all(|pool| pool.node.is_some());
        if are_known && self.cores.nodes.len() > 1 && release >= PAGES_BY_NODE {
            let counts: Vec<String> = pools
                .iter()
                .filter_map(|pool| Some(format!("{}:{}", pool.node?, pool.pages)))
                .collect();
            return counts.join(",");
        }
        let most = pools.iter().map(|pool| pool.pages).max().unwrap_or(0);
        let nodes = if are_known {
            self.machine.nodes.len().max(1) as u64
        } else {
            1
        };
        // The kernel spreads the total evenly, so every node gets the count of the node that needs most.
        most.saturating_mul(nodes).to_string()
    }

    fn explain_boot(&mut self, plan: &Plan) {
        if self.request.machine.boot_isolation == Some(false) {
            self.reason("boot", "no isolation on the kernel command line, as requested: CPU sets keep other processes off, but not the kernel's own work");
        }
        let reported: Vec<(String, String)> = plan
            .boot
            .iter()
            .map(|parameter| (parameter.to_string(), parameter.reason.clone()))
            .collect();
        for (parameter, reason) in reported {
            self.reason("boot", format!("{parameter}: {reason}"));
        }
    }
}
