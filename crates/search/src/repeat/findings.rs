// SPDX-License-Identifier: Apache-2.0
//! Parameters of repeated searches.

use serde::{Deserialize, Serialize};

use crate::{BestWorstConfig, MlrSearchConfig, SingleRunConfig};

/// Search that is repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "method")]
pub enum Repeated {
    /// Single runs, whose result is the highest rate that held.
    SingleRun(SingleRunConfig),
    /// Best-of-N, worst-of-N or both: one result per side, best first.
    BestWorstOfN(BestWorstConfig),
    /// MLRsearches: one result per goal, the relevant lower bound.
    #[serde(rename = "mlrsearch")]
    MlrSearch(MlrSearchConfig),
}

/// Parameters of a [`Repeat`](super::Repeat).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatConfig {
    /// The search. It is the same each time.
    pub search: Repeated,
    /// Number of searches. A statement about a device requires many more than 10.
    pub runs: u32,
    /// Confidence level of the interval, between 0 and 1, such as 0.95.
    pub confidence: f64,
}
