// SPDX-License-Identifier: Apache-2.0
//! Choice of the next trial for a goal. Steps are natural logarithms of rates, because widths are relative.

use super::load::LoadClass;
use super::table::{Load, Table};
use super::{MlrGoal, MlrSearchConfig};
use crate::TrialRequest;

/// Number of steps of one width from a bound before the gap is halved. A device with some noise is found again within them.
const STEPS_MAX: u32 = 5;
/// Distance of two loads, in widths, from which they show how forwarding changes with the load. At smaller distances, noise dominates.
const SLOPE_WIDTHS: f64 = 4.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// State of the search for one goal, in addition to the loads.
#[derive(Clone, Debug)]
pub(super) struct Selector {
    /// Position of the goal.
    index: usize,
    /// Direction of the steps, and the number of steps in that direction in a row.
    steps: Option<(Direction, u32)>,
    /// Rate of the upper bound whose loss was used last.
    hinted_by_pps: Option<f64>,
}

/// Apparent bounds, and the loads between them that may be tried.
#[derive(Clone, Copy, Debug)]
struct Gap<'a> {
    lower: Option<&'a Load>,
    upper: &'a Load,
    /// Natural logarithms of the bounds' rates. Without a lower bound, the lowest rate takes its place.
    from: f64,
    to: f64,
}

impl Selector {
    /// Returns one selector per goal, in the order in which the goals are served. Long trials also count for goals with shorter trials,
    /// and upper bounds for a small loss are lower bounds for a larger one.
    pub(super) fn in_turn(goals: &[MlrGoal]) -> Vec<Self> {
        let mut order: Vec<(usize, &MlrGoal)> = goals.iter().enumerate().collect();
        order.sort_by(|(_, a), (_, b)| {
            b.final_trial_duration_s
                .total_cmp(&a.final_trial_duration_s)
                .then(a.loss_ratio.get().total_cmp(&b.loss_ratio.get()))
        });
        order
            .into_iter()
            .map(|(index, _)| Self {
                index,
                steps: None,
                hinted_by_pps: None,
            })
            .collect()
    }

    /// Returns the next trial; `None` if the goal is reached or cannot be reached.
    pub(super) fn next(&mut self, config: &MlrSearchConfig, table: &Table) -> Option<TrialRequest> {
        let goal = config.goals.get(self.index)?;
        let bounds = table.leaning(goal, self.index);
        let (lower, upper) = (bounds.lower, bounds.upper);
        if let Some(upper) = upper {
            let is_enough = match lower {
                None => upper.rate_pps <= config.min_rate_pps,
                Some(lower) => goal.is_narrow(lower.rate_pps, upper.rate_pps),
            };
            if !is_enough {
                let rate_pps = self.between(config, goal, table, lower, upper);
                // If rounding permits no load between the bounds, there is nothing left to try.
                let mut ends = [lower, Some(upper)].into_iter().flatten();
                if ends.all(|load| load.rate_pps != rate_pps) {
                    return Some(first_at(rate_pps, goal));
                }
            }
        } else if lower.is_none_or(|lower| lower.rate_pps < config.max_rate_pps) {
            // The highest rate is tried first. Without an upper bound, it is the lower bound, unless it was raised since.
            return Some(first_at(config.max_rate_pps, goal));
        }
        // The bound whose class is more likely to change, which would move the bounds; the upper one if both are equal.
        let sums = |load: &Load| load.sums_of(self.index);
        let load = [upper, lower]
            .into_iter()
            .flatten()
            .filter(|load| sums(load).class(goal) == LoadClass::Undecided)
            .min_by(|a, b| sums(a).margin_s(goal).total_cmp(&sums(b).margin_s(goal)))?;
        Some(TrialRequest {
            rate_pps: load.rate_pps,
            duration_s: goal.final_trial_duration_s,
        })
    }

    /// Returns a load between the bounds that leaves as little as possible of the gap.
    fn between(
        &mut self,
        config: &MlrSearchConfig,
        goal: &MlrGoal,
        table: &Table,
        lower: Option<&Load>,
        upper: &Load,
    ) -> f64 {
        let gap = Gap {
            lower,
            upper,
            from: lower.map_or(config.min_rate_pps, |load| load.rate_pps).ln(),
            to: upper.rate_pps.ln(),
        };
        let (direction, stepped) = self.step(goal, gap);
        let hint = self.hint(goal, table, gap);
        let chosen = match (direction, hint) {
            (_, None) => stepped,
            // Downwards, the longer way counts: if the loss does not decrease with the load, hints advance too slowly.
            (Direction::Down, Some(hint)) => stepped.min(hint),
            (Direction::Up, Some(hint)) => hint,
        };
        gap.rate_at(config, chosen)
    }

    /// Returns a step from the bound that was measured last.
    fn step(&mut self, goal: &MlrGoal, gap: Gap<'_>) -> (Direction, f64) {
        let direction = match gap.lower {
            Some(lower) if lower.last_trial >= gap.upper.last_trial => Direction::Up,
            _ => Direction::Down,
        };
        let count = match self.steps {
            Some((last, count)) if last == direction => count.saturating_add(1),
            _ => 0,
        };
        self.steps = Some((direction, count));
        let step = if count < STEPS_MAX {
            goal.log_width()
        } else {
            f64::INFINITY
        };
        // No step exceeds the middle. Without a lower bound, the end of the range may itself be one.
        let middle = f64::midpoint(gap.from, gap.to);
        let stepped = match direction {
            Direction::Up => (gap.from + step).min(middle),
            Direction::Down if gap.lower.is_none() => (gap.to - step).max(gap.from),
            Direction::Down => (gap.to - step).max(middle),
        };
        (direction, stepped)
    }

