// SPDX-License-Identifier: Apache-2.0
//! Trials with conversations over TCP (RFC 9411, section 7), and what was observed in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Load of a trial with conversations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum ConversationLoad {
    /// Connections that are opened at a rate. Each has one request and one answer, and is closed.
    Connections {
        /// Connections opened per second.
        per_s: f64,
    },
    /// Connections that are all open at once for the duration, with a checked answer before, in the middle and at the end.
    Open {
        /// Number of connections.
        connections: u32,
        /// Connections opened per second.
        opening_per_s: f64,
    },
    /// Requests at a rate, on connections that stay open.
    Transactions {
        /// Number of connections.
        connections: u32,
        /// Requests per second, summed over all connections.
        per_s: f64,
    },
    /// Answers as fast as TCP transfers them.
    Transfer {
        /// Number of connections that are open at a time.
        connections: u32,
        /// Requests of a connection, one after the other.
        transactions: u32,
    },
}

impl ConversationLoad {
    /// Returns the value that a search varies: a rate per second, or a number of connections.
    #[must_use]
    pub fn value(&self) -> f64 {
        match self {
            Self::Connections { per_s } | Self::Transactions { per_s, .. } => *per_s,
            Self::Open { connections, .. } | Self::Transfer { connections, .. } => {
                f64::from(*connections)
            }
        }
    }
}

/// A trial with conversations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationTrial {
    /// The load.
    pub load: ConversationLoad,
    /// Duration of the load, seconds.
    pub duration_s: f64,
    /// Wait afterwards, so that the device forgets closed connections, seconds.
    pub pause_s: f64,
    /// Octets of each answer; `None` for those of the description of the conversations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<u32>,
}

/// Distribution of times, nanoseconds. A percentile is `None` if there are too few samples for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSummary {
    /// Number of samples.
    pub samples: u64,
    /// Smallest value.
    pub min_ns: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// 50th percentile.
    pub p50_ns: Option<u64>,
    /// 90th percentile.
    pub p90_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile.
    pub p99_9_ns: Option<u64>,
    /// Largest value.
    pub max_ns: u64,
}

/// Counts of a valid trial with conversations. Rates are those of the middle of the trial, without its first tenth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConversationCounts {
    /// Connections, or with [`ConversationLoad::Transactions`] transactions, that the trial attempted.
    pub attempted: u64,
    /// Those of them that failed or were too late.
    pub failed: u64,
    /// Failed connections by cause, in the words of the tester.
    pub causes: BTreeMap<String, u64>,
    /// Largest number of connections that were open at once.
    pub open_largest: u64,
    /// Connections completed per second.
    pub connections_per_s: f64,
    /// Answers received per second.
    pub transactions_per_s: f64,
    /// Payload that the client received and checked, bits per second.
    pub received_bps: f64,
    /// Share of the time in which the tester had nothing to receive; `None` if it is unknown.
    #[serde(default)]
    pub tester_idle_ratio: Option<f64>,
    /// Time from a SYN to its answer.
    #[serde(default)]
    pub handshake: Option<TimeSummary>,
    /// Time from a request to the first octet of its answer.
    #[serde(default)]
    pub first_octet: Option<TimeSummary>,
    /// Time from a request to the last octet of its answer.
    #[serde(default)]
    pub last_octet: Option<TimeSummary>,
}

impl ConversationCounts {
    /// Returns the share of the attempts that failed, 0 to 1.
    #[must_use]
    pub fn failure_ratio(&self) -> f64 {
        if self.attempted == 0 {
            return 0.0;
        }
        self.failed as f64 / self.attempted as f64
    }

    /// Returns true if the numbers are possible.
    pub(super) fn is_possible(&self) -> bool {
        let rates = [
            self.connections_per_s,
            self.transactions_per_s,
            self.received_bps,
        ];
        let is_rate = |rate: &f64| rate.is_finite() && *rate >= 0.0;
        self.attempted > 0 && self.failed <= self.attempted && rates.iter().all(is_rate)
    }
}
