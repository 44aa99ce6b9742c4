// SPDX-License-Identifier: Apache-2.0
//! The methods. Each has a file or folder: its section of the study file, the check, the steps, the shortening for `--quick`, and its
//! names in `quietwire measure`. `table.rs` lists them. The keys of study files, the kinds of steps, the estimate and the names in
//! `measure` are generated from that table.

mod address_caching;
mod address_learning_rate;
pub(crate) mod application;
mod back_to_back;
mod checks;
mod connections;
mod estimate;
mod forwarding_rate;
mod found;
mod latency;
mod latency_plan;
mod loss_distribution;
mod machine;
mod measured;
mod method;
mod reset;
mod search;
mod soak;
mod step_kind;
mod sweep;
mod system_recovery;
mod table;
mod tenants;
mod throughput;

pub use address_caching::AddressCachingPlan;
pub use address_learning_rate::AddressLearningRatePlan;
pub use application::ApplicationPlan;
pub use back_to_back::BackToBackPlan;
pub use connections::{
    ConcurrentConnectionsPlan, ConnectionThroughputPlan, ConnectionsPerSecondPlan,
    TransactionLatencyPlan, TransactionsPerSecondPlan,
};
pub(crate) use connections::{DRAIN_S_MIN, usual_connections};
pub use estimate::Estimate;
pub(crate) use estimate::QUICK_DURATION_S;
pub use forwarding_rate::ForwardingRatePlan;
pub use latency::LatencyProbe;
pub use latency_plan::LatencyPlanSection;
pub use loss_distribution::LossDistributionPlan;
pub(crate) use machine::{Found, Machine, Next, StepRequest};
pub use measured::measured_methods;
pub(crate) use method::{Common, FoundBefore, Method, Planned, StudyContext};
pub use method::{MeasuredMethod, RateSearch};
pub use reset::ResetPlan;
pub use search::{Goal, Search};
pub use soak::SoakPlan;
pub use step_kind::StepKind;
pub use sweep::Sweep;
pub use system_recovery::SystemRecoveryPlan;
pub(crate) use table::every_method;
pub use tenants::TenantsPlan;
