// SPDX-License-Identifier: Apache-2.0
//! Changes of the driver and of the virtual functions of a PCI device in sysfs (Documentation/ABI/testing/sysfs-bus-pci).

use std::io;
use std::path::Path;
use std::time::Duration;

/// Time of one operation on a file of a device. The kernel releases a device of vfio only when no program has it open
/// (drivers/vfio/vfio_main.c), and answers nothing about its driver until then.
pub const STEP_MAX: Duration = Duration::from_secs(10);
/// Timeout for a change of the number of virtual functions. A function that a program has open blocks it.
pub const FUNCTIONS_MAX: Duration = Duration::from_secs(120);
/// File with the number of virtual functions of a device.
pub const FUNCTIONS: &str = "sriov_numvfs";

/// A change of the driver of a PCI device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverChange<'a> {
    /// Name of the only driver that may be bound to the device from now on (`driver_override`), empty for any driver. `None` leaves it
    /// unchanged.
    pub only: Option<&'a str>,
    /// Name of the driver that the device is bound to, to unbind it.
    pub unbind: Option<&'a str>,
    /// True if the kernel searches a driver for the device at the end.
    pub probes: bool,
}

impl DriverChange<'_> {
    /// Makes the change. `bus` is the directory of the bus (`/sys/bus/pci`), `address` the PCI address of the device. `write` writes a text
    /// to a file in one call.
    ///
    /// # Errors
    /// The first error of `write`. The steps after it are not made then, so that the device may have no driver.
    pub fn make(
        &self,
        bus: &Path,
        address: &str,
        write: impl Fn(&Path, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(only) = self.only {
            let file = bus.join("devices").join(address).join("driver_override");
            // An empty line removes the name.
            write(&file, &format!("{only}\n"))?;
        }
        if let Some(driver) = self.unbind {
            write(&bus.join("drivers").join(driver).join("unbind"), address)?;
        }
        if self.probes {
            write(&bus.join("drivers_probe"), address)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const ADDRESS: &str = "0000:17:00.0";

    /// Makes a change of which so many writes succeed. Returns the writes, and whether all succeeded.
    fn made(change: DriverChange<'_>, successes: usize) -> (Vec<(String, String)>, bool) {
        let writes = RefCell::new(Vec::new());
        let write = |path: &Path, text: &str| {
            if writes.borrow().len() == successes {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let path = path.display().to_string();
            writes.borrow_mut().push((path, text.to_owned()));
            Ok(())
        };
        let is_done = change.make(Path::new("/bus"), ADDRESS, write).is_ok();
        (writes.into_inner(), is_done)
    }

    #[test]
    fn a_device_is_unbound_before_the_kernel_searches_the_only_driver() {
        let change = DriverChange {
            only: Some("vfio-pci"),
            unbind: Some("igb"),
            probes: true,
        };
        let steps = [
            ("/bus/devices/0000:17:00.0/driver_override", "vfio-pci\n"),
            ("/bus/drivers/igb/unbind", ADDRESS),
            ("/bus/drivers_probe", ADDRESS),
        ];
        let steps = steps.map(|(path, text)| (path.to_owned(), text.to_owned()));
        assert_eq!(made(change, 3), (steps.to_vec(), true));
        // No step follows one that fails.
        for (successes, is_done) in [(0, false), (1, false), (2, false)] {
            assert_eq!(
                made(change, successes),
                (steps[..successes].to_vec(), is_done)
            );
        }
    }

    #[test]
    fn parts_that_do_not_change_are_not_written() {
        let none = DriverChange {
            only: None,
            unbind: None,
            probes: false,
        };
        assert_eq!(made(none, 0), (Vec::new(), true));
        let any = DriverChange {
            only: Some(""),
            ..none
        };
        let file = "/bus/devices/0000:17:00.0/driver_override".to_owned();
        assert_eq!(made(any, 1), (vec![(file, "\n".to_owned())], true));
    }
}
