// SPDX-License-Identifier: Apache-2.0
//! `[concurrent-connections]`: largest number of connections that are open at once (RFC 9411, section 7.5).

use quietwire_search::procedure::ConversationQuantity;
use serde::{Deserialize, Serialize};

use super::super::step_kind::StepKind;
use super::keys::{self, SearchKeys};
use super::search::ConnectionSearch;
use crate::file::Percent;

/// Search for the largest number of open connections (`[concurrent-connections]`; RFC 9411, section 7.5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ConcurrentConnectionsPlan {
    /// Largest number of connections. Default: 100 000.
    #[serde(default = "keys::max_connections")]
    pub max_connections: u32,
    /// Rate at which connections are opened, per second. Default: 10 000.
    #[serde(default = "keys::opening_per_s")]
    pub opening_per_s: f64,
    /// Step below which the search ends, percent of the largest number. Default: 1.
    #[serde(default = "keys::resolution_percent")]
    pub resolution_percent: Percent,
    /// Largest share of the connections that may fail, 0 to 1. Default: 0.00001.
    #[serde(default = "keys::failure_ratio")]
    pub failure_ratio: f64,
    /// Largest number of valid trials at a number that fails. Default: 1.
    #[serde(default = "keys::best_of")]
    pub best_of: u32,
    /// Time for which all connections are open, seconds. Default: `duration-s` of `[trials]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Wait after each trial, in which the device forgets closed connections, seconds. Default: 0.
    #[serde(default)]
    pub pause_s: f64,
}

impl ConnectionSearch for ConcurrentConnectionsPlan {
    const NAME: &'static str = "concurrent-connections";
    const KIND: StepKind = StepKind::ConcurrentConnections;

    fn keys(&self) -> SearchKeys {
        SearchKeys {
            section: Self::NAME,
            quantity: ConversationQuantity::ConcurrentConnections,
            max: f64::from(self.max_connections),
            max_key: "max-connections",
            resolution_percent: self.resolution_percent,
            failure_ratio: self.failure_ratio,
            best_of: self.best_of,
            pause_s: self.pause_s,
            connections: 1,
            opening_per_s: self.opening_per_s,
        }
    }

    fn duration_s(&self) -> Option<f64> {
        self.duration_s
    }

    fn forget_duration(&mut self) {
        self.duration_s = None;
    }
}
