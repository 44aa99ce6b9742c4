// SPDX-License-Identifier: Apache-2.0
//! A kernel setting: a file with a planned value.

use std::io;
use std::path::PathBuf;

use super::outcome::{Difference, Outcome, failed};
use super::target::Target;
use crate::files::{is_read_only, named};
use crate::journal::same::same;
use crate::journal::{Change, Journal};
use crate::pci_driver::{FUNCTIONS_MAX, read_setting};
use crate::settings::MORE_HUGE_PAGES;

/// Special rules of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    /// Affinity of an interrupt. The kernel refuses to move some interrupts.
    Interrupt,
    /// Number of virtual functions. A change to another number goes through 0.
    Functions,
    /// Pool of huge pages. The kernel may allocate fewer pages than requested.
    Pool,
}

/// A file and its planned value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub(super) path: PathBuf,
    pub(super) value: String,
    pub(super) kind: Kind,
}

impl Setting {
    pub(super) fn difference(&self, target: &Target<'_>) -> Option<Difference> {
        // Settings differ between kernel releases. A missing file is not a difference.
        let now = self.read(target).ok()?.trim().to_owned();
        let is_same = same(&self.path, &now, &self.value);
        // Pages that other programs reserved stay.
        let pages = |text: &str| text.parse::<u64>().ok();
        let is_enough = self.kind == Kind::Pool && pages(&now) >= pages(&self.value);
        (!is_same && !is_enough).then(|| Difference {
            place: self.path.clone(),
            now,
            wanted: self.value.clone(),
        })
    }

    /// Returns whether only the kernel can change the setting: the affinity of an interrupt that it manages itself. Kernels before Linux 6.12
    /// do not mark such a file, and refuse the change instead.
    pub(super) fn is_fixed(&self) -> bool {
        self.kind == Kind::Interrupt && is_read_only(&self.path)
    }

    pub(super) fn make(&self, target: &Target<'_>, journal: &mut Journal, now: &str) -> Outcome {
        if self.is_fixed() {
            return Outcome::Fixed {
                reason: "the file is read-only".to_owned(),
            };
        }
        let made = self.write(target, journal, now);
        match made {
            Ok(()) => self.check_current(target),
            Err(error) if self.kind == Kind::Interrupt && is_fixed(&error) => Outcome::Fixed {
                reason: error.to_string(),
            },
            Err(error) => failed(&error),
        }
    }

    fn read(&self, target: &Target<'_>) -> io::Result<String> {
        read_setting(target.files, &self.path, FUNCTIONS_MAX)
    }

    fn write(&self, target: &Target<'_>, journal: &mut Journal, now: &str) -> io::Result<()> {
        let path = &self.path;
        let mut former = self.read(target).map_err(named(path))?;
        let mut write = |former: &str, value: &str| {
            journal.record(&Change::FileWritten {
                path: path.clone(),
                former: former.to_owned(),
                new: value.to_owned(),
            })?;
            // Callers need the kind of the error.
            match self.kind {
                Kind::Functions => target.files.write_within(path, value, FUNCTIONS_MAX),
                _ => target.files.write(path, value),
            }
        };
        if self.kind == Kind::Functions && now != "0" && self.value != "0" {
            write(&former, "0")?;
            former = "0\n".to_owned();
        }
        write(&former, &self.value)
    }

    /// Reads the value back and returns the outcome.
    fn check_current(&self, target: &Target<'_>) -> Outcome {
        let now = match self.read(target).map_err(named(&self.path)) {
            Ok(now) => now,
            Err(error) => return failed(&error),
        };
        if same(&self.path, &now, &self.value) {
            return Outcome::Done;
        }
        let what = format!(
            "'{}' was written, but the file contains '{}'",
            self.value,
            now.trim()
        );
        match self.kind {
            Kind::Pool => Outcome::Partly {
                what: format!("{what} ({MORE_HUGE_PAGES})"),
            },
            _ => Outcome::Failed { reason: what },
        }
    }
}

/// Returns whether only the kernel can move the interrupt: EIO (per-CPU, managed), EPERM, or EINVAL and ENOSPC from the
/// chip (irq_set_affinity).
fn is_fixed(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::EIO | Errno::EPERM | Errno::EINVAL | Errno::ENOSPC)
    )
}

/// Returns the names in a directory of the machine, in order. Empty if the directory does not exist.
pub(super) fn names(target: &Target<'_>, below: &str) -> Vec<String> {
    let listed = target.files.list(&target.path(below));
    listed.unwrap_or_default()
}
