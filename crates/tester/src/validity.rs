// SPDX-License-Identifier: Apache-2.0
//! Validity of a trial: whether its result describes the device, and if not, the causes.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// Validity of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reasons")]
pub enum Validity {
    /// The tester worked correctly.
    Valid,
    /// The tester failed, for at least one reason.
    Invalid(Vec<InvalidReason>),
}

/// One reason why a trial is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InvalidReason {
    /// Cause under which the trial is counted.
    pub cause: InvalidCause,
    /// One sentence with the figures.
    pub text: String,
}

/// Causes under which invalid trials are counted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum InvalidCause {
    /// The host did not run the tester: a gap between two clock readings without work of the tester in between.
    HostStall,
    /// The tester did not offer the frames of its schedule.
    RateMissed,
    /// The rate offered is further from the intended one than the search's width permits.
    RateOutsideWidth,
    /// The traffic lasted longer than intended, or was interrupted.
    Stretched,
    /// The tester did not receive in time.
    ReceiveGap,
    /// The tester's own ports dropped frames.
    ReceiveDrops,
    /// The tester's clock and the kernel's disagree.
    Clock,
    /// More frames came back than were offered, or frames that were never sent.
    Excess,
    /// A port lost its link.
    LinkLost,
    /// The device could not be measured: no frame came through although some had to.
    NoFrames,
    /// Another cause, or a cause stored by an earlier version.
    #[default]
    Other,
}

/// Shortest gap that can make a trial invalid, nanoseconds.
const STALL_NS_MIN: u64 = 100_000;

impl InvalidCause {
    /// All causes, in the order in which tables list them.
    pub const ALL: [Self; 11] = [
        Self::HostStall,
        Self::RateMissed,
        Self::RateOutsideWidth,
        Self::Stretched,
        Self::ReceiveGap,
        Self::ReceiveDrops,
        Self::Clock,
        Self::Excess,
        Self::LinkLost,
        Self::NoFrames,
        Self::Other,
    ];

    /// Returns the cause in words, as tables show it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::HostStall => "the host kept the CPU from the tester",
            Self::RateMissed => "the tester missed the rate",
            Self::RateOutsideWidth => "the rate was off by more than half of the search's width",
            Self::Stretched => "the traffic lasted too long or paused",
            Self::ReceiveGap => "the tester did not receive in time",
            Self::ReceiveDrops => "the tester's ports dropped frames",
            Self::Clock => "the clocks disagree",
            Self::Excess => "more frames came back than were sent",
            Self::LinkLost => "a port lost its link",
            Self::NoFrames => "no frame came through",
            Self::Other => "another cause",
        }
    }

    /// Returns this cause, or [`Self::HostStall`] if the host caused at least half of the tester's longest gap.
    #[must_use]
    pub(crate) fn unless_of_host(self, longest_gap_ns: u64, longest_host_gap_ns: u64) -> Self {
        let is_host = longest_gap_ns >= STALL_NS_MIN
            && longest_host_gap_ns.saturating_mul(2) >= longest_gap_ns;
        if is_host { Self::HostStall } else { self }
    }

    /// Returns a reason with this cause and the sentence `text`.
    #[must_use]
    pub fn because(self, text: impl Into<String>) -> InvalidReason {
        InvalidReason {
            cause: self,
            text: text.into(),
        }
    }
}

impl Validity {
    /// Returns [`Self::Valid`] without reasons.
    #[must_use]
    pub fn of(reasons: Vec<InvalidReason>) -> Self {
        if reasons.is_empty() {
            Self::Valid
        } else {
            Self::Invalid(reasons)
        }
    }

    /// Returns the reasons; empty for a valid trial.
    #[must_use]
    pub fn reasons(&self) -> &[InvalidReason] {
        match self {
            Self::Valid => &[],
            Self::Invalid(reasons) => reasons,
        }
    }

