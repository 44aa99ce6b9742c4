// SPDX-License-Identifier: Apache-2.0
//! Network cards with the problems that prevent a port: its driver, its IOMMU group, its link, huge pages on another node. Each problem has
//! the command that solves it.

use crate::inventory::{Inventory, Nic, NicLink, NumaNode};

/// Driver that gives user space a device behind an IOMMU (Documentation/driver-api/vfio.rst).
pub(crate) const VFIO: &str = "vfio-pci";
/// Drivers that give user space a device without protection by an IOMMU.
const UIO: &[&str] = &["uio_pci_generic", "igb_uio"];
/// Drivers of the kernel beside which DPDK's drivers work: the kernel keeps its interface (bifurcated drivers).
const BIFURCATED: &[&str] = &["mlx4_core", "mlx5_core", "mana"];
/// Drivers that may stay in the IOMMU group of a device under vfio: bridges do no DMA.
pub(crate) const HARMLESS: &[&str] = &[VFIO, "pcieport", "pci-stub"];

/// A network card, as reports show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardReport {
    /// PCI address.
    pub pci_address: String,
    /// Interfaces, driver, node, IOMMU group and link, as texts.
    pub facts: Vec<String>,
    /// Problems that prevent a port.
    pub problems: Vec<CardProblem>,
}

/// A problem of a network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardProblem {
    /// The problem, as a clause.
    pub what: String,
    /// The command that solves it, or a text if no command is enough.
    pub remedy: String,
}

/// Reports all network cards of a machine, sorted by address.
#[must_use]
pub fn report(machine: &Inventory) -> Vec<CardReport> {
    let of_card = |nic: &Nic| {
        let problems = [driver(nic), group(nic), link(nic), huge_pages(machine, nic)];
        CardReport {
            pci_address: nic.pci_address.clone(),
            facts: facts(nic),
            problems: problems.into_iter().flatten().collect(),
        }
    };
    machine.nics.iter().map(of_card).collect()
}

fn facts(nic: &Nic) -> Vec<String> {
    let mut facts = nic.interfaces.clone();
    facts.push(match nic.driver.as_deref() {
        None => "no driver".to_owned(),
        Some(name) if BIFURCATED.contains(&name) => format!("{name}, shared with DPDK"),
        Some(name) if is_of_user_space(name) => name.to_owned(),
        Some(name) => format!("{name}, of the kernel"),
    });
    let node = nic.node.map(|node| format!("node {node}"));
    facts.push(node.unwrap_or_else(|| "node unknown".to_owned()));
    facts.extend(nic.iommu_group.map(|group| {
        let others = nic.group_devices.iter();
        let others: Vec<&str> = others.map(|other| other.pci_address.as_str()).collect();
        match others.is_empty() {
            true => format!("IOMMU group {group}"),
            false => format!("IOMMU group {group} with {}", others.join(" ")),
        }
    }));
    facts.extend(nic.root_port.iter().map(|port| format!("root port {port}")));
    facts.extend(nic.functions_text());
    let physical = nic.physical_function.as_ref();
    facts.extend(physical.map(|of| format!("function of {of}")));
    let up = nic
        .links
        .iter()
        .filter(|link| link.has_carrier == Some(true));
    facts.extend(up.map(|link| format!("link of {} up", link.interface)));
    facts
}

fn is_of_user_space(driver: &str) -> bool {
    driver == VFIO || UIO.contains(&driver)
}

/// Returns whether DPDK can use a device with this driver.
pub(crate) fn is_for_dpdk(driver: &str) -> bool {
    is_of_user_space(driver) || BIFURCATED.contains(&driver)
}

fn bind(address: &str) -> String {
    format!("modprobe {VFIO} && dpdk-devbind.py --bind={VFIO} {address}")
}

/// Returns the problem of the card's driver. A driver of the kernel is none: `af-xdp` and `af-packet` ports use its interface.
fn driver(nic: &Nic) -> Option<CardProblem> {
    match nic.driver.as_deref() {
        None => Some(CardProblem {
            what: "has no driver".to_owned(),
            remedy: bind(&nic.pci_address),
        }),
        Some(VFIO) if nic.iommu_group.is_none() => Some(CardProblem {
            what: format!("is bound to {VFIO}, but the machine uses no IOMMU"),
            remedy: "enable VT-d or AMD-Vi in the firmware, and boot with intel_iommu=on iommu=pt on Intel"
                .to_owned(),
        }),
        _ => None,
    }
}

