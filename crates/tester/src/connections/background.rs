// SPDX-License-Identifier: Apache-2.0
//! Traffic of the client's end beside the conversations: a flood, illegal traffic and fragmented datagrams.

use super::end::Shared;
use super::flood::FloodResult;
use super::flooding::Flooding;
use super::fragmenting::Fragmenting;
use super::fragments::FragmentsResult;
use super::illegal::IllegalResult;
use super::plan::Plan;
use super::server::Server;

/// Time after the last packet in which packets may still arrive, nanoseconds.
const LINGER_NS: u64 = 500_000_000;

/// Senders of all kinds.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// End of the schedules, nanoseconds.
    until: u64,
    flood: Option<Flooding>,
    illegal: Option<Flooding>,
    fragments: Option<Fragmenting>,
}

/// Counters of all kinds; `None` for those that the description does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BackgroundResult {
    pub(crate) flood: Option<FloodResult>,
    pub(crate) illegal: Option<IllegalResult>,
    pub(crate) fragments: Option<FragmentsResult>,
}

impl Background {
    /// Creates the senders of a plan for a time.
    pub(crate) fn new(plan: &Plan, duration_ns: u64) -> Self {
        Self {
            until: duration_ns,
            flood: Flooding::new(plan, duration_ns),
            illegal: Flooding::illegal(plan, duration_ns),
            fragments: Fragmenting::new(plan, duration_ns),
        }
    }

    /// Adds the packets that are due to those of the client's end.
    pub(crate) fn send_due(&mut self, shared: &mut Shared, now: u64) {
        for flooding in [&mut self.flood, &mut self.illegal].into_iter().flatten() {
            flooding.send_due(shared, now);
        }
        if let Some(fragments) = &mut self.fragments {
            fragments.send_due(shared, now);
        }
    }

    /// Returns true if no packet that counts can arrive any more.
    pub(crate) fn is_done(&self, now: u64, server: Option<&Server>) -> bool {
        let arrived = server.and_then(Server::arrived_fragments);
        let awaits_fragments = self
            .fragments
            .as_ref()
            .zip(arrived)
            .is_some_and(|(fragments, arrived)| arrived.complete < fragments.sent());
        let awaits_illegal = self.illegal.is_some() && server.is_some();
        let is_over = now >= self.until.saturating_add(LINGER_NS);
        is_over || !(awaits_fragments || awaits_illegal)
    }

    /// Ends the schedules. Returns the counters.
    pub(crate) fn end(&mut self, server: Option<&Server>) -> BackgroundResult {
        let flood = self.flood.as_mut().map(Flooding::end);
        let illegal = self.illegal.as_mut().map(Flooding::end);
        let fragments = self.fragments.as_mut().map(Fragmenting::end);
        BackgroundResult {
            flood: flood.map(|flood| FloodResult {
                arrived: server.map(|server| server.record().flooded),
                ..flood
            }),
            illegal: illegal.map(|illegal| IllegalResult {
                scheduled: illegal.scheduled,
                sent: illegal.sent,
                forwarded: server.map(|server| server.record().illegal),
            }),
            fragments: fragments.map(|fragments| FragmentsResult {
                arrived: server.and_then(Server::arrived_fragments),
                ..fragments
            }),
        }
    }
}
