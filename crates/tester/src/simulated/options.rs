// SPDX-License-Identifier: Apache-2.0
//! Parameters of a simulated device in their notation: `capacity=6.4M,noise=0.02,seed=7`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Parameters of a simulated device. Ratios are 0 to 1, rates are frames per second over all ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct SimOptions {
    /// Rate above which the device loses frames.
    pub capacity_pps: f64,
    /// Rate of the link, the upper limit of the load.
    pub line_rate_pps: f64,
    /// Largest deviation of a trial's capacity, as a ratio. Small deviations are more likely.
    pub noise: f64,
    /// Capacity in the lower band, as a ratio of the full capacity.
    pub band: f64,
    /// Share of the trials in the lower band.
    pub band_chance: f64,
    /// Decrease of the forwarding rate for each frame above the capacity, frames.
    pub degrades: f64,
    /// Loss ratio at every load.
    pub base_loss: f64,
    /// Share of the trials in which the tester fails.
    pub invalid: f64,
    /// Mean latency without load, seconds.
    pub latency_s: f64,
    /// Size of the device's buffer, frames.
    pub buffer_frames: u64,
    /// Time for which loss continues after an overload, seconds.
    pub recovery_s: f64,
    /// Duration of a restart, seconds.
    pub restart_s: f64,
    /// Size of the address table.
    pub addresses: u32,
    /// Addresses learned per second.
    pub learning_rate: f64,
    /// Size of the table of connections.
    pub connections: u32,
    /// New connections accepted per second.
    pub connection_rate: f64,
    /// Time without packets after which a connection is forgotten, seconds.
    pub idle_timeout_s: f64,
    /// Time for which a closed connection stays in the table, seconds.
    pub closed_timeout_s: f64,
    /// Share of illegal SYNs that the device forwards.
    pub illegal_forwarded: f64,
    /// Share of fragmented datagrams that the device loses.
    pub fragmented_lost: f64,
    /// Seed of all random values.
    pub seed: u64,
}

impl Default for SimOptions {
    /// Returns a device with little noise on 10-Gbit/s Ethernet.
    fn default() -> Self {
        Self {
            capacity_pps: 6.4e6,
            line_rate_pps: 14.88e6,
            noise: 0.0,
            band: 1.0,
            band_chance: 0.0,
            degrades: 0.0,
            base_loss: 0.0,
            invalid: 0.0,
            latency_s: 5e-6,
            buffer_frames: 1024,
            recovery_s: 0.002,
            restart_s: 0.3,
            addresses: 8192,
            learning_rate: 1e5,
            connections: 1 << 20,
            connection_rate: 2e5,
            idle_timeout_s: 300.0,
            closed_timeout_s: 0.0,
            illegal_forwarded: 0.0,
            fragmented_lost: 0.0,
            seed: 1,
        }
    }
}

/// A parameter that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the simulated device's {key}: {reason}")]
pub struct SimOptionError {
    /// The parameter.
    pub key: String,
    /// The problem and the valid values.
    pub reason: String,
}

fn wrong(key: &str, reason: impl Into<String>) -> SimOptionError {
    SimOptionError {
        key: key.to_owned(),
        reason: reason.into(),
    }
}

/// Names of all parameters, for error messages.
const KEYS: &str = "capacity, line-rate, noise, band, band-chance, degrades, base-loss, invalid, latency, buffer, recovery, restart, addresses, learning-rate, connections, connection-rate, idle-timeout, closed-timeout, illegal-forwarded, fragmented-lost, seed";

