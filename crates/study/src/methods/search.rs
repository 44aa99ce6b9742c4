// SPDX-License-Identifier: Apache-2.0
//! `[search]`: the search for the throughput, with a choice of methods.

mod check;
mod section;
mod work;

use std::fmt;

use super::estimate::QUICK_DURATION_S;
use super::method::{MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext};
use super::step_kind::StepKind;
use crate::file::limits::Checked;
use crate::file::{Percent, SearchMethod};
use work::{ForAll, ForOne};

pub use section::{Goal, Search};

/// Step and resolution of searches with `--quick`, percent of the maximum rate: a few trials for each search.
const QUICK_STEP_PERCENT: f64 = 50.0;
const QUICK_RESOLUTION_PERCENT: f64 = 25.0;

impl Method for Search {
    fn section(&self) -> &'static str {
        "search"
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        check::search(around.trials, self)
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let duration_s = around.trials.duration_s;
        if self.method == SearchMethod::MlrSearch {
            // The check of the file rejects invalid goals.
            let goals = self.goals.iter();
            let goals = goals.filter_map(|goal| goal.mlr(around.trials).ok());
            let work = ForAll::new(self, goals.collect());
            return Planned::new(StepKind::Goals, duration_s, work);
        }
        let of_goal = |goal: &Goal| {
            let kind = StepKind::Search(goal.name.clone());
            Planned::new(kind, duration_s, ForOne::new(self, goal))
        };
        self.goals.iter().flat_map(of_goal).collect()
    }

    fn shorten(&mut self) {
        self.repeats = self.repeats.map(|_| 2);
        self.best_of = None;
        self.trials_per_rate = self.trials_per_rate.map(|_| 2);
        if self.method == SearchMethod::MlrSearch {
            for goal in &mut self.goals {
                goal.final_trial_duration_s = Some(QUICK_DURATION_S);
                goal.initial_trial_duration_s = Some(QUICK_DURATION_S);
                goal.duration_sum_s = Some(QUICK_DURATION_S);
                goal.width_percent = Some(Percent(QUICK_RESOLUTION_PERCENT));
            }
        } else {
            self.start_rate_percent = Some(Percent(QUICK_STEP_PERCENT));
            self.start_step_percent = Some(Percent(QUICK_STEP_PERCENT));
            self.resolution_percent = Some(Percent(QUICK_RESOLUTION_PERCENT));
        }
    }
}

/// Returns a search of one method for `measure`.
const fn offered(
    name: &'static str,
    method: SearchMethod,
    defaults: &'static [(&'static str, &'static str)],
) -> MeasuredMethod {
    MeasuredMethod {
        name,
        section: "search",
        defaults,
        search: RateSearch::Always(method),
    }
}

impl Offered for Search {
    const MEASURED: &'static [MeasuredMethod] = &[
        offered("single-run", SearchMethod::SingleRun, &[]),
        offered("best-of-n", SearchMethod::BestOfN, &[]),
        offered("worst-of-n", SearchMethod::WorstOfN, &[]),
        offered("best-and-worst-of-n", SearchMethod::BestAndWorstOfN, &[]),
        offered("repeat", SearchMethod::SingleRun, &[("repeats", "20")]),
        offered("mlrsearch", SearchMethod::MlrSearch, &[]),
    ];
}

impl fmt::Display for SearchMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SingleRun => "single-run",
            Self::BestOfN => "best-of-n",
            Self::WorstOfN => "worst-of-n",
            Self::BestAndWorstOfN => "best-and-worst-of-n",
            Self::MlrSearch => "mlrsearch",
        })
    }
}

/// Default steps of step searches.
const STEPS: &[(&str, &str)] = &[
    ("start-rate-percent", "10"),
    ("start-step-percent", "10"),
    ("resolution-percent", "0.5"),
];

impl SearchMethod {
    /// Returns the keys of `[search]` with their defaults in `quietwire measure`, as TOML.
    #[must_use]
    pub fn measured_defaults(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::MlrSearch => &[],
            Self::SingleRun | Self::BestOfN | Self::WorstOfN | Self::BestAndWorstOfN => STEPS,
        }
    }

    /// Returns a description of the rate of a goal.
    #[must_use]
    pub fn rate_described(self) -> &'static str {
        match self {
            Self::SingleRun => "The highest rate at which a trial held",
            Self::BestOfN => "The highest rate at which one of up to N trials held",
            Self::WorstOfN | Self::BestAndWorstOfN => {
                "The highest rate at which all of N trials held"
            }
            Self::MlrSearch => "The relevant lower bound of MLRsearch for each goal",
        }
    }
}
