// SPDX-License-Identifier: Apache-2.0
//! Studies: from a study file (TOML) through trials to stored results (SQLite). The loop covers rounds, cases, sizes and methods.
//!
//! Belongs here: [`StudyFile`], the checked content of a study file; [`Store`], which keeps every finished trial;
//! [`run_study`], which asks the search methods for the next trial, runs it on a [`Bench`] and stores the
//! result. A report requires only the store.
//!
//! Does not belong here: packets, sysfs, processes. They belong to implementations of [`Bench`], except the processes of [`bisect()`], which
//! has no bench.

// Study files, stores and output of programs: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod activity;
mod bench;
mod bisect;
mod case_settings;
mod executor;
mod file;
#[cfg(test)]
mod fuzz;
mod generator_bench;
mod highest_rate;
mod identity;
mod lab_bench;
mod methods;
mod pause;
mod plan;
mod preview;
mod progress;
mod quick;
mod ready;
mod requirements;
mod results;
mod run;
mod schema;
#[cfg(any(test, feature = "simulated"))]
#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a simulated device for tests and examples: it reads nothing from outside"
)]
pub mod simulated;
mod store;
#[cfg(test)]
mod tests;
mod unmanaged;
mod verdict;

pub use activity::TrialActivity;
pub use bench::{
    ActionOutcome, ApplicationResult, Bench, BenchError, CaseSkipped, CaseSpec, Interrupted,
    Measured, TcpResult,
};
pub use bisect::{
    BisectCommit, BisectError, BisectOptions, Bisected, CommitFinding, JudgedCommit, bisect,
};
pub use case_settings::{
    CaseLeftOut, CaseSettings, Environment, GeneratorCase, LabCase, LabVersions, MachineRecord,
    ObservedMachine, TesterRecord, Versions,
};
pub use file::{
    CardDriver, Case, CaseMonitors, Device, EarlierIsolation, FileError, FrameSize, Idle, Link,
    MaxRate, Measure, Mode, Neighbours, NeighboursIn, Objective, Percent, Point, Published,
    PublishedFigure, Quantity, Ratio, SearchMethod, StudyFile, Switch, TesterSettings, Topology,
    Traffic, Trials, Unit,
};
pub use generator_bench::GeneratorBench;
pub use identity::RunIdentity;
pub use lab_bench::{
    ElementActivity, FunctionPlace, LabBench, LabBenchError, MonitorTarget, MonitoredDevice,
    Observation, RunningMonitors, SwitchProcess, TrialMonitors,
};
pub use quietwire_lab::topology::{Program, Role};
pub use quietwire_lab::{
    CycleCount, Intensity, OwnView, PartView, PortMemory, RunningSwitch, SwitchCycles,
};

pub use methods::{
    AddressCachingPlan, AddressLearningRatePlan, ApplicationPlan, BackToBackPlan,
    ConcurrentConnectionsPlan, ConnectionThroughputPlan, ConnectionsPerSecondPlan, Estimate,
    ForwardingRatePlan, Goal, LatencyPlanSection, LatencyProbe, LossDistributionPlan,
    MeasuredMethod, RateSearch, ResetPlan, Search, SoakPlan, StepKind, Sweep, SystemRecoveryPlan,
    TenantsPlan, TransactionLatencyPlan, TransactionsPerSecondPlan, measured_methods,
};
pub use plan::StepPlan;
pub use preview::{CasePreview, StudyPreview};
pub use progress::{ActionEvent, Progress, Silent, TrialEvent};
pub use quietwire_host::verify::Verdict;
pub use ready::{Ready, ready, ready_made};
pub use results::{
    ActionRecord, CaseEntry, CaseFacts, ConsoleRecord, MaxRateRecord, RunEnd, RunFacts, RunRecord,
    StepRecord, StudyResults, TrialRecord,
};
pub use run::{RunError, StudyEnd, run_study};
pub use store::{LatestTrial, OpenMode, Store, StoreError, StudyOverview};
pub use verdict::{
    Direction, Judgement, RatioEstimate, Rule, Sample, judge, judge_against_baseline, judge_ratio,
    median, median_limits, ratio_of_medians, ratios,
};
