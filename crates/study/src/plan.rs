// SPDX-License-Identifier: Apache-2.0
//! Steps of a study in each case and at each frame size. This module is pure, like the methods that it uses.

use quietwire_search::ConfigError;

use crate::file::{Case, StudyFile};
use crate::methods::{Common, Estimate, FoundBefore, Machine, Planned, StepKind};

/// Maximum rate in estimates before the real one is known, frames per second: 10-Gbit/s Ethernet.
const RATE_GUESS_PPS: f64 = 14.88e6;

/// A step before its maximum rate is known.
#[derive(Debug)]
pub struct StepPlan {
    /// Method.
    pub kind: StepKind,
    planned: Planned,
    invalid_repeats: u32,
    warm_up_s: f64,
    drain_s: f64,
}

impl Estimate {
    /// Returns the work of a whole study.
    #[must_use]
    pub fn of(file: &StudyFile) -> Self {
        Self::of_cases(file, file.plain_cases().count(), file.tenants_tried())
    }

    /// Returns the work for this number of cases and this number of tenant counts.
    #[must_use]
    pub fn of_cases(file: &StudyFile, cases: usize, tenants: usize) -> Self {
        let sizes = u32::try_from(file.traffic.frame_sizes.len()).unwrap_or(u32::MAX);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let rounds = sizes.saturating_mul(file.rounds);
        let all = |steps: Vec<StepPlan>| {
            let bounds = steps.iter().map(StepPlan::bound);
            bounds.fold(Self::default(), Self::plus).times(rounds)
        };
        let plain = all(StepPlan::of(file, None)).times(number(cases));
        match file.tenants_case(1) {
            Some((_, case)) => {
                plain.plus(all(StepPlan::of_case(file, case)).times(number(tenants)))
            }
            None => plain,
        }
    }
}

impl StepPlan {
    /// Returns the steps of a case at every frame size, in order.
    #[must_use]
    pub fn of_case(file: &StudyFile, case: &Case) -> Vec<Self> {
        Self::of(file, case.tenants)
    }

    /// Returns the steps of all cases with this number of tenants, in the order of the methods. Some methods take their rates from
    /// results of earlier ones.
    fn of(file: &StudyFile, tenants: Option<u32>) -> Vec<Self> {
        let around = file.surroundings(tenants);
        let methods = file.methods().into_iter();
        let planned = methods.flat_map(|method| method.steps(&around));
        let step = |planned: Planned| Self {
            kind: planned.kind.clone(),
            planned,
            invalid_repeats: file.trials.invalid_repeats,
            warm_up_s: file.trials.warm_up_s,
            drain_s: file.trials.drain_s,
        };
        planned.map(step).collect()
    }

    /// Returns the state machine of this step. `found` has the results of the previous steps in the same case, round and frame
    /// size; `is_raising` is true if searches may go beyond the maximum rate.
    ///
    /// # Errors
    /// A rate is not usable for the method.
    pub(crate) fn machine(
        &self,
        max_rate_pps: f64,
        is_raising: bool,
        found: FoundBefore<'_>,
    ) -> Result<Machine, ConfigError> {
        let common = Common {
            is_raising,
            ..self.common(max_rate_pps)
        };
        self.planned.work.machine(&common, found)
    }

    /// Returns true if the step depends on the maximum rate.
    pub(crate) fn uses_max_rate(&self) -> bool {
        self.planned.work.uses_max_rate()
    }

    /// Returns the maximum work of this step if no trial is invalid.
    fn bound(&self) -> Estimate {
        self.planned.work.bound(&self.common(RATE_GUESS_PPS))
    }

    fn common(&self, max_rate_pps: f64) -> Common {
        Common {
            duration_s: self.planned.duration_s,
            invalid_repeats: self.invalid_repeats,
            max_rate_pps,
            is_raising: false,
            drain_s: self.drain_s,
            around_s: self.warm_up_s + self.drain_s,
        }
    }
}
