// SPDX-License-Identifier: Apache-2.0
//! Keys that the sections of several methods for connections have: defaults, checks, and their search.

use quietwire_search::procedure::{ConversationQuantity, ConversationSearchConfig};
use quietwire_search::{ConfigError, LossRatio};
use quietwire_tester::connections::{ConversationLoad, ConversationRun, OPEN_MAX, RATE_MAX};

use super::super::checks::optional_duration;
use super::super::estimate::{Estimate, actions};
use super::super::method::{Common, StudyContext};
use super::{DRAIN_S_MIN, usual_connections};
use crate::file::Percent;
use crate::file::limits::{Checked, REPEATS_MAX, between, fault, pause};
use crate::file::locate::At::Key;

/// First value of a search and its step, as a share of the highest value.
const STEP: f64 = 0.2;
/// Most requests of one connection per second: the tester's timers have a resolution of 1 ms.
const REQUESTS_PER_S_MAX: f64 = 100.0;

pub(super) fn max_per_s() -> f64 {
    100_000.0
}

pub(super) fn max_connections() -> u32 {
    100_000
}

pub(super) fn opening_per_s() -> f64 {
    10_000.0
}

pub(super) fn resolution_percent() -> Percent {
    Percent(1.0)
}

/// Returns the default, one of 100,000 (RFC 9411, section 7.2.3.3).
pub(super) fn failure_ratio() -> f64 {
    0.000_01
}

pub(super) fn best_of() -> u32 {
    1
}

pub(super) fn repeats() -> u32 {
    5
}

pub(super) fn connections() -> u32 {
    1_000
}

/// A search, by the keys of its section.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchKeys {
    pub(super) section: &'static str,
    pub(super) quantity: ConversationQuantity,
    /// Highest value, and its key.
    pub(super) max: f64,
    pub(super) max_key: &'static str,
    pub(super) resolution_percent: Percent,
    pub(super) failure_ratio: f64,
    pub(super) best_of: u32,
    pub(super) pause_s: f64,
    /// Connections that share transactions.
    pub(super) connections: u32,
    pub(super) opening_per_s: f64,
}

impl SearchKeys {
    /// Checks the keys.
    ///
    /// # Errors
    /// The first fault.
    pub(super) fn check(&self, around: &StudyContext<'_>, duration_s: Option<f64>) -> Checked {
        let at = |key| [Key(self.section), Key(key)];
        let is_number = self.quantity == ConversationQuantity::ConcurrentConnections;
        let limit = if is_number {
            f64::from(OPEN_MAX)
        } else {
            RATE_MAX
        };
        if !(self.max >= 1.0 && self.max <= limit) {
            return fault(
                &at(self.max_key),
                format!("{} must be 1 to {limit}", self.max),
            );
        }
        per_s(self.opening_per_s, &at("opening-per-s"))?;
        if !(0.0..1.0).contains(&self.failure_ratio) {
            return fault(
                &at("failure-ratio"),
                format!(
                    "{} must be at least 0 and below 1 (0.00001 is one of 100,000)",
                    self.failure_ratio
                ),
            );
        }
        if self.resolution_percent.get() > STEP * 100.0 {
            return fault(
                &at("resolution-percent"),
                format!(
                    "the search begins with steps of {} %, so this must be less",
                    STEP * 100.0
                ),
            );
        }
        between(self.best_of, 1, REPEATS_MAX, &at("best-of"))?;
        optional_duration(duration_s, &at("duration-s"))?;
        pause(self.pause_s, &at("pause-s"))?;
        let load = match self.quantity {
            ConversationQuantity::ConnectionsPerSecond => {
                ConversationLoad::Connections { per_s: self.max }
            }
            ConversationQuantity::ConcurrentConnections => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "the limit is checked above"
                )]
                let connections = self.max as u32;
                ConversationLoad::Open {
                    connections,
                    opening_per_s: self.opening_per_s,
                }
            }
            ConversationQuantity::TransactionsPerSecond => {
                return transactions(around, self.section, self.connections, self.max);
            }
        };
        possible(around, self.section, load)
    }

    /// Returns the parameters of the search.
    ///
    /// # Errors
    /// The failure ratio is none.
    pub(super) fn config(&self, common: &Common) -> Result<ConversationSearchConfig, ConfigError> {
        Ok(ConversationSearchConfig {
            quantity: self.quantity,
            max: self.max,
            step: STEP * self.max,
            resolution: self.resolution_percent.of(self.max),
            failure_ratio: LossRatio::new(self.failure_ratio)?,
            duration_s: common.duration_s,
            pause_s: self.pause_s,
            answer: None,
            connections: self.connections,
            opening_per_s: self.opening_per_s,
            best_of: self.best_of,
            max_invalid_repeats: common.invalid_repeats,
        })
    }

    /// Returns the maximum work of the search.
    pub(super) fn bound(&self, common: &Common) -> Estimate {
        let trials = self.config(common).map_or(1, |config| config.trial_bound());
        // The largest number of connections takes the longest to open and to close.
        let opening_s = match self.quantity {
            ConversationQuantity::ConcurrentConnections => 2.0 * self.max / self.opening_per_s,
            ConversationQuantity::TransactionsPerSecond => {
                (f64::from(self.connections) / opening_per_s()).max(1.0)
            }
            ConversationQuantity::ConnectionsPerSecond => 0.0,
        };
        let each_s = common.duration_s + self.pause_s + opening_s + DRAIN_S_MIN;
        actions(f64::from(trials), each_s)
    }
}

/// Checks a rate per second.
pub(super) fn per_s(rate: f64, path: &[crate::file::locate::At]) -> Checked {
    if rate > 0.0 && rate <= RATE_MAX {
        return Ok(());
    }
    fault(
        path,
        format!("{rate} must be above 0 and at most {RATE_MAX} per second"),
    )
}

/// Checks a load of transactions on open connections.
pub(super) fn transactions(
    around: &StudyContext<'_>,
    section: &'static str,
    connections: u32,
    per_s: f64,
) -> Checked {
    between(
        connections,
        1,
        OPEN_MAX,
        &[Key(section), Key("connections")],
    )?;
    if per_s / f64::from(connections) > REQUESTS_PER_S_MAX {
        return fault(
            &[Key(section), Key("connections")],
            format!(
                "{per_s} requests per second over {connections} connections are more than {REQUESTS_PER_S_MAX} per connection (use {:.0} \
                 connections or more, or a lower rate)",
                (per_s / REQUESTS_PER_S_MAX).ceil()
            ),
        );
    }
    let load = ConversationLoad::Transactions { connections, per_s };
    possible(around, section, load)
}

/// Checks that the study can open the connections of a load.
pub(super) fn possible(
    around: &StudyContext<'_>,
    section: &'static str,
    load: ConversationLoad,
) -> Checked {
    if around.frame_sizes > 1 {
        return fault(
            &[Key(section)],
            "connections have no frame size (give one value in frame-sizes of [traffic], or use a separate study)",
        );
    }
    let description = around.connections.cloned();
    let run = ConversationRun {
        description: description.unwrap_or_else(usual_connections),
        load,
        duration_s: around.trials.duration_s,
        drain_s: DRAIN_S_MIN,
        pause_s: 0.0,
        answer: None,
    };
    match run.validate() {
        Ok(()) => Ok(()),
        Err(message) => fault(&[Key(section)], message),
    }
}
