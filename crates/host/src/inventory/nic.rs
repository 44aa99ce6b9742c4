// SPDX-License-Identifier: Apache-2.0
//! PCI network cards (kernel documentation: ABI/testing/sysfs-bus-pci, PCI/pci-iov-howto.rst).

use serde::{Deserialize, Serialize};

use crate::CpuList;
use crate::tree::Tree;

/// One network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// PCI address (`0000:3b:00.0`).
    pub pci_address: String,
    /// NUMA node. `None` if the firmware does not report it.
    pub node: Option<u32>,
    /// CPUs on the card's node (`local_cpulist`).
    pub local_cpus: Option<CpuList>,
    /// Bound driver.
    pub driver: Option<String>,
    /// IOMMU group.
    pub iommu_group: Option<u32>,
    /// PCI vendor ID (`0x8086`).
    pub vendor_id: Option<String>,
    /// PCI device ID (`0x1592`).
    pub device_id: Option<String>,
    /// Names of its kernel interfaces.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// Its interrupts (`msi_irqs`).
    #[serde(default)]
    pub irqs: Vec<u32>,
    /// Maximum number of virtual functions. `None` without SR-IOV.
    pub functions_max: Option<u32>,
    /// Number of virtual functions (`sriov_numvfs`).
    pub functions: Option<u32>,
    /// Addresses of its virtual functions, in order.
    #[serde(default)]
    pub function_addresses: Vec<String>,
    /// Address of its physical function, if the card is a virtual function.
    pub physical_function: Option<String>,
}

/// Directory of PCI devices in sysfs.
const DEVICES: &str = "sys/bus/pci/devices";
/// PCI class of network controllers (first of three octets).
const NETWORK: &str = "0x02";

/// Returns all network cards, sorted by address.
pub(super) fn nics(tree: &Tree) -> Vec<Nic> {
    let is_network = |name: &str| {
        tree.text(&format!("{DEVICES}/{name}/class"))
            .is_some_and(|class| class.starts_with(NETWORK))
    };
    let addresses = tree.names(DEVICES, is_network);
    addresses
        .into_iter()
        .map(|address| nic(tree, address))
        .collect()
}

fn nic(tree: &Tree, address: String) -> Nic {
    let at = |file: &str| format!("{DEVICES}/{address}/{file}");
    let functions_max = tree.value::<u32>(&at("sriov_totalvfs"));
    let mut interfaces = tree.names(&at("net"), |_| true);
    // The interface of a virtio device is one directory deeper.
    for bus in tree.names(&at(""), |name| name.starts_with("virtio")) {
        interfaces.extend(tree.names(&at(&format!("{bus}/net")), |_| true));
    }
    Nic {
        // The kernel reports -1 for an unknown node.
        node: tree
            .value::<i32>(&at("numa_node"))
            .and_then(|node| u32::try_from(node).ok()),
        local_cpus: tree.value(&at("local_cpulist")),
        driver: tree.link_name(&at("driver")),
        iommu_group: tree
            .link_name(&at("iommu_group"))
            .and_then(|group| group.parse().ok()),
        vendor_id: tree.text(&at("vendor")),
        device_id: tree.text(&at("device")),
        interfaces,
        irqs: tree.numbered(&at("msi_irqs"), ""),
        functions_max,
        functions: tree.value(&at("sriov_numvfs")),
        function_addresses: (0..functions_max.unwrap_or(0))
            .map_while(|function| tree.link_name(&at(&format!("virtfn{function}"))))
            .collect(),
        physical_function: tree.link_name(&at("physfn")),
        pci_address: address,
    }
}
