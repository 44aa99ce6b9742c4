// SPDX-License-Identifier: Apache-2.0
//! Property: any packets, answers and times lead to the decisions of a plain model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Event of a thread.
#[derive(Clone, Debug)]
enum Event {
    /// A packet of a flow: from the client, SYN.
    Packet(u16, bool, bool),
    /// An answer on a flow: the number of the packet, and the decision.
    Answer(u16, u8, Judgement),
    /// Milliseconds.
    Time(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let judgement = prop_oneof![
        3 => Just(Judgement::Continue),
        1 => Just(Judgement::Accept),
        1 => Just(Judgement::Drop),
    ];
    let event = prop_oneof![
        5 => (0..3u16, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(flow, is_from_client, is_syn)| Event::Packet(flow, is_from_client, is_syn)),
        3 => (0..3u16, 0..6u8, judgement)
            .prop_map(|(flow, packet, judgement)| Event::Answer(flow, packet, judgement)),
        2 => prop_oneof![Just(1), Just(60), Just(100), Just(300_001)].prop_map(Event::Time),
    ];
    prop::collection::vec(event, 1..100)
}

/// A flow of the model.
#[derive(Debug, Default)]
struct Plain {
    /// Verdict of the inspector.
    verdict: Option<bool>,
    has_failed: bool,
    sent: u8,
    released: u8,
    used_ms: u64,
    /// Number, number for the inspector, and deadline of each packet that waits.
    waiting: Vec<(usize, u8, u64)>,
}

impl Plain {
    fn settle(&mut self, rule: &Inspect) {
        if self.verdict.is_none() && self.sent == rule.packets && self.released == self.sent {
            self.has_failed = true;
        }
    }

    fn decided(&self, rule: &Inspect) -> Option<Ruling> {
        match (self.verdict, self.has_failed) {
            (Some(true), _) => Some(Ruling::Pass),
            (Some(false), _) => Some(Ruling::Drop),
            (None, true) => Some(Ruling::of_fail(rule.fail)),
            (None, false) => None,
        }
    }

    /// Returns the decision on a packet; `None` if it waits.
    fn packet(
        &mut self,
        number: usize,
        is_opening: bool,
        now_ms: u64,
        rule: &Inspect,
    ) -> Option<Ruling> {
        if self.waiting.is_empty() {
            self.settle(rule);
            let is_old = now_ms - self.used_ms > 300_000;
            if is_old || (is_opening && self.decided(rule).is_some()) {
                *self = Self::default();
            }
        }
        self.used_ms = now_ms;
        if let Some(ruling) = self.decided(rule) {
            return Some(ruling);
        }
        let packet = match self.sent < rule.packets {
            true => self.sent + 1,
            false => 0,
        };
        self.sent = self.sent.max(packet);
        let deadline_ms = now_ms + u64::from(rule.timeout_ms);
        self.waiting.push((number, packet, deadline_ms));
        None
    }

    /// Returns true if the answer fits.
    fn answer(&mut self, packet: u8, judgement: Judgement) -> bool {
        if self.verdict.is_some() || self.sent == 0 {
            return false;
        }
        match judgement {
            Judgement::Accept => self.verdict = Some(true),
            Judgement::Drop => self.verdict = Some(false),
            Judgement::Continue if packet > self.released && packet <= self.sent => {
                self.released = packet;
            }
            Judgement::Continue => return false,
        }
        true
    }

    /// Returns the packets that wait no longer.
    fn release(&mut self, now_ms: u64, rule: &Inspect) -> Vec<(usize, Ruling)> {
        let mut released = Vec::new();
        for (number, packet, deadline_ms) in std::mem::take(&mut self.waiting) {
            self.settle(rule);
            let is_released = packet > 0 && packet <= self.released && self.verdict.is_none();
            if self.decided(rule).is_none() && !is_released && now_ms >= deadline_ms {
                self.has_failed = true;
            }
            let ruling = match is_released {
                true => Some(Ruling::Pass),
                false => self.decided(rule),
            };
            match ruling {
                Some(ruling) => released.push((number, ruling)),
                None => self.waiting.push((number, packet, deadline_ms)),
            }
        }
        released
    }
}

/// Applies events to a thread and to the model. Both decide alike, in the same order within each flow.
fn compare(events: &[Event], rule: &Inspect) {
    let mut world = World::new();
    let mut flows: BTreeMap<u16, Plain> = BTreeMap::new();
    let mut tickets: BTreeMap<u16, Ticket> = BTreeMap::new();
    for (number, event) in events.iter().enumerate() {
        match *event {
            Event::Packet(flow, is_from_client, is_syn) => {
                let flags = if is_syn { SYN } else { ACK };
                let ruling = world.judge(
                    number,
                    &segment(1000 + flow, is_from_client, flags, 0),
                    rule,
                );
                let plain = flows.entry(flow).or_default();
                let expected = plain.packet(number, is_syn, world.now_ms, rule);
                match ruling {
                    Ruling::Wait(ticket) => {
                        assert_eq!(expected, None, "packet {number}");
                        let waiting = plain.waiting.last().map(|(_, packet, _)| *packet);
                        assert_eq!(Some(ticket.packet), waiting, "packet {number}");
                        tickets.insert(flow, ticket);
                    }
                    ruling => assert_eq!(Some(ruling), expected, "packet {number}"),
                }
            }
            Event::Answer(flow, packet, judgement) => {
                if let (Some(ticket), Some(plain)) = (tickets.get(&flow), flows.get_mut(&flow)) {
                    let fits = world.answer(*ticket, packet, judgement);
                    assert_eq!(fits, plain.answer(packet, judgement), "answer {number}");
                }
            }
            Event::Time(passed_ms) => world.now_ms += passed_ms,
        }
        let mut released = world.release();
        released.sort_by_key(|(number, _)| *number);
        let of_flow = |plain: &mut Plain| plain.release(world.now_ms, rule);
        let mut expected: Vec<(usize, Ruling)> = flows.values_mut().flat_map(of_flow).collect();
        expected.sort_by_key(|(number, _)| *number);
        assert_eq!(released, expected, "after event {number}");
    }
}

proptest! {
    #[test]
    fn decisions_are_those_of_a_plain_model(
        events in events(), packets in 1..5u8, is_open in any::<bool>(),
    ) {
        let fail = if is_open { InspectFail::Open } else { InspectFail::Closed };
        compare(&events, &inspect(packets, fail));
    }
}
