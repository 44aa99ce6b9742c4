// SPDX-License-Identifier: Apache-2.0
//! The tracker compared with the reference under generated sequences of packets, in bursts, with small tables and timeouts.

use proptest::prelude::*;

use super::super::reference::Reference;
use super::*;

/// Numbers of the conversations below.
pub(super) const CONVERSATIONS: usize = 10;
const TCP_CONVERSATIONS: usize = 5;

/// Description of a generated packet.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) conversation: usize,
    pub(super) is_reply: bool,
    pub(super) shape: Shape,
    /// Added to the numbers that fit.
    pub(super) sequence: i32,
    pub(super) acknowledgement: i32,
    pub(super) window: u16,
    pub(super) scale: Option<u8>,
    pub(super) data: u16,
    pub(super) is_accepted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Flags(u8),
    /// An ICMP error about the last packet of the conversation.
    Error,
}

#[derive(Clone, Debug)]
pub(super) enum Operation {
    Burst(Vec<Draft>),
    /// A whole handshake of a TCP conversation.
    Open(usize, Option<u8>),
    /// A whole end of a TCP conversation.
    Close(usize, bool),
    Wait(u32),
}

fn draft() -> impl Strategy<Value = Draft> {
    let flags = prop_oneof![
        3 => Just(SYN), 3 => Just(SYN | ACK), 6 => Just(ACK), 3 => Just(FIN | ACK),
        1 => Just(RST), 1 => Just(RST | ACK), 1 => any::<u8>(),
    ];
    let shape = prop_oneof![8 => flags.prop_map(Shape::Flags), 1 => Just(Shape::Error)];
    let shift = || {
        prop_oneof![
            10 => Just(0), 1 => Just(1), 1 => Just(-1), 1 => -3000..3000i32, 1 => Just(1 << 30),
            1 => Just(-70_000), 1 => any::<i32>(),
        ]
    };
    let window = prop_oneof![2 => Just(1000u16), 1 => Just(0), 1 => any::<u16>()];
    let scale = prop::option::of(0..16u8);
    let data = prop_oneof![3 => Just(0u16), 1 => 1..3000u16];
    (
        (0..CONVERSATIONS, any::<bool>(), shape),
        (shift(), shift()),
        (window, scale, data),
        prop::bool::weighted(0.9),
    )
        .prop_map(
            |((conversation, is_reply, shape), shifts, (window, scale, data), is_accepted)| Draft {
                conversation,
                is_reply,
                shape,
                sequence: shifts.0,
                acknowledgement: shifts.1,
                window,
                scale,
                data,
                is_accepted,
            },
        )
}

pub(super) fn operation() -> impl Strategy<Value = Operation> {
    let scale = prop::option::of(0..15u8);
    prop_oneof![
        10 => prop::collection::vec(draft(), 1..5).prop_map(Operation::Burst),
        2 => (0..TCP_CONVERSATIONS, scale).prop_map(|(one, scale)| Operation::Open(one, scale)),
        1 => (0..TCP_CONVERSATIONS, any::<bool>()).prop_map(|(one, side)| Operation::Close(one, side)),
        2 => prop_oneof![Just(0), Just(1), 2..40u32, Just(1000)].prop_map(Operation::Wait),
    ]
}

fn conversation(number: usize) -> (u16, [Endpoint; 2]) {
    let v4 = |from, to| [end("10.0.0.1", from), end("10.0.0.2", to)];
    let v6 = |from, to| [end("2001:db8::2", from), end("2001:db8::1", to)];
    match number {
        0 => (0, v4(1000, 80)),
        1 => (1, v6(1000, 80)),
        2 => (1, v4(1000, 80)),
        3 => (0, v4(1001, 80)),
        // No such zone.
        4 => (2, v4(1000, 80)),
        5 => (0, v4(1000, 53)),
        6 => (1, v6(1000, 53)),
        7 => (0, v4(9, 9)),
        8 => (1, v6(9, 9)),
        _ => (0, v6(0, 0)),
    }
}

/// The sides of all conversations.
#[derive(Clone)]
pub(super) struct Hosts {
    talks: Vec<Talk>,
    last: Vec<Option<Sent>>,
}

impl Hosts {
    pub(super) fn new() -> Self {
        let talk = |number| {
            let (zone, ends) = conversation(number);
            Talk {
                zone,
                ends,
                ..Talk::new(1)
            }
        };
        Self {
            talks: (0..CONVERSATIONS).map(talk).collect(),
            last: vec![None; CONVERSATIONS],
        }
    }

    fn segment(&mut self, draft: &Draft, side: usize, flags: u8) -> Content {
        let talk = &mut self.talks[draft.conversation];
        let is_shifted = draft.sequence != 0 || draft.acknowledgement != 0;
        let sent = match is_shifted {
            true => talk.peek(side, flags, draft.data),
            false => talk.segment(side, flags, draft.data),
        };
        let Content::Tcp(mut segment) = sent.content else {
            unreachable!("segments are TCP");
        };
        segment.sequence = segment.sequence.wrapping_add_signed(draft.sequence);
        segment.acknowledgement = segment
            .acknowledgement
            .wrapping_add_signed(draft.acknowledgement);
        segment.window = draft.window;
        segment.scale = draft.scale;
        Content::Tcp(segment)
    }

