// SPDX-License-Identifier: Apache-2.0
//! Checks in sysfs (Documentation/ABI/testing/sysfs-bus-pci) whether DPDK can use a PCI device, with the remedy if it cannot.
//! DPDK itself skips such a device silently.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::run_within;

use crate::error::Error;

/// Reason why DPDK cannot use a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The device does not exist or is not a network card.
    Wrong(String),
    /// The device exists but requires preparation.
    NotReady(String),
}

impl Problem {
    /// Returns the error of a port whose device this is.
    pub(crate) fn of_port(self, port: &str, address: &str) -> Error {
        let (port, address) = (port.to_owned(), address.to_owned());
        match self {
            Self::Wrong(what) => Error::NoPciDevice {
                port,
                address,
                what,
            },
            Self::NotReady(what) => Error::PciNotReady {
                port,
                address,
                what,
            },
        }
    }
}

/// Kernel drivers that give user space access to a device.
pub(crate) const VFIO: &str = "vfio-pci";
const UIO: &[&str] = &["uio_pci_generic", "igb_uio"];
/// Kernel drivers that DPDK's drivers work beside (bifurcated).
const SHARED: &[&str] = &["mlx4_core", "mlx5_core", "mana"];
/// Drivers that may stay in an IOMMU group of a passed-through device: bridges do no DMA.
const HARMLESS: &[&str] = &[VFIO, "pcieport", "pci-stub"];

/// Timeout for reading a number of virtual functions.
const FUNCTIONS_MAX: Duration = Duration::from_secs(10);

/// PCI class of network controllers: the highest of three octets.
const CLASS_NETWORK: &str = "0x02";

fn name_of_link(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

fn names_in(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Returns the directories of the kernel interfaces of a device. Those of a virtio card are below its device `virtioN`, which the driver of
/// the PCI device creates (drivers/virtio/virtio_pci_common.c).
fn interfaces_in(device: &Path) -> Vec<PathBuf> {
    let mut parents = vec![device.to_owned()];
    let inner = names_in(device).into_iter();
    parents.extend(
        inner
            .filter(|name| name.starts_with("virtio"))
            .map(|name| device.join(name)),
    );
    let of_parent = |parent: &PathBuf| {
        let directory = parent.join("net");
        let names = names_in(&directory).into_iter();
        names
            .map(move |name| directory.join(name))
            .collect::<Vec<_>>()
    };
    parents.iter().flat_map(of_parent).collect()
}

/// Returns the domain of a device, and its number there: bus, device and function.
fn routing_id(address: &str) -> Option<(u32, u32)> {
    let (domain, rest) = address.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let own = number(bus)? << 8 | number(device)? << 3 | number(function)?;
    Some((number(domain)?, own))
}

fn bind(address: &str) -> String {
    format!("`modprobe vfio-pci; dpdk-devbind.py --bind={VFIO} {address}`")
}

/// A device below a root directory that contains `sys`.
struct Device<'root> {
    root: &'root Path,
    address: &'root str,
    path: PathBuf,
}

/// Checks whether DPDK can use a device. `root` is `/` or that of a recorded machine.
///
/// # Errors
/// The problem and its remedy, as text after the name of the device.
pub fn check(root: &Path, address: &str) -> Result<(), Problem> {
    let device = Device::at(root, address);
    device.is_network_card()?;
    match device.driver().as_deref() {
        None => Err(Problem::NotReady(format!(
            "has no driver (bind it with {})",
            bind(address)
        ))),
        Some(VFIO) => device.vfio(),
        Some(driver) if UIO.contains(&driver) || SHARED.contains(&driver) => Ok(()),
        Some(driver) => Err(device.of_the_kernel(driver)),
    }
}

/// Checks whether a device can be passed through to a guest. QEMU requires `vfio-pci` with an IOMMU between the device's DMA
/// and the host's memory (Documentation/driver-api/vfio.rst). `root` is that of [`check`].
///
/// # Errors
/// Those of [`check`].
pub fn check_for_guest(root: &Path, address: &str) -> Result<(), Problem> {
    let device = Device::at(root, address);
    device.is_network_card()?;
    let because = "passthrough to a guest requires vfio-pci";
    match device.driver().as_deref() {
        None => Err(Problem::NotReady(format!(
            "has no driver, but {because} (bind it with {})",
            bind(address)
        ))),
        Some(VFIO) if device.has_iommu() => device.vfio(),
        Some(VFIO) => Err(Problem::NotReady(
            "is bound to vfio-pci without an IOMMU, so a guest's card could access all memory of the host (enable VT-d or AMD-Vi in the firmware, boot with `intel_iommu=on iommu=pt` on Intel, and bind it again)".to_owned(),
        )),
        Some(driver) => Err(Problem::NotReady(format!(
            "is driven by {driver}{}, but {because} (bind it with {})",
            device.interfaces(),
            bind(address)
        ))),
    }
}

/// A virtual function (SR-IOV): its physical function, and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VirtualFunction {
    /// PCI address of the physical function.
    pub(crate) physical: String,
    /// Number of the virtual function, from 0.
    pub(crate) number: u32,
}

