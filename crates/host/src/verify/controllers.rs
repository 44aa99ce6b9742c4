// SPDX-License-Identifier: Apache-2.0
//! Network cards: node, driver, IOMMU group and virtual functions.

use std::fs;

use super::check::{APPLY, Check, UNREADABLE};
use super::machine::Machine;
use crate::CpuList;
use crate::partition::{NicPlan, USER_SPACE_DRIVERS};

const DEVICES: &str = "sys/bus/pci/devices";
/// The user-space driver that requires an IOMMU.
const VFIO: &str = "vfio-pci";

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let nics = machine.plan.nics.iter();
    nics.flat_map(|nic| of_nic(machine, nic)).collect()
}

fn of_nic(machine: &Machine<'_>, nic: &NicPlan) -> Vec<Check> {
    let at = format!("{DEVICES}/{}", nic.pci_address);
    if !machine.path(&at).exists() {
        return vec![Check::new(
            "controller",
            format!("/{at}"),
            "a network card",
            "no such device",
            false,
            "restore the device (echo 1 > /sys/bus/pci/rescan), or make a new plan",
        )];
    }
    let mut checks = vec![node(machine, nic, &at), driver(machine, &at)];
    if let Some(functions) = nic.functions {
        let now = machine.text(&format!("{at}/sriov_numvfs"));
        checks.push(Check::new(
            "functions",
            format!("/{at}/sriov_numvfs"),
            functions.to_string(),
            now.clone().unwrap_or_else(|| UNREADABLE.to_owned()),
            now == Some(functions.to_string()),
            APPLY,
        ));
    }
    checks
}

/// Checks that the CPUs that poll the card are on its node.
fn node(machine: &Machine<'_>, nic: &NicPlan, at: &str) -> Check {
    let files = format!("/{at}/numa_node, local_cpulist");
    let polling: CpuList = nic.queues.iter().map(|queue| queue.cpu).collect();
    let mut expected = format!("polling CPUs {polling} on the card's node");
    // The kernel reports -1 for an unknown node.
    let now = machine.value::<i64>(&format!("{at}/numa_node"));
    let now = now.filter(|node| *node >= 0);
    let planned = nic.node.map(i64::from).filter(|_| now.is_some());
    if let Some(planned) = planned {
        expected += &format!(", node {planned}");
    }
    let Some(local) = machine.value::<CpuList>(&format!("{at}/local_cpulist")) else {
        return Check::unknown("controller-node", files, expected, UNREADABLE);
    };
    let node = now.map_or("node unknown".to_owned(), |node| format!("node {node}"));
    Check::new(
        "controller-node",
        files,
        expected,
        format!("CPUs {local}, {node}"),
        polling.difference(&local).is_empty() && (planned.is_none() || planned == now),
        "poll the card from CPUs of its node, or move it to a slot of the other node; if the slot has changed, make a new plan",
    )
}

fn link(machine: &Machine<'_>, below: &str) -> Option<String> {
    let target = fs::read_link(machine.path(below)).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// Checks the driver. A device with vfio has an IOMMU group. User space drives some devices beside their kernel driver.
fn driver(machine: &Machine<'_>, at: &str) -> Check {
    let driver = link(machine, &format!("{at}/driver"));
    let group = link(machine, &format!("{at}/iommu_group"));
    let name = driver.as_deref().unwrap_or("none");
    let is_fine = driver.is_some() && (name != VFIO || group.is_some());
    let kind = if USER_SPACE_DRIVERS.contains(&name) {
        "user-space driver"
    } else {
        "kernel driver"
    };
    let group = group.map_or("no IOMMU group".to_owned(), |group| {
        format!("IOMMU group {group}")
    });
    Check::new(
        "controller-driver",
        format!("/{at}/driver, iommu_group"),
        "a driver, and an IOMMU group if the driver is vfio-pci",
        format!("{name} ({kind}), {group}"),
        is_fine,
        "bind the card with dpdk-devbind.py; vfio-pci also requires iommu=pt intel_iommu=on on the kernel command line",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::files::hanging;
    use crate::partition::Plan;

    #[test]
    fn a_number_of_functions_that_the_kernel_holds_back_blocks_no_check() {
        let root = tempfile::tempdir().unwrap();
        let fifo = hanging::card(root.path()).join("sriov_numvfs");
        let plan = Plan {
            nics: vec![NicPlan {
                pci_address: "0000:3b:00.0".to_owned(),
                interface: None,
                node: Some(0),
                queues: Vec::new(),
                functions: Some(4),
                mtu: 1500,
            }],
            ..Plan::default()
        };
        let machine = Machine {
            timeout: Duration::from_millis(20),
            ..Machine::read(root.path(), &plan)
        };
        let checks = checks(&machine);
        let of_functions = checks.iter().find(|check| check.name == "functions");
        assert_eq!(of_functions.unwrap().actual, UNREADABLE);
        // The blocked thread ends.
        fs::write(&fifo, "4\n").unwrap();
    }
}
