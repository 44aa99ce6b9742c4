// SPDX-License-Identifier: Apache-2.0
//! `[connection-throughput]`: payload that established connections carry (RFC 9411, sections 7.1 and 7.3).

use quietwire_search::ConfigError;
use quietwire_search::procedure::{ConnectionThroughput, ConnectionThroughputConfig};
use quietwire_tester::connections::{ConversationLoad, OPEN_MAX};
use serde::{Deserialize, Serialize};

use super::super::checks::optional_duration;
use super::super::estimate::{CONFIDENCE, Estimate, actions};
use super::super::machine::Machine;
use super::super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::super::step_kind::StepKind;
use super::{DRAIN_S_MIN, keys};
use crate::file::limits::{Checked, REPEATS_MAX, between, fault, pause};
use crate::file::locate::At::Key;

/// Octets of an answer without `answer` and `[connections]` (RFC 9411, section 7.3.3.2, lists it).
const ANSWER: u32 = 256 * 1024;
/// Largest answer: a stream has at most 1 GiB.
const ANSWER_MAX: u32 = 1 << 30;
/// Most requests of a connection.
const TRANSACTIONS_MAX: u32 = 1 << 20;

/// Measurement of the throughput of established connections (`[connection-throughput]`; RFC 9411, sections 7.1 and 7.3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ConnectionThroughputPlan {
    /// Connections that are open at a time. Default: 100.
    #[serde(default = "connections")]
    pub connections: u32,
    /// Requests of a connection, one after the other. Default: 10.
    #[serde(default = "transactions")]
    pub transactions: u32,
    /// Octets of each answer. Default: those of `[connections]`, or 262 144 without that section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<u32>,
    /// Number of trials. Default: 5.
    #[serde(default = "keys::repeats")]
    pub repeats: u32,
    /// Duration of a trial, seconds. Default: `duration-s` of `[trials]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Wait after each trial, seconds. Default: 0.
    #[serde(default)]
    pub pause_s: f64,
}

fn connections() -> u32 {
    100
}

fn transactions() -> u32 {
    10
}

impl Method for ConnectionThroughputPlan {
    fn section(&self) -> &'static str {
        "connection-throughput"
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("connection-throughput"), Key(key)];
        between(self.connections, 1, OPEN_MAX, &at("connections"))?;
        between(self.transactions, 1, TRANSACTIONS_MAX, &at("transactions"))?;
        between(self.repeats, 1, REPEATS_MAX, &at("repeats"))?;
        let answer = self.answer.unwrap_or(ANSWER);
        between(answer, 1, ANSWER_MAX, &at("answer"))?;
        if answer.saturating_mul(self.transactions) > ANSWER_MAX {
            return fault(
                &at("transactions"),
                format!(
                    "the answers of a connection exceed {ANSWER_MAX} octets (use fewer transactions or smaller answers)"
                ),
            );
        }
        optional_duration(self.duration_s, &at("duration-s"))?;
        pause(self.pause_s, &at("pause-s"))?;
        let load = ConversationLoad::Transfer {
            connections: self.connections,
            transactions: self.transactions,
        };
        keys::possible(around, "connection-throughput", load)
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let duration_s = self.duration_s.unwrap_or(around.trials.duration_s);
        let has_own_answers = around.connections.is_some();
        let transfers = Self {
            answer: self.answer.or((!has_own_answers).then_some(ANSWER)),
            ..self.clone()
        };
        Planned::new(StepKind::ConnectionThroughput, duration_s, transfers)
    }

    fn shorten(&mut self) {
        self.duration_s = None;
        self.repeats = 1;
    }

    fn opens_connections(&self) -> bool {
        true
    }
}

impl Work for ConnectionThroughputPlan {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let method = ConnectionThroughput::new(ConnectionThroughputConfig {
            connections: self.connections,
            transactions: self.transactions,
            answer: self.answer,
            repeats: self.repeats,
            duration_s: common.duration_s,
            pause_s: self.pause_s,
            confidence: CONFIDENCE,
            max_invalid_repeats: common.invalid_repeats,
        })?;
        Ok(Machine::Procedure(Box::new(method)))
    }

    fn bound(&self, common: &Common) -> Estimate {
        let each_s = common.duration_s + self.pause_s + DRAIN_S_MIN;
        actions(f64::from(self.repeats), each_s)
    }
}

impl Offered for ConnectionThroughputPlan {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "connection-throughput",
        section: "connection-throughput",
        defaults: &[],
        search: RateSearch::No,
    }];
}
