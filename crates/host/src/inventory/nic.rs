// SPDX-License-Identifier: Apache-2.0
//! Network controllers on PCI (kernel documentation: ABI/testing/sysfs-bus-pci, PCI/pci-iov-howto.rst).

use serde::{Deserialize, Serialize};

use crate::CpuList;
use crate::tree::Tree;

/// One network controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its address (`0000:3b:00.0`).
    pub pci_address: String,
    /// Its NUMA node; none where the firmware does not tell.
    pub node: Option<u32>,
    /// CPUs near it.
    pub local_cpus: Option<CpuList>,
    /// Driver that has it.
    pub driver: Option<String>,
    /// Its IOMMU group.
    pub iommu_group: Option<u32>,
    /// Who made it (`0x8086`).
    pub vendor_id: Option<String>,
    /// What it is (`0x1592`).
    pub device_id: Option<String>,
    /// Names of its interfaces in the kernel.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// Interrupts that it has (`msi_irqs`).
    #[serde(default)]
    pub irqs: Vec<u32>,
    /// How many virtual functions it can have; none without SR-IOV.
    pub functions_max: Option<u32>,
    /// How many it has (`sriov_numvfs`).
    pub functions: Option<u32>,
    /// Addresses of its virtual functions, in their order.
    #[serde(default)]
    pub function_addresses: Vec<String>,
    /// Address of the physical function that this is a virtual function of.
    pub physical_function: Option<String>,
}

/// Where the kernel lists PCI devices.
const DEVICES: &str = "sys/bus/pci/devices";
/// PCI class of network controllers, the first octet of three.
const NETWORK: &str = "0x02";

/// Every network controller, by address.
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
    // A virtio device's interface is one directory further down.
    for bus in tree.names(&at(""), |name| name.starts_with("virtio")) {
        interfaces.extend(tree.names(&at(&format!("{bus}/net")), |_| true));
    }
    Nic {
        // -1 is the kernel's word for not known.
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