/// Returns the problem of the card's IOMMU group. Only vfio requires a complete group.
fn group(nic: &Nic) -> Option<CardProblem> {
    if nic.driver.as_deref() != Some(VFIO) {
        return None;
    }
    let holds = |driver: &str| !HARMLESS.contains(&driver);
    let others = nic.group_devices.iter();
    let holding: Vec<_> = others
        .filter(|other| other.driver.as_deref().is_some_and(holds))
        .collect();
    if holding.is_empty() {
        return None;
    }
    let names = holding.iter().map(|other| {
        let driver = other.driver.as_deref().unwrap_or_default();
        format!("{} ({driver})", other.pci_address)
    });
    let names: Vec<String> = names.collect();
    let addresses: Vec<&str> = holding
        .iter()
        .map(|other| other.pci_address.as_str())
        .collect();
    Some(CardProblem {
        what: format!(
            "shares IOMMU group {} with {}, but vfio requires a complete group",
            nic.iommu_group.unwrap_or_default(),
            names.join(", ")
        ),
        remedy: format!(
            "dpdk-devbind.py --bind={VFIO} {} (the kernel loses these devices; another slot may have a group of its own)",
            addresses.join(" ")
        ),
    })
}

fn link(nic: &Nic) -> Option<CardProblem> {
    let is_down = |link: &&NicLink| link.is_up == Some(false) || link.has_carrier == Some(false);
    let down = nic.links.iter().find(is_down)?;
    let interface = &down.interface;
    Some(match down.is_up {
        Some(false) => CardProblem {
            what: format!("has its interface {interface} set down"),
            remedy: format!("ip link set {interface} up"),
        },
        _ => CardProblem {
            what: format!("has no link at {interface}"),
            remedy: format!(
                "check the cable and the other end (`ethtool {interface}` shows the state)"
            ),
        },
    })
}