/// Returns the physical function of a device, and its number there, from the links `physfn` and `virtfnN`. `None` if the device is no
/// virtual function. `root` is that of [`check`].
pub(crate) fn virtual_function(root: &Path, address: &str) -> Option<VirtualFunction> {
    let devices = root.join("sys/bus/pci/devices");
    let physical = name_of_link(&devices.join(address).join("physfn"))?;
    let directory = devices.join(&physical);
    let links = names_in(&directory);
    let mut numbers = links.iter().filter_map(|link| {
        let number = link.strip_prefix("virtfn")?.parse().ok()?;
        (name_of_link(&directory.join(link))? == address).then_some(number)
    });
    let number = numbers.next()?;
    Some(VirtualFunction { physical, number })
}

/// Returns the virtual function that has this address, or that would have it if its physical function had enough of them. `None` if no
/// network card of this machine has such a function. `root` is that of [`check`].
pub(crate) fn possible_function(root: &Path, address: &str) -> Option<VirtualFunction> {
    virtual_function(root, address).or_else(|| {
        let (physical, number, _) = Device::at(root, address).possible_function()?;
        Some(VirtualFunction { physical, number })
    })
}

/// Returns the number of virtual functions of a device, if it supports them. `root` is that of [`check`].
pub(crate) fn function_count(root: &Path, address: &str) -> Option<u32> {
    // The kernel holds it back while a driver creates or removes functions (drivers/pci/iov.c), and such a driver may hang.
    let file = Device::at(root, address).path.join("sriov_numvfs");
    let text = run_within(FUNCTIONS_MAX, move || fs::read_to_string(file)).ok()?;
    text.trim().parse().ok()
}

/// Returns the addresses of the virtual functions of a device. `root` is that of [`check`].
pub(crate) fn functions_of(root: &Path, address: &str) -> Vec<String> {
    let directory = Device::at(root, address).path;
    let links = names_in(&directory).into_iter();
    links
        .filter(|link| link.starts_with("virtfn"))
        .filter_map(|link| name_of_link(&directory.join(link)))
        .collect()
}

/// Returns true for a driver that gives user space access to a device.
pub(crate) fn is_of_user_space(driver: &str) -> bool {
    driver == VFIO || UIO.contains(&driver)
}

/// Returns the first kernel interface of a device: its name and its index. `None` if no driver of the kernel has made one in the network
/// namespace of sysfs. `root` is that of [`check`].
pub(crate) fn interface(root: &Path, address: &str) -> Option<(String, u32)> {
    let device = root.join("sys/bus/pci/devices").join(address);
    let directory = interfaces_in(&device).into_iter().next()?;
    let name = directory.file_name()?.to_string_lossy().into_owned();
    let index = fs::read_to_string(directory.join("ifindex")).ok()?;
    Some((name, index.trim().parse().ok()?))
}

/// Returns the driver of a device. `root` is that of [`check`].
pub(crate) fn driver(root: &Path, address: &str) -> Option<String> {
    Device::at(root, address).driver()
}

/// Name of groups of devices under vfio without an IOMMU (drivers/vfio/group.c).
const NO_IOMMU: &str = "vfio-noiommu";

impl<'root> Device<'root> {
    fn at(root: &'root Path, address: &'root str) -> Self {
        let path = root.join("sys/bus/pci/devices").join(address);
        Self {
            root,
            address,
            path,
        }
    }

