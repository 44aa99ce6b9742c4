// SPDX-License-Identifier: Apache-2.0
//! Sequence of rates of the single-run search and related searches: linear steps, then halved ones.

use crate::SingleRunConfig;

/// Reason for the end of a walk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum WalkEnd {
    /// The highest rate allowed held in the linear phase.
    HeldAtMaxRate,
    /// The lowest rate allowed lost too much, and no rate had held before.
    NothingHeldAtMinRate,
    /// The step fell below the resolution. `held` is true if the last rate held.
    Stopped { held: bool },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Linear,
    Binary,
}

/// Position of a search within the sequence of rates.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    phase: Phase,
    rate_pps: f64,
    step_pps: f64,
    has_held: bool,
}

impl Walk {
    pub(crate) fn new(config: &SingleRunConfig) -> Self {
        Self {
            phase: Phase::Linear,
            rate_pps: config.start_rate_pps,
            step_pps: config.start_step_pps,
            has_held: false,
        }
    }

    /// Returns the current rate.
    pub(crate) fn rate_pps(&self) -> f64 {
        self.rate_pps
    }

    /// Continues a walk that ended at the maximum rate of its search, one step higher, under the new maximum.
    pub(crate) fn continue_up(&mut self, config: &SingleRunConfig) {
        let next_pps = self.rate_pps + self.step_pps;
        self.rate_pps = next_pps.clamp(config.min_rate_pps, config.max_rate_pps);
    }

    /// Records whether the current rate held, and advances to the next one. Returns the reason if the walk ends.
    pub(crate) fn advance(&mut self, config: &SingleRunConfig, held: bool) -> Option<WalkEnd> {
        self.has_held |= held;
        match self.phase {
            Phase::Linear if held && self.rate_pps >= config.max_rate_pps => {
                return Some(WalkEnd::HeldAtMaxRate);
            }
            Phase::Linear if !held => self.phase = Phase::Binary,
            Phase::Linear => {}
            Phase::Binary if self.step_pps < config.resolution_pps => {
                return Some(WalkEnd::Stopped { held });
            }
            Phase::Binary => self.step_pps /= 2.0,
        }
        if !held && self.rate_pps <= config.min_rate_pps && !self.has_held {
            return Some(WalkEnd::NothingHeldAtMinRate);
        }
        let step_pps = if held { self.step_pps } else { -self.step_pps };
        self.rate_pps = (self.rate_pps + step_pps).clamp(config.min_rate_pps, config.max_rate_pps);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LossRatio;

    #[test]
    fn a_walk_in_which_a_rate_held_ends_by_its_step_only() {
        let config = SingleRunConfig {
            start_rate_pps: 10.0,
            start_step_pps: 4.0,
            resolution_pps: 1.0,
            loss_tolerance: LossRatio::ZERO,
            trial_duration_s: 1.0,
            min_rate_pps: 9.0,
            max_rate_pps: 100.0,
            best_of: 1,
            max_invalid_repeats: 1,
            max_trials: 100,
        };
        let mut walk = Walk::new(&config);
        let mut rates = Vec::new();
        let mut end = None;
        for held in [true, false, false, false, false, false, false] {
            rates.push(walk.rate_pps());
            end = walk.advance(&config, held);
            if end.is_some() {
                break;
            }
        }
        assert_eq!(end, Some(WalkEnd::Stopped { held: false }));
        assert_eq!(rates, [10.0, 14.0, 10.0, 9.0, 9.0, 9.0]);
    }
}
