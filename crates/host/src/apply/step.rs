// SPDX-License-Identifier: Apache-2.0
//! Steps of a plan for the running machine, in an order whose reverse rolls them back.

use std::path::PathBuf;

use super::classes::{ClassStep, ClassTasksStep};
use super::cpusets::SetStep;
use super::outcome::{Difference, Outcome, failed};
use super::setting::Setting;
use super::target::Target;
use super::threads::ThreadStep;
use super::{classes, cpusets, settings, threads};
use crate::journal::Journal;
use crate::partition::Plan;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write a kernel setting.
    #[doc(hidden)]
    Setting(Setting),
    /// Create a class of service.
    #[doc(hidden)]
    Class(ClassStep),
    /// Move forwarding threads to their classes of service.
    #[doc(hidden)]
    ClassTasks(ClassTasksStep),
    /// Create a CPU set.
    #[doc(hidden)]
    Set(SetStep),
    /// Set the CPU affinity of threads.
    #[doc(hidden)]
    Threads(ThreadStep),
}

/// Returns all steps of the plan, in order.
pub(super) fn steps(target: &Target<'_>, plan: &Plan) -> Vec<Step> {
    let settings = settings::settings(target, plan).into_iter();
    let (classes, class_tasks) = classes::steps(target, plan);
    let (sets, last) = cpusets::steps(target, plan);
    settings
        .map(Step::Setting)
        .chain(classes.into_iter().map(Step::Class))
        .chain(class_tasks.map(Step::ClassTasks))
        .chain(sets.into_iter().map(Step::Set))
        .chain(last.map(Step::Setting))
        .chain(threads::step(target, plan).map(Step::Threads))
        .collect()
}

impl Step {
    /// Returns the files and directories that the step changes.
    pub(super) fn places(&self, target: &Target<'_>) -> Vec<PathBuf> {
        match self {
            Self::Setting(setting) => vec![setting.path.clone()],
            Self::Class(class) => class.places(),
            Self::Set(set) => set.places(target),
            Self::ClassTasks(tasks) => tasks.places(),
            Self::Threads(_) => Vec::new(),
        }
    }

    /// Returns the difference between the machine and the step.
    pub(super) fn difference(&self, target: &Target<'_>) -> Vec<Difference> {
        match self {
            Self::Setting(setting) => setting.difference(target).into_iter().collect(),
            Self::Class(class) => class.difference(target).into_iter().collect(),
            Self::ClassTasks(tasks) => tasks.differences(target),
            Self::Set(set) => set.difference(target).into_iter().collect(),
            Self::Threads(threads) => threads.difference().into_iter().collect(),
        }
    }

    /// Returns whether only the kernel can make the change.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self, Self::Setting(setting) if setting.is_fixed())
    }

    /// Executes the step. Journals each change first.
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
