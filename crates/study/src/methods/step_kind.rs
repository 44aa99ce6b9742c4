// SPDX-License-Identifier: Apache-2.0
//! Kinds of steps.

use serde::{Deserialize, Serialize};

use super::table::every_method;

macro_rules! step_kind {
    (
        $(#[$search_doc:meta])* $search:ident: $search_plan:ident,
        $($(#[$doc:meta])* $field:ident: $plan:ident => $kind:ident $name:literal $family:ident,)+
    ) => {
        /// Method of a step.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", tag = "kind", content = "goal")]
        pub enum StepKind {
            /// Search for one goal, by its name.
            Search(String),
            /// Search for all goals.
            Goals,
            $($(#[$doc])* $kind,)+
        }

        impl StepKind {
            fn family(&self) -> Family {
                match self {
                    Self::Search(_) | Self::Goals => Family::Trials,
                    $(Self::$kind => Family::$family,)+
                }
            }
        }

        impl std::fmt::Display for StepKind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    Self::Search(goal) => write!(f, "search {goal}"),
                    Self::Goals => f.write_str("search for all goals"),
                    $(Self::$kind => f.write_str($name),)+
                }
            }
        }
    };
}

every_method!(step_kind);

/// Kind of the elements of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Trials,
    Procedure,
    Application,
}

impl StepKind {
    /// Returns true for a procedure: bursts, overloads, restarts, addresses.
    #[must_use]
    pub fn is_procedure(&self) -> bool {
        self.family() == Family::Procedure
    }

    /// Returns true for a step that opens connections. It has no rate of frames.
    #[must_use]
    pub fn opens_connections(&self) -> bool {
        matches!(
            self,
            Self::ConnectionsPerSecond
                | Self::ConcurrentConnections
                | Self::TransactionsPerSecond
                | Self::ConnectionThroughput
                | Self::TransactionLatency
        )
    }

    /// Returns true for a step that searches for the rate of this goal.
    #[must_use]
    pub fn searches_for(&self, goal: &str) -> bool {
        match self {
            Self::Search(name) => name == goal,
            Self::Goals => true,
            _ => false,
        }
    }
}
