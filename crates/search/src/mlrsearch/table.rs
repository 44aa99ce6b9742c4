// SPDX-License-Identifier: Apache-2.0
//! All loads tried, in ascending order, and the bounds among them.

use super::MlrGoal;
use super::load::{DurationSums, LoadClass, Measured};

/// Load with all its valid trials.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) rate_pps: f64,
    pub(super) trials: Vec<Measured>,
    /// One sum per goal, in the order of the goals.
    pub(super) sums: Vec<DurationSums>,
    /// Number of the last trial at this load, counted over the whole search.
    pub(super) last_trial: usize,
}

/// All loads.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    loads: Vec<Load>,
    trials: usize,
}

/// Pair of bounds, of which either may be missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    pub(super) lower: Option<&'a Load>,
    pub(super) upper: Option<&'a Load>,
}

impl Load {
    /// Returns the sums of the goal at `index`; zero for a goal that the search does not have.
    pub(super) fn sums_of(&self, index: usize) -> DurationSums {
        self.sums.get(index).copied().unwrap_or_default()
    }
}

impl Table {
    /// Adds a valid trial.
    pub(super) fn add(&mut self, goals: &[MlrGoal], rate_pps: f64, trial: Measured) {
        let at = self.loads.partition_point(|load| load.rate_pps < rate_pps);
        if self
            .loads
            .get(at)
            .is_none_or(|load| load.rate_pps > rate_pps)
        {
            let load = Load {
                rate_pps,
                trials: Vec::new(),
                sums: vec![DurationSums::default(); goals.len()],
                last_trial: 0,
            };
            self.loads.insert(at, load);
        }
        self.trials = self.trials.saturating_add(1);
        if let Some(load) = self.loads.get_mut(at) {
            load.trials.push(trial);
            load.last_trial = self.trials;
            for (sums, goal) in load.sums.iter_mut().zip(goals) {
                sums.add(goal, trial);
            }
        }
    }

    /// Returns the relevant bounds of the goal at `index` (RFC 9971): the smallest upper bound, and the largest lower bound below it.
    pub(super) fn relevant(&self, goal: &MlrGoal, index: usize) -> Bounds<'_> {
        let class = |load: &Load| load.sums_of(index).class(goal);
        self.bounds(
            |load| class(load) == LoadClass::UpperBound,
            |load| class(load) == LoadClass::LowerBound,
        )
    }

    /// Returns the relevant bounds by the apparent classes of the loads. No other load is between them.
    pub(super) fn leaning(&self, goal: &MlrGoal, index: usize) -> Bounds<'_> {
        let is_low = |load: &Load| load.sums_of(index).leans_low(goal);
        self.bounds(|load| !is_low(load), is_low)
    }

    /// Returns the next higher load.
    pub(super) fn above(&self, load: &Load) -> Option<&Load> {
        self.loads
            .iter()
            .find(|above| above.rate_pps > load.rate_pps)
    }

    fn bounds(
        &self,
        is_upper: impl Fn(&Load) -> bool,
        is_lower: impl Fn(&Load) -> bool,
    ) -> Bounds<'_> {
        let end = self.loads.iter().position(is_upper);
        let count = end.unwrap_or(self.loads.len());
        let below = self.loads.get(..count).unwrap_or_default();
        Bounds {
            lower: below.iter().rev().find(|load| is_lower(load)),
            upper: end.and_then(|at| self.loads.get(at)),
        }
    }
}
