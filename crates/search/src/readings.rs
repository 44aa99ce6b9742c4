// SPDX-License-Identifier: Apache-2.0
//! Bounds of a search's result if its invalid trials had counted: all of them as lost, and all of them as held.
//!
//! A search repeats a trial in which the tester failed. If the tester fails when the whole machine stalls, the device's worst moments are
//! repeated away as well. The two readings bound the effect.

use serde::Serialize;

use crate::mlrsearch::relevant_lower_pps;
use crate::{Attempt, Findings, LossRatio, Outcome, SingleRunConfig};

/// Results if the invalid trials had counted. They are computed from the trials that were run: a search with these outcomes would have
/// tried other rates next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Readings {
    /// Number of invalid trials of the search.
    pub invalid_trials: usize,
    /// Result if each invalid trial had lost too much, frames per second; `None` if no lower rate held.
    pub all_lost_pps: Option<f64>,
    /// Result if each invalid trial had held, frames per second; `None` if no rate holds even then.
    pub all_held_pps: Option<f64>,
    /// Resolution of the search at that rate, frames per second.
    pub width_pps: f64,
}

impl Readings {
    /// Returns true if the two readings differ by more than the resolution of the search. No result counts as zero.
    #[must_use]
    pub fn differ(&self) -> bool {
        let [held, lost] = [self.all_held_pps, self.all_lost_pps].map(Option::unwrap_or_default);
        held - lost > self.width_pps * (1.0 + 1e-9)
    }
}

/// Rule by which a rate holds.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// At least one of up to this many trials holds.
    Best(u32),
    /// All of this many trials hold.
    Worst(u32),
}

/// Outcome of a trial, as a goal classifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoalTrial {
    Held,
    Lost,
    Invalid,
}

impl Rule {
    /// Returns whether a rate holds by its valid trials.
    fn holds(self, trials: &[GoalTrial]) -> bool {
        let count = |observed| trials.iter().filter(|it| **it == observed).count();
        match self {
            Self::Best(_) => count(GoalTrial::Held) > 0,
            Self::Worst(needed) => {
                count(GoalTrial::Lost) == 0 && count(GoalTrial::Held) >= needed as usize
            }
        }
    }

    /// Returns true if the rate would count as lost if its invalid trials had lost.
    fn may_be_lost(self, trials: &[GoalTrial]) -> bool {
        let Self::Best(allowed) = self else {
            return trials.contains(&GoalTrial::Invalid);
        };
        let (mut losses, mut has_invalid) = (0_u32, false);
        for observed in trials {
            if *observed == GoalTrial::Held {
                (losses, has_invalid) = (0, false);
                continue;
            }
            losses = losses.saturating_add(1);
            has_invalid |= *observed == GoalTrial::Invalid;
            if losses >= allowed && has_invalid {
                return true;
            }
        }
        // The search ended before this rate was judged.
        has_invalid && !trials.contains(&GoalTrial::Held)
    }

    /// Returns true if the rate would count as held if its invalid trials had held.
    fn may_hold(self, trials: &[GoalTrial]) -> bool {
        match self {
            Self::Best(_) => trials.contains(&GoalTrial::Invalid),
            Self::Worst(needed) => {
                let until_lost = trials
                    .iter()
                    .take_while(|observed| **observed != GoalTrial::Lost);
                until_lost.count() >= needed as usize && trials.contains(&GoalTrial::Invalid)
            }
        }
    }
}

