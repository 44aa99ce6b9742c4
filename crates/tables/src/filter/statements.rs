// SPDX-License-Identifier: Apache-2.0
//! Statements of filter rules, which act on a frame beside the verdict, in the words of nftables.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::inspect::Inspect;
use super::reject::RejectWith;
use super::rule_match::Dscp;
use crate::connections::{LabelBits, MarkBits};

/// Statements of a rule. They apply to each frame that the rule decides on, before its action.
#[derive(Clone, Debug, Default)]
pub struct Statements {
    /// ICMP error about rejected packets (`reject with`). Default: a reset of TCP, or 'administratively prohibited'.
    pub reject_with: Option<RejectWith>,
    /// Logs frames (`log`).
    pub log: Option<Arc<RuleLog>>,
    /// Number of the port that gets a copy of the frame as it was received (`dup to`).
    pub dup: Option<u16>,
    /// New DSCP of IPv4 and IPv6 packets (`ip dscp set`).
    pub dscp: Option<Dscp>,
    /// Limit of the maximum segment size of TCP SYN segments (`tcp option maxseg size set`).
    pub mss: Option<MssLimit>,
    /// Sets bits in the marks of connections of accepted packets (`ct mark set`).
    pub mark: Option<MarkBits>,
    /// Sets bits in the labels of connections of accepted packets (`ct label set`).
    pub label: Option<LabelBits>,
    /// Sends the first packets of flows to an inspector before they pass.
    pub inspect: Option<Inspect>,
}

impl Statements {
    /// Returns true if there is a statement beside an inspection.
    #[must_use]
    pub const fn has_effects(&self) -> bool {
        self.log.is_some() || self.dup.is_some() || self.changes_frames()
    }

    /// Returns true if frames change.
    #[must_use]
    pub const fn changes_frames(&self) -> bool {
        self.dscp.is_some() || self.mss.is_some()
    }
}

/// Limit of the maximum segment size of TCP: a number, or `rt-mtu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MssLimit {
    /// A number of octets.
    Octets(u16),
    /// The MTU of the path less the headers of IP and TCP (`tcp option maxseg size set rt mtu` of nftables, `--clamp-mss-to-pmtu` of
    /// iptables).
    RtMtu,
}

/// Name of [`MssLimit::RtMtu`].
const RT_MTU: &str = "rt-mtu";

impl fmt::Display for MssLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Octets(octets) => octets.fmt(f),
            Self::RtMtu => f.write_str(RT_MTU),
        }
    }
}

impl FromStr for MssLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            RT_MTU => Ok(Self::RtMtu),
            number => number.parse().map(Self::Octets).map_err(|_| {
                format!("'{text}' is not a maximum segment size (use octets, or {RT_MTU})")
            }),
        }
    }
}

impl Serialize for MssLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Octets(octets) => serializer.serialize_u16(*octets),
            Self::RtMtu => serializer.serialize_str(RT_MTU),
        }
    }
}

impl<'de> Deserialize<'de> for MssLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MssVisitor)
    }
}

struct MssVisitor;

impl Visitor<'_> for MssVisitor {
    type Value = MssLimit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "octets up to 65535, or \"{RT_MTU}\"")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<MssLimit, E> {
        let octets = u16::try_from(number).map(MssLimit::Octets);
        octets.map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<MssLimit, E> {
        let octets = u16::try_from(number).map(MssLimit::Octets);
        octets.map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<MssLimit, E> {
        match text {
            RT_MTU => Ok(MssLimit::RtMtu),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

/// Log statement of a rule.
#[derive(Debug)]
pub struct RuleLog {
    /// Text in front of each line; may be empty.
    pub prefix: String,
    /// Name of the rule.
    pub rule: String,
    /// Logs one of this many frames. 0 counts as 1.
    every: u32,
    observed: AtomicU32,
}

impl RuleLog {
    /// Creates the log of a rule, which logs the first of every `every` frames.
    #[must_use]
    pub fn new(rule: &str, prefix: &str, every: u32) -> Self {
        Self {
            prefix: prefix.to_owned(),
            rule: rule.to_owned(),
            every: every.max(1),
            observed: AtomicU32::new(0),
        }
    }

    /// Counts a frame of any thread. Returns true if it must be logged.
    pub fn samples(&self) -> bool {
        let observed = self.observed.fetch_add(1, Ordering::Relaxed);
        observed.checked_rem(self.every) == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_segments_are_read_and_written() {
        for (json, limit, text) in [
            ("1400", MssLimit::Octets(1400), "1400"),
            ("0", MssLimit::Octets(0), "0"),
            ("\"rt-mtu\"", MssLimit::RtMtu, "rt-mtu"),
        ] {
            assert_eq!(serde_json::from_str::<MssLimit>(json).unwrap(), limit);
            assert_eq!(serde_json::to_string(&limit).unwrap(), json);
            assert_eq!(limit.to_string(), text);
            assert_eq!(text.parse::<MssLimit>().unwrap(), limit);
        }
        for json in ["65536", "-1", "1.5", "\"1400\"", "\"mtu\"", "null", "[]"] {
            let error = serde_json::from_str::<MssLimit>(json).unwrap_err();
            assert!(error.to_string().contains("rt-mtu"), "{json}: {error}");
        }
        for text in ["", "65536", "-1", "rt mtu"] {
            let error = text.parse::<MssLimit>().unwrap_err();
            assert!(error.contains("rt-mtu"), "{error}");
        }
    }

    #[test]
    fn one_of_n_frames_is_logged() {
        let logged = |every: u32| {
            let log = RuleLog::new("a", "", every);
            (0..100).filter(|_| log.samples()).count()
        };
        assert_eq!(
            [0, 1, 2, 10, 99, 100, 1000].map(logged),
            [100, 100, 50, 10, 2, 1, 1]
        );
    }
}
