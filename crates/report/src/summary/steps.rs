// SPDX-License-Identifier: Apache-2.0
//! Steps of a study by case and kind.

use quietwire_study::{Case, StepKind, StepRecord, StudyResults};

/// A step with its case and frame size.
pub(crate) type Steps<'a> = Vec<&'a StepRecord>;

/// Returns the cases that were run, in the order of the file.
pub(crate) fn measured(results: &StudyResults) -> impl Iterator<Item = &Case> {
    let cases = results.file.cases.iter();
    let is_one = |case: &&Case| case.tenants.is_none() || results.was_tried(case);
    let cases = cases.filter(is_one);
    cases.filter(|case| results.unavailable(&case.name).is_none())
}

/// Returns the steps of one kind.
pub(crate) fn of_kind<'a>(
    steps: &'a Steps<'_>,
    kind: &'a StepKind,
) -> impl Iterator<Item = &'a StepRecord> {
    steps.iter().copied().filter(move |step| step.kind == *kind)
}