    /// Returns the cause under which an invalid trial is counted: the cause of its first reason.
    #[must_use]
    pub fn cause(&self) -> Option<InvalidCause> {
        match self {
            Self::Valid => None,
            Self::Invalid(reasons) => {
                Some(reasons.first().map_or(InvalidCause::Other, |it| it.cause))
            }
        }
    }

    /// Returns all sentences of an invalid trial as one text.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let texts: Vec<&str> = self.reasons().iter().map(|it| it.text.as_str()).collect();
        matches!(self, Self::Invalid(_)).then(|| texts.join("; "))
    }

    /// Returns the validity with an additional reason.
    pub(crate) fn and(self, reason: Option<InvalidReason>) -> Self {
        let mut reasons = match self {
            Self::Valid => Vec::new(),
            Self::Invalid(reasons) => reasons,
        };
        reasons.extend(reason);
        Self::of(reasons)
    }
}

impl fmt::Display for InvalidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for InvalidReason {
    /// Accepts a plain sentence as well, which stores of earlier versions contain.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Stored {
            Sentence(String),
            Reason { cause: InvalidCause, text: String },
        }
        Ok(match Stored::deserialize(deserializer)? {
            Stored::Sentence(text) => InvalidCause::Other.because(text),
            Stored::Reason { cause, text } => cause.because(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_counted_under_its_first_reason_and_reports_all() {
        let reasons = vec![
            InvalidCause::Clock.because("by 3 ms"),
            InvalidCause::Excess.because("2 more"),
        ];
        let invalid = Validity::of(reasons);
        assert_eq!(invalid.cause(), Some(InvalidCause::Clock));
        assert_eq!(invalid.text().as_deref(), Some("by 3 ms; 2 more"));
        assert_eq!(
            (Validity::Valid.cause(), Validity::Valid.text()),
            (None, None)
        );
        let without_reasons = Validity::Invalid(Vec::new());
        assert_eq!(without_reasons.cause(), Some(InvalidCause::Other));
    }

    #[test]
    fn each_cause_has_words_of_its_own() {
        let words = InvalidCause::ALL.map(InvalidCause::words);
        let different = std::collections::BTreeSet::from(words);
        assert_eq!(different.len(), words.len());
        assert!(words.iter().all(|words| words.contains(' ')));
    }

    #[test]
    fn reasons_of_earlier_stores_are_read() {
        let old = r#"{"state":"invalid","reasons":["the rate was missed"]}"#;
        let validity: Validity = serde_json::from_str(old).unwrap();
        assert_eq!(
            validity,
            Validity::Invalid(vec![InvalidCause::Other.because("the rate was missed")])
        );
        let new = Validity::Invalid(vec![InvalidCause::HostStall.because("a gap of 3 ms")]);
        let text = serde_json::to_string(&new).unwrap();
        assert_eq!(
            text,
            r#"{"state":"invalid","reasons":[{"cause":"host-stall","text":"a gap of 3 ms"}]}"#
        );
        assert_eq!(serde_json::from_str::<Validity>(&text).unwrap(), new);
    }

    #[test]
    fn a_gap_is_the_hosts_if_at_least_half_of_it_was() {
        let cause = |longest_ns, of_host_ns| {
            InvalidCause::RateMissed.unless_of_host(longest_ns, of_host_ns)
        };
        assert_eq!(cause(2_000_000, 1_000_000), InvalidCause::HostStall);
        assert_eq!(cause(2_000_000, 999_999), InvalidCause::RateMissed);
        assert_eq!(cause(99_999, 99_999), InvalidCause::RateMissed);
        assert_eq!(cause(0, 0), InvalidCause::RateMissed);
    }

    #[test]
    fn every_cause_is_listed_once() {
        let mut all = InvalidCause::ALL.to_vec();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), InvalidCause::ALL.len());
        // The declaration ends with `Other`.
        assert_eq!(InvalidCause::Other as usize + 1, InvalidCause::ALL.len());
    }
}