    fn driver(&self) -> Option<String> {
        name_of_link(&self.path.join("driver"))
    }

    fn has_iommu(&self) -> bool {
        let group = self.path.join("iommu_group");
        let name = fs::read_to_string(group.join("name")).unwrap_or_default();
        group.exists() && name.trim() != NO_IOMMU
    }

    /// Describes the kernel interfaces of the device, which disappear with another driver.
    fn interfaces(&self) -> String {
        let directories = interfaces_in(&self.path);
        let names = directories.iter().filter_map(|path| path.file_name());
        let interfaces: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
        if interfaces.is_empty() {
            return String::new();
        }
        format!(
            " as {}, which disappears with another driver",
            interfaces.join(", ")
        )
    }

    fn is_network_card(&self) -> Result<(), Problem> {
        if !self.path.exists() {
            return Err(Problem::Wrong(self.how_to_create()));
        }
        let class = fs::read_to_string(self.path.join("class")).unwrap_or_default();
        if class.starts_with(CLASS_NETWORK) {
            return Ok(());
        }
        Err(Problem::Wrong(format!(
            "is not a network card: its class is {}, but classes of network cards begin with {CLASS_NETWORK}",
            class.trim()
        )))
    }

    /// Describes how to get a device that does not exist.
    fn how_to_create(&self) -> String {
        let Some((physical, number, present)) = self.possible_function() else {
            return "does not exist (list network cards with `dpdk-devbind.py --status-dev net`, create virtual functions with `echo N > /sys/bus/pci/devices/CARD/sriov_numvfs`)".to_owned();
        };
        let file = format!("/sys/bus/pci/devices/{physical}/sriov_numvfs");
        // The kernel changes the number only to or from 0.
        let delete = match present {
            0 => String::new(),
            _ => format!("echo 0 > {file}; "),
        };
        format!(
            "does not exist: virtual function {number} of {physical} has this address, and that has {present} functions (create it with `{delete}echo {} > {file}`, then bind it with {})",
            number.saturating_add(1),
            bind(self.address)
        )
    }

    /// Returns the physical function that has a virtual function of this address if it has enough of them: its address, the number of the
    /// function, and its present number of functions (PCI Express Base Specification 5.0, section 9.2.1.2).
    fn possible_function(&self) -> Option<(String, u32, u32)> {
        let devices = self.root.join("sys/bus/pci/devices");
        let (domain, own) = routing_id(self.address)?;
        names_in(&devices).into_iter().find_map(|physical| {
            let number = |file: &str| -> Option<u32> {
                let text = fs::read_to_string(devices.join(&physical).join(file)).ok()?;
                text.trim().parse().ok()
            };
            let (domain_of_card, card) = routing_id(&physical)?;
            let total = number("sriov_totalvfs")?;
            let offset = number("sriov_offset")?;
            // It has no meaning for a single function.
            let stride = number("sriov_stride")?.max(1);
            let distance = own.checked_sub(card)?.checked_sub(offset)?;
            let place = distance.checked_div(stride)?;
            if domain_of_card != domain || distance.checked_rem(stride)? != 0 || place >= total {
                return None;
            }
            let present = function_count(self.root, &physical)?;
            Some((physical, place, present))
        })
    }

    fn of_the_kernel(&self, driver: &str) -> Problem {
        let which = self.interfaces();
        Problem::NotReady(format!(
            "is driven by the kernel driver {driver}{which} (bind it with {}, or use the interface with af-xdp: or af-packet:)",
            bind(self.address)
        ))
    }

    fn vfio(&self) -> Result<(), Problem> {
        if let Some(owner) = name_of_link(&self.path.join("physfn")) {
            let path = self.root.join("sys/bus/pci/devices").join(&owner);
            if name_of_link(&path.join("driver")).as_deref() == Some(VFIO) {
                return Err(Problem::NotReady(format!(
                    "is a virtual function of {owner}, which is bound to {VFIO} and therefore requires a token (bind {owner} to the kernel driver and create its virtual functions again)"
                )));
            }
        }
        let Some(group) = name_of_link(&self.path.join("iommu_group")) else {
            return self.without_iommu();
        };
        let devices = self
            .root
            .join("sys/kernel/iommu_groups")
            .join(&group)
            .join("devices");
        let held = |other: &String| {
            let path = self.root.join("sys/bus/pci/devices").join(other);
            let driver = name_of_link(&path.join("driver"))?;
            (!HARMLESS.contains(&driver.as_str())).then(|| format!("{other} ({driver})"))
        };
        let others: Vec<String> = names_in(&devices)
            .iter()
            .filter(|other| *other != self.address)
            .filter_map(held)
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        Err(Problem::NotReady(format!(
            "shares IOMMU group {group} with {}, but vfio requires a complete group (bind these to {VFIO} too, or use another slot for the card)",
            others.join(", ")
        )))
    }

