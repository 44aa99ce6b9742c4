// SPDX-License-Identifier: Apache-2.0
//! Loads and outcomes of connections, between the words of the methods and those of the tester.

use quietwire_search::procedure::{
    ConversationCounts, ConversationLoad as Wanted, Observation, TimeSummary,
};
use quietwire_tester::LatencySummary;
use quietwire_tester::connections::{ConversationLoad, ConversationOutcome};

/// Returns the load as the tester knows it.
pub(super) fn load(wanted: &Wanted) -> ConversationLoad {
    match *wanted {
        Wanted::Connections { per_s } => ConversationLoad::Connections { per_s },
        Wanted::Open {
            connections,
            opening_per_s,
        } => ConversationLoad::Open {
            connections,
            opening_per_s,
        },
        Wanted::Transactions { connections, per_s } => {
            ConversationLoad::Transactions { connections, per_s }
        }
        Wanted::Transfer {
            connections,
            transactions,
        } => ConversationLoad::Transfer {
            connections,
            transactions,
        },
    }
}

/// Returns the times; `None` if there are none.
fn times(summary: &LatencySummary) -> Option<TimeSummary> {
    (summary.samples > 0).then_some(TimeSummary {
        samples: summary.samples,
        min_ns: summary.min_ns,
        mean_ns: summary.mean_ns,
        p50_ns: summary.p50_ns,
        p90_ns: summary.p90_ns,
        p99_ns: summary.p99_ns,
        p99_9_ns: summary.p99_9_ns,
        max_ns: summary.max_ns,
    })
}

/// Returns the outcome as a method observes it.
pub(super) fn observation(outcome: ConversationOutcome) -> Observation {
    if let Some(reason) = outcome.validity().text() {
        return Observation::Invalid {
            reason,
            achieved_per_s: outcome.achieved,
        };
    }
    Observation::Conversed(Box::new(ConversationCounts {
        attempted: outcome.attempted,
        failed: outcome.failed,
        causes: outcome.causes,
        open_largest: outcome.open_largest,
        connections_per_s: outcome.connections_per_s,
        transactions_per_s: outcome.transactions_per_s,
        received_bps: outcome.received_bps,
        tester_idle_ratio: outcome.tester_idle_ratio,
        handshake: times(&outcome.handshake),
        first_octet: times(&outcome.first_octet),
        last_octet: times(&outcome.last_octet),
    }))
}
