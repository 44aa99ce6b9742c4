// SPDX-License-Identifier: Apache-2.0
//! A file that is to hold a value.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::outcome::{Difference, Outcome, failed};
use super::target::Target;
use crate::files::{named, text};
use crate::journal::same::same;
use crate::journal::{Change, Journal};

/// How a file takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    /// Not every interrupt can be moved.
    Interrupt,
    /// A number of functions is changed by way of none.
    Functions,
    /// The kernel gives as many pages as it has.
    Pool,
}

/// A file that is to hold a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub(super) path: PathBuf,
    pub(super) value: String,
    pub(super) kind: Kind,
}

impl Setting {
    pub(super) fn difference(&self, target: &Target<'_>) -> Option<Difference> {
        // What is not there cannot be set; the plan is for the machine, and settings come and go with kernels.
        let now = text(target.files, &self.path)?;
        let is_same = same(&self.path, &now, &self.value);
        // Pages that others reserved stay.
        let pages = |text: &str| text.parse::<u64>().ok();
        let is_enough = self.kind == Kind::Pool && pages(&now) >= pages(&self.value);
        (!is_same && !is_enough).then(|| Difference {
            place: self.path.clone(),
            now,
            wanted: self.value.clone(),
        })
    }

    pub(super) fn make(&self, target: &Target<'_>, journal: &mut Journal, now: &str) -> Outcome {
        let made = self.write(target, journal, now);
        match made {
            Ok(()) => self.look(target),
            Err(error) if self.kind == Kind::Interrupt && is_fixed(&error) => Outcome::Fixed {
                why: error.to_string(),
            },
            Err(error) => failed(&error),
        }
    }

    fn write(&self, target: &Target<'_>, journal: &mut Journal, now: &str) -> io::Result<()> {
        let path = &self.path;
        let mut former = target.files.read(path).map_err(named(path))?;
        let mut write = |former: &str, value: &str| {
            journal.record(&Change::FileWritten {
                path: path.clone(),
                former: former.to_owned(),
                new: value.to_owned(),
            })?;
            // The kind of the error is wanted still.
            target.files.write(path, value)
        };
        if self.kind == Kind::Functions && now != "0" && self.value != "0" {
            write(&former, "0")?;
            former = "0\n".to_owned();
        }
        write(&former, &self.value)
    }

    /// What the kernel made of it.
    fn look(&self, target: &Target<'_>) -> Outcome {
        let now = text(target.files, &self.path).unwrap_or_default();
        if same(&self.path, &now, &self.value) {
            return Outcome::Done;
        }
        let what = format!("'{}' was written, and it holds '{now}'", self.value);
        match self.kind {
            Kind::Pool => Outcome::Partly { what },
            _ => Outcome::Failed { why: what },
        }
    }
}

/// The kernel's words for an interrupt that it places itself: EIO (per-CPU, managed), EPERM, or EINVAL and ENOSPC from the
/// chip (irq_set_affinity).
fn is_fixed(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::EIO | Errno::EPERM | Errno::EINVAL | Errno::ENOSPC)
    )
}

/// Names in a directory of the machine's, in order; none when it is not there.
pub(super) fn names(target: &Target<'_>, below: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(target.path(below))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}
