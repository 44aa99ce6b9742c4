// SPDX-License-Identifier: Apache-2.0
//! The guest's ports as PCI devices, and their drivers: the kernel's, or `uio_pci_generic` for a program
//! (Documentation/ABI/testing/sysfs-bus-pci).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::wait_until;
use quietwire_packet::MacAddress;

/// PCI class of network controllers, the highest of three octets: virtio's, and cards of the host that were passed to the guest.
/// The guest has no others.
const NETWORK: &str = "0x02";

/// The kernel's driver.
pub(super) const OF_KERNEL: &str = "virtio-pci";
/// Driver for programs. Debian's kernel has no vfio without an IOMMU.
pub(super) const OF_PROGRAM: &str = "uio_pci_generic";

/// Timeout until the kernel creates a network interface for a device.
const INTERFACE_DEADLINE: Duration = Duration::from_secs(10);

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    /// Its PCI address.
    pub(super) address: String,
    /// Its MAC address, as read from the kernel when the agent started.
    pub(super) mac: Option<MacAddress>,
}

/// The PCI bus, below a root directory.
#[derive(Clone, Debug)]
pub(super) struct Bus {
    devices: PathBuf,
    drivers: PathBuf,
    probe: PathBuf,
}

fn read(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text)
        .map_err(|error| format!("writing '{text}' to {}: {error}", path.display()))
}

impl Bus {
    pub(super) fn below(root: &Path) -> Self {
        let bus = root.join("sys/bus/pci");
        Self {
            devices: bus.join("devices"),
            drivers: bus.join("drivers"),
            probe: bus.join("drivers_probe"),
        }
    }

    /// Returns the ports, by address.
    pub(super) fn ports(&self) -> io::Result<Vec<Port>> {
        let mut ports = Vec::new();
        for entry in fs::read_dir(&self.devices)? {
            let path = entry?.path();
            let is_port = read(&path.join("class")).starts_with(NETWORK);
            if let Some(name) = path.file_name().filter(|_| is_port) {
                let address = name.to_string_lossy().into_owned();
                let interface = self.interface_now(&address);
                let mac = interface.and_then(|name| {
                    let net = self.net(&address)?;
                    read(&net.join(name).join("address")).parse().ok()
                });
                ports.push(Port { address, mac });
            }
        }
        ports.sort_by(|a, b| a.address.cmp(&b.address));
        Ok(ports)
    }

    fn driver(&self, address: &str) -> Option<String> {
        let link = fs::read_link(self.devices.join(address).join("driver")).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    /// Binds a device to a driver.
    pub(super) fn bind(&self, address: &str, driver: &str) -> Result<(), String> {
        if self.driver(address).as_deref() == Some(driver) {
            return Ok(());
        }
        let device = self.devices.join(address);
        if !self.drivers.join(driver).exists() {
            return Err(format!("the guest's kernel has no driver {driver} loaded"));
        }
        write(&device.join("driver_override"), driver)?;
        if self.driver(address).is_some() {
            write(&device.join("driver/unbind"), address)?;
        }
        write(&self.probe, address)?;
        match self.driver(address) {
            Some(now) if now == driver => Ok(()),
            now => Err(format!(
                "port {address} was bound to the driver {driver} but is driven by {}",
                now.as_deref().unwrap_or("none")
            )),
        }
    }

    /// Returns the directory of a device's network interfaces, if the kernel drives it.
    fn net(&self, address: &str) -> Option<PathBuf> {
        let device = self.devices.join(address);
        // The interface of a card, or that of the virtio device within the PCI device.
        if device.join("net").is_dir() {
            return Some(device.join("net"));
        }
        fs::read_dir(device).ok()?.flatten().find_map(|entry| {
            let is_virtio = entry.file_name().to_string_lossy().starts_with("virtio");
            let net = entry.path().join("net");
            (is_virtio && net.is_dir()).then_some(net)
        })
    }

    fn interface_now(&self, address: &str) -> Option<String> {
        let entry = fs::read_dir(self.net(address)?).ok()?.flatten().next()?;
        Some(entry.file_name().to_string_lossy().into_owned())
    }

    /// Waits for the kernel's network interface of a device and returns its name.
    pub(super) fn interface(&self, address: &str) -> Result<String, String> {
        let mut found = None;
        wait_until(INTERFACE_DEADLINE, || {
            found = self.interface_now(address);
            found.is_some()
        });
        found.ok_or_else(|| {
            format!("the guest's kernel created no network interface for port {address}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(root: &Path, address: &str, class: &str) -> PathBuf {
        let path = root.join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("class"), format!("{class}\n")).unwrap();
        path
    }

    #[test]
    fn ports_are_network_cards_in_the_order_of_the_bus() {
        let root = tempfile::tempdir().unwrap();
        device(root.path(), "0000:00:11.0", "0x020000");
        let first = device(root.path(), "0000:00:10.0", "0x020000");
        device(root.path(), "0000:00:08.0", "0x078000");
        device(root.path(), "0000:00:1f.2", "0x010601");
        let card = device(root.path(), "0000:00:12.0", "0x020000");
        for interface in [first.join("virtio1/net/eth0"), card.join("net/eth2")] {
            fs::create_dir_all(&interface).unwrap();
            fs::write(interface.join("address"), "02:00:00:00:00:07\n").unwrap();
        }
        let bus = Bus::below(root.path());
        let ports = bus.ports().unwrap();
        assert_eq!(ports.len(), 3);
        assert_eq!(ports[0].address, "0000:00:10.0");
        assert_eq!(ports[0].mac.unwrap().to_string(), "02:00:00:00:00:07");
        assert_eq!(ports[1].mac, None);
        assert_eq!(bus.interface("0000:00:10.0").unwrap(), "eth0");
        assert_eq!(bus.interface("0000:00:12.0").unwrap(), "eth2");
        let error = bus.bind("0000:00:10.0", OF_PROGRAM).unwrap_err();
        assert!(error.contains("no driver uio_pci_generic"), "{error}");
        // A driver that exists but does not bind the device.
        fs::create_dir_all(root.path().join("sys/bus/pci/drivers").join(OF_PROGRAM)).unwrap();
        let error = bus.bind("0000:00:10.0", OF_PROGRAM).unwrap_err();
        assert!(error.contains("driven by none"), "{error}");
        std::os::unix::fs::symlink(format!("../../drivers/{OF_PROGRAM}"), first.join("driver"))
            .unwrap();
        bus.bind("0000:00:10.0", OF_PROGRAM).unwrap();
    }
}
