// SPDX-License-Identifier: Apache-2.0
//! Virtual functions of network cards as devices.

use std::path::PathBuf;

use quietwire_host::inventory::{Inventory, Nic};

use super::allocation::add_function;
use super::device::Device;
use crate::kubelet::messages::ContainerAllocateResponse;

/// Driver that gives a function to a program in user space.
const VFIO: &str = "vfio-pci";

/// Virtual functions of some cards.
#[derive(Clone, Debug)]
pub(super) struct Functions {
    /// Name of the resource.
    pub(super) resource: String,
    /// Addresses of the cards.
    pub(super) cards: Vec<String>,
    /// Root directory of `/sys`.
    pub(super) root: PathBuf,
}

impl Functions {
    /// Returns all functions of the cards. Cards that are not there have none.
    pub(super) fn devices(&self) -> Vec<Device> {
        let inventory = Inventory::read(&self.root);
        let cards = inventory.nics.iter();
        let cards = cards.filter(|nic| self.cards.contains(&nic.pci_address));
        let of_cards = cards.flat_map(|nic| nic.function_addresses.iter().map(move |it| (nic, it)));
        of_cards
            .map(|(card, address)| {
                let function = nic(&inventory, address);
                Device {
                    id: address.clone(),
                    node: function.and_then(|function| function.node).or(card.node),
                    is_healthy: self.exists(address),
                }
            })
            .collect()
    }

    fn exists(&self, address: &str) -> bool {
        let devices = self.root.join("sys/bus/pci/devices");
        devices.join(address).is_dir()
    }

    /// Returns the device files and variables that a container gets for functions.
    ///
    /// # Errors
    /// A function that does not belong to the cards.
    pub(super) fn allocate(&self, ids: &[String]) -> Result<ContainerAllocateResponse, String> {
        let inventory = Inventory::read(&self.root);
        let known = self.devices();
        let mut response = ContainerAllocateResponse::default();
        for id in ids {
            if !known.iter().any(|device| device.id == *id) {
                return Err(format!("no function {id} in resource '{}'", self.resource));
            }
            let function = nic(&inventory, id);
            let of_vfio = function.filter(|function| function.driver.as_deref() == Some(VFIO));
            let group = of_vfio.and_then(|function| function.iommu_group);
            add_function(&mut response, &self.resource, id, group);
        }
        Ok(response)
    }
}

fn nic<'a>(inventory: &'a Inventory, address: &str) -> Option<&'a Nic> {
    let mut nics = inventory.nics.iter();
    nics.find(|nic| nic.pci_address == address)
}
