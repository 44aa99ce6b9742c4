// SPDX-License-Identifier: Apache-2.0
//! Parameters of one search for the throughput, by any method.

use serde::{Deserialize, Serialize};

use crate::{BestWorstConfig, MlrSearchConfig, SingleRunConfig};

/// A search for the throughput and its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "method")]
pub enum ThroughputSearch {
    /// Single runs, whose result is the highest rate that held.
    SingleRun(SingleRunConfig),
    /// Best-of-N, worst-of-N or both: one result a side, best first.
    BestWorstOfN(BestWorstConfig),
    /// MLRsearches: one result a goal, the relevant lower bound.
    #[serde(rename = "mlrsearch")]
    MlrSearch(MlrSearchConfig),
}

impl ThroughputSearch {
    /// Returns how often the search repeats an invalid trial.
    pub(crate) fn max_invalid_repeats(&self) -> u32 {
        match self {
            Self::SingleRun(config) => config.max_invalid_repeats,
            Self::BestWorstOfN(config) => config.search.max_invalid_repeats,
            Self::MlrSearch(config) => config.max_invalid_repeats,
        }
    }

    /// Returns the maximum rate, frames per second.
    pub(crate) fn max_rate_pps(&self) -> f64 {
        match self {
            Self::SingleRun(config) => config.max_rate_pps,
            Self::BestWorstOfN(config) => config.search.max_rate_pps,
            Self::MlrSearch(config) => config.max_rate_pps,
        }
    }

    /// Returns the same search up to another maximum rate, frames per second. It starts at this rate if it started above.
    pub(crate) fn with_max_rate(&self, max_rate_pps: f64) -> Self {
        let mut lowered = self.clone();
        match &mut lowered {
            Self::SingleRun(config) => config.limit_to(max_rate_pps),
            Self::BestWorstOfN(config) => config.search.limit_to(max_rate_pps),
            Self::MlrSearch(config) => config.max_rate_pps = max_rate_pps,
        }
        lowered
    }
}
