// SPDX-License-Identifier: Apache-2.0
//! Flows that an inspector decides on, by their packets and answers.

mod fuzz;
mod model;

use std::sync::Arc;

use super::*;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// Number of the inspector's port.
const PORT: u16 = 4;

fn inspect(packets: u8, fail: InspectFail) -> Inspect {
    Inspect {
        port: PORT,
        packets,
        timeout_ms: 100,
        fail,
    }
}

/// Returns a frame of a TCP segment between a client port and a server, from the client or to it. `fragment` is the field of the IP header.
fn segment(client: u16, is_from_client: bool, flags: u8, fragment: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 40, 0, 1]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, 6, 0, 0]);
    let (from, to) = match is_from_client {
        true => (([10, 0, 0, 1], client), ([192, 0, 2, 1], 443)),
        false => (([192, 0, 2, 1], 443), ([10, 0, 0, 1], client)),
    };
    frame.extend(from.0);
    frame.extend(to.0);
    frame.extend(from.1.to_be_bytes());
    frame.extend(to.1.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    frame
}

/// A thread with an inspector.
struct World {
    board: Arc<Board>,
    flows: InspectFlows,
    /// Packets that wait, with their numbers.
    held: Vec<(HeldPacket, usize)>,
    now_ms: u64,
    /// Zone of the port of all packets.
    zone: u16,
}

impl World {
    fn new() -> Self {
        let board = Arc::new(Board::new().unwrap());
        Self {
            flows: InspectFlows::new(Arc::clone(&board)).unwrap(),
            board,
            held: Vec::new(),
            now_ms: 0,
            zone: 0,
        }
    }

    /// Judges a frame, and holds it if it has to wait.
    fn judge(&mut self, number: usize, frame: &[u8], inspect: &Inspect) -> Ruling {
        let now_ms = self.now_ms;
        let ruling = self
            .flows
            .judge((frame, frame.len(), self.zone), inspect, true, now_ms);
        if let Ruling::Wait(ticket) = ruling {
            let held = self.flows.hold(ticket, inspect, now_ms);
            self.held.push((held, number));
        }
        ruling
    }

    /// Returns the packets that wait no longer, in order.
    fn release(&mut self) -> Vec<(usize, Ruling)> {
        let mut released = Vec::new();
        self.held.retain(|(held, number)| {
            let ruling = self.flows.release(held, self.now_ms);
            released.extend(ruling.map(|ruling| (*number, ruling)));
            ruling.is_none()
        });
        released
    }

    fn answer(&self, ticket: Ticket, packet: u8, judgement: Judgement) -> bool {
        self.board
            .answer(PORT, Ticket { packet, ..ticket }, judgement)
    }
}

fn ticket_of(ruling: Ruling) -> Ticket {
    match ruling {
        Ruling::Wait(ticket) => ticket,
        ruling => panic!("{ruling:?} does not wait"),
    }
}

#[test]
fn packets_wait_for_the_verdict_on_their_flow() {
    for (judgement, expected) in [
        (Judgement::Accept, Ruling::Pass),
        (Judgement::Drop, Ruling::Drop),
    ] {
        let mut world = World::new();
        let rule = inspect(2, InspectFail::Closed);
        let first = ticket_of(world.judge(0, &segment(1000, true, SYN, 0), &rule));
        assert_eq!(first.packet, 1);
        assert!(world.release().is_empty());
        assert!(world.answer(first, 1, Judgement::Continue));
        assert_eq!(world.release(), [(0, Ruling::Pass)]);
        // The other direction is the same flow.
        let second = ticket_of(world.judge(1, &segment(1000, false, SYN | ACK, 0), &rule));
        assert_eq!((second.packet, second.nonce), (2, first.nonce));
        // Further packets wait without a query.
        let third = ticket_of(world.judge(2, &segment(1000, true, ACK, 0), &rule));
        assert_eq!(third.packet, 0);
        assert!(world.flows.query(third, (0, 7, 54)).is_none());
        assert!(world.release().is_empty());
        assert!(world.answer(second, 2, judgement));
        // A packet that arrives before the others are released stays behind them.
        let fourth = ticket_of(world.judge(3, &segment(1000, true, ACK, 0), &rule));
        assert_eq!(fourth.packet, 0);
        let all: Vec<(usize, Ruling)> = (1..4).map(|number| (number, expected)).collect();
        assert_eq!(world.release(), all);
        let later = world.judge(4, &segment(1000, false, ACK, 0), &rule);
        assert_eq!(later, expected);
        // Another flow is inspected by itself.
        ticket_of(world.judge(5, &segment(1001, true, SYN, 0), &rule));
        // A new connection with the same ports is another flow.
        let again = ticket_of(world.judge(6, &segment(1000, true, SYN, 0), &rule));
        assert_ne!(again.nonce, first.nonce);
        assert!(!world.answer(first, 1, Judgement::Accept), "an old number");
    }
}

