// SPDX-License-Identifier: Apache-2.0
//! Kinds of steps.

use serde::{Deserialize, Serialize};

/// What a step is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "goal")]
pub enum StepKind {
    /// The search for one goal, by its name.
    Search(String),
    /// One search for all goals.
    Goals,
    /// The frame loss rate sweep.
    Sweep,
    /// Trials at a low load.
    Latency,
    /// Many trials at each of a few rates.
    LossDistribution,
    /// What comes through of the maximum offered load.
    ForwardingRate,
    /// Latency at the rates that were found.
    LatencyPlan,
    /// The load at which a tiny part is lost.
    Soak,
    /// The longest burst without loss.
    BackToBack,
    /// How long frames are lost after an overload.
    SystemRecovery,
    /// How long nothing is forwarded when the device is restarted.
    Reset,
    /// How many addresses the device keeps.
    AddressCaching,
    /// How fast it learns them.
    AddressLearningRate,
    /// What applications see.
    Application,
    /// Whether the loss goal holds with so many tenants.
    Tenants,
}

impl std::fmt::Display for StepKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Search(goal) => write!(f, "search {goal}"),
            Self::Goals => f.write_str("search for all goals"),
            Self::Sweep => f.write_str("loss sweep"),
            Self::Latency => f.write_str("latency"),
            Self::LossDistribution => f.write_str("loss distribution"),
            Self::ForwardingRate => f.write_str("forwarding rate"),
            Self::LatencyPlan => f.write_str("latency plan"),
            Self::Soak => f.write_str("soak"),
            Self::BackToBack => f.write_str("back-to-back"),
            Self::SystemRecovery => f.write_str("system recovery"),
            Self::Reset => f.write_str("reset"),
            Self::AddressCaching => f.write_str("address caching"),
            Self::AddressLearningRate => f.write_str("address learning rate"),
            Self::Application => f.write_str("applications"),
            Self::Tenants => f.write_str("tenants"),
        }
    }
}