    pub(super) fn packet(&mut self, draft: &Draft) -> Sent {
        let number = draft.conversation;
        let side = usize::from(draft.is_reply);
        let Talk { zone, ends, .. } = self.talks[number].clone();
        let (source, destination) = (ends[side], ends[1 - side]);
        let content = match (draft.shape, self.last[number].clone()) {
            (Shape::Error, Some(mut inner)) => {
                if let Content::Tcp(segment) = &mut inner.content {
                    segment.sequence = segment.sequence.wrapping_add_signed(draft.sequence);
                }
                // Most errors are sent to the sender of the packet.
                let destination = if draft.window == 0 {
                    ends[0]
                } else {
                    inner.source
                };
                let source = Endpoint {
                    port: 0,
                    ..inner.destination
                };
                return Sent {
                    zone,
                    source,
                    destination,
                    content: Content::Error(Box::new(inner)),
                };
            }
            (Shape::Error, None) => Content::Other(47),
            (Shape::Flags(flags), _) => match number {
                0..TCP_CONVERSATIONS => self.segment(draft, side, flags),
                5 | 6 => Content::Udp(draft.data),
                7 | 8 if flags & ACK == 0 => Content::EchoRequest,
                7 | 8 => Content::EchoReply,
                _ => Content::Other(50),
            },
        };
        let sent = Sent {
            zone,
            source,
            destination,
            content,
        };
        self.last[number] = Some(sent.clone());
        sent
    }
}

fn whole(conversation: usize, side: usize, flags: u8, scale: Option<u8>) -> Draft {
    Draft {
        conversation,
        is_reply: side == 1,
        shape: Shape::Flags(flags),
        sequence: 0,
        acknowledgement: 0,
        window: 1000,
        scale,
        data: 0,
        is_accepted: true,
    }
}

/// Returns bursts, and the seconds to wait before each.
pub(super) fn bursts(operation: Operation) -> Vec<(u32, Vec<Draft>)> {
    let each = |drafts: Vec<Draft>| drafts.into_iter().map(|draft| (0, vec![draft])).collect();
    match operation {
        Operation::Burst(drafts) => vec![(0, drafts)],
        Operation::Wait(seconds) => vec![(seconds, Vec::new())],
        Operation::Open(one, scale) => each(vec![
            whole(one, 0, SYN, scale),
            whole(one, 1, SYN | ACK, scale),
            whole(one, 0, ACK, None),
        ]),
        Operation::Close(one, is_reply) => {
            let (first, second) = if is_reply { (1, 0) } else { (0, 1) };
            each(vec![
                whole(one, first, FIN | ACK, None),
                whole(one, second, FIN | ACK, None),
                whole(one, first, ACK, None),
            ])
        }
    }
}

pub(super) fn settings() -> Settings {
    let short = State::ALL
        .into_iter()
        .fold(Timeouts::default(), |timeouts, state| {
            timeouts.with(state, 5 + 3 * state as u32)
        });
    Settings {
        entries_max: 5,
        zone_limits: vec![3, 4],
        timeouts: short.with(State::TcpEstablished, 900),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_tracker_agrees_with_the_reference(operations in prop::collection::vec(operation(), 1..60)) {
        let settings = settings();
        let mut tracker = Tracker::new(&settings).unwrap();
        let mut reference = Reference::new(&settings);
        let mut hosts = Hosts::new();
        let mut now = 0;
        for (seconds, drafts) in operations.into_iter().flat_map(bursts) {
            now += seconds;
            tracker.expire(now, usize::MAX);
            reference.expire(now);
            let sent: Vec<Sent> = drafts.iter().map(|draft| hosts.packet(draft)).collect();
            let packets: Vec<Packet> = sent.iter().map(read).collect();
            let mut tracked = vec![Tracked::UNTRACKED; packets.len()];
            tracker.track(&packets, now, &mut tracked);
            for (sent, tracked) in sent.iter().zip(&tracked) {
                let expected = reference.track(sent);
                prop_assert_eq!((tracked.state, tracked.reason, tracked.direction), expected, "{:?}", sent);
            }
            for (((draft, sent), packet), tracked) in drafts.iter().zip(&sent).zip(&packets).zip(&tracked) {
                let is_first = tracked.state == CtState::New && tracked.connection.is_none();
                if is_first && draft.is_accepted {
                    let made = tracker.commit(packet, now).map(|_| ());
                    prop_assert_eq!(made, reference.commit(sent), "{:?}", sent);
                }
            }
            prop_assert_eq!(all(&tracker), reference.list());
            prop_assert_eq!(tracker.len(), reference.list().len());
        }
    }

    #[test]
    fn late_expiry_changes_no_verdict(
        operations in prop::collection::vec(operation(), 1..60),
        budgets in prop::collection::vec(0..8usize, 1..60),
    ) {
        // Large enough that expired entries take no space from others.
        let settings = Settings { entries_max: 64, zone_limits: vec![64, 64], ..settings() };
        let mut tracker = Tracker::new(&settings).unwrap();
        let mut reference = Reference::new(&settings);
        let mut hosts = Hosts::new();
        let mut now = 0;
        let mut budgets = budgets.into_iter().cycle();
        for (seconds, drafts) in operations.into_iter().flat_map(bursts) {
            now += seconds;
            tracker.expire(now, budgets.next().unwrap_or(0));
            reference.expire(now);
            for draft in drafts {
                let sent = hosts.packet(&draft);
                let tracked = classify(&mut tracker, &sent, now);
                let expected = reference.track(&sent);
                prop_assert_eq!((tracked.state, tracked.reason, tracked.direction), expected, "{:?}", sent);
                if tracked.state == CtState::New && tracked.connection.is_none() {
                    let made = tracker.commit(&read(&sent), now).map(|_| ());
                    prop_assert_eq!(made, reference.commit(&sent), "{:?}", sent);
                }
            }
            prop_assert_eq!(all(&tracker), reference.list());
        }
    }
}
