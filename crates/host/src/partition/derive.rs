// SPDX-License-Identifier: Apache-2.0
//! Wishes that a machine itself suggests, for a start.

use std::collections::BTreeMap;

use crate::inventory::{Inventory, Nic};

use super::wishes::{CpuWish, ForwardingWish, HostWish, NicWish, Wishes};

/// Drivers that give a controller to user space.
pub(crate) const USER_SPACE_DRIVERS: [&str; 4] =
    ["vfio-pci", "uio_pci_generic", "igb_uio", "uio_hv_generic"];
/// A node forwards on one core of so many at most.
const CORES_PER_FORWARDING: usize = 4;
/// Cores for each controller: one for each way.
const CORES_PER_NIC: usize = 2;
/// From so many cores on, control and service have CPUs of their own.
const CORES_FOR_HELPERS: usize = 8;

/// Proposes wishes: controllers that look meant for a data plane (bound to a driver of user space, or with SR-IOV), two
/// cores for each as far as a quarter of the node's cores goes, and control and service apart on machines with room.
#[must_use]
pub fn derive(machine: &Inventory) -> Wishes {
    let nics: Vec<&Nic> = machine
        .nics
        .iter()
        .filter(|nic| is_for_data_plane(nic))
        .collect();
    let cores = cores_by_node(machine);
    let mut on_node: BTreeMap<u32, usize> = BTreeMap::new();
    for nic in &nics {
        let node = nic.node.filter(|node| cores.contains_key(node));
        *on_node
            .entry(node.or_else(|| cores.keys().next().copied()).unwrap_or(0))
            .or_default() += 1;
    }
    let share = |(node, nics): (&u32, &usize)| {
        let cores = cores.get(node).copied().unwrap_or(1);
        (nics * CORES_PER_NIC)
            .min(cores / CORES_PER_FORWARDING)
            .max(1)
    };
    let forwarding: usize = on_node.iter().map(share).sum::<usize>().max(1);
    let total: usize = cores.values().sum();
    let helper = (total >= CORES_FOR_HELPERS).then(|| HostWish {
        cpus: Some(CpuWish::Count(1)),
        ..HostWish::default()
    });
    Wishes {
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
    }
}

/// Whether a controller is not the one that the machine is reached by, as far as that can be told.
fn is_for_data_plane(nic: &Nic) -> bool {
    let is_given = nic
        .driver
        .as_deref()
        .is_some_and(|driver| USER_SPACE_DRIVERS.contains(&driver));
    nic.physical_function.is_none()
        && (is_given || nic.functions_max.is_some_and(|functions| functions > 0))
}

/// Online cores of each node.
fn cores_by_node(machine: &Inventory) -> BTreeMap<u32, usize> {
    let mut cores: BTreeMap<u32, usize> = BTreeMap::new();
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
            *cores.entry(place.node.unwrap_or(0)).or_default() += 1;
        }
    }
    cores
}
