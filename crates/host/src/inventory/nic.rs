// SPDX-License-Identifier: Apache-2.0
//! PCI network cards (kernel documentation: ABI/testing/sysfs-bus-pci, PCI/pci-iov-howto.rst).

use std::ops::RangeInclusive;

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
    /// The other devices of this group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_devices: Vec<GroupDevice>,
    /// PCI address of the bridge on the root bus that the card is behind. `None` for a card on the root bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_port: Option<String>,
    /// PCI vendor ID (`0x8086`).
    pub vendor_id: Option<String>,
    /// PCI device ID (`0x1592`).
    pub device_id: Option<String>,
    /// Names of its kernel interfaces.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// States of the links of these interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<NicLink>,
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

impl Nic {
    /// Returns the numbers of virtual functions that the card has and can have, as text. `None` without SR-IOV.
    pub(crate) fn functions_text(&self) -> Option<String> {
        let most = self.functions_max?;
        let now = self.functions.map(|now| now.to_string());
        let now = now.as_deref().unwrap_or("?");
        Some(format!("{now} of {most} functions"))
    }
}

/// Another device in the IOMMU group of a network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDevice {
    /// PCI address.
    pub pci_address: String,
    /// Bound driver.
    pub driver: Option<String>,
}

/// State of the link of a kernel interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicLink {
    /// Name of the interface.
    pub interface: String,
    /// True if the interface is set up (`IFF_UP` in `flags`).
    pub is_up: Option<bool>,
    /// True if it has a carrier. The kernel reports it only if the interface is set up.
    pub has_carrier: Option<bool>,
}

/// Directory of PCI devices in sysfs.
const DEVICES: &str = "sys/bus/pci/devices";
/// Directory of IOMMU groups in sysfs.
const GROUPS: &str = "sys/kernel/iommu_groups";
/// Most devices of a group that are listed.
const GROUP_DEVICES_MAX: usize = 64;
/// Flag of an interface that is set up (linux/if.h).
const IFF_UP: u32 = 1;
/// PCI class of network controllers (first of three octets).
const NETWORK: &str = "0x02";
/// PCI class of bridges to other PCI buses (first two of three octets).
const BRIDGE: &str = "0x0604";

/// A bridge, and the buses behind it.
struct Bridge {
    address: String,
    buses: RangeInclusive<u8>,
}

impl Bridge {
    fn read(tree: &Tree, address: String) -> Option<Self> {
        let bus = |file: &str| tree.value::<u8>(&format!("{DEVICES}/{address}/{file}"));
        let buses = bus("secondary_bus_number")?..=bus("subordinate_bus_number")?;
        Some(Self { address, buses })
    }

    /// Returns true if a device is on one of the buses behind it, directly or behind other bridges.
    fn leads_to(&self, address: &str) -> bool {
        match (place(&self.address), place(address)) {
            (Some((domain, _)), Some((other, bus))) => domain == other && self.buses.contains(&bus),
            _ => false,
        }
    }
}

/// Returns the domain and the bus of a PCI address.
fn place(address: &str) -> Option<(&str, u8)> {
    let (domain, rest) = address.split_once(':')?;
    let (bus, _) = rest.split_once(':')?;
    Some((domain, u8::from_str_radix(bus, 16).ok()?))
}

/// Returns the bridge to a device that is behind no other bridge.
fn root_port(bridges: &[Bridge], address: &str) -> Option<String> {
    let is_first = |bridge: &Bridge| !bridges.iter().any(|one| one.leads_to(&bridge.address));
    let mut leading = bridges.iter().filter(|bridge| bridge.leads_to(address));
    let found = leading.find(|bridge| is_first(bridge))?;
    Some(found.address.clone())
}

/// Returns all network cards, sorted by address.
pub(super) fn nics(tree: &Tree) -> Vec<Nic> {
    let is_network = |name: &str| {
        tree.text(&format!("{DEVICES}/{name}/class"))
            .is_some_and(|class| class.starts_with(NETWORK))
    };
    let is_bridge = |name: &str| {
        tree.text(&format!("{DEVICES}/{name}/class"))
            .is_some_and(|class| class.starts_with(BRIDGE))
    };
    let bridges = tree.names(DEVICES, is_bridge).into_iter();
    let bridges: Vec<Bridge> = bridges.filter_map(|one| Bridge::read(tree, one)).collect();
    let addresses = tree.names(DEVICES, is_network);
    addresses
        .into_iter()
        .map(|address| nic(tree, &bridges, address))
        .collect()
}