#[test]
fn without_a_verdict_the_rule_decides() {
    for (fail, expected) in [
        (InspectFail::Closed, Ruling::FailClosed),
        (InspectFail::Open, Ruling::FailOpen),
    ] {
        let mut world = World::new();
        let rule = inspect(3, fail);
        let ticket = ticket_of(world.judge(0, &segment(1000, true, SYN, 0), &rule));
        world.now_ms = 99;
        ticket_of(world.judge(1, &segment(1000, true, ACK, 0), &rule));
        assert!(world.release().is_empty());
        world.now_ms = 100;
        assert_eq!(world.release(), [(0, expected), (1, expected)]);
        assert_eq!(
            world.judge(2, &segment(1000, true, ACK, 0), &rule),
            expected
        );
        // A late verdict counts.
        assert!(world.answer(ticket, 1, Judgement::Accept));
        let later = world.judge(3, &segment(1000, true, ACK, 0), &rule);
        assert_eq!(later, Ruling::Pass);

        // The inspector has received all packets and has not decided.
        let rule = inspect(1, fail);
        let ticket = ticket_of(world.judge(4, &segment(1001, true, SYN, 0), &rule));
        ticket_of(world.judge(5, &segment(1001, true, ACK, 0), &rule));
        assert!(world.answer(ticket, 1, Judgement::Continue));
        assert_eq!(world.release(), [(4, Ruling::Pass), (5, expected)]);
        assert_eq!(
            world.judge(6, &segment(1001, true, ACK, 0), &rule),
            expected
        );

        // Packets without a flow: a fragment, and one that is no IP packet.
        let fragment = segment(1002, true, ACK, 0x2000);
        assert_eq!(world.judge(7, &fragment, &rule), expected);
        assert_eq!(world.judge(8, &[2; 60], &rule), expected);
        // Too many packets wait.
        for number in 0..usize::from(FLOW_PACKETS_MAX) {
            ticket_of(world.judge(number, &segment(1003, true, ACK, 0), &rule));
        }
        assert_eq!(
            world.judge(9, &segment(1003, true, ACK, 0), &rule),
            expected
        );
    }
}

/// Two tenants with the same addresses and ports: a verdict on the flow of one is none on that of the other.
#[test]
fn a_verdict_is_on_the_flow_of_one_zone() {
    let mut world = World::new();
    let rule = inspect(1, InspectFail::Closed);
    let opening = segment(1000, true, SYN, 0);
    let first = ticket_of(world.judge(0, &opening, &rule));
    world.zone = 1;
    let second = ticket_of(world.judge(1, &opening, &rule));
    assert_ne!((second.place, second.nonce), (first.place, first.nonce));
    assert!(world.answer(first, 1, Judgement::Accept));
    assert!(world.answer(second, 1, Judgement::Drop));
    assert_eq!(world.release(), [(0, Ruling::Pass), (1, Ruling::Drop)]);
    for (zone, expected) in [(0, Ruling::Pass), (1, Ruling::Drop)] {
        world.zone = zone;
        let answer = segment(1000, false, SYN | ACK, 0);
        assert_eq!(world.judge(2, &answer, &rule), expected, "zone {zone}");
    }
    world.zone = 2;
    ticket_of(world.judge(3, &segment(1000, true, ACK, 0), &rule));
}