/// Buffers of a port are on the node of its card. Machines with one node, or without huge pages, have nothing to choose.
fn huge_pages(machine: &Inventory, nic: &Nic) -> Option<CardProblem> {
    let free = |node: &NumaNode| node.huge_pages.iter().any(|pool| pool.free > 0);
    let own = machine
        .nodes
        .iter()
        .find(|node| Some(node.node) == nic.node)?;
    let other = machine.nodes.iter().find(|node| free(node))?;
    if free(own) {
        return None;
    }
    let node = own.node;
    let page_kib = other.huge_pages.iter().find(|pool| pool.free > 0)?.page_kib;
    Some(CardProblem {
        what: format!(
            "is on node {node}, which has no free huge pages, but node {} has some",
            other.node
        ),
        remedy: format!(
            "echo 256 > /sys/devices/system/node/node{node}/hugepages/hugepages-{page_kib}kB/nr_hugepages"
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    const CARD: &str = "0000:17:00.0";
    const SOUND: &str = "0000:00:1f.3";

    /// Writes a device with a class, a driver and a group.
    fn device(root: &Path, address: &str, class: &str, driver: Option<&str>, group: Option<u32>) {
        let path = root.join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("class"), format!("{class}\n")).unwrap();
        fs::write(path.join("numa_node"), "1\n").unwrap();
        if let Some(driver) = driver {
            symlink(format!("../../drivers/{driver}"), path.join("driver")).unwrap();
        }
        if let Some(group) = group {
            let group = root.join(format!("sys/kernel/iommu_groups/{group}"));
            fs::create_dir_all(group.join("devices").join(address)).unwrap();
            symlink(&group, path.join("iommu_group")).unwrap();
        }
    }

    fn card(root: &Path) -> CardReport {
        let mut all = report(&Inventory::read(root));
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    fn problems(report: &CardReport) -> Vec<(&str, &str)> {
        let all = report.problems.iter();
        all.map(|one| (one.what.as_str(), one.remedy.as_str()))
            .collect()
    }

    #[test]
    fn a_card_without_problems_is_described() {
        let root = tempfile::tempdir().unwrap();
        device(root.path(), CARD, "0x020000", Some(VFIO), Some(42));
        device(
            root.path(),
            "0000:16:00.0",
            "0x060400",
            Some("pcieport"),
            Some(42),
        );
        let observed = card(root.path());
        assert_eq!(
            observed.facts,
            [VFIO, "node 1", "IOMMU group 42 with 0000:16:00.0"]
        );
        assert_eq!(observed.problems, []);
    }

    #[test]
    fn a_card_behind_bridges_has_the_root_port_of_the_first() {
        let root = tempfile::tempdir().unwrap();
        device(root.path(), CARD, "0x020000", Some(VFIO), Some(42));
        // Another domain has the same buses.
        for (address, buses) in [
            ("0000:00:04.0", (22, 23)),
            ("0000:16:00.0", (23, 23)),
            ("0001:00:04.0", (22, 23)),
            ("0000:00:05.0", (24, 24)),
        ] {
            device(root.path(), address, "0x060400", Some("pcieport"), None);
            let path = root.path().join("sys/bus/pci/devices").join(address);
            let (first, last) = buses;
            fs::write(path.join("secondary_bus_number"), format!("{first}\n")).unwrap();
            fs::write(path.join("subordinate_bus_number"), format!("{last}\n")).unwrap();
        }
        let facts = card(root.path()).facts;
        assert_eq!(facts.last().unwrap(), "root port 0000:00:04.0", "{facts:?}");
    }

    #[test]
    fn an_unusable_card_has_its_problem_and_the_remedy() {
        let root = tempfile::tempdir().unwrap();
        device(root.path(), CARD, "0x020000", None, None);
        let observed = card(root.path());
        let remedy = "modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci 0000:17:00.0";
        assert_eq!(problems(&observed), [("has no driver", remedy)]);
        let root = tempfile::tempdir().unwrap();
        device(root.path(), CARD, "0x020000", Some(VFIO), None);
        let observed = card(root.path());
        assert!(
            problems(&observed)[0].0.contains("uses no IOMMU"),
            "{observed:?}"
        );
        let root = tempfile::tempdir().unwrap();
        device(root.path(), CARD, "0x020000", Some(VFIO), Some(3));
        device(
            root.path(),
            SOUND,
            "0x040300",
            Some("snd_hda_intel"),
            Some(3),
        );
        let observed = card(root.path());
        let (what, remedy) = problems(&observed)[0];
        assert!(
            what.contains("IOMMU group 3 with 0000:00:1f.3 (snd_hda_intel)"),
            "{what}"
        );
        assert!(remedy.contains("--bind=vfio-pci 0000:00:1f.3"), "{remedy}");
    }

    #[test]
    fn a_link_is_up_down_or_without_a_cable() {
        let with = |flags: &str, carrier: Option<&str>| {
            let root = tempfile::tempdir().unwrap();
            device(root.path(), CARD, "0x020000", Some("ice"), Some(42));
            let interface = root
                .path()
                .join(format!("sys/bus/pci/devices/{CARD}/net/ens1f0"));
            fs::create_dir_all(&interface).unwrap();
            fs::write(interface.join("flags"), format!("{flags}\n")).unwrap();
            if let Some(carrier) = carrier {
                fs::write(interface.join("carrier"), format!("{carrier}\n")).unwrap();
            }
            card(root.path())
        };
        let up = with("0x1003", Some("1"));
        assert_eq!(up.problems, []);
        let facts = [
            "ens1f0",
            "ice, of the kernel",
            "node 1",
            "IOMMU group 42",
            "link of ens1f0 up",
        ];
        assert_eq!(up.facts, facts);
        let down = with("0x1002", None);
        assert_eq!(problems(&down)[0].1, "ip link set ens1f0 up");
        let unplugged = with("0x1003", Some("0"));
        assert_eq!(problems(&unplugged)[0].0, "has no link at ens1f0");
    }

    #[test]
    fn huge_pages_on_another_node_are_reported() {
        let with = |pages: [u64; 2]| {
            let root = tempfile::tempdir().unwrap();
            device(root.path(), CARD, "0x020000", Some("mlx5_core"), Some(42));
            let nodes = root.path().join("sys/devices/system/node");
            for (node, free) in pages.iter().enumerate() {
                let pool = nodes.join(format!("node{node}/hugepages/hugepages-2048kB"));
                fs::create_dir_all(&pool).unwrap();
                fs::write(pool.join("nr_hugepages"), format!("{free}\n")).unwrap();
                fs::write(pool.join("free_hugepages"), format!("{free}\n")).unwrap();
                fs::write(
                    nodes.join(format!("node{node}/cpulist")),
                    format!("{node}\n"),
                )
                .unwrap();
            }
            fs::write(nodes.join("online"), "0-1\n").unwrap();
            card(root.path())
        };
        for pages in [[0, 0], [0, 9], [9, 9]] {
            assert_eq!(with(pages).problems, [], "{pages:?}");
        }
        let observed = with([9, 0]);
        let (what, remedy) = problems(&observed)[0];
        assert!(
            what.contains("on node 1") && what.contains("node 0 has some"),
            "{what}"
        );
        let file = "node1/hugepages/hugepages-2048kB/nr_hugepages";
        assert!(remedy.ends_with(file), "{remedy}");
    }
}
