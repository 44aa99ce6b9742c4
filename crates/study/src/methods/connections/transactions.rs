// SPDX-License-Identifier: Apache-2.0
//! `[transactions-per-second]`: highest rate of transactions on connections that stay open (RFC 9411, section 6.3.3).

use quietwire_search::procedure::ConversationQuantity;
use serde::{Deserialize, Serialize};

use super::super::step_kind::StepKind;
use super::keys::{self, SearchKeys};
use super::search::ConnectionSearch;
use crate::file::Percent;

/// Search for the highest rate of transactions on open connections (`[transactions-per-second]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TransactionsPerSecondPlan {
    /// Connections that share the transactions. Default: 1000.
    #[serde(default = "keys::connections")]
    pub connections: u32,
    /// Highest rate, transactions per second over all connections. Default: 100 000.
    #[serde(default = "keys::max_per_s")]
    pub max_per_s: f64,
    /// Step below which the search ends, percent of the highest rate. Default: 1.
    #[serde(default = "keys::resolution_percent")]
    pub resolution_percent: Percent,
    /// Largest share of the transactions that may fail or be late, 0 to 1. Default: 0.00001.
    #[serde(default = "keys::failure_ratio")]
    pub failure_ratio: f64,
    /// Largest number of valid trials at a rate that fails. Default: 1.
    #[serde(default = "keys::best_of")]
    pub best_of: u32,
    /// Time in which requests are sent, seconds. Default: `duration-s` of `[trials]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Wait after each trial, in which the device forgets closed connections, seconds. Default: 0.
    #[serde(default)]
    pub pause_s: f64,
}

impl ConnectionSearch for TransactionsPerSecondPlan {
    const NAME: &'static str = "transactions-per-second";
    const KIND: StepKind = StepKind::TransactionsPerSecond;

    fn keys(&self) -> SearchKeys {
        SearchKeys {
            section: Self::NAME,
            quantity: ConversationQuantity::TransactionsPerSecond,
            max: self.max_per_s,
            max_key: "max-per-s",
            resolution_percent: self.resolution_percent,
            failure_ratio: self.failure_ratio,
            best_of: self.best_of,
            pause_s: self.pause_s,
            connections: self.connections,
            opening_per_s: keys::opening_per_s(),
        }
    }

    fn duration_s(&self) -> Option<f64> {
        self.duration_s
    }

    fn forget_duration(&mut self) {
        self.duration_s = None;
    }
}
