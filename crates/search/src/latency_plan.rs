// SPDX-License-Identifier: Apache-2.0
//! Loads at which latency is measured once NDR and PDR are known.

mod findings;

use crate::error::positive;
use crate::{
    Attempt, ConfigError, Findings, LossSweep, LossSweepConfig, Method, Outcome, RecordError,
    SearchResult, Step, SweepValue,
};
use findings::PERCENTS;

pub use findings::{LatencyLoad, LatencyPlanFindings, LatencyPlanPoint, LatencyPoint, PartsOf};

/// Returns the loads in ascending order. A rate that was not found (`None`) is left out, and so is a step that does not exist because the
/// first linear step exceeds the rate.
///
/// # Errors
/// [`ConfigError::NotPositive`] if a rate or a step is not finite and above zero.
pub fn latency_plan(
    ndr_pps: Option<f64>,
    pdr_pps: Option<f64>,
    start_rate_pps: f64,
    start_step_pps: f64,
    parts_of: PartsOf,
) -> Result<Vec<LatencyPoint>, ConfigError> {
    positive("start_rate_pps", start_rate_pps)?;
    positive("start_step_pps", start_step_pps)?;
    let mut loads: Vec<(f64, LatencyLoad)> = Vec::new();
    for (name, rate_pps, at, under) in [
        (
            "ndr_pps",
            ndr_pps,
            LatencyLoad::Ndr,
            LatencyLoad::StepUnderNdr,
        ),
        (
            "pdr_pps",
            pdr_pps,
            LatencyLoad::Pdr,
            LatencyLoad::StepUnderPdr,
        ),
    ] {
        let Some(rate_pps) = rate_pps else { continue };
        loads.push((positive(name, rate_pps)?, at));
        if let Some(step_pps) = step_under(rate_pps, start_rate_pps, start_step_pps) {
            loads.push((step_pps, under));
        }
    }
    let whole_pps = match parts_of {
        PartsOf::Ndr => ndr_pps,
        PartsOf::Pdr => pdr_pps,
    };
    for (percent, whole_pps) in PERCENTS
        .into_iter()
        .flat_map(|percent| Some((percent, whole_pps?)))
    {
        let load = match parts_of {
            PartsOf::Ndr => LatencyLoad::PartOfNdr { percent },
            PartsOf::Pdr => LatencyLoad::PartOfPdr { percent },
        };
        loads.push((whole_pps * f64::from(percent) / 100.0, load));
    }
    loads.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut points: Vec<LatencyPoint> = Vec::new();
    for (rate_pps, load) in loads {
        match points.last_mut() {
            Some(point) if point.rate_pps == rate_pps => point.stands_for.push(load),
            _ => points.push(LatencyPoint {
                rate_pps,
                stands_for: vec![load],
            }),
        }
    }
    Ok(points)
}

/// Returns the method that runs one trial at each load of a plan.
#[must_use]
pub fn latency_trials(
    plan: &[LatencyPoint],
    trial_duration_s: f64,
    max_invalid_repeats: u32,
) -> LossSweepConfig {
    LossSweepConfig {
        rates_pps: plan.iter().map(|point| point.rate_pps).collect(),
        trial_duration_s,
        max_invalid_repeats,
    }
}

/// Trials of a latency plan, one per load. A plan without loads ends at once.
#[derive(Clone, Debug)]
pub struct LatencyTrials {
    plan: Vec<LatencyPoint>,
    sweep: Option<LossSweep>,
}

impl LatencyTrials {
    /// Creates the method.
    ///
    /// # Errors
    /// [`ConfigError`] if the duration is not above zero, or if [`latency_plan`] cannot have produced the loads.
    pub fn new(
        plan: Vec<LatencyPoint>,
        trial_duration_s: f64,
        max_invalid_repeats: u32,
    ) -> Result<Self, ConfigError> {
        positive("trial_duration_s", trial_duration_s)?;
        let sweep = (!plan.is_empty())
            .then(|| LossSweep::new(latency_trials(&plan, trial_duration_s, max_invalid_repeats)))
            .transpose()?;
        Ok(Self { plan, sweep })
    }

    fn result(&self, swept: Option<SearchResult>) -> SearchResult {
        let (found, history) = swept.map_or((None, Vec::new()), |swept| {
            (Some(swept.findings), swept.history)
        });
        let losses = match &found {
            Some(Findings::LossSweep(found)) => found.points.as_slice(),
            _ => &[],
        };
        let loss_of = |point: &LatencyPoint| {
            let swept = losses.iter().find(|loss| loss.rate_pps == point.rate_pps)?;
            match swept.value {
                SweepValue::Measured { loss_ratio } => Some(loss_ratio),
                SweepValue::Invalid { .. } => None,
            }
        };
        let points = self.plan.iter().map(|point| LatencyPlanPoint {
            loss_ratio: loss_of(point),
            point: point.clone(),
        });
        SearchResult {
            findings: Findings::LatencyPlan(LatencyPlanFindings {
                points: points.collect(),
            }),
            history,
        }
    }
}

