// SPDX-License-Identifier: Apache-2.0
//! A request that a machine itself suggests, for a start.

use std::collections::BTreeMap;

use crate::inventory::{Inventory, Nic};

use super::plan::Reason;
use super::wishes::{CpuWish, ForwardingWish, HostWish, NicWish, Wishes, WishesError};

/// Drivers that give a controller to user space.
pub(crate) const USER_SPACE_DRIVERS: [&str; 4] =
    ["vfio-pci", "uio_pci_generic", "igb_uio", "uio_hv_generic"];
/// A node forwards on one core of so many at most.
const CORES_PER_FORWARDING: usize = 4;
/// Cores for each controller: one for each way.
const CORES_PER_NIC: usize = 2;
/// Without controllers, frames come from guests and containers: so many cores forward at most.
const CORES_WITHOUT_NIC: usize = 4;
/// From so many cores on, control and service have CPUs of their own.
const CORES_FOR_HELPERS: usize = 8;

/// A proposed request and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The request.
    pub wishes: Wishes,
    /// Why: the subject is `machine`, a section of the request (`forwarding`), or the address of a controller.
    pub reasons: Vec<Reason>,
}

impl Proposal {
    /// As `partition.toml`, with the reasons as comments above what they are for.
    ///
    /// # Errors
    /// [`WishesError`], should a number be too large for TOML.
    pub fn to_toml(&self) -> Result<String, WishesError> {
        let text = self.wishes.to_toml()?;
        let mut lines = self.comments("machine");
        let mut nics = self.wishes.nics.iter();
        for line in text.lines() {
            let section = line.trim_matches(['[', ']']);
            match section {
                _ if !line.starts_with('[') => {}
                "nic" => lines.extend(nics.next().iter().flat_map(|nic| self.comments(&nic.pci))),
                _ => lines.extend(self.comments(section)),
            }
            lines.push(line.to_owned());
        }
        Ok(lines.join("\n") + "\n")
    }

    fn comments(&self, subject: &str) -> Vec<String> {
        let reasons = self.reasons.iter();
        let reasons = reasons.filter(|reason| reason.subject == subject);
        reasons.map(|reason| format!("# {}", reason.text)).collect()
    }
}

/// Proposes a request; [`propose`] says why.
#[must_use]
pub fn derive(machine: &Inventory) -> Wishes {
    propose(machine).wishes
}

/// Proposes a request: controllers that look meant for a data plane (bound to a driver of user space, or with SR-IOV) with
/// two forwarding cores each, or without such controllers forwarding cores by the size of the machine; at most a quarter of
/// a node's cores; control and service apart on machines with room.
#[must_use]
pub fn propose(machine: &Inventory) -> Proposal {
    let nics: Vec<&Nic> = machine
        .nics
        .iter()
        .filter(|nic| is_for_data_plane(nic))
        .collect();
    let cores = cores_by_node(machine);
    let total: usize = cores.values().sum();
    let mut reasons = vec![Reason {
        subject: "machine".to_owned(),
        text: size(machine, &cores),
    }];
    let (forwarding, why) = if nics.is_empty() {
        by_size(machine, &cores)
    } else {
        by_controllers(&nics, &cores)
    };
    reasons.push(Reason {
        subject: "forwarding".to_owned(),
        text: why,
    });
    let helper = (total >= CORES_FOR_HELPERS).then(|| HostWish {
        cpus: Some(CpuWish::Count(1)),
        ..HostWish::default()
    });
    if helper.is_some() {
        let text = format!("a CPU of its own: the machine has {CORES_FOR_HELPERS} cores or more");
        reasons.extend(["control", "service"].map(|subject| Reason {
            subject: subject.to_owned(),
            text: text.clone(),
        }));
    }
    reasons.extend(nics.iter().map(|nic| Reason {
        subject: nic.pci_address.clone(),
        text: why_controller(nic),
    }));
    let wishes = Wishes {
        control: helper.clone(),
        service: helper,
        forwarding: ForwardingWish {
            cpus: Some(CpuWish::Count(u32::try_from(forwarding).unwrap_or(1))),
            ..ForwardingWish::default()
        },
        nics: nics
            .iter()
            .map(|nic| NicWish {
                pci: nic.pci_address.clone(),
                ..NicWish::default()
            })
            .collect(),
        ..Wishes::default()
    };
    Proposal { wishes, reasons }
}

