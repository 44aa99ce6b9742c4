// SPDX-License-Identifier: Apache-2.0
//! Drivers of PCI devices, as sysfs shows and changes them (Documentation/ABI/testing/sysfs-bus-pci).

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::pci_driver::DriverChange;
pub(crate) use quietwire_base::pci_driver::{FUNCTIONS, FUNCTIONS_MAX, STEP_MAX};
use serde::{Deserialize, Serialize};

use crate::files::{Files, is_absent, named};

/// Text of `driver_override` without a name.
const NO_OVERRIDE: &str = "(null)";

/// Driver of a PCI device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DriverState {
    /// Name of the driver that the device is bound to.
    pub driver: Option<String>,
    /// Name of the only driver that may be bound to it (`driver_override`).
    pub driver_override: Option<String>,
}

impl DriverState {
    /// Returns the state of a device that is bound to one driver by `driver_override`.
    pub(crate) fn forced(driver: &str) -> Self {
        Self {
            driver: Some(driver.to_owned()),
            driver_override: Some(driver.to_owned()),
        }
    }

    /// Returns whether a change from `former` to `new`, or its undoing, stopped here. The device has no driver in between.
    pub(crate) fn is_between(&self, former: &Self, new: &Self) -> bool {
        let is_override_known =
            [&former.driver_override, &new.driver_override].contains(&&self.driver_override);
        let is_driver_known = [&former.driver, &new.driver, &None].contains(&&self.driver);
        is_override_known && is_driver_known
    }
}

impl fmt::Display for DriverState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Some(driver) => write!(f, "the driver {driver}")?,
            None => f.write_str("no driver")?,
        }
        match &self.driver_override {
            Some(name) => write!(f, " (driver_override: {name})"),
            None => Ok(()),
        }
    }
}

/// A PCI device.
pub(crate) struct PciDevice<'a> {
    files: &'a dyn Files,
    /// Its directory: `/sys/bus/pci/devices/ADDRESS`.
    path: &'a Path,
}

impl<'a> PciDevice<'a> {
    pub(crate) fn new(files: &'a dyn Files, path: &'a Path) -> Self {
        Self { files, path }
    }

    /// Returns the driver of the device.
    ///
    /// # Errors
    /// Error of the operating system; [`io::ErrorKind::NotFound`] if the device does not exist.
    pub(crate) fn driver(&self) -> io::Result<Option<String>> {
        let text = self.read("uevent")?;
        let name = text.lines().find_map(|line| line.strip_prefix("DRIVER="));
        Ok(name.map(str::trim).filter(is_name).map(str::to_owned))
    }

    /// Returns the driver of the device and its `driver_override`.
    ///
    /// # Errors
    /// As [`Self::driver`].
    pub(crate) fn state(&self) -> io::Result<DriverState> {
        let forced = self.read("driver_override")?;
        let forced = Some(forced.trim()).filter(|name| is_name(name) && *name != NO_OVERRIDE);
        Ok(DriverState {
            driver: self.driver()?,
            driver_override: forced.map(str::to_owned),
        })
    }

    /// Changes the driver: sets `driver_override`, unbinds the present driver, and lets the kernel search another one.
    ///
    /// # Errors
    /// Error of the operating system; [`io::ErrorKind::TimedOut`] if a step takes more than 10 s. The kernel bound no driver or another
    /// one.
    pub(crate) fn change(&self, to: &DriverState) -> io::Result<()> {
        let now = self.state()?;
        let has_other_driver = now.driver != to.driver;
        let only = to.driver_override.as_deref().unwrap_or_default();
        let change = DriverChange {
            only: (now.driver_override != to.driver_override).then_some(only),
            unbind: now.driver.as_deref().filter(|_| has_other_driver),
            probes: has_other_driver && to.driver.is_some(),
        };
        let write = |path: &Path, text: &str| self.write(path, text);
        change.make(&self.bus(), &self.address(), write)?;
        let Some(driver) = to.driver.as_deref().filter(|_| has_other_driver) else {
            return Ok(());
        };
        match self.driver()? {
            Some(now) if now == driver => Ok(()),
            Some(other) => Err(io::Error::other(format!(
                "the kernel bound {other} instead of {driver}"
            ))),
            None => Err(io::Error::other(format!(
                "the driver {driver} is not loaded or refuses the device (`dmesg` shows the reason)"
            ))),
        }
    }

    /// Returns the number of virtual functions of the device, as text. `None` if it does not support SR-IOV.
    ///
    /// # Errors
    /// Error of the operating system; [`io::ErrorKind::TimedOut`] if the kernel does not answer within 10 s.
    pub(crate) fn functions(&self) -> io::Result<Option<String>> {
        let path = self.path.join(FUNCTIONS);
        match read_setting(self.files, &path, STEP_MAX) {
            Err(error) if is_absent(&error) => Ok(None),
            read => Ok(Some(read.map_err(named(&path))?.trim().to_owned())),
        }
    }

    fn address(&self) -> Cow<'_, str> {
        let name = self.path.file_name();
        name.map(|name| name.to_string_lossy()).unwrap_or_default()
    }

    /// Returns the directory of the bus: `/sys/bus/pci`.
    fn bus(&self) -> PathBuf {
        let bus = self.path.parent().and_then(Path::parent);
        bus.unwrap_or(self.path).to_owned()
    }

    fn read(&self, file: &str) -> io::Result<String> {
        let path = self.path.join(file);
        let read = self.files.read_within(&path, STEP_MAX);
        read.map_err(named(&path))
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let written = self.files.write_within(path, text, STEP_MAX);
        written.map_err(named(path))
    }
}

/// Reads a setting. The number of virtual functions is read with a timeout: the kernel holds the lock of the device while the driver
/// creates or removes functions, and answers nothing until then (`sriov_numvfs_show` in drivers/pci/iov.c).
///
/// # Errors
/// Error of the operating system; [`io::ErrorKind::TimedOut`].
pub(crate) fn read_setting(files: &dyn Files, path: &Path, time: Duration) -> io::Result<String> {
    match path.ends_with(FUNCTIONS) {
        true => files.read_within(path, time),
        false => files.read(path),
    }
}

/// Names of drivers become parts of paths.
fn is_name(name: &&str) -> bool {
    !name.is_empty() && !name.contains('/') && !name.starts_with('.')
}
