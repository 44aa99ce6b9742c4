// SPDX-License-Identifier: Apache-2.0
//! `[[objective]]`: a bound of a measured quantity, which the results are judged by.

use std::fmt;
use std::path::PathBuf;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use super::values::{FrameSize, Percent};
use crate::verdict::{Direction, Rule};

/// Confidence of a verdict unless the file sets it.
const CONFIDENCE: f64 = 0.95;

/// An objective (`[[objective]]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Objective {
    /// Title. Default: composed of case, quantity and bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Quantity.
    pub quantity: Quantity,
    /// Case whose results are judged.
    pub case: String,
    /// Case that a ratio refers to. With `baseline`: the case of the baseline's store. Default: the case itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Store of an earlier study that a ratio refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<PathBuf>,
    /// Frame size. Default: every frame size of the study, with a verdict for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_size: Option<FrameSize>,
    /// Load of `[sweep]`, for a loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_percent: Option<Percent>,
    /// Load of `[latency-plan]` by its name in reports, such as `NDR` or `50 % of PDR`. Default: the load of `[latency]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// Percentile of latency or delay variation; 100 is the maximum. Default: the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile: Option<f64>,
    /// Lower bound of a rate, frames per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least_pps: Option<f64>,
    /// Lower bound of a quantity of connections, in its unit: connections, a number of them or of transactions per second, or bits per
    /// second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Upper bound of a loss ratio, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most_loss_ratio: Option<f64>,
    /// Upper bound of a latency or delay variation, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most_us: Option<f64>,
    /// Upper bound of a recovery or outage time, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most_s: Option<f64>,
    /// Lower bound of a rate relative to another case or a baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least_ratio: Option<f64>,
    /// Upper bound of a loss or time relative to another case or a baseline. Beside a reference of 0, only a value of 0 meets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most_ratio: Option<f64>,
    /// Confidence of the verdict: one minus the largest probability of a wrong one. Default: 0.95.
    #[serde(default = "confidence", skip_serializing_if = "is_usual")]
    pub confidence: f64,
}

fn confidence() -> f64 {
    CONFIDENCE
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_usual(confidence: &f64) -> bool {
    *confidence == CONFIDENCE
}

/// Quantity of an objective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Highest rate that holds for the goal of this name.
    Rate(String),
    /// Loss ratio at a load of `[sweep]`.
    Loss,
    /// Round-trip latency.
    Latency,
    /// Inter-packet delay variation (RFC 5481, section 4.1).
    Ipdv,
    /// Packet delay variation (RFC 5481, section 4.2), also called jitter.
    Pdv,
    /// Time with loss after an overload.
    SystemRecovery,
    /// Time without frames after a restart.
    Reset,
    /// Connections opened, used and closed per second.
    ConnectionsPerSecond,
    /// Connections that are open at once.
    ConcurrentConnections,
    /// Transactions per second on open connections.
    TransactionsPerSecond,
    /// Payload of established connections, bits per second.
    ConnectionThroughput,
}

/// Quantities that are not rates of a goal, with their names.
const NAMED: [(&str, Quantity); 10] = [
    ("loss", Quantity::Loss),
    ("latency", Quantity::Latency),
    ("ipdv", Quantity::Ipdv),
    ("pdv", Quantity::Pdv),
    ("system-recovery", Quantity::SystemRecovery),
    ("reset", Quantity::Reset),
    ("connections-per-second", Quantity::ConnectionsPerSecond),
    ("concurrent-connections", Quantity::ConcurrentConnections),
    ("transactions-per-second", Quantity::TransactionsPerSecond),
    ("connection-throughput", Quantity::ConnectionThroughput),
];

impl Quantity {
    /// Returns the names of the quantities that are not rates of a goal.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// Returns its unit.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match self {
            Self::Rate(_) => Unit::FramesPerSecond,
            Self::Loss => Unit::LossRatio,
            Self::Latency | Self::Ipdv | Self::Pdv => Unit::Nanoseconds,
            Self::SystemRecovery | Self::Reset => Unit::Seconds,
            Self::ConnectionsPerSecond => Unit::ConnectionsPerSecond,
            Self::ConcurrentConnections => Unit::Connections,
            Self::TransactionsPerSecond => Unit::TransactionsPerSecond,
            Self::ConnectionThroughput => Unit::BitsPerSecond,
        }
    }

    /// Returns true for latency and delay variation, which have percentiles.
    #[must_use]
    pub fn has_percentiles(&self) -> bool {
        self.unit() == Unit::Nanoseconds
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut named = NAMED.iter();
        match self {
            Self::Rate(goal) => f.write_str(goal),
            other => named
                .find(|(_, quantity)| quantity == other)
                .map_or(Ok(()), |(name, _)| f.write_str(name)),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name.is_empty() {
            return Err(de::Error::custom(
                "the quantity is empty (write the name of a goal, such as NDR, or latency)",
            ));
        }
        let mut named = NAMED.into_iter();
        let found = named.find(|(known, _)| *known == name);
        Ok(found.map_or(Self::Rate(name), |(_, quantity)| quantity))
    }
}

