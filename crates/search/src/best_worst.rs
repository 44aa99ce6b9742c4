// SPDX-License-Identifier: Apache-2.0
//! Best-of-N and worst-of-N: the single-run search with up to N trials at each rate, for one side or for both. With both, a search by the
//! first trial at each rate follows, which is best-of-N and worst-of-N with N = 1.

mod findings;

use crate::ledger::{Ledger, Verdict};
use crate::walk::{Walk, WalkEnd};
use crate::{
    Attempt, ConfigError, Findings, Method, Outcome, RecordError, SearchEnd, SearchResult,
    SingleRunConfig, Step, TrialRequest,
};

pub use findings::{BestWorstConfig, BestWorstFindings, RateTally, SideFindings, Sides};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Best,
    Worst,
    /// The first trial at a rate decides.
    Single,
}

/// Progress of a side with the trials so far.
enum Progress {
    /// The rate requires another trial.
    Needs(f64),
    Ended(SideFindings),
}

/// Best-of-N and worst-of-N search. The two results bracket those of repeated searches, such as the one by the first trials. Each rate is
/// judged once: if the search returns to it, the judgement stands.
#[derive(Clone, Debug)]
pub struct BestWorst {
    config: BestWorstConfig,
    ledger: Ledger,
    rates: Vec<RateTally>,
    /// Set if invalid trials or the trial limit end the search before the sides end.
    cut_short: Option<SearchEnd>,
}

impl BestWorst {
    /// Creates a search.
    ///
    /// # Errors
    /// The error of [`BestWorstConfig::validate`].
    pub fn new(config: BestWorstConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            ledger: Ledger::default(),
            rates: Vec::new(),
            cut_short: None,
        })
    }

    /// Returns true if all sides ended, and one of them because the maximum rate held.
    pub(crate) fn held_at_max_rate(&self) -> bool {
        let mut has_held = false;
        for side in self.sides() {
            match self.follow(*side) {
                Progress::Needs(_) => return false,
                Progress::Ended(found) => has_held |= found.end == SearchEnd::HeldAtMaxRate,
            }
        }
        has_held
    }

    /// Continues a search whose maximum rate held up to a higher one, frames per second.
    pub(crate) fn raise_max_rate(&mut self, max_rate_pps: f64) {
        self.config.search.max_rate_pps = max_rate_pps;
    }

    /// Returns true if invalid trials or their number ended the search.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.cut_short.is_some()
    }

    fn sides(&self) -> &'static [Side] {
        match self.config.sides {
            Sides::Best => &[Side::Best],
            Sides::Worst => &[Side::Worst],
            Sides::Both => &[Side::Best, Side::Worst, Side::Single],
        }
    }

    fn tally(&self, rate_pps: f64) -> Option<&RateTally> {
        let found = self
            .rates
            .binary_search_by(|tally| tally.rate_pps.total_cmp(&rate_pps));
        self.rates.get(found.ok()?)
    }

    /// Returns whether a rate held; `None` if that requires more trials.
    fn judged(&self, side: Side, rate_pps: f64) -> Option<bool> {
        let tally = self.tally(rate_pps)?;
        match side {
            Side::Single => self.first_held(rate_pps),
            Side::Best if tally.held > 0 => Some(true),
            Side::Worst if tally.lost > 0 => Some(false),
            Side::Best if tally.lost >= self.config.trials => Some(false),
            Side::Worst if tally.held >= self.config.trials => Some(true),
            _ => None,
        }
    }

    /// Returns whether the first valid trial at a rate held.
    fn first_held(&self, rate_pps: f64) -> Option<bool> {
        let tolerance = self.config.search.loss_tolerance;
        let history = self.ledger.history().iter();
        let mut at_rate = history.filter(|attempt| attempt.request.rate_pps == rate_pps);
        at_rate.find_map(|attempt| match attempt.outcome {
            Outcome::Valid { loss_ratio, .. } => Some(tolerance.allows(loss_ratio)),
            Outcome::Invalid { .. } => None,
        })
    }

    /// Repeats the whole walk with the current judgements. The walk is short, so no intermediate state is kept.
    fn follow(&self, side: Side) -> Progress {
        let config = &self.config.search;
        let mut walk = Walk::new(config);
        let mut judged: Vec<(f64, bool)> = Vec::new();
        loop {
            let rate_pps = walk.rate_pps();
            let Some(held) = self.judged(side, rate_pps) else {
                return match &self.cut_short {
                    None => Progress::Needs(rate_pps),
                    Some(end) => Progress::Ended(found(end.clone(), &judged, None)),
                };
            };
            judged.push((rate_pps, held));
            if let Some(end) = walk.advance(config, held) {
                return Progress::Ended(ended(config, end, &judged));
            }
        }
    }

    fn result(&self) -> SearchResult {
        let of = |side| match self.sides().contains(&side).then(|| self.follow(side)) {
            Some(Progress::Ended(findings)) => Some(findings),
            Some(Progress::Needs(_)) | None => None,
        };
        SearchResult {
            findings: Findings::BestWorst(Box::new(BestWorstFindings {
                config: self.config.clone(),
                best: of(Side::Best),
                worst: of(Side::Worst),
                single: of(Side::Single),
                rates: self.rates.clone(),
            })),
            history: self.ledger.history().to_vec(),
        }
    }

    fn count(&mut self, rate_pps: f64, held: bool) {
        let at = match self
            .rates
            .binary_search_by(|tally| tally.rate_pps.total_cmp(&rate_pps))
        {
            Ok(at) => at,
            Err(at) => {
                let tally = RateTally {
                    rate_pps,
                    held: 0,
                    lost: 0,
                };
                self.rates.insert(at, tally);
                at
            }
        };
        if let Some(tally) = self.rates.get_mut(at) {
            let count = if held {
                &mut tally.held
            } else {
                &mut tally.lost
            };
            *count = count.saturating_add(1);
        }
    }
}

