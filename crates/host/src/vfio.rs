// SPDX-License-Identifier: Apache-2.0
//! Binds network cards and virtual functions to `vfio-pci` (Documentation/driver-api/vfio.rst). All cards are checked before the first one
//! is changed, and each change is journaled first.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use crate::cards::{HARMLESS, VFIO, is_for_dpdk};
use crate::files::{Files, is_absent, text};
use crate::journal::{Change, DriverState, Journal};
use crate::pci_driver::PciDevice;
use crate::settings;

/// Class of network controllers: the first of three octets.
const CLASS_NETWORK: &str = "0x02";
/// Flag of an interface that is set up (netdevice(7)).
const IFF_UP: u32 = 1;
/// Lets vfio work without an IOMMU (drivers/vfio/vfio_main.c).
const NO_IOMMU: &str = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode";

/// Treatment of cards without an IOMMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// They are refused.
    Required,
    /// They are bound without protection: they can access all memory of the machine.
    Optional,
}

/// The reason why a card is not bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The card must not or cannot be bound. Nothing was changed.
    #[error("network card {address}: {what}")]
    Refused {
        /// PCI address.
        address: String,
        /// The problem and its remedy.
        what: String,
    },
    /// A file could not be read or written. The journal undoes the changes before.
    #[error("network card {address}: binding it to vfio-pci: {cause}")]
    Failed {
        /// PCI address.
        address: String,
        /// The error of the system.
        cause: io::Error,
    },
}

/// Binds the cards that DPDK cannot use with their present drivers to `vfio-pci`. The others keep their drivers. Returns every change as
/// text. `root` is `/`, or that of a recorded machine.
///
/// # Errors
/// [`BindError`].
pub fn bind(
    files: &dyn Files,
    root: &Path,
    journal: &mut Journal,
    addresses: &[String],
    iommu: Iommu,
) -> Result<Vec<String>, BindError> {
    let mut cards = Cards {
        files,
        root,
        iommu,
        unbound: Vec::new(),
    };
    for address in addresses {
        let is_unbound = cards.is_unbound(address);
        if is_unbound.map_err(unreadable(address))? && !cards.unbound.contains(address) {
            cards.unbound.push(address.clone());
        }
    }
    let mut without_iommu: Vec<&str> = Vec::new();
    for address in &cards.unbound {
        let problem = cards.problem(address).map_err(unreadable(address))?;
        if let Some(what) = problem {
            let address = address.clone();
            return Err(BindError::Refused { address, what });
        }
        if !cards.has_group(address).map_err(unreadable(address))? {
            without_iommu.push(address);
        }
    }
    let mut changes = Vec::new();
    if let Some(address) = without_iommu.first() {
        let path = root.join(NO_IOMMU);
        settings::write_in(files, journal, &path, "Y").map_err(failed(address))?;
        changes.push(format!(
            "{} = Y: without an IOMMU, {} can access all memory of this machine",
            path.display(),
            without_iommu.join(", ")
        ));
    }
    for address in &cards.unbound {
        let change = cards.bind(journal, address).map_err(failed(address))?;
        changes.push(change);
    }
    Ok(changes)
}

/// Names the card of an error before the first change.
fn unreadable(address: &str) -> impl FnOnce(io::Error) -> BindError + '_ {
    move |cause| match cause.kind() {
        io::ErrorKind::NotFound => BindError::Refused {
            address: address.to_owned(),
            what: format!("{cause} (check that the card exists)"),
        },
        _ => failed(address)(cause),
    }
}

fn failed(address: &str) -> impl FnOnce(io::Error) -> BindError + '_ {
    move |cause| BindError::Failed {
        address: address.to_owned(),
        cause,
    }
}

/// Cards of one request.
struct Cards<'a> {
    files: &'a dyn Files,
    root: &'a Path,
    iommu: Iommu,
    /// Addresses of the cards to bind.
    unbound: Vec<String>,
}

