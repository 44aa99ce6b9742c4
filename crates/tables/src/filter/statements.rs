// SPDX-License-Identifier: Apache-2.0
//! Statements of filter rules, which act on a frame beside the verdict, in the words of nftables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::inspect::Inspect;
use super::rule_match::Dscp;
use crate::connections::{LabelBits, MarkBits};

/// Statements of a rule. They apply to each frame that the rule decides on, before its action.
#[derive(Clone, Debug, Default)]
pub struct Statements {
    /// Logs frames (`log`).
    pub log: Option<Arc<RuleLog>>,
    /// Number of the port that gets a copy of the frame as it was received (`dup to`).
    pub dup: Option<u16>,
    /// New DSCP of IPv4 and IPv6 packets (`ip dscp set`).
    pub dscp: Option<Dscp>,
    /// Largest maximum segment size of TCP SYN segments (`tcp option maxseg size set`).
    pub mss: Option<u16>,
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