impl Method for LatencyTrials {
    fn name(&self) -> &'static str {
        "latency-plan"
    }

    fn step(&mut self) -> Step {
        match self.sweep.as_mut().map(LossSweep::step) {
            Some(Step::Run(request)) => Step::Run(request),
            Some(Step::Done(swept)) => Step::Done(self.result(Some(swept))),
            None => Step::Done(self.result(None)),
        }
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        match &mut self.sweep {
            Some(sweep) => sweep.record(outcome),
            None => Err(RecordError::NothingPending),
        }
    }

    fn history(&self) -> &[Attempt] {
        self.sweep.as_ref().map_or(&[], |sweep| sweep.history())
    }
}

/// Returns the highest of `start`, `start + step` and so on below the rate.
fn step_under(rate_pps: f64, start_pps: f64, step_pps: f64) -> Option<f64> {
    // The subtrahend compensates for rounding: a step must not equal the rate itself.
    let steps = ((rate_pps - start_pps) / step_pps - 1e-9).ceil() - 1.0;
    (steps >= 0.0).then_some(start_pps + steps * step_pps)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_plan_by_hand() {
        let plan = latency_plan(Some(19.0), Some(22.0), 10.0, 4.0, PartsOf::Pdr).unwrap();
        let rates: Vec<f64> = plan.iter().map(|point| point.rate_pps).collect();
        assert_eq!(rates, [2.2, 11.0, 18.0, 19.0, 19.8, 22.0]);
        // 22 is a step itself. The step below it is 18, as below 19.
        assert_eq!(
            plan[2].stands_for,
            [LatencyLoad::StepUnderNdr, LatencyLoad::StepUnderPdr]
        );
        assert_eq!(plan[3].stands_for, [LatencyLoad::Ndr]);
        let trials = latency_trials(&plan, 5.0, 1);
        assert!(trials.validate().is_ok());
        let json = serde_json::to_string(&plan[0]).unwrap();
        assert_eq!(
            json,
            r#"{"rate_pps":2.2,"stands_for":[{"load":"part-of-pdr","percent":10}]}"#
        );
    }

    #[test]
    fn parts_are_of_the_rate_that_they_are_asked_of() {
        let plan = latency_plan(Some(19.0), Some(22.0), 10.0, 4.0, PartsOf::Ndr).unwrap();
        let rates: Vec<f64> = plan.iter().map(|point| point.rate_pps).collect();
        assert_eq!(rates, [1.9, 9.5, 17.1, 18.0, 19.0, 22.0]);
        assert_eq!(plan[1].stands_for, [LatencyLoad::PartOfNdr { percent: 50 }]);
        let without = latency_plan(None, Some(22.0), 10.0, 4.0, PartsOf::Ndr).unwrap();
        let rates: Vec<f64> = without.iter().map(|point| point.rate_pps).collect();
        assert_eq!(rates, [18.0, 22.0]);
    }

    #[test]
    fn trials_of_a_plan_tell_the_loss_at_each_load() {
        let plan = latency_plan(Some(19.0), Some(22.0), 10.0, 4.0, PartsOf::Pdr).unwrap();
        let mut trials = LatencyTrials::new(plan, 5.0, 0).unwrap();
        let result = loop {
            match trials.step() {
                Step::Run(request) if request.rate_pps == 11.0 => {
                    trials.record(Outcome::invalid("late")).unwrap()
                }
                Step::Run(request) => trials
                    .record(Outcome::lost((1.0 - 20.0 / request.rate_pps).max(0.0)))
                    .unwrap(),
                Step::Done(result) => break result,
            }
        };
        let Findings::LatencyPlan(found) = result.findings else {
            panic!("{:?}", result.findings)
        };
        let losses: Vec<_> = found.points.iter().map(|point| point.loss_ratio).collect();
        let at_pdr = Some(1.0 - 20.0 / 22.0);
        assert_eq!(
            losses,
            [Some(0.0), None, Some(0.0), Some(0.0), Some(0.0), at_pdr]
        );
        assert_eq!(result.history.len(), 6);
        let mut nothing = LatencyTrials::new(Vec::new(), 5.0, 0).unwrap();
        assert!(matches!(nothing.step(), Step::Done(_)));
        assert!(nothing.record(Outcome::lost(0.0)).is_err());
    }

    #[test]
    fn rates_that_were_not_found_are_left_out() {
        assert_eq!(
            latency_plan(None, None, 10.0, 4.0, PartsOf::Ndr),
            Ok(vec![])
        );
        // No step is below the first one.
        let plan = latency_plan(Some(10.0), None, 10.0, 4.0, PartsOf::Pdr).unwrap();
        assert_eq!(plan.len(), 1);
        assert!(latency_plan(Some(f64::NAN), None, 10.0, 4.0, PartsOf::Pdr).is_err());
        assert!(latency_plan(Some(10.0), None, 10.0, 0.0, PartsOf::Pdr).is_err());
    }

    proptest! {
        #[test]
        fn a_step_is_the_last_one_under(
            rate in 1.0..1e8f64, start in 1.0..1e8f64, step in 1e3..1e7f64,
        ) {
            match step_under(rate, start, step) {
                None => prop_assert!(start >= rate * (1.0 - 1e-9)),
                Some(found) => {
                    prop_assert!(found < rate && found >= start);
                    prop_assert!(found + step >= rate * (1.0 - 1e-12));
                }
            }
        }
    }
}
