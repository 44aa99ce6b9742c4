// SPDX-License-Identifier: Apache-2.0
//! Proposal of a partition request for a machine.

use std::collections::BTreeMap;

use crate::inventory::{Inventory, Nic};

use super::plan::Reason;
use super::request::{
    CpuRequest, ForwardingRequest, HostRequest, NicRequest, PartitionRequest, PartitionRequestError,
};

/// User-space drivers of network cards.
pub(crate) const USER_SPACE_DRIVERS: [&str; 4] =
    ["vfio-pci", "uio_pci_generic", "igb_uio", "uio_hv_generic"];
/// Divisor of a node's cores for the maximum number of forwarding cores.
const CORES_PER_FORWARDING: usize = 4;
/// Forwarding cores for each network card: one for each direction.
const CORES_PER_NIC: usize = 2;
/// Maximum number of forwarding cores without network cards: frames come from guests and containers.
const CORES_WITHOUT_NIC: usize = 4;
/// Minimum number of cores for separate control and service CPUs.
const CORES_FOR_HELPERS: usize = 8;

/// A proposed request and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The request.
    pub request: PartitionRequest,
    /// Reasons. The subject is `machine`, a section of the request (`forwarding`) or the address of a network card.
    pub reasons: Vec<Reason>,
}

impl Proposal {
    /// Serialises the request as `partition.toml`, with each reason as a comment above its section.
    ///
    /// # Errors
    /// [`PartitionRequestError`] if a number is too large for TOML.
    pub fn to_toml(&self) -> Result<String, PartitionRequestError> {
        let text = self.request.to_toml()?;
        let mut lines = self.comments("machine");
        let mut nics = self.request.nics.iter();
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

/// Proposes a request without the reasons that [`propose`] gives.
#[must_use]
pub fn derive(machine: &Inventory) -> PartitionRequest {
    propose(machine).request
}

/// Proposes a request. Every network card that looks meant for a data plane (bound to a user-space driver, or with SR-IOV)
/// gets two forwarding cores. Without such cards, the number of forwarding cores depends on the size of the machine. At most
/// a quarter of a node's cores forward. Control and service get separate CPUs if the machine has enough cores.
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
    let (forwarding, reason) = if nics.is_empty() {
        by_size(machine, &cores)
    } else {
        by_controllers(&nics, &cores)
    };
    reasons.push(Reason {
        subject: "forwarding".to_owned(),
        text: reason,
    });
    let helper = (total >= CORES_FOR_HELPERS).then(|| HostRequest {
        cpus: Some(CpuRequest::Count(1)),
        ..HostRequest::default()
    });
    if helper.is_some() {
        let text =
            format!("a separate CPU, because the machine has at least {CORES_FOR_HELPERS} cores");
        reasons.extend(["control", "service"].map(|subject| Reason {
            subject: subject.to_owned(),
            text: text.clone(),
        }));
    }
    reasons.extend(nics.iter().map(|nic| Reason {
        subject: nic.pci_address.clone(),
        text: why_controller(nic),
    }));
    let request = PartitionRequest {
        control: helper.clone(),
        service: helper,
        forwarding: ForwardingRequest {
            cpus: Some(CpuRequest::Count(u32::try_from(forwarding).unwrap_or(1))),
            ..ForwardingRequest::default()
        },
        nics: nics
            .iter()
            .map(|nic| NicRequest {
                pci: nic.pci_address.clone(),
                ..NicRequest::default()
            })
            .collect(),
        ..PartitionRequest::default()
    };
    Proposal { request, reasons }
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

/// Returns the number of forwarding cores for guests and containers, on the node with the most cores, and the reason.
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
        "a quarter of the {} of a node{limit}, at least one. The machine has {found}, so frames come from guests and containers",
        counted(largest, "core")
    );
    (forwarding, text)
}

/// Returns the number of forwarding cores on the nodes of the network cards, and the reason.
fn by_controllers(nics: &[&Nic], cores: &BTreeMap<Option<u32>, usize>) -> (usize, String) {
    let mut on_node: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for nic in nics {
        let known = Some(nic.node).filter(|node| cores.contains_key(node));
        let node = known.or_else(|| cores.keys().next().copied()).flatten();
        let count = on_node.entry(node).or_default();
        *count = count.saturating_add(1);
    }
    let share = |(node, nics): (&Option<u32>, &usize)| {
        let cores = cores.get(node).copied().unwrap_or(1);
        nics.saturating_mul(CORES_PER_NIC)
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

/// Returns whether a network card is probably not the one for access to the machine.
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

/// Returns the number of online cores of each node. Cores of unknown nodes count as one node.
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
            let count = cores.entry(place.node).or_default();
            *count = count.saturating_add(1);
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
            let request = &proposal.request;
            assert_eq!(request.forwarding.cpus, Some(CpuRequest::Count(forwarding)));
            assert_eq!(request.control.is_some(), has_helpers, "{cores}");
            assert!(request.nics.is_empty());
            let plan = plan(&inventory, request).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(plan.cpus(Role::Forwarding).len(), forwarding as usize);
        }
    }

    #[test]
    fn reasons_precede_their_keys() {
        let plain = propose(&Machine::default().inventory()).to_toml().unwrap();
        assert!(
            plain.starts_with("# proposed for 4 cores (4 CPUs) on 1 NUMA node"),
            "{plain}"
        );
        assert!(plain.contains("The machine has no network card"), "{plain}");
        for machine in machines::all() {
            let proposal = propose(&machine.inventory());
            let text = proposal.to_toml().unwrap();
            assert_eq!(
                PartitionRequest::parse(&text),
                Ok(proposal.request.clone()),
                "{text}"
            );
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
