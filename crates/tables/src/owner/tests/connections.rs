// SPDX-License-Identifier: Apache-2.0
//! Trackers of two CPUs classify as one reference that sees all packets.

use super::*;
use crate::connections::reference::Reference;
use crate::connections::{
    ConnectionFilter, ConnectionInfo, CtState, Packet, Settings, Tracked, Tracker,
};

const CPUS: u16 = 2;

/// A packet between two of few hosts, whose numbers often fit.
#[derive(Clone, Copy, Debug)]
struct Step {
    hosts: (u8, u8),
    ports: (u16, u16),
    is_v6: bool,
    kind: u8,
    flags: u8,
    numbers: (u32, u32),
    is_error: bool,
    is_accepted: bool,
    seconds: u32,
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, ACK | 1, 4u8]);
    let seconds = prop_oneof![8 => Just(0u32), 1 => 1..400u32];
    (
        ((0..5u8, 0..5u8), (1..3u16, 1..3u16)),
        (any::<bool>(), 0..4u8, flags, (0..3u32, 0..3u32)),
        (
            prop::bool::weighted(0.1),
            prop::bool::weighted(0.8),
            seconds,
        ),
    )
        .prop_map(
            |((hosts, ports), (is_v6, kind, flags, numbers), (is_error, is_accepted, seconds))| {
                Step {
                    hosts,
                    ports,
                    is_v6,
                    kind,
                    flags,
                    numbers,
                    is_error,
                    is_accepted,
                    seconds,
                }
            },
        )
}

fn sent(step: &Step) -> Sent {
    let address = if step.is_v6 { host_v6 } else { host_v4 };
    let content = match step.kind {
        0 => Content::Tcp(TcpSent {
            sequence: step.numbers.0,
            acknowledgement: step.numbers.1,
            flags: step.flags,
            window: 1000,
            scale: None,
            data: 0,
        }),
        1 => Content::Udp(1),
        2 if step.flags & ACK == 0 => Content::EchoRequest,
        2 => Content::EchoReply,
        _ => Content::Other(50),
    };
    let to_port = if step.kind == 2 {
        step.ports.0
    } else {
        step.ports.1
    };
    let sent = Sent {
        zone: 0,
        source: end(address(step.hosts.0), step.ports.0),
        destination: end(address(step.hosts.1), to_port),
        content,
    };
    if step.is_error { error(&sent) } else { sent }
}

fn all(trackers: &[Tracker]) -> Vec<ConnectionInfo> {
    let filter = ConnectionFilter::default();
    let mut list: Vec<ConnectionInfo> = trackers
        .iter()
        .flat_map(|one| one.list(&filter, 0, 1000, 1000).connections)
        .collect();
    list.sort_by_key(|one| (one.zone, one.protocol, one.source, one.destination));
    list
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn trackers_of_two_cpus_agree_with_one_reference(steps in prop::collection::vec(step(), 1..80)) {
        let settings = Settings::of_size(200);
        let owners = Owners::new(CPUS);
        let mut trackers: Vec<Tracker> = (0..CPUS).map(|_| Tracker::new(&settings).unwrap()).collect();
        let mut reference = Reference::new(&settings);
        let mut now = 0;
        for step in steps {
            now += step.seconds;
            reference.expire(now);
            for tracker in &mut trackers {
                tracker.expire(now, usize::MAX);
            }
            let sent = sent(&step);
            let owner = owners.of_frame(&frame(&sent, None)).unwrap();
            let tracker = &mut trackers[usize::from(owner)];
            let octets = sent.octets();
            let packet = Packet::read(sent.ethertype(), &octets, octets.len(), 0);
            let mut tracked = [Tracked::UNTRACKED];
            tracker.track(&[packet], now, &mut tracked);
            let [tracked] = tracked;
            let expected = reference.track(&sent);
            prop_assert_eq!((tracked.state, tracked.reason, tracked.direction), expected, "{:?}", sent);
            let is_first = tracked.state == CtState::New && tracked.connection.is_none();
            if is_first && step.is_accepted {
                let made = tracker.commit(&packet, now).map(|_| ());
                prop_assert_eq!(made, reference.commit(&sent), "{:?}", sent);
            }
            prop_assert_eq!(all(&trackers), reference.list());
        }
    }
}
