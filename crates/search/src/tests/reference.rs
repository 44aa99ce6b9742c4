// SPDX-License-Identifier: Apache-2.0
//! The single-run search a second time, as one loop straight from the text, with the device called from inside.
//! Slow and obvious; the state machine has to do the same, trial by trial.

use crate::{Outcome, SearchEnd, SingleRunConfig};

/// What the loop saw and concluded.
pub(super) struct Reference {
    pub(super) rates: Vec<f64>,
    pub(super) end: SearchEnd,
    pub(super) highest_held: Option<f64>,
    pub(super) published: Option<f64>,
}

struct Bench<'a> {
    config: &'a SingleRunConfig,
    device: &'a mut dyn FnMut(usize, f64) -> Outcome,
    seen: Vec<(f64, Outcome)>,
}

impl Bench<'_> {
    /// Best of N: a rate has lost once N trials in a row have.
    fn best_trial(&mut self, rate: f64) -> Result<bool, SearchEnd> {
        for _ in 0..self.config.best_of {
            if self.trial(rate)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ok(held), or how the search ends here. "An invalid trial is repeated, a bounded number of times."
    fn trial(&mut self, rate: f64) -> Result<bool, SearchEnd> {
        let mut reasons = vec![];
        loop {
            if self.seen.len() == self.config.max_trials as usize {
                return Err(SearchEnd::TrialLimit);
            }
            let outcome = (self.device)(self.seen.len(), rate);
            self.seen.push((rate, outcome.clone()));
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
        for (rate, outcome) in &self.seen {
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

    /// Ok(published rate), or how the search ends before there is one.
    fn search(&mut self) -> Result<f64, SearchEnd> {
        let mut rate = self.config.start_rate_pps;
        let mut step = self.config.start_step_pps;

        // Linear phase: run a trial; loss over the tolerance: rate -= step and go to the binary phase;
        // else rate += step, again.
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

        // Binary phase: run a trial at the rate; stop when step < resolution, the result is that rate; step /= 2;
        // loss over the tolerance: rate -= step, else rate += step; again.
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

/// Runs the loop. The trial limit is checked before a trial here and after one in the state machine, which is the same
/// but for a search that is over with its last trial.
pub(super) fn run(
    config: &SingleRunConfig,
    device: &mut dyn FnMut(usize, f64) -> Outcome,
) -> Reference {
    let mut bench = Bench {
        config,
        device,
        seen: vec![],
    };
    let published = bench.search();
    let highest_held = bench.highest_held();
    let lowest = bench.seen.iter().map(|(rate, _)| *rate);
    let end = match &published {
        Err(end) => end.clone(),
        Ok(_) if highest_held.is_some() => SearchEnd::Converged,
        Ok(rate) if *rate == config.min_rate_pps => SearchEnd::NothingHeldAtMinRate,
        Ok(_) => SearchEnd::NothingHeldInReach {
            lowest_tried_pps: lowest.fold(f64::INFINITY, f64::min),
        },
    };
    Reference {
        rates: bench.seen.iter().map(|(rate, _)| *rate).collect(),
        end,
        highest_held,
        published: published.ok(),
    }
}
