// SPDX-License-Identifier: Apache-2.0
//! `[connections-per-second]`: highest rate of connections that are opened, used and closed (RFC 9411, section 7.2).

use quietwire_search::procedure::ConversationQuantity;
use serde::{Deserialize, Serialize};

use super::super::step_kind::StepKind;
use super::keys::{self, SearchKeys};
use super::search::ConnectionSearch;
use crate::file::Percent;

/// Search for the highest rate of connections (`[connections-per-second]`; RFC 9411, section 7.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ConnectionsPerSecondPlan {
    /// Highest rate, connections per second. Default: 100 000.
    #[serde(default = "keys::max_per_s")]
    pub max_per_s: f64,
    /// Step below which the search ends, percent of the highest rate. Default: 1.
    #[serde(default = "keys::resolution_percent")]
    pub resolution_percent: Percent,
    /// Largest share of the connections that may fail, 0 to 1. Default: 0.00001 (RFC 9411, section 7.2.3.3).
    #[serde(default = "keys::failure_ratio")]
    pub failure_ratio: f64,
    /// Largest number of valid trials at a rate that fails. Default: 1.
    #[serde(default = "keys::best_of")]
    pub best_of: u32,
    /// Time in which connections are opened, seconds. Default: `duration-s` of `[trials]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Wait after each trial, in which the device forgets closed connections, seconds. Default: 0.
    #[serde(default)]
    pub pause_s: f64,
}

impl ConnectionSearch for ConnectionsPerSecondPlan {
    const NAME: &'static str = "connections-per-second";
    const KIND: StepKind = StepKind::ConnectionsPerSecond;

    fn keys(&self) -> SearchKeys {
        SearchKeys {
            section: Self::NAME,
            quantity: ConversationQuantity::ConnectionsPerSecond,
            max: self.max_per_s,
            max_key: "max-per-s",
            resolution_percent: self.resolution_percent,
            failure_ratio: self.failure_ratio,
            best_of: self.best_of,
            pause_s: self.pause_s,
            connections: 1,
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
