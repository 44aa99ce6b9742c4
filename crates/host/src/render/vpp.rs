// SPDX-License-Identifier: Apache-2.0
//! Renders sections of VPP's startup.conf (VPP documentation: configuration/reference).

use crate::partition::{Plan, Role};

pub(super) fn render(plan: &Plan) -> String {
    let main = super::cpus::control(plan)
        .first()
        .map_or(String::new(), |cpu| format!("  main-core {cpu}\n"));
    let mut text = format!(
        "cpu {{\n{main}  corelist-workers {}\n}}\n",
        plan.cpus(Role::Forwarding)
    );
    if !plan.huge_pages.is_empty() {
        text += "buffers {\n  page-size default-hugepage\n}\n";
    }
    if plan.nics.is_empty() {
        return text;
    }
    text += "dpdk {\n";
    for nic in &plan.nics {
        let workers: Vec<String> = nic
            .queues
            .iter()
            .filter_map(|queue| {
                // VPP numbers workers from 0 in the order of their CPUs.
                plan.cpus(Role::Forwarding)
                    .iter()
                    .position(|cpu| cpu == queue.cpu)
                    .map(|at| at.to_string())
            })
            .collect();
        text += &format!(
            "  dev {} {{\n    num-rx-queues {}\n    num-rx-desc {}\n    num-tx-desc {}\n    workers {}\n  }}\n",
            nic.pci_address,
            nic.queues.len(),
            plan.rx_ring_size,
            plan.tx_ring_size,
            workers.join(",")
        );
    }
    text + "}\n"
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{cpus, value};
    assert_eq!(
        cpus(&value(text, "  corelist-workers ")),
        plan.cpus(Role::Forwarding)
    );
    assert!(
        super::cpus::control(plan)
            .contains(crate::CpuId(value(text, "  main-core ").parse().unwrap()))
    );
    assert_eq!(text.matches('{').count(), text.matches('}').count());
    // Each device with the CPUs of its workers, which are numbered in the order of the list above.
    let forwarding: Vec<_> = plan.cpus(Role::Forwarding).iter().collect();
    let lines = text.lines().map(str::trim);
    let devices = lines.clone().filter_map(|line| line.strip_prefix("dev "));
    let workers = lines.filter_map(|line| line.strip_prefix("workers "));
    let devices: Vec<(&str, Vec<_>)> = devices
        .zip(workers)
        .map(|(device, workers)| {
            let workers = workers
                .split(',')
                .map(|at| forwarding[at.parse::<usize>().unwrap()]);
            (device.split(' ').next().unwrap(), workers.collect())
        })
        .collect();
    let planned: Vec<(&str, Vec<_>)> = plan
        .nics
        .iter()
        .map(|nic| {
            (
                nic.pci_address.as_str(),
                nic.queues.iter().map(|queue| queue.cpu).collect(),
            )
        })
        .collect();
    assert_eq!(devices, planned);
}