impl Findings {
    /// Returns the readings of each result of a search, in the order of its goals or sides, best first. The search by first trials beside both
    /// sides has none. Empty for methods that do not search for a rate, and for repeated searches, of which each has its own readings.
    #[must_use]
    pub fn readings(&self, history: &[Attempt]) -> Vec<Readings> {
        let invalid_trials = history.iter().filter(|it| is_invalid(it)).count();
        let of_walk = |config: &SingleRunConfig, rule, found: Option<f64>| {
            let (all_lost_pps, all_held_pps) = bounds(history, config.loss_tolerance, rule, found);
            Readings {
                invalid_trials,
                all_lost_pps,
                all_held_pps,
                width_pps: config.resolution_pps,
            }
        };
        match self {
            Self::SingleRun(found) => {
                let config = &found.config;
                let rule = Rule::Best(config.best_of);
                vec![of_walk(config, rule, found.highest_held_pps)]
            }
            Self::BestWorst(found) => {
                let (search, trials) = (&found.config.search, found.config.trials);
                let sides = [
                    (&found.best, Rule::Best(trials)),
                    (&found.worst, Rule::Worst(trials)),
                ];
                let sides = sides.into_iter().filter_map(|(side, rule)| {
                    let found = side.as_ref()?.highest_held_pps;
                    Some(of_walk(search, rule, found))
                });
                sides.collect()
            }
            Self::MlrSearch(found) => {
                let lost = relevant_lower_pps(&found.config, history, 1.0);
                let held = relevant_lower_pps(&found.config, history, 0.0);
                let goals = found.goals.iter().zip(lost.into_iter().zip(held));
                let goals = goals.map(|(goal, (lost, held))| {
                    let found = goal.lower.map(|lower| lower.rate_pps);
                    let all_held_pps = held.into_iter().chain(found).reduce(f64::max);
                    Readings {
                        invalid_trials,
                        all_lost_pps: found.zip(lost).map(|(found, lost)| found.min(lost)),
                        all_held_pps,
                        width_pps: goal.goal.width * all_held_pps.unwrap_or_default(),
                    }
                });
                goals.collect()
            }
            _ => Vec::new(),
        }
    }
}

fn is_invalid(attempt: &Attempt) -> bool {
    matches!(attempt.outcome, Outcome::Invalid { .. })
}

/// Returns all rates in ascending order, with their trials in the order in which they were run.
fn by_rate(history: &[Attempt], tolerance: LossRatio) -> Vec<(f64, Vec<GoalTrial>)> {
    let mut rates: Vec<(f64, Vec<GoalTrial>)> = Vec::new();
    for attempt in history {
        let rate_pps = attempt.request.rate_pps;
        let observed = match attempt.outcome {
            Outcome::Invalid { .. } => GoalTrial::Invalid,
            Outcome::Valid { loss_ratio, .. } if tolerance.allows(loss_ratio) => GoalTrial::Held,
            Outcome::Valid { .. } => GoalTrial::Lost,
        };
        let at = rates.binary_search_by(|(known, _)| known.total_cmp(&rate_pps));
        let at = at.unwrap_or_else(|at| {
            rates.insert(at, (rate_pps, Vec::new()));
            at
        });
        if let Some((_, trials)) = rates.get_mut(at) {
            trials.push(observed);
        }
    }
    rates
}

/// Returns the readings: the result if all invalid trials had lost, and the result if all had held.
fn bounds(
    history: &[Attempt],
    tolerance: LossRatio,
    rule: Rule,
    found: Option<f64>,
) -> (Option<f64>, Option<f64>) {
    let rates = by_rate(history, tolerance);
    let first_lost = rates.iter().find(|(_, trials)| rule.may_be_lost(trials));
    let first_lost = first_lost.map(|(rate_pps, _)| *rate_pps);
    let is_below = |rate_pps: f64| first_lost.is_none_or(|lost| rate_pps < lost);
    let all_lost = match found {
        Some(rate_pps) if is_below(rate_pps) => Some(rate_pps),
        Some(_) => rates
            .iter()
            .rev()
            .find(|(rate_pps, trials)| is_below(*rate_pps) && rule.holds(trials))
            .map(|(rate_pps, _)| *rate_pps),
        None => None,
    };
    let held = rates.iter().filter(|(_, trials)| rule.may_hold(trials));
    let held = held.map(|(rate_pps, _)| *rate_pps).chain(found);
    (all_lost, held.reduce(f64::max))
}

#[cfg(test)]
mod tests {
    use super::GoalTrial::{Held, Invalid, Lost};
    use super::*;