    fn without_iommu(&self) -> Result<(), Problem> {
        let parameter = self
            .root
            .join("sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
        if fs::read_to_string(parameter).is_ok_and(|text| text.trim() == "Y") {
            return Ok(());
        }
        Err(Problem::NotReady(
            "is bound to vfio-pci, but this machine uses no IOMMU (enable VT-d or AMD-Vi in the firmware and boot with `intel_iommu=on iommu=pt` on Intel; if the machine has none and the card may access all memory, run `echo Y > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode` and bind it again)".to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    const CARD: &str = "0000:17:00.0";
    const FUNCTION: &str = "0000:17:02.3";

    /// A fake sysfs.
    struct Machine(PathBuf);

    impl Machine {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("qw-pci-{}-{number}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn device(&self, address: &str) -> PathBuf {
            self.0.join("sys/bus/pci/devices").join(address)
        }

        fn with(self, address: &str, class: &str, driver: Option<&str>) -> Self {
            let path = self.device(address);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("class"), format!("{class}\n")).unwrap();
            if let Some(driver) = driver {
                symlink(format!("../../drivers/{driver}"), path.join("driver")).unwrap();
            }
            self
        }

        fn group(self, group: &str, members: &[&str]) -> Self {
            let path = self.0.join("sys/kernel/iommu_groups").join(group);
            fs::create_dir_all(path.join("devices")).unwrap();
            for member in members {
                symlink(&path, self.device(member).join("iommu_group")).unwrap();
                symlink(self.device(member), path.join("devices").join(member)).unwrap();
            }
            self
        }

        fn message(&self, address: &str) -> String {
            match check(&self.0, address).unwrap_err() {
                Problem::Wrong(what) => format!("wrong: {what}"),
                Problem::NotReady(what) => what,
            }
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn assert_says(message: &str, parts: &[&str]) {
        for part in parts {
            assert!(message.contains(part), "no '{part}' in: {message}");
        }
    }

    #[test]
    fn absent_devices_and_other_devices_than_cards_are_refused() {
        let machine = Machine::new().with("0000:00:1f.2", "0x010601", Some("ahci"));
        assert_says(
            &machine.message(CARD),
            &["wrong: does not exist", "sriov_numvfs"],
        );
        assert_says(
            &machine.message("0000:00:1f.2"),
            &["wrong: is not a network card", "0x010601"],
        );
    }

    #[test]
    fn a_virtual_function_that_is_missing_has_the_command_that_creates_it() {
        let machine = Machine::new().with(CARD, "0x020000", Some("ice"));
        let set = |file: &str, number: u32| {
            fs::write(machine.device(CARD).join(file), format!("{number}\n")).unwrap();
        };
        // The first function has device 2 of the bus.
        for (file, number) in [
            ("sriov_totalvfs", 8),
            ("sriov_offset", 16),
            ("sriov_stride", 1),
            ("sriov_numvfs", 0),
        ] {
            set(file, number);
        }
        let create = "`echo 4 > /sys/bus/pci/devices/0000:17:00.0/sriov_numvfs`";
        assert_says(
            &machine.message(FUNCTION),
            &[
                "wrong: does not exist: virtual function 3 of 0000:17:00.0",
                "has 0 functions",
                create,
                "--bind=vfio-pci 0000:17:02.3",
            ],
        );
        set("sriov_numvfs", 2);
        assert_says(
            &machine.message(FUNCTION),
            &["has 2 functions", "`echo 0 > ", "; echo 4 > "],
        );
        // There is no ninth function, nor one on another bus or between two functions.
        for address in ["0000:17:03.0", "0000:18:02.3", "0001:17:02.3"] {
            assert_says(&machine.message(address), &["does not exist (list"]);
        }
        set("sriov_stride", 2);
        assert_says(&machine.message(FUNCTION), &["does not exist (list"]);
    }

    #[test]
    fn a_virtual_function_has_a_number_and_its_physical_function_an_interface() {
        let other = "0000:17:02.4";
        let machine = Machine::new()
            .with(CARD, "0x020000", Some("ice"))
            .with(FUNCTION, "0x020000", Some(VFIO))
            .with(other, "0x020000", None);
        // Its name sorts before that of function 3.
        for (number, address) in [(12, other), (3, FUNCTION)] {
            let link = machine.device(CARD).join(format!("virtfn{number}"));
            symlink(format!("../{address}"), link).unwrap();
            symlink(format!("../{CARD}"), machine.device(address).join("physfn")).unwrap();
        }
        for (number, address) in [(12, other), (3, FUNCTION)] {
            let physical = CARD.to_owned();
            let expected = VirtualFunction { physical, number };
            assert_eq!(virtual_function(&machine.0, address), Some(expected));
        }
        assert_eq!(virtual_function(&machine.0, CARD), None);
        assert_eq!(interface(&machine.0, CARD), None);
        let interface_directory = machine.device(CARD).join("net/ens1f0");
        fs::create_dir_all(&interface_directory).unwrap();
        fs::write(interface_directory.join("ifindex"), "7\n").unwrap();
        let found = interface(&machine.0, CARD);
        assert_eq!(found, Some(("ens1f0".to_owned(), 7)));
        // A function whose physical function does not list it.
        fs::remove_file(machine.device(CARD).join("virtfn3")).unwrap();
        assert_eq!(virtual_function(&machine.0, FUNCTION), None);
    }

    #[test]
    fn a_driver_of_the_kernel_is_named_with_its_interface() {
        let machine = Machine::new()
            .with(CARD, "0x020000", Some("ixgbe"))
            .with(FUNCTION, "0x020000", None);
        fs::create_dir_all(machine.device(CARD).join("net/eth3")).unwrap();
        assert_says(
            &machine.message(CARD),
            &["ixgbe as eth3", "--bind=vfio-pci 0000:17:00.0", "af-xdp:"],
        );
        assert_says(
            &machine.message(FUNCTION),
            &["has no driver", "--bind=vfio-pci 0000:17:02.3"],
        );
    }

    #[test]
    fn the_interface_of_a_virtio_card_is_below_its_virtio_device() {
        let machine = Machine::new().with(CARD, "0x020000", Some("virtio-pci"));
        let directory = machine.device(CARD).join("virtio3/net/enp23s0");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("ifindex"), "5\n").unwrap();
        assert_says(
            &machine.message(CARD),
            &["virtio-pci as enp23s0, which disappears", "af-xdp:"],
        );
        let found = interface(&machine.0, CARD);
        assert_eq!(found, Some(("enp23s0".to_owned(), 5)));
        match check_for_guest(&machine.0, CARD) {
            Err(Problem::NotReady(what)) => assert_says(&what, &["virtio-pci as enp23s0"]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cards_whose_functions_do_not_matter_are_not_read() {
        let other = "0000:18:00.0";
        let machine =
            Machine::new()
                .with(CARD, "0x020000", Some("ice"))
                .with(other, "0x020000", Some("ice"));
        for card in [CARD, other] {
            let numbers = [("totalvfs", 8), ("offset", 16), ("stride", 1)];
            for (file, number) in numbers {
                let path = machine.device(card).join(format!("sriov_{file}"));
                fs::write(path, format!("{number}\n")).unwrap();
            }
        }
        fs::write(machine.device(CARD).join("sriov_numvfs"), "0\n").unwrap();
        // Opening a FIFO without a writer blocks for ever, as the file of a driver that hangs.
        let fifo = machine.device(other).join("sriov_numvfs");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        assert_says(
            &machine.message(FUNCTION),
            &["virtual function 3 of 0000:17:00.0"],
        );
        assert_says(&machine.message("0000:19:02.3"), &["does not exist (list"]);
    }

    #[test]
    fn drivers_that_dpdk_supports_are_accepted() {
        for driver in ["uio_pci_generic", "igb_uio", "mlx5_core"] {
            let machine = Machine::new().with(CARD, "0x020000", Some(driver));
            assert_eq!(check(&machine.0, CARD), Ok(()), "{driver}");
        }
        let machine = Machine::new()
            .with(FUNCTION, "0x020000", Some(VFIO))
            .with("0000:17:01.0", "0x060400", Some("pcieport"))
            .with("0000:17:02.4", "0x020000", None)
            .group("41", &[FUNCTION, "0000:17:01.0", "0000:17:02.4"]);
        assert_eq!(check(&machine.0, FUNCTION), Ok(()));
    }

    #[test]
    fn a_missing_iommu_is_reported_unless_noiommu_mode_is_on() {
        let machine = Machine::new().with(CARD, "0x020000", Some(VFIO));
        assert_says(
            &machine.message(CARD),
            &["no IOMMU", "intel_iommu=on", "enable_unsafe_noiommu_mode"],
        );
        let parameters = machine.0.join("sys/module/vfio/parameters");
        fs::create_dir_all(&parameters).unwrap();
        let parameter = parameters.join("enable_unsafe_noiommu_mode");
        fs::write(&parameter, "N\n").unwrap();
        assert_says(&machine.message(CARD), &["no IOMMU"]);
        fs::write(&parameter, "Y\n").unwrap();
        assert_eq!(check(&machine.0, CARD), Ok(()));
    }

    #[test]
    fn other_devices_of_the_iommu_group_are_reported() {
        let machine = Machine::new()
            .with(CARD, "0x020000", Some(VFIO))
            .with("0000:17:00.1", "0x020000", Some("ixgbe"))
            .group("7", &[CARD, "0000:17:00.1"]);
        assert_says(&machine.message(CARD), &["group 7", "0000:17:00.1 (ixgbe)"]);
    }

    #[test]
    fn a_virtual_function_of_a_card_that_is_handed_over_is_distinguished() {
        let machine = Machine::new()
            .with(CARD, "0x020000", Some(VFIO))
            .with(FUNCTION, "0x020000", Some(VFIO))
            .group("7", &[FUNCTION]);
        symlink(
            machine.device(CARD),
            machine.device(FUNCTION).join("physfn"),
        )
        .unwrap();
        assert_says(
            &machine.message(FUNCTION),
            &["virtual function of 0000:17:00.0", "token"],
        );
    }

    #[test]
    fn a_guest_is_given_what_vfio_and_an_iommu_hand_over() {
        let machine = Machine::new()
            .with(FUNCTION, "0x020000", Some(VFIO))
            .group("41", &[FUNCTION]);
        assert_eq!(check_for_guest(&machine.0, FUNCTION), Ok(()));
        let message = |machine: &Machine, address: &str| match check_for_guest(&machine.0, address)
        {
            Err(Problem::NotReady(what)) => what,
            other => panic!("{other:?}"),
        };
        let name = machine.0.join("sys/kernel/iommu_groups/41/name");
        fs::write(&name, "vfio-noiommu\n").unwrap();
        assert_says(&message(&machine, FUNCTION), &["without an IOMMU"]);
        // Drivers that are sufficient for DPDK are not sufficient for a guest.
        for driver in ["uio_pci_generic", "mlx5_core", "ixgbe"] {
            let machine = Machine::new().with(CARD, "0x020000", Some(driver));
            let parts = [driver, "requires vfio-pci", "--bind=vfio-pci 0000:17:00.0"];
            assert_says(&message(&machine, CARD), &parts);
        }
        let machine = Machine::new().with(CARD, "0x020000", None);
        assert_says(&message(&machine, CARD), &["has no driver"]);
        let machine = Machine::new().with(CARD, "0x020000", Some(VFIO));
        assert_says(&message(&machine, CARD), &["without an IOMMU"]);
        let machine = Machine::new()
            .with(CARD, "0x020000", Some(VFIO))
            .with("0000:17:00.1", "0x020000", Some("ixgbe"))
            .group("7", &[CARD, "0000:17:00.1"]);
        assert_says(&message(&machine, CARD), &["group 7"]);
        let machine = Machine::new();
        assert!(matches!(
            check_for_guest(&machine.0, CARD),
            Err(Problem::Wrong(_))
        ));
    }
}
