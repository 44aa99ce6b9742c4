// SPDX-License-Identifier: Apache-2.0
//! What a plan wants of the running machine, one thing at a time and in an order that can be turned round.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::classes::{ClassStep, ClassTasksStep};
use super::cpusets::SetStep;
use super::threads::ThreadStep;
use super::{Target, classes, cpusets, settings, threads};
use crate::files::{named, text};
use crate::journal::same::same;
use crate::journal::{Change, Journal};
use crate::partition::Plan;

/// Where the machine is not as the plan has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The file or directory; `threads` for what threads may use.
    pub place: PathBuf,
    /// What is there.
    pub now: String,
    /// What the plan wants there.
    pub wanted: String,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It is as the plan has it.
    Done,
    /// The kernel did a part of it.
    Partly {
        /// What.
        what: String,
    },
    /// The kernel keeps this one for itself: an interrupt that it places on its own.
    Fixed {
        /// What it said.
        why: String,
    },
    /// It failed.
    Failed {
        /// Why.
        why: String,
    },
}

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

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A file is to hold a value.
    #[doc(hidden)]
    Setting(Setting),
    /// A class of service is to be there.
    #[doc(hidden)]
    Class(ClassStep),
    /// Forwarding threads are to be in their classes of service.
    #[doc(hidden)]
    ClassTasks(ClassTasksStep),
    /// A CPU set is to be there.
    #[doc(hidden)]
    Set(SetStep),
    /// Threads are to keep to CPUs.
    #[doc(hidden)]
    Threads(ThreadStep),
}

/// A file that is to hold a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub(super) path: PathBuf,
    pub(super) value: String,
    pub(super) kind: Kind,
}

/// Everything that the plan wants, in order.
pub(super) fn steps(target: &Target<'_>, plan: &Plan) -> Vec<Step> {
    let mut steps = settings::steps(target, plan);
    steps.extend(classes::steps(target, plan));
    steps.extend(cpusets::steps(target, plan));
    steps.extend(threads::steps(target, plan));
    steps
}

impl Step {
    /// Files and directories that it is about.
    pub(super) fn places(&self, target: &Target<'_>) -> Vec<PathBuf> {
        match self {
            Self::Setting(setting) => vec![setting.path.clone()],
            Self::Class(class) => class.places(),
            Self::Set(set) => set.places(target),
            Self::ClassTasks(tasks) => tasks.places(),
            Self::Threads(_) => Vec::new(),
        }
    }

    /// Where the machine is not so.
    pub(super) fn difference(&self, target: &Target<'_>) -> Vec<Difference> {
        match self {
            Self::Setting(setting) => setting.difference(target).into_iter().collect(),
            Self::Class(class) => class.difference(target).into_iter().collect(),
            Self::ClassTasks(tasks) => tasks.differences(target),
            Self::Set(set) => set.difference(target).into_iter().collect(),
            Self::Threads(threads) => threads.difference().into_iter().collect(),
        }
    }

    /// Makes it so, journal first.
    pub(super) fn make(
        &self,
        target: &Target<'_>,
        journal: &mut Journal,
        difference: &Difference,
    ) -> Outcome {
        let made = match self {
            Self::Setting(setting) => return setting.make(target, journal, &difference.now),
            Self::Class(class) => class.make(target, journal),
            Self::ClassTasks(tasks) => tasks.make(target, journal, difference),
            Self::Set(set) => return set.make(target, journal),
            Self::Threads(threads) => threads.make(journal),
        };
        match made {
            Ok(()) => Outcome::Done,
            Err(error) => failed(&error),
        }
    }
}

pub(super) fn failed(error: &io::Error) -> Outcome {
    Outcome::Failed {
        why: error.to_string(),
    }
}

impl Setting {
    fn difference(&self, target: &Target<'_>) -> Option<Difference> {
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

    fn make(&self, target: &Target<'_>, journal: &mut Journal, now: &str) -> Outcome {
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