    /// Returns the load at which the device would just hold, estimated from the forwarding rate at the upper bound, minus half a width.
    /// Each bound is used once. Returns `None` if the load is too close to the lower bound for a trial.
    fn hint(&mut self, goal: &MlrGoal, table: &Table, gap: Gap<'_>) -> Option<f64> {
        let upper = gap.upper;
        if self.hinted_by_pps == Some(upper.rate_pps) {
            return None;
        }
        self.hinted_by_pps = Some(upper.rate_pps);
        let width = goal.log_width();
        let passed_pps = passed_pps(goal, upper)?;
        let holds = 1.0 - goal.loss_ratio.get();
        // Overload may reduce the forwarding rate. In that case, the line through two loads with too much loss is extrapolated.
        let slope = table
            .above(upper)
            .filter(|above| above.rate_pps.ln() - gap.to >= SLOPE_WIDTHS * width)
            .and_then(|above| {
                let change_pps = self::passed_pps(goal, above)? - passed_pps;
                Some(change_pps / (above.rate_pps - upper.rate_pps))
            })
            .map_or(0.0, |slope| slope.min(0.0));
        let meeting_pps = (passed_pps - slope * upper.rate_pps) / (holds - slope);
        let hint = meeting_pps.ln() - width / 2.0;
        match gap.lower {
            Some(_) if hint <= gap.from + width / 2.0 => None,
            _ => Some(hint.max(gap.from)),
        }
    }
}

impl Gap<'_> {
    /// Returns the rate for a logarithm, within the gap, and exact at the lower end of the range.
    fn rate_at(&self, config: &MlrSearchConfig, log_rate: f64) -> f64 {
        if self.lower.is_none() && log_rate <= self.from {
            return config.min_rate_pps;
        }
        let floor = self.lower.map_or(config.min_rate_pps, |load| load.rate_pps);
        log_rate.exp().clamp(floor, self.upper.rate_pps)
    }
}

/// Returns the forwarding rate in the last trial at a load with too much loss, frames per second.
fn passed_pps(goal: &MlrGoal, load: &Load) -> Option<f64> {
    load.trials
        .iter()
        .rev()
        .find(|trial| !goal.loss_ratio.allows(trial.loss_ratio))
        .map(|trial| load.rate_pps * (1.0 - trial.loss_ratio))
}

/// Returns the first trial at a load.
fn first_at(rate_pps: f64, goal: &MlrGoal) -> TrialRequest {
    TrialRequest {
        rate_pps,
        duration_s: goal.initial_trial_duration_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LossRatio;
    use crate::mlrsearch::load::Measured;

    const UPPER_PPS: f64 = 10e6;

    /// Returns the hint for a device that loses a fifth of 10 Mpps, without the subtraction of half a width, frames per second. `above`
    /// is a higher load in frames per second, and its loss ratio.
    fn hint_pps(loss_ratio: f64, above: Option<(f64, f64)>) -> f64 {
        let goal = MlrGoal {
            width: 0.1,
            ..MlrGoal::fdio(LossRatio::new(loss_ratio).unwrap())
        };
        let goals = [goal.clone()];
        let mut table = Table::default();
        for (rate_pps, loss_ratio) in [(UPPER_PPS, 0.2)].into_iter().chain(above) {
            let trial = Measured {
                intended_s: 1.0,
                effective_s: 1.0,
                loss_ratio,
            };
            table.add(&goals, rate_pps, trial);
        }
        let gap = Gap {
            lower: None,
            upper: table.leaning(&goal, 0).upper.unwrap(),
            from: 0.0,
            to: UPPER_PPS.ln(),
        };
        let mut selector = Selector::in_turn(&goals).remove(0);
        let hint = selector.hint(&goal, &table, gap).unwrap();
        assert_eq!(selector.hint(&goal, &table, gap), None, "hinted twice");
        (hint + goal.log_width() / 2.0).exp()
    }

    fn assert_near(a: f64, b: f64) {
        assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    }

    #[test]
    fn one_load_hints_at_what_it_let_through() {
        assert_near(hint_pps(0.0, None), 8e6);
        // A tenth may be lost: of 8.89 Mpps, 8 Mpps pass.
        assert_near(hint_pps(0.1, None), 8e6 / 0.9);
    }

    #[test]
    fn a_forwarding_rate_that_falls_with_the_load_is_extrapolated_on_a_line() {
        // Of 20 Mpps, 6 pass; of 10 Mpps, 8. That is 2 less for 10 more, so x passes at x = 10 - 0.2 x.
        assert_near(hint_pps(0.0, Some((20e6, 0.7))), 10e6 / 1.2);
        assert_near(hint_pps(0.1, Some((20e6, 0.7))), 10e6 / (0.9 + 0.2));
        // The forwarding rate grows with the load, so no line is extrapolated.
        assert_near(hint_pps(0.0, Some((20e6, 0.5))), 8e6);
    }

    #[test]
    fn two_loads_less_than_four_widths_apart_make_no_line() {
        assert_near(hint_pps(0.0, Some((UPPER_PPS * 1.2, 0.7))), 8e6);
        assert_near(
            hint_pps(0.0, Some((UPPER_PPS * 0.9f64.powf(-3.99), 0.9))),
            8e6,
        );
        assert!(hint_pps(0.0, Some((UPPER_PPS * 0.9f64.powf(-4.01), 0.9))) > 8.1e6);
    }
}