impl Cards<'_> {
    fn path(&self, address: &str) -> PathBuf {
        self.root.join("sys/bus/pci/devices").join(address)
    }

    fn driver(&self, address: &str) -> io::Result<Option<String>> {
        PciDevice::new(self.files, &self.path(address)).driver()
    }

    fn is_unbound(&self, address: &str) -> io::Result<bool> {
        let driver = self.driver(address)?;
        Ok(!driver.is_some_and(|driver| is_for_dpdk(&driver)))
    }

    /// Returns the names in a directory. A directory that does not exist has none.
    fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        match self.files.list(directory) {
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// Returns the text of a file; `None` if it does not exist.
    fn text(&self, path: &Path) -> io::Result<Option<String>> {
        match self.files.read(path) {
            Err(error) if is_absent(&error) => Ok(None),
            read => Ok(Some(read?.trim().to_owned())),
        }
    }

    /// Returns the reason why a card must not or cannot be bound.
    fn problem(&self, address: &str) -> io::Result<Option<String>> {
        let path = self.path(address);
        let class = self.text(&path.join("class"))?.unwrap_or_default();
        if !class.starts_with(CLASS_NETWORK) {
            return Ok(Some(format!(
                "it is not a network card: its class is '{class}', but classes of network cards begin with {CLASS_NETWORK} (use the address of a card)"
            )));
        }
        let functions = PciDevice::new(self.files, &path).functions()?;
        if let Some(count) = functions.filter(|count| count != "0") {
            return Ok(Some(format!(
                "it has {count} virtual functions, which disappear with its driver (remove them with `echo 0 > /sys/bus/pci/devices/{address}/sriov_numvfs`, or use them as ports)"
            )));
        }
        let drivers = self.root.join("sys/bus/pci/drivers").join(VFIO);
        if !self.files.is_directory(&drivers)? {
            return Ok(Some(format!(
                "the driver {VFIO} is not loaded (run `modprobe {VFIO}`)"
            )));
        }
        let problem = self.interface_problem(&path)?;
        match problem {
            Some(problem) => Ok(Some(problem)),
            None => self.group_problem(address),
        }
    }

    /// Returns the problem of an interface that is set up: it may carry the user's own connection.
    fn interface_problem(&self, path: &Path) -> io::Result<Option<String>> {
        let mut directories = vec![path.join("net")];
        // The interface of a virtio device is one directory deeper.
        let mut buses = self.names(path)?;
        buses.retain(|name| name.starts_with("virtio"));
        directories.extend(buses.iter().map(|bus| path.join(bus).join("net")));
        for net in directories {
            for interface in self.names(&net)? {
                let flags = self.text(&net.join(&interface).join("flags"))?;
                let flags = flags.unwrap_or_default();
                let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
                if flags & IFF_UP != 0 {
                    return Ok(Some(format!(
                        "its interface {interface} is set up, and would disappear with its addresses (if nothing uses it, run `ip link set {interface} down`)"
                    )));
                }
            }
        }
        Ok(None)
    }

    fn has_group(&self, address: &str) -> io::Result<bool> {
        let group = self.path(address).join("iommu_group/devices");
        self.files.is_directory(&group)
    }

    /// Returns the problem of the card's IOMMU group. vfio requires that all its devices have drivers without DMA, or no driver.
    fn group_problem(&self, address: &str) -> io::Result<Option<String>> {
        if !self.has_group(address)? {
            return self.no_iommu_problem();
        }
        let members = self.path(address).join("iommu_group/devices");
        let mut held = Vec::new();
        for member in self.names(&members)? {
            if self.unbound.contains(&member) {
                continue;
            }
            let driver = self.driver(&member)?;
            if let Some(driver) = driver.filter(|driver| !HARMLESS.contains(&driver.as_str())) {
                held.push(format!("{member} ({driver})"));
            }
        }
        if held.is_empty() {
            return Ok(None);
        }
        let group = self.group_number(address)?;
        Ok(Some(format!(
            "it shares IOMMU group{group} with {}, but {VFIO} requires a complete group (unbind these devices, or use another slot for the card)",
            held.join(", ")
        )))
    }

    /// Returns the number of a card's group after a space, as it is in a message.
    fn group_number(&self, address: &str) -> io::Result<String> {
        let groups = self.root.join("sys/kernel/iommu_groups");
        for number in self.names(&groups)? {
            let member = groups.join(&number).join("devices").join(address);
            if self.files.is_directory(&member)? {
                return Ok(format!(" {number}"));
            }
        }
        Ok(String::new())
    }

    fn no_iommu_problem(&self) -> io::Result<Option<String>> {
        if self.iommu == Iommu::Required {
            return Ok(Some(
                "this machine uses no IOMMU for it (enable VT-d or AMD-Vi in the firmware, and boot with `intel_iommu=on iommu=pt` on Intel; if the card may access all memory, use the driver vfio-pci-no-iommu)".to_owned(),
            ));
        }
        if text(self.files, &self.root.join(NO_IOMMU)).is_some() {
            return Ok(None);
        }
        Ok(Some(
            "this machine uses no IOMMU for it, and its kernel has no vfio without an IOMMU (CONFIG_VFIO_NOIOMMU; bind the card to uio_pci_generic)".to_owned(),
        ))
    }

    fn bind(&self, journal: &mut Journal, address: &str) -> io::Result<String> {
        let path = self.path(address);
        let device = PciDevice::new(self.files, &path);
        let former = device.state()?;
        let text = format!("{address}: {former} -> the driver {VFIO}");
        journal.record(&Change::DriverChanged {
            device: path.clone(),
            former,
            new: VFIO.to_owned(),
        })?;
        device.change(&DriverState::forced(VFIO))?;
        Ok(text)
    }
}
