// SPDX-License-Identifier: Apache-2.0
//! Cards in a tree of sysfs, behind the rules of the kernel for binding drivers.

use std::fs;
use std::os::unix::fs::symlink;

use nix::errno::Errno;
use quietwire_base::faults::{Faults, Random, When, run_process, run_seeds};

use super::*;
use crate::files::Disk;
use crate::files::faulty::Faulty;
use crate::files::hanging::Hanging;
use crate::journal::{self, UndoOutcome};

const CARD: &str = "0000:17:00.0";
const SECOND: &str = "0000:17:00.1";
const SOUND: &str = "0000:00:1f.3";

/// Files of the kernel: sysfs as a directory. `native` of a device is the driver that its identifiers select.
#[derive(Debug)]
struct Kernel {
    root: tempfile::TempDir,
}

impl Kernel {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/bus/pci/drivers/vfio-pci")).unwrap();
        Self { root }
    }

    fn device(&self, address: &str) -> PathBuf {
        self.root.path().join("sys/bus/pci/devices").join(address)
    }

    fn with(self, address: &str, class: &str, driver: Option<&str>) -> Self {
        let path = self.device(address);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("class"), format!("{class}\n")).unwrap();
        fs::write(path.join("driver_override"), "(null)\n").unwrap();
        fs::write(path.join("native"), driver.unwrap_or_default()).unwrap();
        self.bound(address, driver.unwrap_or_default());
        if let Some(driver) = driver {
            let drivers = self.root.path().join("sys/bus/pci/drivers");
            fs::create_dir_all(drivers.join(driver)).unwrap();
        }
        self
    }

    fn group(self, number: &str, members: &[&str]) -> Self {
        let path = self.root.path().join("sys/kernel/iommu_groups");
        let devices = path.join(number).join("devices");
        fs::create_dir_all(&devices).unwrap();
        for member in members {
            symlink(path.join(number), self.device(member).join("iommu_group")).unwrap();
            symlink(self.device(member), devices.join(member)).unwrap();
        }
        self
    }

    /// Makes `uevent` of a device as the kernel shows it with a driver, or with none.
    fn bound(&self, address: &str, driver: &str) {
        let line = match driver {
            "" => String::new(),
            driver => format!("DRIVER={driver}\n"),
        };
        let text = format!("{line}PCI_CLASS=20000\nPCI_ID=8086:1592\n");
        fs::write(self.device(address).join("uevent"), text).unwrap();
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn state(&self, address: &str) -> DriverState {
        PciDevice::new(self, &self.device(address)).state().unwrap()
    }

    fn journal(&self) -> PathBuf {
        self.root.path().join("journal")
    }

    fn bind(&self, addresses: &[&str], iommu: Iommu) -> Result<Vec<String>, BindError> {
        let mut journal = Journal::open(&self.journal()).unwrap();
        let addresses: Vec<String> = addresses.iter().map(|one| (*one).to_owned()).collect();
        bind(self, self.root.path(), &mut journal, &addresses, iommu)
    }

    fn refused(&self, addresses: &[&str], iommu: Iommu) -> String {
        let error = self.bind(addresses, iommu).unwrap_err();
        assert!(matches!(error, BindError::Refused { .. }), "{error}");
        assert!(journal::read(&self.journal()).unwrap().is_empty());
        error.to_string()
    }

    fn undo(&self) -> Vec<UndoOutcome> {
        let changes = journal::read(&self.journal()).unwrap();
        let undone = journal::undo_in(self, &changes, false);
        undone.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Binds a device without a driver to that of its `driver_override`, or to its native one.
    fn probe(&self, address: &str) -> io::Result<()> {
        let state = self.state(address);
        let native = fs::read_to_string(self.device(address).join("native"))?;
        let name = state.driver_override.unwrap_or(native);
        let drivers = self.root.path().join("sys/bus/pci/drivers");
        if state.driver.is_none() && !name.is_empty() && drivers.join(&name).is_dir() {
            self.bound(address, &name);
        }
        Ok(())
    }
}

impl Files for Kernel {
    fn read(&self, path: &Path) -> io::Result<String> {
        Disk.read(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let name = path.file_name().unwrap().to_str().unwrap();
        match name {
            "driver_override" => {
                let name = match text.trim() {
                    "" => "(null)",
                    name => name,
                };
                Disk.write(path, &format!("{name}\n"))
            }
            "unbind" => {
                let driver = path.parent().unwrap().file_name().unwrap().to_str();
                if self.state(text).driver.as_deref() != driver {
                    return Err(Errno::ENODEV.into());
                }
                self.bound(text, "");
                Ok(())
            }
            "drivers_probe" => self.probe(text),
            _ => Disk.write(path, text),
        }
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        Disk.make_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        Disk.remove_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Disk.list(path)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        Disk.is_directory(path)
    }
}

fn two_cards() -> Kernel {
    Kernel::new()
        .with(CARD, "0x020000", Some("ice"))
        .with(SECOND, "0x020000", None)
        .group("7", &[CARD])
        .group("8", &[SECOND])
}

#[test]
fn cards_are_bound_and_their_former_drivers_return() {
    let kernel = two_cards();
    let changes = kernel.bind(&[CARD, SECOND, CARD], Iommu::Required).unwrap();
    assert_eq!(
        changes,
        [
            "0000:17:00.0: the driver ice -> the driver vfio-pci",
            "0000:17:00.1: no driver -> the driver vfio-pci"
        ]
    );
    for address in [CARD, SECOND] {
        assert_eq!(kernel.state(address), DriverState::forced(VFIO));
    }
    // Bound already: nothing to change.
    assert!(kernel.bind(&[CARD], Iommu::Required).unwrap().is_empty());
    assert_eq!(
        kernel.undo(),
        [UndoOutcome::Restored, UndoOutcome::Restored]
    );
    let ice = DriverState {
        driver: Some("ice".to_owned()),
        driver_override: None,
    };
    assert_eq!(kernel.state(CARD), ice);
    assert_eq!(kernel.state(SECOND), DriverState::default());
    let gone = [UndoOutcome::AlreadyGone, UndoOutcome::AlreadyGone];
    assert_eq!(kernel.undo(), gone);
}

#[test]
fn a_former_override_returns_and_drivers_for_dpdk_stay() {
    let kernel = two_cards();
    let file = kernel.device(CARD).join("driver_override");
    fs::write(&file, "ice\n").unwrap();
    let before = kernel.state(CARD);
    kernel.bound(SECOND, "mlx5_core");
    let changes = kernel.bind(&[CARD, SECOND], Iommu::Required).unwrap();
    let text = "0000:17:00.0: the driver ice (driver_override: ice) -> the driver vfio-pci";
    assert_eq!(changes, [text]);
    assert_eq!(kernel.undo(), [UndoOutcome::Restored]);
    assert_eq!(kernel.state(CARD), before);
}

#[test]
fn a_function_that_is_gone_and_a_card_with_a_third_driver_are_left_alone() {
    let kernel = two_cards();
    kernel.bind(&[CARD, SECOND], Iommu::Required).unwrap();
    fs::remove_dir_all(kernel.device(SECOND)).unwrap();
    kernel.bound(CARD, "uio_pci_generic");
    let before = kernel.state(CARD);
    let outcomes = kernel.undo();
    assert_eq!(outcomes[0], UndoOutcome::AlreadyGone);
    assert!(
        matches!(&outcomes[1], UndoOutcome::ChangedSince(why) if why.contains("uio_pci_generic")),
        "{outcomes:?}"
    );
    assert_eq!(kernel.state(CARD), before);
}

#[test]
fn cards_that_must_not_be_bound_are_refused_before_any_change() {
    let kernel = two_cards().with(SOUND, "0x040300", Some("snd_hda_intel"));
    let why = kernel.refused(&[CARD, SOUND], Iommu::Required);
    assert!(
        why.contains("0000:00:1f.3: it is not a network card"),
        "{why}"
    );
    let why = kernel.refused(&[CARD, "0000:99:00.0"], Iommu::Required);
    assert!(why.contains("0000:99:00.0"), "{why}");
    kernel.file(&format!("sys/bus/pci/devices/{CARD}/sriov_numvfs"), "2\n");
    let why = kernel.refused(&[CARD], Iommu::Required);
    assert!(why.contains("it has 2 virtual functions"), "{why}");
    let kernel = two_cards();
    let flags = format!("sys/bus/pci/devices/{CARD}/net/ens1f0/flags");
    kernel.file(&flags, "0x1003\n");
    let why = kernel.refused(&[SECOND, CARD], Iommu::Required);
    assert!(why.contains("`ip link set ens1f0 down`"), "{why}");
    kernel.file(&flags, "0x1002\n");
    let virtio = format!("sys/bus/pci/devices/{SECOND}/virtio0/net/eth0/flags");
    kernel.file(&virtio, "0x1003\n");
    let why = kernel.refused(&[CARD, SECOND], Iommu::Required);
    assert!(why.contains("`ip link set eth0 down`"), "{why}");
    kernel.bind(&[CARD], Iommu::Required).unwrap();
    let kernel = two_cards();
    fs::remove_dir(kernel.root.path().join("sys/bus/pci/drivers/vfio-pci")).unwrap();
    let why = kernel.refused(&[CARD], Iommu::Required);
    assert!(why.contains("`modprobe vfio-pci`"), "{why}");
}

#[test]
fn a_card_whose_driver_hangs_is_left_alone() {
    let kernel = two_cards();
    kernel.file(&format!("sys/bus/pci/devices/{CARD}/sriov_numvfs"), "0\n");
    let hanging = Hanging::after(0, &kernel);
    let mut journal = Journal::open(&kernel.journal()).unwrap();
    let addresses = [CARD.to_owned()];
    let root = kernel.root.path();
    let bound = bind(&hanging, root, &mut journal, &addresses, Iommu::Required);
    let error = bound.unwrap_err();
    assert!(
        matches!(&error, BindError::Failed { cause, .. } if cause.kind() == io::ErrorKind::TimedOut),
        "{error}"
    );
    assert!(error.to_string().contains("sriov_numvfs"), "{error}");
    assert!(journal::read(&kernel.journal()).unwrap().is_empty());
}

#[test]
fn a_group_shared_with_a_device_in_use_is_refused_with_its_name() {
    let kernel = Kernel::new()
        .with(CARD, "0x020000", Some("ice"))
        .with(SECOND, "0x020000", Some("ice"))
        .with("0000:16:00.0", "0x060400", Some("pcieport"))
        .group("7", &[CARD, SECOND, "0000:16:00.0"]);
    let why = kernel.refused(&[CARD], Iommu::Required);
    assert!(
        why.contains("IOMMU group 7 with 0000:17:00.1 (ice), but"),
        "{why}"
    );
    // Both together have a complete group.
    kernel.bind(&[CARD, SECOND], Iommu::Required).unwrap();
}

#[test]
fn without_an_iommu_cards_are_bound_only_on_request() {
    let kernel = Kernel::new().with(CARD, "0x020000", Some("virtio-pci"));
    let why = kernel.refused(&[CARD], Iommu::Required);
    assert!(why.contains("uses no IOMMU"), "{why}");
    let why = kernel.refused(&[CARD], Iommu::Optional);
    assert!(why.contains("CONFIG_VFIO_NOIOMMU"), "{why}");
    kernel.file(NO_IOMMU, "N\n");
    let changes = kernel.bind(&[CARD], Iommu::Optional).unwrap();
    assert!(changes[0].contains("can access all memory"), "{changes:?}");
    let parameter = kernel.root.path().join(NO_IOMMU);
    let mode = || fs::read_to_string(&parameter).unwrap().trim().to_owned();
    assert_eq!(mode(), "Y");
    assert_eq!(
        kernel.undo(),
        [UndoOutcome::Restored, UndoOutcome::Restored]
    );
    assert_eq!(mode(), "N");
    assert_eq!(kernel.state(CARD).driver.as_deref(), Some("virtio-pci"));
}

#[test]
fn a_driver_that_refuses_a_card_is_reported_and_the_former_one_returns() {
    let kernel = two_cards();
    // The kernel has no such driver any more when it searches one.
    let busy = Refusing(&kernel);
    let mut journal = Journal::open(&kernel.journal()).unwrap();
    let root = kernel.root.path();
    let error = bind(
        &busy,
        root,
        &mut journal,
        &[CARD.to_owned()],
        Iommu::Required,
    );
    let error = error.unwrap_err();
    assert!(matches!(error, BindError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("refuses the device"), "{error}");
    assert_eq!(kernel.state(CARD).driver, None);
    assert_eq!(kernel.undo(), [UndoOutcome::Restored]);
    assert_eq!(kernel.state(CARD).driver.as_deref(), Some("ice"));
}

/// A kernel in which no driver accepts a device.
#[derive(Debug)]
struct Refusing<'a>(&'a Kernel);

impl Files for Refusing<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.0.read(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        match path.ends_with("drivers_probe") {
            true => Ok(()),
            false => self.0.write(path, text),
        }
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.0.make_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.remove_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.list(path)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.0.is_directory(path)
    }
}

/// One process: binds the cards, or undoes what its predecessors did.
fn process(kernel: &Kernel, faults: &Faults<'_>, is_start: bool) {
    let files = Faulty { kernel, faults };
    let path = kernel.journal();
    if is_start {
        let addresses = [CARD.to_owned(), SECOND.to_owned()];
        // Whatever happens: the journal has all changes.
        if let Ok(mut journal) = Journal::open_in(faults, &path) {
            let root = kernel.root.path();
            let _ = bind(&files, root, &mut journal, &addresses, Iommu::Optional);
        }
    } else if let Ok(changes) = journal::read_in(faults, &path) {
        let _ = journal::undo_in(&files, &changes, false);
    }
}

#[test]
fn after_any_fault_the_journal_restores_all_drivers() {
    // The second card has no IOMMU.
    let rig = || {
        let kernel = Kernel::new()
            .with(CARD, "0x020000", Some("ice"))
            .with(SECOND, "0x020000", Some("ice"))
            .group("7", &[CARD]);
        kernel.file(NO_IOMMU, "N\n");
        kernel
    };
    let counting = Faults::new(When::Never, None, Random::new(0));
    let kernel = rig();
    process(&kernel, &counting, true);
    assert_eq!(kernel.state(SECOND), DriverState::forced(VFIO));
    let operations = counting.count();
    let mut changed = 0;
    let seeds = run_seeds(
        500,
        "quietwire-host",
        "vfio::tests::after_any_fault",
        |seed| {
            let mut random = Random::new(seed);
            let kernel = rig();
            let before = [CARD, SECOND].map(|address| kernel.state(address));
            for number in 0..=random.below(3) {
                let when = When::Once(random.below(operations));
                let faults = Faults::new(when, None, Random::new(random.below(u64::MAX)));
                run_process(|| process(&kernel, &faults, number == 0));
            }
            changed += u64::from(before != [CARD, SECOND].map(|address| kernel.state(address)));
            if kernel.journal().exists() {
                let undone = kernel.undo();
                assert!(!undone.iter().any(UndoOutcome::is_left), "{undone:?}");
            }
            assert_eq!(before, [CARD, SECOND].map(|address| kernel.state(address)));
            let mode = fs::read_to_string(kernel.root.path().join(NO_IOMMU)).unwrap();
            assert_eq!(mode.trim(), "N");
        },
    );
    assert!(seeds < 500 || changed > 20, "{changed}");
}
