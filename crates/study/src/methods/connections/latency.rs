// SPDX-License-Identifier: Apache-2.0
//! `[transaction-latency]`: time to the first and to the last octet of an answer (RFC 9411, section 7.4).

use quietwire_search::ConfigError;
use quietwire_search::procedure::{
    ConversationQuantity, TransactionLatency, TransactionLatencyConfig, TransactionRate,
};
use serde::{Deserialize, Serialize};

use super::super::estimate::{Estimate, actions};
use super::super::machine::Machine;
use super::super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::super::step_kind::StepKind;
use super::DRAIN_S_MIN;
use super::keys::{self, SearchKeys};
use crate::file::Percent;
use crate::file::limits::{Checked, REPEATS_MAX, between};
use crate::file::locate::At::Key;

/// Measurement of the latency of transactions on open connections (`[transaction-latency]`; RFC 9411, section 7.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TransactionLatencyPlan {
    /// Transactions per second over all connections. Default: `load-percent` of the highest rate, which a search finds before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Share of the highest rate, percent. Default: 50 (RFC 9411, section 7.4.3.2).
    #[serde(default = "load_percent")]
    pub load_percent: Percent,
    /// Connections that share the transactions. Default: 1000.
    #[serde(default = "keys::connections")]
    pub connections: u32,
    /// Highest rate of the search, transactions per second. Default: 100 000.
    #[serde(default = "keys::max_per_s")]
    pub max_per_s: f64,
    /// Step below which the search ends, percent of the highest rate. Default: 1.
    #[serde(default = "keys::resolution_percent")]
    pub resolution_percent: Percent,
    /// Largest share of the transactions that may fail or be late in the search, 0 to 1. Default: 0.00001.
    #[serde(default = "keys::failure_ratio")]
    pub failure_ratio: f64,
    /// Number of trials at the rate. Default: 5.
    #[serde(default = "keys::repeats")]
    pub repeats: u32,
    /// Duration of each trial, seconds. Default: `duration-s` of `[trials]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Wait after each trial, seconds. Default: 0.
    #[serde(default)]
    pub pause_s: f64,
}

fn load_percent() -> Percent {
    Percent(50.0)
}

impl TransactionLatencyPlan {
    fn search(&self) -> SearchKeys {
        SearchKeys {
            section: "transaction-latency",
            quantity: ConversationQuantity::TransactionsPerSecond,
            max: self.max_per_s,
            max_key: "max-per-s",
            resolution_percent: self.resolution_percent,
            failure_ratio: self.failure_ratio,
            best_of: 1,
            pause_s: self.pause_s,
            connections: self.connections,
            opening_per_s: keys::opening_per_s(),
        }
    }
}

impl Method for TransactionLatencyPlan {
    fn section(&self) -> &'static str {
        "transaction-latency"
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("transaction-latency"), Key(key)];
        between(self.repeats, 1, REPEATS_MAX, &at("repeats"))?;
        if let Some(rate) = self.rate_per_s {
            keys::per_s(rate, &at("rate-per-s"))?;
            let fixed = SearchKeys {
                max: rate.max(1.0),
                max_key: "rate-per-s",
                ..self.search()
            };
            return fixed.check(around, self.duration_s);
        }
        self.search().check(around, self.duration_s)
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let duration_s = self.duration_s.unwrap_or(around.trials.duration_s);
        Planned::new(StepKind::TransactionLatency, duration_s, self.clone())
    }

    fn shorten(&mut self) {
        self.duration_s = None;
        self.repeats = 1;
    }

    fn opens_connections(&self) -> bool {
        true
    }
}

impl Work for TransactionLatencyPlan {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let rate = match self.rate_per_s {
            Some(per_s) => TransactionRate::Fixed { per_s },
            None => TransactionRate::Found {
                percent: self.load_percent.get(),
                search: Box::new(self.search().config(common)?),
            },
        };
        let method = TransactionLatency::new(TransactionLatencyConfig {
            rate,
            connections: self.connections,
            answer: None,
            repeats: self.repeats,
            duration_s: common.duration_s,
            pause_s: self.pause_s,
            max_invalid_repeats: common.invalid_repeats,
        })?;
        Ok(Machine::Procedure(Box::new(method)))
    }

    fn bound(&self, common: &Common) -> Estimate {
        let each_s = common.duration_s + self.pause_s + DRAIN_S_MIN;
        let trials = actions(f64::from(self.repeats), each_s);
        match self.rate_per_s {
            Some(_) => trials,
            None => trials.plus(self.search().bound(common)),
        }
    }
}

impl Offered for TransactionLatencyPlan {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "transaction-latency",
        section: "transaction-latency",
        defaults: &[],
        search: RateSearch::No,
    }];
}
