// SPDX-License-Identifier: Apache-2.0
//! Parameters of the kernel's command line (kernel documentation: admin-guide/kernel-parameters.rst).

use crate::inventory::Vendor;

use super::super::plan::{BootParameter, Plan};
use super::Attempt;

/// Pages of this size and more cannot be had reliably once memory is in pieces: they are reserved at boot, KiB.
const AT_BOOT_KIB: u64 = 1 << 20;
/// `hugepages=NODE:COUNT,…` is known from this release on.
const PAGES_BY_NODE: (u32, u32) = (5, 16);

impl Attempt<'_> {
    /// Puts the parameters together.
    pub(super) fn boot_parameters(&mut self, plan: &mut Plan) {
        let mut boot = Vec::new();
        let mut add = |name: &str, value: Option<String>, why: &str| {
            boot.push(BootParameter {
                name: name.to_owned(),
                value,
                why: why.to_owned(),
            });
        };
        let isolated = plan.isolated();
        if self.wishes.machine.boot_isolation != Some(false) && !isolated.is_empty() {
            let list = isolated.to_string();
            add(
                "isolcpus",
                Some(format!("managed_irq,domain,{list}")),
                "the scheduler puts nothing on them, nor do drivers that choose CPUs for interrupts themselves",
            );
            add(
                "nohz_full",
                Some(list.clone()),
                "no tick while one thread runs",
            );
            add("rcu_nocbs", Some(list), "RCU's callbacks run elsewhere");
            add(
                "irqaffinity",
                Some(plan.housekeeping.to_string()),
                "interrupts go to the host's CPUs from the start",
            );
            add(
                "skew_tick",
                Some("1".to_owned()),
                "ticks of different CPUs do not meet at one lock",
            );
            add(
                "nosoftlockup",
                None,
                "no watchdog looks at CPUs that a poll loop has for ever",
            );
        }
        let has_pstate = self
            .machine
            .cpus
            .iter()
            .filter_map(|place| place.frequency.as_ref())
            .any(|frequency| frequency.driver.as_deref() == Some("intel_pstate"));
        if has_pstate && self.machine.high_priority().is_empty() {
            add(
                "intel_pstate",
                Some("passive".to_owned()),
                "the governor that is set decides, not the driver's own",
            );
        }
        let large: Vec<_> = plan
            .huge_pages
            .iter()
            .filter(|pool| pool.page_kib >= AT_BOOT_KIB)
            .collect();
        if let Some(first) = large.first() {
            let size = format!("{}G", first.page_kib >> 20);
            add(
                "default_hugepagesz",
                Some(size.clone()),
                "mounts without a size are of these pages",
            );
            add(
                "hugepagesz",
                Some(size),
                "the size that the next parameter counts",
            );
            add(
                "hugepages",
                Some(self.boot_pages(&large)),
                "pages so large are only there before memory is in pieces",
            );
        }
        let has_devices = !plan.nics.is_empty();
        if self.wishes.machine.iommu.unwrap_or(has_devices) && self.machine.is_virtual != Some(true)
        {
            const WHY: &str = "devices in user space reach only their own memory, those of the kernel are not slowed";
            match self.machine.vendor() {
                Vendor::Intel => {
                    add("intel_iommu", Some("on".to_owned()), WHY);
                    add("iommu", Some("pt".to_owned()), WHY);
                }
                Vendor::Amd => add("iommu", Some("pt".to_owned()), WHY),
                Vendor::Arm => add("iommu.passthrough", Some("1".to_owned()), WHY),
                Vendor::Other => {}
            }
        }
        plan.boot = boot;
        self.explain_boot(plan);
    }

    /// Counts by node where the kernel knows that; else the sum, which it spreads evenly.
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
        // Spread evenly, every node gets as many as the one that needs most.
        (most * nodes).to_string()
    }

    fn explain_boot(&mut self, plan: &Plan) {
        if self.wishes.machine.boot_isolation == Some(false) {
            self.reason("boot", "no isolation on the command line, as wished: CPU sets alone keep others off, the kernel's own work still comes");
        }
        let told: Vec<(String, String)> = plan
            .boot
            .iter()
            .map(|parameter| (parameter.to_string(), parameter.why.clone()))
            .collect();
        for (parameter, why) in told {
            self.reason("boot", format!("{parameter}: {why}"));
        }
    }
}
