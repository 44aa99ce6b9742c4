// SPDX-License-Identifier: Apache-2.0
//! Effects of filter rules beside accepting and dropping. Counters, reports, metrics and tables are generated from this list.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named;

named! {
    /// Effect of a filter rule on a frame, counted at the ingress port, or at the port by which the frame leaves.
    pub enum RuleEffect {
        /// Rejected with a TCP reset (RFC 9293, section 3.10.7.1).
        TcpReset = "tcp_reset", "rejected with a TCP reset";
        /// Rejected with an ICMP error 'administratively prohibited'.
        IcmpError = "icmp_error", "rejected with an ICMP error";
        /// Rejected without an answer, because the RFCs forbid an answer to such a packet ([`super::Rejection`]).
        RejectUnanswerable = "reject_unanswerable", "rejected, no answer allowed";
        /// Rejected without an answer, because of the rate limit of ICMP errors.
        RejectLimited = "reject_limited", "rejected, over the limit of answers";
        /// Rejected without an answer, because there was no buffer or no space in the transmit queue.
        RejectUnsent = "reject_unsent", "rejected, no space for the answer";
        /// Logged.
        Logged = "logged", "logged";
        /// Not logged, because the ring to the service thread was full.
        LogLost = "log_lost", "not logged: log full";
        /// The DSCP was changed.
        DscpSet = "dscp_set", "DSCP set";
        /// The maximum segment size of a TCP SYN was lowered.
        MssClamped = "mss_clamped", "MSS lowered";
        /// The frame is not changed, because it is in a buffer that cannot be copied.
        NotChanged = "not_changed", "not changed: no buffer";
        /// Rules compare names in its connection, and the name cannot be decided on.
        NameUndecidable = "name_undecidable", "name not decidable";
        /// Held, and a copy sent to an inspector.
        Inspected = "inspected", "sent to an inspector";
        /// Not sent to an inspector, because there was no buffer, no space or no such port.
        NotInspected = "not_inspected", "not sent to an inspector: no buffer or space";
        /// Passed without a verdict of the inspector, because the rule fails open.
        InspectOpened = "inspect_opened", "passed without a verdict";
        /// Answer of an inspector, counted at its port.
        Verdict = "verdict", "verdict of an inspector";
        /// A copy was sent to another port.
        Duplicated = "duplicated", "duplicated to a port";
        /// No copy was sent, because there was no buffer, no such port or no space in its queue.
        NotDuplicated = "not_duplicated", "not duplicated: no buffer or queue space";
    }
}

/// Frames by effect. In JSON an object keyed by the effects' names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleEffects([u64; RuleEffect::ALL.len()]);

impl RuleEffects {
    /// Builds the counts from `count`, which returns the count of each effect.
    #[must_use]
    pub fn of(count: impl FnMut(RuleEffect) -> u64) -> Self {
        Self(RuleEffect::ALL.map(count))
    }

    /// Returns each effect with its count.
    pub fn iter(&self) -> impl Iterator<Item = (RuleEffect, u64)> + '_ {
        RuleEffect::ALL.into_iter().zip(self.0)
    }
}

impl Index<RuleEffect> for RuleEffects {
    type Output = u64;

    #[expect(clippy::indexing_slicing, reason = "each effect has its count")]
    fn index(&self, effect: RuleEffect) -> &u64 {
        &self.0[effect as usize]
    }
}

impl IndexMut<RuleEffect> for RuleEffects {
    #[expect(clippy::indexing_slicing, reason = "each effect has its count")]
    fn index_mut(&mut self, effect: RuleEffect) -> &mut u64 {
        &mut self.0[effect as usize]
    }
}

impl Serialize for RuleEffects {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(effect, count)| (effect.name(), count)))
    }
}

/// Missing effects count 0, and unknown effects of other versions are ignored.
impl<'de> Deserialize<'de> for RuleEffects {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let counts = BTreeMap::<String, u64>::deserialize(deserializer)?;
        Ok(Self::of(|effect| {
            counts.get(effect.name()).copied().unwrap_or_default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_are_written() {
        let effects = RuleEffects::of(|effect| 1 + effect as u64);
        let mut text = serde_json::to_value(effects).unwrap();
        assert_eq!(text["tcp_reset"], 1);
        let read: RuleEffects = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(read, effects);
        text.as_object_mut().unwrap().remove("logged");
        text["later"] = 7.into();
        let read: RuleEffects = serde_json::from_value(text).unwrap();
        assert_eq!(
            (read[RuleEffect::Logged], read[RuleEffect::TcpReset]),
            (0, 1)
        );
    }
}
