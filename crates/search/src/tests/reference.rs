// SPDX-License-Identifier: Apache-2.0
//! Reference implementation of the single-run search: one loop derived from the text, which calls the device. The state machine must do
//! the same, trial by trial.

use crate::{Outcome, SearchEnd, SingleRunConfig};

/// Observations and result of the loop.
pub(super) struct Reference {
    pub(super) rates: Vec<f64>,
    pub(super) end: SearchEnd,
    pub(super) highest_held: Option<f64>,
    pub(super) published: Option<f64>,
}

struct Bench<'a> {
    config: &'a SingleRunConfig,
    device: &'a mut dyn FnMut(usize, f64) -> Outcome,
    observed: Vec<(f64, Outcome)>,
}

impl Bench<'_> {
    /// Returns the outcome of best-of-N: a rate is lost once N trials in a row are lost.
    fn best_trial(&mut self, rate: f64) -> Result<bool, SearchEnd> {
        for _ in 0..self.config.best_of {
            if self.trial(rate)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the trial held, or how the search ends. "An invalid trial is repeated, a bounded number of times."
    fn trial(&mut self, rate: f64) -> Result<bool, SearchEnd> {
        let mut reasons = vec![];
        loop {
            if self.observed.len() == self.config.max_trials as usize {
                return Err(SearchEnd::TrialLimit);
            }
            let outcome = (self.device)(self.observed.len(), rate);
            self.observed.push((rate, outcome.clone()));
            match outcome {
                Outcome::Valid { loss_ratio, .. } => {
                    return Ok(loss_ratio <= self.config.loss_tolerance.get());
                }
                Outcome::Invalid { reason, .. } => reasons.push(reason),
            }
            if reasons.len() == self.config.max_invalid_repeats as usize + 1 {
                return Err(SearchEnd::InvalidTrials {
                    rate_pps: rate,
                    reasons,
                });
            }
        }
    }

    fn highest_held(&self) -> Option<f64> {
        let mut best: Option<f64> = None;
        for (rate, outcome) in &self.observed {
            if let Outcome::Valid { loss_ratio, .. } = outcome
                && *loss_ratio <= self.config.loss_tolerance.get()
                && best.is_none_or(|b| *rate > b)
            {
                best = Some(*rate);
            }
        }
        best
    }

    fn bounded(&self, rate: f64) -> f64 {
        if rate < self.config.min_rate_pps {
            self.config.min_rate_pps
        } else if rate > self.config.max_rate_pps {
            self.config.max_rate_pps
        } else {
            rate
        }
    }

    /// Returns the published rate, or how the search ends before there is one.
    fn search(&mut self) -> Result<f64, SearchEnd> {
        let mut rate = self.config.start_rate_pps;
        let mut step = self.config.start_step_pps;

        // Linear phase: run a trial. If the loss exceeds the tolerance, rate -= step, and the binary phase begins; otherwise rate +=
        // step, and repeat.
        loop {
            if self.best_trial(rate)? {
                if rate == self.config.max_rate_pps {
                    return Err(SearchEnd::HeldAtMaxRate);
                }
                rate = self.bounded(rate + step);
            } else {
                self.end_if_hopeless(rate)?;
                rate = self.bounded(rate - step);
                break;
            }
        }

        // Binary phase: run a trial at the rate. If step < resolution, the result is that rate. Then step /= 2; if the loss exceeds the
        // tolerance, rate -= step, otherwise rate += step; and repeat.
        loop {
            let held = self.best_trial(rate)?;
            if step < self.config.resolution_pps {
                return Ok(rate);
            }
            step /= 2.0;
            if held {
                rate = self.bounded(rate + step);
            } else {
                self.end_if_hopeless(rate)?;
                rate = self.bounded(rate - step);
            }
        }
    }

    fn end_if_hopeless(&self, rate: f64) -> Result<(), SearchEnd> {
        if rate == self.config.min_rate_pps && self.highest_held().is_none() {
            return Err(SearchEnd::NothingHeldAtMinRate);
        }
        Ok(())
    }
}

/// Runs the loop. The loop checks the trial limit before a trial, the state machine after it. The results are the same, except for a
/// search that ends with its last trial.
pub(super) fn run(
    config: &SingleRunConfig,
    device: &mut dyn FnMut(usize, f64) -> Outcome,
) -> Reference {
    let mut bench = Bench {
        config,
        device,
        observed: vec![],
    };
    let published = bench.search();
    let highest_held = bench.highest_held();
    let lowest = bench.observed.iter().map(|(rate, _)| *rate);
    let end = match &published {
        Err(end) => end.clone(),
        Ok(_) if highest_held.is_some() => SearchEnd::Converged,
        Ok(rate) if *rate == config.min_rate_pps => SearchEnd::NothingHeldAtMinRate,
        Ok(_) => SearchEnd::NothingHeldInReach {
            lowest_tried_pps: lowest.fold(f64::INFINITY, f64::min),
        },
    };
    Reference {
        rates: bench.observed.iter().map(|(rate, _)| *rate).collect(),
        end,
        highest_held,
        published: published.ok(),
    }
}