/// Unit of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Frames per second.
    FramesPerSecond,
    /// Lost frames divided by offered frames.
    LossRatio,
    /// Nanoseconds.
    Nanoseconds,
    /// Seconds.
    Seconds,
    /// Connections per second.
    ConnectionsPerSecond,
    /// Connections.
    Connections,
    /// Transactions per second.
    TransactionsPerSecond,
    /// Bits per second.
    BitsPerSecond,
    /// Ratio of two values of one quantity.
    Ratio,
}

impl Unit {
    /// Returns true if more is better: rates and numbers of connections.
    #[must_use]
    pub fn is_better_high(self) -> bool {
        match self {
            Self::FramesPerSecond
            | Self::ConnectionsPerSecond
            | Self::Connections
            | Self::TransactionsPerSecond
            | Self::BitsPerSecond => true,
            Self::LossRatio | Self::Nanoseconds | Self::Seconds | Self::Ratio => false,
        }
    }
}

/// Value of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Point {
    /// Arithmetic mean.
    Mean,
    /// Percentile: 99.9 for the 99.9th.
    Percentile(f64),
    /// Maximum.
    Max,
}

/// A measurable value of a case: a quantity with everything that selects one value of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Quantity.
    pub quantity: Quantity,
    /// Load of `[sweep]`, for a loss.
    pub load_percent: Option<Percent>,
    /// Load of `[latency-plan]`; none for that of `[latency]`.
    pub load: Option<String>,
    /// Value of the distribution, for latency and delay variation.
    pub point: Point,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.quantity, self.point) {
            (quantity, _) if !quantity.has_percentiles() => write!(f, "{quantity}")?,
            (quantity, Point::Mean) => write!(f, "mean {quantity}")?,
            (quantity, Point::Percentile(percentile)) => write!(f, "p{percentile} {quantity}")?,
            (quantity, Point::Max) => write!(f, "maximum {quantity}")?,
        }
        if let Some(load) = self.load_percent {
            write!(f, " at {} % load", load.get())?;
        }
        match &self.load {
            Some(load) => write!(f, " at {load}"),
            None => Ok(()),
        }
    }
}

impl Objective {
    /// Returns the measured quantity.
    #[must_use]
    pub fn measure(&self) -> Measure {
        Measure {
            quantity: self.quantity.clone(),
            load_percent: self.load_percent,
            load: self.load.clone(),
            point: match self.percentile {
                None => Point::Mean,
                Some(percentile) if percentile >= 100.0 => Point::Max,
                Some(percentile) => Point::Percentile(percentile),
            },
        }
    }

    /// Returns true if its bound is a ratio.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        self.at_least_ratio.is_some() || self.at_most_ratio.is_some()
    }

    /// Returns the unit of its bound.
    #[must_use]
    pub fn unit(&self) -> Unit {
        if self.is_relative() {
            Unit::Ratio
        } else {
            self.quantity.unit()
        }
    }

    /// Returns the bounds that are given, by key, in the unit of the quantity.
    pub(super) fn bounds(&self) -> Vec<(&'static str, Direction, f64)> {
        let all = [
            ("at-least-pps", Direction::AtLeast, self.at_least_pps),
            ("at-least", Direction::AtLeast, self.at_least),
            (
                "at-most-loss-ratio",
                Direction::AtMost,
                self.at_most_loss_ratio,
            ),
            (
                "at-most-us",
                Direction::AtMost,
                self.at_most_us.map(|bound_us| bound_us * 1e3),
            ),
            ("at-most-s", Direction::AtMost, self.at_most_s),
            ("at-least-ratio", Direction::AtLeast, self.at_least_ratio),
            ("at-most-ratio", Direction::AtMost, self.at_most_ratio),
        ];
        let given = all.into_iter();
        given
            .filter_map(|(key, direction, bound)| Some((key, direction, bound?)))
            .collect()
    }

    /// Returns the rule of its verdict. A checked objective has exactly one bound.
    #[must_use]
    pub fn rule(&self) -> Option<Rule> {
        let (_, direction, bound) = self.bounds().into_iter().next()?;
        Some(Rule {
            direction,
            bound,
            error_rate: 1.0 - self.confidence,
        })
    }
}
