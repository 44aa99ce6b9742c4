// SPDX-License-Identifier: Apache-2.0
//! Flows of a forwarding thread that rules inspect. All memory is allocated at first.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::super::pattern::after_tags;
use super::board::{Board, INSPECT_FLOWS, NoInspectFlows, State, Word};
use super::frame::{Query, Ticket};
use super::{Inspect, InspectFail};
use crate::connections::{FlowKey, Packet};

/// Most packets of a flow that wait.
pub const FLOW_PACKETS_MAX: u8 = 128;
/// A decision on a flow without packets for this time is forgotten.
const IDLE_MS: u64 = 300_000;
/// Places of a bucket.
const WAYS: usize = 4;
const BUCKETS: u64 = (INSPECT_FLOWS / WAYS) as u64;

/// State of a flow, in the order in which flows are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// There is no flow.
    Unused,
    /// The inspector has not decided yet.
    Pending,
    /// The inspector has not decided in time, or not within the first packets. A later decision counts.
    Failed,
    /// The inspector has accepted it.
    Accepted,
    /// The inspector has dropped it.
    Dropped,
}

impl Progress {
    const fn rank(self) -> u8 {
        match self {
            Self::Unused => 0,
            Self::Pending | Self::Failed => 1,
            Self::Accepted | Self::Dropped => 2,
        }
    }
}

/// Scope of a flow, whose key has its VLAN. Flows of two scopes can have the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Scope {
    /// Number of the zone of the ports that receive its packets.
    zone: u16,
    /// Number of the inspector's port.
    port: u16,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    key: FlowKey,
    scope: Scope,
    /// Time of the last packet, milliseconds.
    used_ms: u64,
    nonce: u32,
    progress: Progress,
    fail: InspectFail,
    /// Packets that the inspector gets.
    packets: u8,
    /// Packets that the inspector has got.
    sent: u8,
    /// Packets that wait.
    waiting: u8,
}

/// Decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It passes, because of a verdict.
    Pass,
    /// It is dropped, because of a verdict.
    Drop,
    /// It passes, because there is no verdict and the rule fails open.
    FailOpen,
    /// It is dropped, because there is no verdict and the rule fails closed.
    FailClosed,
    /// It waits for a verdict: [`InspectFlows::hold`] if there is space for it, [`Ruling::of_fail`] otherwise.
    Wait(Ticket),
}

impl Ruling {
    /// Returns the decision on a packet without a verdict.
    #[must_use]
    pub const fn of_fail(fail: InspectFail) -> Self {
        match fail {
            InspectFail::Closed => Self::FailClosed,
            InspectFail::Open => Self::FailOpen,
        }
    }
}

/// A packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPacket {
    ticket: Ticket,
    /// End of its waiting, milliseconds.
    deadline_ms: u64,
    fail: InspectFail,
}

impl HeldPacket {
    /// No packet.
    pub const NONE: Self = Self {
        ticket: Ticket {
            place: 0,
            nonce: 0,
            packet: 0,
        },
        deadline_ms: 0,
        fail: InspectFail::Closed,
    };

    /// Returns its numbers.
    #[cfg(test)]
    pub(super) const fn ticket(&self) -> Ticket {
        self.ticket
    }
}

/// Flows of a forwarding thread.
#[derive(Debug)]
pub struct InspectFlows {
    flows: Box<[Flow]>,
    board: Arc<Board>,
    hasher: RandomState,
    /// Flows so far.
    begun: u64,
}

impl InspectFlows {
    /// Creates the flows of a thread: about 2 MiB.
    ///
    /// # Errors
    /// [`NoInspectFlows`].
    pub fn new(board: Arc<Board>) -> Result<Self, NoInspectFlows> {
        let unused = Flow {
            key: FlowKey::default(),
            scope: Scope::default(),
            used_ms: 0,
            nonce: 0,
            progress: Progress::Unused,
            fail: InspectFail::Closed,
            packets: 0,
            sent: 0,
            waiting: 0,
        };
        let mut flows = Vec::new();
        flows
            .try_reserve_exact(INSPECT_FLOWS)
            .map_err(|_| NoInspectFlows)?;
        flows.resize(INSPECT_FLOWS, unused);
        Ok(Self {
            flows: flows.into_boxed_slice(),
            board,
            hasher: RandomState::new(),
            begun: 0,
        })
    }