/// Returns the findings of a side after its walk has ended.
fn ended(config: &SingleRunConfig, end: WalkEnd, judged: &[(f64, bool)]) -> SideFindings {
    let last = judged.last().map(|(rate_pps, _)| *rate_pps);
    let has_held = judged.iter().any(|(_, held)| *held);
    let (end, published) = match end {
        WalkEnd::HeldAtMaxRate => (SearchEnd::HeldAtMaxRate, None),
        WalkEnd::NothingHeldAtMinRate => (SearchEnd::NothingHeldAtMinRate, None),
        WalkEnd::Stopped { held } => {
            let end = if has_held {
                SearchEnd::Converged
            } else if last.is_some_and(|rate| rate <= config.min_rate_pps) {
                SearchEnd::NothingHeldAtMinRate
            } else {
                let rates = judged.iter().map(|(rate_pps, _)| *rate_pps);
                SearchEnd::NothingHeldInReach {
                    lowest_tried_pps: rates.fold(f64::INFINITY, f64::min),
                }
            };
            (end, last.map(|rate_pps| (rate_pps, held)))
        }
    };
    found(end, judged, published)
}

fn found(end: SearchEnd, judged: &[(f64, bool)], published: Option<(f64, bool)>) -> SideFindings {
    let held = judged.iter().filter(|(_, held)| *held);
    let highest = held.map(|(rate_pps, _)| *rate_pps).reduce(f64::max);
    let mut lost: Vec<f64> = judged
        .iter()
        .filter(|(rate, held)| !held && highest.is_some_and(|highest| *rate <= highest))
        .map(|(rate_pps, _)| *rate_pps)
        .collect();
    lost.sort_by(f64::total_cmp);
    lost.dedup();
    SideFindings {
        end,
        highest_held_pps: highest,
        lost_at_or_under_highest_held: u32::try_from(lost.len()).unwrap_or(u32::MAX),
        published_pps: published.map(|(rate_pps, _)| rate_pps),
        published_held: published.map(|(_, held)| held),
    }
}

impl Method for BestWorst {
    fn name(&self) -> &'static str {
        "best-worst-of-n"
    }

    fn width_pps(&self, _rate_pps: f64) -> Option<f64> {
        Some(self.config.search.resolution_pps)
    }

    fn step(&mut self) -> Step {
        let needs = self
            .sides()
            .iter()
            .find_map(|side| match self.follow(*side) {
                Progress::Needs(rate_pps) => Some(rate_pps),
                Progress::Ended(_) => None,
            });
        match needs {
            None => Step::Done(self.result()),
            Some(rate_pps) => Step::Run(self.ledger.issue(TrialRequest {
                rate_pps,
                duration_s: self.config.search.trial_duration_s,
            })),
        }
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        let config = &self.config.search;
        let (request, verdict) = self.ledger.settle(outcome, config.max_invalid_repeats)?;
        let max_trials = config.max_trials as usize;
        match verdict {
            Verdict::Loss(loss_ratio) => {
                let held = config.loss_tolerance.allows(loss_ratio);
                self.count(request.rate_pps, held);
            }
            Verdict::Repeat => {}
            Verdict::GiveUp => {
                self.cut_short = Some(SearchEnd::InvalidTrials {
                    rate_pps: request.rate_pps,
                    reasons: self.ledger.invalid_reasons(),
                });
            }
        }
        if self.cut_short.is_none() && self.ledger.history().len() >= max_trials {
            self.cut_short = Some(SearchEnd::TrialLimit);
        }
        Ok(())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