impl SimOptions {
    fn set(&mut self, key: &str, value: &str) -> Result<(), SimOptionError> {
        match key {
            "capacity" => self.capacity_pps = rate(key, value)?,
            "line-rate" => self.line_rate_pps = rate(key, value)?,
            "noise" => self.noise = ratio(key, value)?,
            "band" => self.band = ratio(key, value)?,
            "band-chance" => self.band_chance = ratio(key, value)?,
            "degrades" => self.degrades = ratio(key, value)?,
            "base-loss" => self.base_loss = ratio(key, value)?,
            "invalid" => self.invalid = ratio(key, value)?,
            "latency" => self.latency_s = seconds(key, value)?,
            "buffer" => self.buffer_frames = whole(key, value)?,
            "recovery" => self.recovery_s = seconds(key, value)?,
            "restart" => self.restart_s = seconds(key, value)?,
            "addresses" => self.addresses = whole(key, value)?,
            "learning-rate" => self.learning_rate = rate(key, value)?,
            "connections" => self.connections = whole(key, value)?,
            "connection-rate" => self.connection_rate = rate(key, value)?,
            "idle-timeout" => self.idle_timeout_s = seconds(key, value)?,
            "closed-timeout" => self.closed_timeout_s = seconds(key, value)?,
            "illegal-forwarded" => self.illegal_forwarded = ratio(key, value)?,
            "fragmented-lost" => self.fragmented_lost = ratio(key, value)?,
            "seed" => self.seed = whole(key, value)?,
            _ => {
                return Err(wrong(key, format!("unknown parameter (available: {KEYS})")));
            }
        }
        Ok(())
    }
}

/// Parses a number with an optional suffix `k`, `M` or `G`.
fn rate(key: &str, value: &str) -> Result<f64, SimOptionError> {
    let (digits, factor) = match value.strip_suffix(['k', 'M', 'G']) {
        Some(digits) if value.ends_with('k') => (digits, 1e3),
        Some(digits) if value.ends_with('M') => (digits, 1e6),
        Some(digits) => (digits, 1e9),
        None => (value, 1.0),
    };
    let rate = digits.parse::<f64>().ok().map(|number| number * factor);
    rate.filter(|rate| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| {
            wrong(
                key,
                format!("'{value}' is not a rate above 0, such as 250000 or 6.4M"),
            )
        })
}

fn ratio(key: &str, value: &str) -> Result<f64, SimOptionError> {
    let ratio = value.parse::<f64>().ok();
    ratio
        .filter(|ratio| (0.0..=1.0).contains(ratio))
        .ok_or_else(|| wrong(key, format!("'{value}' is not a number from 0 to 1")))
}

/// Parses a number of seconds with the suffix `s`, `ms` or `us`.
fn seconds(key: &str, value: &str) -> Result<f64, SimOptionError> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
    let time = units.into_iter().find_map(|(unit, factor)| {
        let number = value.strip_suffix(unit)?.parse::<f64>().ok()?;
        Some(number * factor)
    });
    time.filter(|time| time.is_finite() && *time >= 0.0)
        .ok_or_else(|| {
            wrong(
                key,
                format!("'{value}' is not a time such as 5us, 300ms or 1.5s"),
            )
        })
}

fn whole<T: FromStr>(key: &str, value: &str) -> Result<T, SimOptionError> {
    value
        .parse()
        .map_err(|_| wrong(key, format!("'{value}' is not an integer in range")))
}

impl FromStr for SimOptions {
    type Err = SimOptionError;

    /// Parses `KEY=VALUE` pairs separated by commas; an empty text is the default device.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut options = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(wrong(part, "write KEY=VALUE"));
            };
            options.set(key.trim(), value.trim())?;
        }
        Ok(options)
    }
}

impl fmt::Display for SimOptions {
    /// Writes all parameters in the notation that `from_str` parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "capacity={},line-rate={},noise={},band={},band-chance={},degrades={},base-loss={},invalid={},latency={}s,\
             buffer={},recovery={}s,restart={}s,addresses={},learning-rate={},\
             connections={},connection-rate={},idle-timeout={}s,closed-timeout={}s,\
             illegal-forwarded={},fragmented-lost={},seed={}",
            self.capacity_pps,
            self.line_rate_pps,
            self.noise,
            self.band,
            self.band_chance,
            self.degrades,
            self.base_loss,
            self.invalid,
            self.latency_s,
            self.buffer_frames,
            self.recovery_s,
            self.restart_s,
            self.addresses,
            self.learning_rate,
            self.connections,
            self.connection_rate,
            self.idle_timeout_s,
            self.closed_timeout_s,
            self.illegal_forwarded,
            self.fragmented_lost,
            self.seed
        )
    }
}
