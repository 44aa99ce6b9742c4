// SPDX-License-Identifier: Apache-2.0
//! Outcomes of conversations, and their counters.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::tcp::Ending;

/// Why a conversation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// A reset answered the SYN.
    Refused,
    /// No answer to the SYN and its retransmissions.
    NotEstablished,
    /// A reset ended an established connection.
    Reset,
    /// No acknowledgement of the data and its retransmissions.
    TimedOut,
    /// No answer, although the connection is alive; in UDP, a datagram without an answer.
    NoAnswer,
    /// The peer closed the connection too early.
    ClosedEarly,
    /// The payload differs from what was expected.
    Damaged,
}

impl FailureCause {
    /// All causes, in the order in which tables list them.
    pub const ALL: [Self; 7] = [
        Self::Refused,
        Self::NotEstablished,
        Self::Reset,
        Self::TimedOut,
        Self::NoAnswer,
        Self::ClosedEarly,
        Self::Damaged,
    ];

    /// Returns the cause in words, as tables show it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::NotEstablished => "not established in time",
            Self::Reset => "reset",
            Self::TimedOut => "not acknowledged in time",
            Self::NoAnswer => "not answered in time",
            Self::ClosedEarly => "closed too early",
            Self::Damaged => "damaged payload",
        }
    }

    /// Returns the cause of a connection that ended without one of its own; `None` if both ends closed it.
    pub(crate) const fn of_ending(ending: Ending) -> Option<Self> {
        match ending {
            Ending::Complete => None,
            Ending::Refused => Some(Self::Refused),
            Ending::Reset | Ending::Aborted => Some(Self::Reset),
            Ending::NotEstablished => Some(Self::NotEstablished),
            Ending::TimedOut => Some(Self::TimedOut),
            Ending::Idle => Some(Self::NoAnswer),
        }
    }
}

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationEnd {
    /// Address and port of the client.
    pub source: SocketAddr,
    /// Why it failed; `None` if it was completed.
    pub failure: Option<FailureCause>,
}

/// Failed conversations by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures([u64; FailureCause::ALL.len()]);

impl Failures {
    /// Counts a failed conversation.
    pub(crate) fn add(&mut self, cause: FailureCause) {
        let counts = FailureCause::ALL.into_iter().zip(&mut self.0);
        for (_, count) in counts.filter(|(listed, _)| *listed == cause) {
            *count = count.saturating_add(1);
        }
    }

    /// Returns the causes that occurred, with their numbers.
    pub(crate) fn by_cause(&self) -> BTreeMap<FailureCause, u64> {
        let counts = FailureCause::ALL.into_iter().zip(self.0);
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_listed_once_and_counted() {
        let mut failures = Failures::default();
        for cause in FailureCause::ALL {
            failures.add(cause);
        }
        let by_cause = failures.by_cause();
        assert_eq!(by_cause.len(), FailureCause::ALL.len());
        assert!(by_cause.values().all(|count| *count == 1));
        assert_eq!(
            FailureCause::Damaged as usize + 1,
            FailureCause::ALL.len(),
            "the declaration ends with `Damaged`"
        );
        let json = serde_json::to_string(&by_cause).unwrap();
        assert!(json.contains("\"timed_out\":1"), "{json}");
    }
}