    /// Decides on a packet that a rule inspects. `frame` are the octets of its first buffer, `length` is that of the frame, and `zone` the
    /// number of the zone of its port: flows of other zones are other flows. `restarts`: a SYN begins a connection in place of one with the
    /// same ports. A packet without a flow, such as a fragment, has no verdict.
    pub fn judge(
        &mut self,
        (frame, length, zone): (&[u8], usize, u16),
        inspect: &Inspect,
        restarts: bool,
        now_ms: u64,
    ) -> Ruling {
        let vlan = after_tags(frame).and_then(|(vlan, _)| vlan);
        let packet = Packet::of_frame(frame, length, vlan.unwrap_or(0));
        let Some(key) = packet.flow() else {
            return Ruling::of_fail(inspect.fail);
        };
        let is_opening = restarts && packet.is_opening();
        let Some(place) = self.place_for((&key, zone), inspect, is_opening, now_ms) else {
            return Ruling::of_fail(inspect.fail);
        };
        let Some(flow) = self.flows.get_mut(place) else {
            return Ruling::of_fail(inspect.fail);
        };
        flow.used_ms = now_ms;
        if flow.waiting >= FLOW_PACKETS_MAX {
            return Ruling::of_fail(flow.fail);
        }
        let ticket = |packet| {
            let place = u16::try_from(place).unwrap_or(u16::MAX);
            Ruling::Wait(Ticket {
                place,
                nonce: flow.nonce,
                packet,
            })
        };
        match flow.progress {
            Progress::Pending if flow.sent < flow.packets => ticket(flow.sent.saturating_add(1)),
            _ if flow.waiting > 0 => ticket(0),
            Progress::Accepted => Ruling::Pass,
            Progress::Dropped => Ruling::Drop,
            Progress::Pending | Progress::Failed | Progress::Unused => Ruling::of_fail(flow.fail),
        }
    }

    /// Returns the query about a packet that waits, if the inspector gets it.
    #[must_use]
    pub fn query(&self, ticket: Ticket, (thread, port, length): (u16, u16, u32)) -> Option<Query> {
        let flow = self.flows.get(usize::from(ticket.place))?;
        (ticket.packet > 0).then_some(Query {
            thread,
            ticket,
            packets: flow.packets,
            port,
            length,
        })
    }

    /// Notes that the packet of [`Ruling::Wait`] waits, and that the inspector gets it if it has a number.
    pub fn hold(&mut self, ticket: Ticket, inspect: &Inspect, now_ms: u64) -> HeldPacket {
        let place = usize::from(ticket.place);
        let mut fail = inspect.fail;
        if let Some(flow) = self.flows.get_mut(place) {
            flow.waiting = flow.waiting.saturating_add(1);
            fail = flow.fail;
            if ticket.packet > 0 {
                flow.sent = ticket.packet;
                self.board.note_sent(place, ticket.packet);
            }
        }
        HeldPacket {
            ticket,
            deadline_ms: now_ms.saturating_add(u64::from(inspect.timeout_ms)),
            fail,
        }
    }

    /// Decides on a packet that waits. `None` if it still waits. Packets of a flow must be asked about in order, and no more after a decision.
    pub fn release(&mut self, held: &HeldPacket, now_ms: u64) -> Option<Ruling> {
        let place = usize::from(held.ticket.place);
        let is_known = self
            .flows
            .get(place)
            .is_some_and(|flow| flow.nonce == held.ticket.nonce);
        if !is_known {
            // A flow with packets that wait is not replaced.
            return Some(Ruling::of_fail(held.fail));
        }
        let released = self.read_verdict(place);
        let flow = self.flows.get_mut(place)?;
        let is_released = held.ticket.packet > 0 && held.ticket.packet <= released;
        let ruling = match flow.progress {
            Progress::Accepted => Ruling::Pass,
            Progress::Dropped => Ruling::Drop,
            _ if is_released => Ruling::Pass,
            Progress::Failed => Ruling::of_fail(flow.fail),
            _ if now_ms >= held.deadline_ms => {
                flow.progress = Progress::Failed;
                Ruling::of_fail(flow.fail)
            }
            Progress::Pending | Progress::Unused => return None,
        };
        flow.waiting = flow.waiting.saturating_sub(1);
        Some(ruling)
    }

