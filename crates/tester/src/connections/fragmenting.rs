// SPDX-License-Identifier: Apache-2.0
//! Sends fragmented datagrams from the client's end.

use quietwire_base::random::mix;

use super::count;
use super::end::Shared;
use super::fragments::FragmentsResult;
use super::piece::{Piece, Shape};
use super::plan::{AddressRange, Plan};
use super::wire::{Addresses, Packet, Transport};
use crate::pacer::{Pace, Pacer};

/// Ticks of the schedule per second: nanoseconds.
const PER_SECOND: u64 = 1_000_000_000;
/// Datagrams of a turn at most.
const DATAGRAMS_A_TURN: usize = 8;
/// Datagrams that a late tester may send in a row.
const CATCH_UP: u64 = 64;
/// Space for packets that is left to the conversations.
const SPARE: usize = 128;
/// First port of those that clients choose (RFC 6335, section 6), and their number.
const FIRST_PORT: u16 = 49_152;
const PORTS: u64 = 16_384;

/// The sender of fragmented datagrams.
#[derive(Debug)]
pub(crate) struct Fragmenting {
    pacer: Pacer,
    shape: Shape,
    sources: AddressRange,
    servers: AddressRange,
    port: u16,
    sent: u64,
}

impl Fragmenting {
    /// Creates the sender for a time; `None` if the plan has no fragmented datagrams.
    pub(crate) fn new(plan: &Plan, duration_ns: u64) -> Option<Self> {
        let fragments = plan.fragments?;
        let pace = Pace::Rate(fragments.rate);
        Some(Self {
            pacer: Pacer::new(pace, 0, duration_ns, PER_SECOND, CATCH_UP),
            shape: fragments.shape,
            sources: fragments.sources,
            servers: plan.servers,
            port: fragments.port,
            sent: 0,
        })
    }

    /// Adds the fragments that are due to the packets of the client's end.
    pub(crate) fn send_due(&mut self, shared: &mut Shared, now: u64) {
        let most = DATAGRAMS_A_TURN.saturating_mul(usize::from(self.shape.count));
        if shared.space() < SPARE.saturating_add(most) {
            return;
        }
        for _ in 0..self.pacer.due(now, DATAGRAMS_A_TURN as u64).frames {
            for index in 0..self.shape.count {
                shared.push(self.fragment(index));
            }
            count(&mut self.sent);
        }
    }

    /// Returns the number of datagrams sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    fn fragment(&self, index: u8) -> Packet {
        let random = mix(self.shape.seed ^ mix(self.sent));
        let port = u16::try_from(mix(random ^ 1) % PORTS).unwrap_or(0);
        Packet {
            addresses: Addresses {
                // One after the other, so that identifications of a source repeat late.
                source: self.sources.one_of(self.sent),
                destination: self.servers.one_of(random),
                source_port: FIRST_PORT.saturating_add(port),
                destination_port: self.port,
            },
            transport: Transport::Fragment(Piece {
                shape: self.shape,
                number: self.sent,
                index,
            }),
            payload: None,
        }
    }

    /// Ends the schedule. Returns the counters, without those of the server.
    pub(crate) fn end(&mut self) -> FragmentsResult {
        self.pacer.close();
        FragmentsResult {
            scheduled: self.pacer.scheduled(),
            sent: self.sent,
            sent_fragments: self.sent.saturating_mul(u64::from(self.shape.count)),
            arrived: None,
        }
    }
}
