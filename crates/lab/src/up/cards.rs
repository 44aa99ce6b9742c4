// SPDX-License-Identifier: Apache-2.0
//! Checks of a topology's network cards before anything is started. A DPDK program ignores a card that it cannot drive and only
//! reports that it has no port. QEMU passes only cards that are bound to vfio to a guest, and exits on others.

use std::path::Path;

use quietwire_dpdk::pci::{self, Problem};

use crate::error::LabError;
use crate::programs::has_guests_card;
use crate::topology::{Element, ElementPlace, Graph, Role};
use crate::unavailable::Unavailable;

/// Checks all cards of a topology; `root` is `/`, or the root of a recorded machine.
///
/// # Errors
/// [`LabError::Topology`] if an element does not support cards, [`LabError::Unavailable`] if DPDK does not support the card or
/// the card cannot be passed to a guest.
pub(super) fn check(root: &Path, graph: &Graph) -> Result<(), LabError> {
    for link in &graph.links {
        let Some(address) = &link.pci else { continue };
        let ends = link.ends.map(|end| graph.element(end.element));
        for element in ends.iter().filter(|end| end.role != Role::Tester) {
            can_have(element, address)?;
            let looked = match has_guests_card(graph, link) {
                true => pci::check_for_guest(root, address),
                false => pci::check(root, address),
            };
            looked.map_err(|problem| {
                let (Problem::Wrong(what) | Problem::NotReady(what)) = problem;
                LabError::Unavailable {
                    name: element.name.clone(),
                    reason: Unavailable(format!("its network card {address}: {what}")),
                }
            })?;
        }
    }
    Ok(())
}

/// Returns the element whose card DPDK does not support, and the reason. Elements that support no cards are skipped.
pub(super) fn lacking(root: &Path, graph: &Graph) -> Option<(String, Unavailable)> {
    match check(root, graph) {
        Err(LabError::Unavailable { name, reason }) => Some((name, reason)),
        _ => None,
    }
}

fn can_have(element: &Element, address: &str) -> Result<(), LabError> {
    let Element { name, program, .. } = element;
    if !program.is_of_the_kernel() {
        return Ok(());
    }
    let reason = if element.place == ElementPlace::Guest {
        "the kernel of the guests' image has no drivers of cards"
    } else {
        "supports no network cards by address"
    };
    Err(LabError::Topology(format!(
        "{name}: its network card {address}: {program}: {reason} (choose a DPDK program, such as quietwire)"
    )))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::topology::{Parameters, Program, named};
    use quietwire_base::Fault;

    const CARDS: [&str; 2] = ["0000:17:00.0", "0000:17:00.1"];

    /// Creates a machine with two network cards that are bound to these drivers.
    fn machine(drivers: [&str; 2]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (address, driver) in CARDS.iter().zip(drivers) {
            let device = root.path().join("sys/bus/pci/devices").join(address);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("class"), "0x020000\n").unwrap();
            symlink(format!("../../drivers/{driver}"), device.join("driver")).unwrap();
        }
        root
    }

    fn checked(root: &Path, name: &str, parameters: &Parameters) -> Result<(), LabError> {
        let cards = Parameters {
            ports: CARDS.map(str::to_owned).to_vec(),
            ..parameters.clone()
        };
        check(root, &named(name).unwrap().graph(&cards).unwrap())
    }

    #[test]
    fn cards_are_checked_for_the_programs_that_use_them() {
        let usual = Parameters::default();
        let kernel = Parameters {
            switch: Program::LinuxBridge,
            ..usual.clone()
        };
        let in_guest = Parameters {
            vnf: Program::LinuxBridge,
            ..usual.clone()
        };
        let ready = machine(["uio_pci_generic", "mlx5_core"]);
        checked(ready.path(), "vNet1", &usual).unwrap();
        checked(ready.path(), "vNet4-1VNF", &usual).unwrap();
        let nowhere = tempfile::tempdir().unwrap();
        let held = machine(["uio_pci_generic", "ixgbe"]);
        for (root, name, parameters, fault, printed) in [
            (
                nowhere.path(),
                "vNet1",
                &usual,
                Fault::MissingPrerequisite,
                "0000:17:00.0: does not exist",
            ),
            (
                held.path(),
                "vNet1",
                &usual,
                Fault::MissingPrerequisite,
                "0000:17:00.1: is driven by the kernel driver ixgbe",
            ),
            (
                ready.path(),
                "vNet1",
                &kernel,
                Fault::BadInput,
                "S: its network card 0000:17:00.0: linux-bridge: supports no network cards",
            ),
            (
                ready.path(),
                "vNet3",
                &usual,
                Fault::MissingPrerequisite,
                "V: unavailable because its network card 0000:17:00.0: is driven by uio_pci_generic, but passthrough to a guest",
            ),
            (
                ready.path(),
                "vNet3",
                &in_guest,
                Fault::BadInput,
                "V: its network card 0000:17:00.0: linux-bridge: the kernel of the guests' image",
            ),
        ] {
            let error = checked(root, name, parameters).unwrap_err();
            assert_eq!(error.fault(), fault, "{error}");
            assert!(error.to_string().contains(printed), "{error}");
        }
    }

    #[test]
    fn a_guest_has_cards_that_vfio_hands_over() {
        let machine = machine(["vfio-pci", "vfio-pci"]);
        for (group, address) in CARDS.iter().enumerate() {
            let device = machine.path().join("sys/bus/pci/devices").join(address);
            let group = machine
                .path()
                .join(format!("sys/kernel/iommu_groups/{group}"));
            fs::create_dir_all(group.join("devices").join(address)).unwrap();
            symlink(&group, device.join("iommu_group")).unwrap();
        }
        for name in ["vComp1-VM", "vNet2", "vNet5-1VNF"] {
            checked(machine.path(), name, &Parameters::default()).unwrap();
        }
    }
}