    /// Notes that a packet waits no longer, without a decision.
    pub fn abandon(&mut self, held: &HeldPacket) {
        let flow = self.flows.get_mut(usize::from(held.ticket.place));
        if let Some(flow) = flow.filter(|flow| flow.nonce == held.ticket.nonce) {
            flow.waiting = flow.waiting.saturating_sub(1);
        }
    }

    /// Reads the verdict on a flow that is not decided. Returns the number of the last packet that may pass.
    fn read_verdict(&mut self, place: usize) -> u8 {
        let (Some(flow), Some(word)) = (self.flows.get_mut(place), self.board.read(place)) else {
            return 0;
        };
        if word.nonce != flow.nonce {
            return 0;
        }
        let is_complete = flow.sent >= flow.packets && word.released >= flow.sent;
        flow.progress = match (flow.progress, word.state) {
            (Progress::Pending | Progress::Failed, State::Accepted) => Progress::Accepted,
            (Progress::Pending | Progress::Failed, State::Dropped) => Progress::Dropped,
            (Progress::Pending, State::Pending) if is_complete => Progress::Failed,
            (progress, _) => progress,
        };
        word.released
    }

    /// Returns the place of a flow, which begins if it is not known. `None` if packets of all flows of its bucket wait.
    fn place_for(
        &mut self,
        (key, zone): (&FlowKey, u16),
        inspect: &Inspect,
        is_opening: bool,
        now_ms: u64,
    ) -> Option<usize> {
        let scope = Scope {
            zone,
            port: inspect.port,
        };
        let bucket = self.bucket(key, scope);
        let places = bucket..bucket.saturating_add(WAYS);
        let found = places.clone().find(|place| {
            let flow = self.flows.get(*place);
            flow.is_some_and(|flow| {
                flow.progress != Progress::Unused && flow.key == *key && flow.scope == scope
            })
        });
        // While packets wait, the release of the first ones reads the verdict, so that none overtakes another.
        let waits = |place: usize| self.flows.get(place).is_some_and(|flow| flow.waiting > 0);
        if let Some(place) = found.filter(|place| !waits(*place)) {
            self.read_verdict(place);
        }
        let is_over = |flow: &Flow| {
            let is_idle = now_ms.saturating_sub(flow.used_ms) > IDLE_MS;
            // A SYN that is sent again does not begin a flow that is not decided yet.
            let is_new = is_opening && flow.progress != Progress::Pending;
            flow.waiting == 0 && (is_idle || is_new)
        };
        match found {
            Some(place) if !self.flows.get(place).is_some_and(is_over) => Some(place),
            Some(place) => self.begin(place, (*key, scope), inspect, now_ms),
            None => {
                let worth = |place: &usize| {
                    let flow = self.flows.get(*place);
                    flow.map_or((u8::MAX, u64::MAX), |flow| match flow.waiting {
                        0 => (flow.progress.rank(), flow.used_ms),
                        _ => (u8::MAX, u64::MAX),
                    })
                };
                let place = places.min_by_key(worth)?;
                self.begin(place, (*key, scope), inspect, now_ms)
            }
        }
    }

    /// Returns the first place of the bucket of a flow.
    fn bucket(&self, key: &FlowKey, scope: Scope) -> usize {
        let hash = self.hasher.hash_one((key, scope));
        let bucket = hash.checked_rem(BUCKETS).unwrap_or(0);
        usize::try_from(bucket).unwrap_or(0).saturating_mul(WAYS)
    }

    /// Begins a flow at a place. `None` if packets of another one wait there.
    fn begin(
        &mut self,
        place: usize,
        (key, scope): (FlowKey, Scope),
        inspect: &Inspect,
        now_ms: u64,
    ) -> Option<usize> {
        self.begun = self.begun.wrapping_add(1);
        let [n0, n1, n2, n3, ..] = self.hasher.hash_one(("nonce", self.begun)).to_be_bytes();
        let nonce = u32::from_be_bytes([n0, n1, n2, n3]);
        let flow = self.flows.get_mut(place).filter(|flow| flow.waiting == 0)?;
        *flow = Flow {
            key,
            scope,
            used_ms: now_ms,
            nonce,
            progress: Progress::Pending,
            fail: inspect.fail,
            packets: inspect.packets,
            sent: 0,
            waiting: 0,
        };
        let word = Word {
            state: State::Pending,
            released: 0,
            sent: 0,
            port: u8::try_from(inspect.port).unwrap_or(u8::MAX),
            nonce,
        };
        self.board.set(place, word);
        Some(place)
    }
}