    #[test]
    fn a_rate_holds_by_one_of_its_trials_or_by_all_that_are_needed() {
        let best = |trials: &[GoalTrial]| Rule::Best(2).holds(trials);
        assert!(best(&[Held]) && best(&[Lost, Held]));
        assert!(!best(&[]) && !best(&[Lost, Lost]) && !best(&[Invalid]));
        let worst = |trials: &[GoalTrial]| Rule::Worst(2).holds(trials);
        assert!(worst(&[Held, Held]) && worst(&[Held, Invalid, Held]));
        assert!(!worst(&[Held]) && !worst(&[Held, Invalid]) && !worst(&[Held, Held, Lost]));
    }

    #[test]
    fn an_invalid_trial_may_have_been_the_loss_that_decided() {
        let best = |trials: &[GoalTrial]| Rule::Best(2).may_be_lost(trials);
        // Two in a row, one of them invalid.
        assert!(best(&[Invalid, Lost, Held]) && best(&[Lost, Invalid, Held]));
        assert!(best(&[Held, Invalid, Invalid, Held]));
        // A single one is repeated. Two lost ones count as lost in any case.
        assert!(!best(&[Invalid, Held, Lost, Held]) && !best(&[Lost, Lost]));
        // The search ended before the rate was judged.
        assert!(best(&[Invalid]) && !best(&[Held, Invalid]) && !best(&[Lost]));
        let worst = |trials: &[GoalTrial]| Rule::Worst(2).may_be_lost(trials);
        assert!(worst(&[Held, Invalid, Held]) && !worst(&[Held, Held]));
    }

    #[test]
    fn an_invalid_trial_may_have_held_where_that_was_missing() {
        let best = |trials: &[GoalTrial]| Rule::Best(2).may_hold(trials);
        assert!(best(&[Invalid, Lost, Lost]) && !best(&[Lost, Held]));
        let worst = |trials: &[GoalTrial]| Rule::Worst(2).may_hold(trials);
        assert!(worst(&[Invalid, Held, Lost]) && worst(&[Held, Invalid]));
        // One loss is enough. Later trials do not count.
        assert!(!worst(&[Invalid, Lost, Held]) && !worst(&[Held, Lost, Invalid]));
        assert!(!worst(&[Held, Held]));
    }

    #[test]
    fn trials_are_sorted_by_rate_and_judged_by_the_tolerance() {
        let attempt = |rate_pps, loss_ratio: Option<f64>| Attempt {
            request: crate::TrialRequest {
                rate_pps,
                duration_s: 1.0,
            },
            outcome: match loss_ratio {
                Some(loss_ratio) => Outcome::lost(loss_ratio),
                None => Outcome::invalid("a gap"),
            },
        };
        let tolerance = LossRatio::new(0.1).unwrap();
        let history = [
            attempt(20.0, Some(0.2)),
            attempt(10.0, Some(0.1)),
            attempt(20.0, None),
            attempt(15.0, Some(0.0)),
        ];
        let expected = [
            (10.0, vec![Held]),
            (15.0, vec![Held]),
            (20.0, vec![Lost, Invalid]),
        ];
        assert_eq!(by_rate(&history, tolerance), expected);
        // The result stands, although the trials of the other side show a higher rate that holds.
        let both = bounds(&history[1..2], tolerance, Rule::Worst(1), Some(10.0));
        assert_eq!(both, (Some(10.0), Some(10.0)));
        let both = bounds(&history[1..], tolerance, Rule::Worst(1), Some(10.0));
        assert_eq!(both, (Some(10.0), Some(20.0)));
        // An invalid trial at the rate itself may have been lost, so only a lower rate remains.
        let both = bounds(&history[1..], tolerance, Rule::Best(1), Some(20.0));
        assert_eq!(both, (Some(15.0), Some(20.0)));
        assert_eq!(bounds(&history, tolerance, Rule::Best(1), None).0, None);
    }

    #[test]
    fn readings_differ_by_more_than_the_width() {
        let of = |all_lost_pps, all_held_pps, width_pps| Readings {
            invalid_trials: 1,
            all_lost_pps,
            all_held_pps,
            width_pps,
        };
        assert!(of(Some(10.0), Some(11.5), 1.0).differ());
        assert!(!of(Some(10.0), Some(11.0), 1.0).differ());
        assert!(!of(Some(10.0), Some(10.0), 0.0).differ());
        assert!(of(None, Some(1.5), 1.0).differ() && !of(None, None, 1.0).differ());
    }
}
