// SPDX-License-Identifier: Apache-2.0
//! Rate-search methods as pure state machines: each chooses the next rate from the outcomes so far.
//!
//! The crate has one file per method, behind [`Method`] or, for methods that require more than plain trials, [`procedure::Procedure`].
//! Input is the rate and duration of [`TrialRequest`] and the loss ratio of [`Outcome`]. Output is the [`SearchResult`] with all trials.
//!
//! The crate uses no clocks, files, sockets or threads, and knows nothing about packets. The caller decides whether a trial was valid; a
//! method decides what an invalid trial means for the search. The caller's loop is [`Method::step`], the trial, [`Method::record`], until
//! the step is [`Step::Done`].

// Outcomes of trials: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod best_worst;
#[cfg(test)]
mod chance;
mod error;
mod forwarding_rate;
mod latency_plan;
mod ledger;
mod loss_distribution;
mod loss_ratio;
mod loss_sweep;
mod max_count;
mod median;
mod method;
mod mlrsearch;
pub mod procedure;
mod reachable;
mod readings;
mod repeat;
mod single_run;
mod soak;
mod statistics;
#[cfg(test)]
mod tests;
mod throughput_search;
mod walk;

pub use best_worst::{
    BestWorst, BestWorstConfig, BestWorstFindings, RateTally, SideFindings, Sides,
};
pub use error::{ConfigError, RecordError};
pub use forwarding_rate::{
    Forwarded, ForwardingRate, ForwardingRateConfig, ForwardingRateFindings,
};
pub use latency_plan::{
    LatencyLoad, LatencyPlanFindings, LatencyPlanPoint, LatencyPoint, LatencyTrials, PartsOf,
    latency_plan, latency_trials,
};
pub use loss_distribution::{
    LossDistribution, LossDistributionConfig, LossDistributionFindings, RateLosses,
};
pub use loss_ratio::LossRatio;
pub use loss_sweep::{LossSweep, LossSweepConfig, LossSweepFindings, SweepPoint, SweepValue};
pub use max_count::MaxCount;
pub use median::{TwoRanks, median, median_rank, middle_values, sign_test, two_ranks};
pub use method::{
    Attempt, Findings, Method, Outcome, RepeatFindings, RepeatedRun, SearchResult, Step,
    TrialRequest,
};
pub use mlrsearch::{
    DurationSums, LoadClass, MlrBound, MlrEnd, MlrFindings, MlrGoal, MlrGoalResult,
    MlrIrregularity, MlrSearch, MlrSearchConfig,
};
pub use reachable::Reachable;
pub use readings::Readings;
pub use repeat::{Repeat, RepeatConfig};
pub use single_run::{SearchEnd, SingleRun, SingleRunConfig, SingleRunFindings};
pub use soak::{CriticalLoad, Soak, SoakConfig, SoakEnd, SoakFindings};
pub use statistics::Statistics;
pub use throughput_search::ThroughputSearch;
