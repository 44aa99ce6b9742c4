// SPDX-License-Identifier: Apache-2.0
//! Sends SYNs from the client's end beside the conversations: a flood, or illegal ones.

use quietwire_base::random::mix;

use super::count;
use super::end::Shared;
use super::flood::FloodResult;
use super::plan::{AddressRange, FloodPlan, Plan};
use super::tcp::{SYN, Segment};
use super::wire::{Addresses, Packet, Transport};
use crate::pacer::{Pace, Pacer};

/// Ticks of the schedule per second: nanoseconds.
const PER_SECOND: u64 = 1_000_000_000;
/// SYNs of a turn at most.
const SYNS_A_TURN: u64 = 32;
/// SYNs that a late tester may send in a row.
const CATCH_UP: u64 = 256;
/// Space for packets that is left to the conversations.
const SPARE: usize = 128;
/// First port of those that clients choose (RFC 6335, section 6), and their number.
const FIRST_PORT: u16 = 49_152;
const PORTS: u64 = 16_384;
/// Window of the SYNs, octets.
const WINDOW: u16 = 65_535;

/// The sender of a flood.
#[derive(Debug)]
pub(crate) struct Flooding {
    pacer: Pacer,
    sources: AddressRange,
    servers: AddressRange,
    port: u16,
    seed: u64,
    sent: u64,
}

impl Flooding {
    /// Creates the sender for a time; `None` if the plan has no flood.
    pub(crate) fn new(plan: &Plan, duration_ns: u64) -> Option<Self> {
        let port = plan.flooded_port()?;
        Some(Self::of(plan, &plan.flood?, (port, 3), duration_ns))
    }

    /// Creates the sender of illegal SYNs for a time; `None` if the plan has none.
    pub(crate) fn illegal(plan: &Plan, duration_ns: u64) -> Option<Self> {
        let (flood, port) = plan.illegal?;
        let port = port.or_else(|| plan.flooded_port())?;
        Some(Self::of(plan, &flood, (port, 4), duration_ns))
    }

    fn of(plan: &Plan, flood: &FloodPlan, (port, salt): (u16, u64), duration_ns: u64) -> Self {
        let pace = Pace::Rate(flood.rate);
        Self {
            pacer: Pacer::new(pace, 0, duration_ns, PER_SECOND, CATCH_UP),
            sources: flood.sources,
            servers: plan.servers,
            port,
            seed: mix(plan.seed ^ salt),
            sent: 0,
        }
    }

    /// Adds the SYNs that are due to the packets of the client's end.
    pub(crate) fn send_due(&mut self, shared: &mut Shared, now: u64) {
        if shared.space() < SPARE {
            return;
        }
        for _ in 0..self.pacer.due(now, SYNS_A_TURN).frames {
            let packet = self.syn();
            shared.push(packet);
        }
    }

    fn syn(&mut self) -> Packet {
        let random = mix(self.seed ^ mix(self.sent));
        count(&mut self.sent);
        let port = u16::try_from(mix(random ^ 1) % PORTS).unwrap_or(0);
        let [a, b, c, d, ..] = mix(random ^ 2).to_be_bytes();
        Packet {
            addresses: Addresses {
                source: self.sources.one_of(random),
                destination: self.servers.one_of(mix(random ^ 3)),
                source_port: FIRST_PORT.saturating_add(port),
                destination_port: self.port,
            },
            transport: Transport::Tcp(Segment {
                sequence: u32::from_be_bytes([a, b, c, d]),
                flags: SYN,
                window: WINDOW,
                ..Segment::default()
            }),
            payload: None,
        }
    }

    /// Ends the schedule. Returns the counters, without those of the server.
    pub(crate) fn end(&mut self) -> FloodResult {
        self.pacer.close();
        FloodResult {
            scheduled: self.pacer.scheduled(),
            sent: self.sent,
            arrived: None,
        }
    }
}