#[test]
fn a_flood_of_flows_does_not_replace_decisions() {
    let mut world = World::new();
    let rule = Inspect {
        timeout_ms: 1,
        ..inspect(1, InspectFail::Closed)
    };
    let established = 1..=50;
    for port in established.clone() {
        let ticket = ticket_of(world.judge(0, &segment(port, true, SYN, 0), &rule));
        assert!(world.answer(ticket, 1, Judgement::Accept));
        world.release();
    }
    // Three times as many flows as there are places, which the inspector never decides on.
    for number in 0..3 * u32::try_from(INSPECT_FLOWS).unwrap() {
        world.judge(0, &opening_of(number), &rule);
        world.now_ms += 1;
        world.release();
    }
    for port in established {
        let ruling = world.judge(0, &segment(port, true, ACK, 0), &rule);
        assert_eq!(ruling, Ruling::Pass, "port {port}");
    }
    // Forgotten after five minutes without packets.
    world.now_ms += 300_001;
    ticket_of(world.judge(0, &segment(1, true, ACK, 0), &rule));
}

/// Returns the first segment of a client with this number.
fn opening_of(number: u32) -> Vec<u8> {
    let [_, a, b, c] = number.to_be_bytes();
    let mut frame = segment(9, true, SYN, 0);
    // The source address.
    frame[27..30].copy_from_slice(&[100 + a, b, c]);
    frame
}

#[test]
fn places_with_packets_that_wait_are_not_replaced() {
    let mut world = World::new();
    let rule = inspect(1, InspectFail::Open);
    let (mut waiting, mut refused) = (0, 0);
    for number in 0..3 * u32::try_from(INSPECT_FLOWS).unwrap() {
        match world.judge(0, &opening_of(number), &rule) {
            Ruling::Wait(_) => waiting += 1,
            Ruling::FailOpen => refused += 1,
            ruling => panic!("{ruling:?}"),
        }
    }
    assert!(waiting <= INSPECT_FLOWS && refused >= 2 * INSPECT_FLOWS);
    assert_eq!(world.held.len(), waiting);
    world.now_ms = 100;
    let released = world.release();
    assert_eq!(released.len(), waiting);
    assert!(
        released
            .iter()
            .all(|(_, ruling)| *ruling == Ruling::FailOpen)
    );
}

#[test]
fn an_answer_is_the_header_of_its_query_with_another_kind() {
    let query = Query {
        thread: 0x0102,
        ticket: Ticket {
            place: 0x0304,
            nonce: 0x0506_0708,
            packet: 9,
        },
        packets: 10,
        port: 0x0b0c,
        length: 0x0d0e_0f10,
    };
    let mut header = [0; INSPECT_HEADER];
    query.write(&mut header);
    let expected = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0, 0x88, 0xb5, 1, 0, 1, 2, 3, 4, 5, 6,
        7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    ];
    assert_eq!(header, expected);
    assert_eq!(Answer::read(&header), None, "a query is no answer");
    for (kind, judgement) in [
        (1, Judgement::Continue),
        (2, Judgement::Accept),
        (3, Judgement::Drop),
    ] {
        header[15] = kind;
        let answer = Answer::read(&header).unwrap();
        assert_eq!(answer.thread, query.thread);
        assert_eq!((answer.ticket, answer.judgement), (query.ticket, judgement));
    }
    for (place, octet) in [(12, 0x08), (13, 0xb6), (14, 2), (15, 4)] {
        let mut other = header;
        other[place] = octet;
        assert_eq!(Answer::read(&other), None, "octet {place}");
    }
    assert_eq!(Answer::read(&header[..INSPECT_HEADER - 1]), None);
}
