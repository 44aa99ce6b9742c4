// SPDX-License-Identifier: Apache-2.0
//! What a plan wants of the running machine, one thing at a time and in an order that can be turned round.

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

/// Everything that the plan wants, in order.
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