fn nic(tree: &Tree, bridges: &[Bridge], address: String) -> Nic {
    let at = |file: &str| format!("{DEVICES}/{address}/{file}");
    let functions_max = tree.value::<u32>(&at("sriov_totalvfs"));
    let mut directories = vec![at("net")];
    // The interface of a virtio device is one directory deeper.
    let buses = tree.names(&at(""), |name| name.starts_with("virtio"));
    directories.extend(buses.iter().map(|bus| at(&format!("{bus}/net"))));
    let mut interfaces = Vec::new();
    let mut links = Vec::new();
    for directory in directories {
        let names = tree.names(&directory, |_| true);
        links.extend(names.iter().filter_map(|name| link(tree, &directory, name)));
        interfaces.extend(names);
    }
    let iommu_group = tree
        .link_name(&at("iommu_group"))
        .and_then(|group| group.parse().ok());
    Nic {
        // The kernel reports -1 for an unknown node.
        node: tree
            .value::<i32>(&at("numa_node"))
            .and_then(|node| u32::try_from(node).ok()),
        local_cpus: tree.value(&at("local_cpulist")),
        driver: tree.link_name(&at("driver")),
        group_devices: iommu_group.map_or_else(Vec::new, |group| others(tree, group, &address)),
        iommu_group,
        vendor_id: tree.text(&at("vendor")),
        device_id: tree.text(&at("device")),
        interfaces,
        links,
        irqs: tree.numbered(&at("msi_irqs"), ""),
        functions_max,
        functions: tree.value(&at("sriov_numvfs")),
        function_addresses: (0..functions_max.unwrap_or(0))
            .map_while(|function| tree.link_name(&at(&format!("virtfn{function}"))))
            .collect(),
        physical_function: tree.link_name(&at("physfn")),
        root_port: root_port(bridges, &address),
        pci_address: address,
    }
}

/// Returns the state of an interface; `None` if the kernel reports nothing about it.
fn link(tree: &Tree, directory: &str, interface: &str) -> Option<NicLink> {
    let flags = tree.text(&format!("{directory}/{interface}/flags"));
    let flags = flags.and_then(|text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    let carrier = tree.value::<u8>(&format!("{directory}/{interface}/carrier"));
    if flags.is_none() && carrier.is_none() {
        return None;
    }
    Some(NicLink {
        interface: interface.to_owned(),
        is_up: flags.map(|flags| flags & IFF_UP != 0),
        has_carrier: carrier.map(|carrier| carrier != 0),
    })
}

/// Returns the devices of an IOMMU group without this one.
fn others(tree: &Tree, group: u32, address: &str) -> Vec<GroupDevice> {
    let devices = tree.names(&format!("{GROUPS}/{group}/devices"), |name| name != address);
    let device = |other: String| GroupDevice {
        driver: tree.link_name(&format!("{DEVICES}/{other}/driver")),
        pci_address: other,
    };
    devices
        .into_iter()
        .take(GROUP_DEVICES_MAX)
        .map(device)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::files::hanging;

    #[test]
    fn a_number_of_functions_that_the_kernel_holds_back_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        let device = hanging::card(root.path());
        fs::write(device.join("class"), "0x020000\n").unwrap();
        fs::write(device.join("sriov_totalvfs"), "8\n").unwrap();
        let fifo = device.join("sriov_numvfs");
        let tree = Tree::new(root.path()).with_timeout(Duration::from_millis(20));
        let found = nics(&tree);
        let numbers = (found[0].functions_max, found[0].functions);
        assert_eq!(numbers, (Some(8), None));
        let text = found[0].functions_text();
        assert_eq!(text.as_deref(), Some("? of 8 functions"));
        // The blocked thread ends.
        fs::write(&fifo, "2\n").unwrap();
        fs::remove_file(&fifo).unwrap();
        fs::write(&fifo, "2\n").unwrap();
        let text = nics(&Tree::new(root.path()))[0].functions_text();
        assert_eq!(text.as_deref(), Some("2 of 8 functions"));
    }
}