fn size(machine: &Inventory, cores: &BTreeMap<Option<u32>, usize>) -> String {
    let cpus = machine.cpus_online.as_ref().map_or(0, crate::CpuList::len);
    let total: usize = cores.values().sum();
    let nodes = if cores.keys().any(Option::is_none) {
        "unknown NUMA nodes".to_owned()
    } else {
        counted(cores.len(), "NUMA node")
    };
    format!(
        "proposed for {} ({}) on {nodes}; the host keeps every CPU without another role",
        counted(total, "core"),
        counted(cpus, "CPU"),
    )
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Cores that forward for guests and containers, on the node with the most cores.
fn by_size(machine: &Inventory, cores: &BTreeMap<Option<u32>, usize>) -> (usize, String) {
    let largest = cores.values().copied().max().unwrap_or(1);
    let quarter = (largest / CORES_PER_FORWARDING).max(1);
    let forwarding = quarter.min(CORES_WITHOUT_NIC);
    let found = match machine.nics.len() {
        0 => "no network card".to_owned(),
        nics => format!(
            "{} without SR-IOV or a userspace driver",
            counted(nics, "network card")
        ),
    };
    let limit = if quarter > CORES_WITHOUT_NIC {
        format!(", at most {CORES_WITHOUT_NIC}")
    } else {
        String::new()
    };
    let text = format!(
        "by the size of the machine, as it has {found}: frames come from guests and containers. A quarter of the {} of a node{limit}, at least one",
        counted(largest, "core")
    );
    (forwarding, text)
}

/// Cores that poll controllers, on the controllers' nodes.
fn by_controllers(nics: &[&Nic], cores: &BTreeMap<Option<u32>, usize>) -> (usize, String) {
    let mut on_node: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for nic in nics {
        let known = Some(nic.node).filter(|node| cores.contains_key(node));
        let node = known.or_else(|| cores.keys().next().copied()).flatten();
        *on_node.entry(node).or_default() += 1;
    }
    let share = |(node, nics): (&Option<u32>, &usize)| {
        let cores = cores.get(node).copied().unwrap_or(1);
        (nics * CORES_PER_NIC)
            .min(cores / CORES_PER_FORWARDING)
            .max(1)
    };
    let forwarding: usize = on_node.iter().map(share).sum::<usize>().max(1);
    let text = format!(
        "{CORES_PER_NIC} cores for each of {}, at most a quarter of a node's cores and at least one on each node with network cards",
        counted(nics.len(), "network card")
    );
    (forwarding, text)
}

fn is_given(nic: &Nic) -> bool {
    nic.driver
        .as_deref()
        .is_some_and(|driver| USER_SPACE_DRIVERS.contains(&driver))
}

/// Whether a controller is not the one that the machine is reached by, as far as that can be told.
fn is_for_data_plane(nic: &Nic) -> bool {
    nic.physical_function.is_none()
        && (is_given(nic) || nic.functions_max.is_some_and(|functions| functions > 0))
}

fn why_controller(nic: &Nic) -> String {
    let driver = nic.driver.as_deref().filter(|_| is_given(nic));
    match driver {
        Some(driver) => format!("it has the userspace driver {driver}"),
        None => "it supports SR-IOV".to_owned(),
    }
}

/// Online cores of each node; those of unknown nodes together.
fn cores_by_node(machine: &Inventory) -> BTreeMap<Option<u32>, usize> {
    let mut cores: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    let online = machine.cpus_online.clone().unwrap_or_default();
    for place in machine
        .cpus
        .iter()
        .filter(|place| online.contains(place.cpu))
    {
        let first = place
            .siblings
            .as_ref()
            .and_then(|siblings| siblings.intersection(&online).first());
        if first.is_none_or(|first| first == place.cpu) {
            *cores.entry(place.node).or_default() += 1;
        }
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::{self, Machine};
    use crate::partition::{Role, plan};

    #[test]
    fn a_machine_without_controllers_forwards_by_its_size() {
        for (cores, forwarding, has_helpers) in [
            (2, 1, false),
            (4, 1, false),
            (8, 2, true),
            (16, 4, true),
            (64, 4, true),
        ] {
            let machine = Machine {
                cores,
                ..Machine::default()
            };
            let inventory = machine.inventory();
            let proposal = propose(&inventory);
            let wishes = &proposal.wishes;
            assert_eq!(wishes.forwarding.cpus, Some(CpuWish::Count(forwarding)));
            assert_eq!(wishes.control.is_some(), has_helpers, "{cores}");
            assert!(wishes.nics.is_empty());
            let plan = plan(&inventory, wishes).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(plan.cpus(Role::Forwarding).len(), forwarding as usize);
        }
    }

    #[test]
    fn reasons_stand_above_what_they_are_for() {
        let plain = propose(&Machine::default().inventory()).to_toml().unwrap();
        assert!(
            plain.starts_with("# proposed for 4 cores (4 CPUs) on 1 NUMA node"),
            "{plain}"
        );
        assert!(plain.contains("it has no network card"), "{plain}");
        for machine in machines::all() {
            let proposal = propose(&machine.inventory());
            let text = proposal.to_toml().unwrap();
            assert_eq!(Wishes::parse(&text), Ok(proposal.wishes.clone()), "{text}");
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines.iter().enumerate() {
                if line.starts_with('[') {
                    assert!(lines[at - 1].starts_with("# "), "{line}: {text}");
                }
            }
            let comments = lines.iter().filter(|line| line.starts_with('#')).count();
            assert_eq!(comments, proposal.reasons.len(), "{text}");
        }
    }
}
