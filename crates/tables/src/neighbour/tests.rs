// SPDX-License-Identifier: Apache-2.0

mod interface_info;
mod kernel;
mod oracle;
mod rules;

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

const OURS: MacAddress = MacAddress::from_u64(0x0200_0000_000a);
const THEIRS: MacAddress = MacAddress::from_u64(0x0200_0000_0001);

fn interface_info() -> InterfaceInfo {
    InterfaceInfo {
        number: 3,
        mac: OURS,
        addresses: vec![
            "192.0.2.1/24".parse().unwrap(),
            "2001:db8::1/64".parse().unwrap(),
        ],
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

struct Table {
    neighbours: Neighbours<u32>,
    interface_info: InterfaceInfo,
    out: Vec<Action<u32>>,
}

impl Table {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self {
            neighbours: Neighbours::new(limits, 7),
            interface_info: interface_info(),
            out: Vec::new(),
        }
    }

    fn resolve(&mut self, now: Duration, address: &str, packet: Option<u32>) -> Vec<Action<u32>> {
        self.neighbours.resolve(
            now,
            &self.interface_info,
            ip(address),
            packet,
            &mut self.out,
        );
        std::mem::take(&mut self.out)
    }

    fn tick(&mut self, now: Duration) -> Vec<Action<u32>> {
        let interface_info = &self.interface_info;
        self.neighbours.tick(
            now,
            |number| (number == 3).then_some(interface_info),
            &mut self.out,
        );
        std::mem::take(&mut self.out)
    }

    fn arp(&mut self, now: Duration, frame: &[u8]) -> Vec<Action<u32>> {
        self.neighbours
            .received_arp(now, &self.interface_info, frame, &mut self.out);
        std::mem::take(&mut self.out)
    }

    fn nd(&mut self, now: Duration, frame: &[u8]) -> Vec<Action<u32>> {
        assert!(
            self.neighbours
                .received_nd(now, &self.interface_info, frame, &mut self.out)
        );
        std::mem::take(&mut self.out)
    }

    fn state(&self, address: &str) -> Option<State> {
        let mut all = self.neighbours.list(Duration::ZERO);
        all.find(|shown| shown.address == ip(address))
            .map(|shown| shown.state)
    }
}

/// Returns a reply to our request (RFC 826).
fn arp_reply(from: [u8; 4], mac: MacAddress) -> Vec<u8> {
    arp_frame(2, from, mac, [192, 0, 2, 1])
}

fn arp_frame(operation: u8, from: [u8; 4], mac: MacAddress, to: [u8; 4]) -> Vec<u8> {
    let octets = |mac: MacAddress| mac.to_u64().to_be_bytes()[2..].to_vec();
    let mut frame = [octets(OURS), octets(mac)].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(octets(mac));
    frame.extend(from);
    frame.extend([0; 6]);
    frame.extend(to);
    frame
}

fn advertisement(target: &str, mac: MacAddress, flags: u8) -> Vec<u8> {
    nd_frame(136, flags, target, "2001:db8::1", target, Some((2, mac)))
}

fn nd_frame(
    kind: u8,
    flags: u8,
    from: &str,
    to: &str,
    target: &str,
    option: Option<(u8, MacAddress)>,
) -> Vec<u8> {
    let v6 = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let octets = |mac: MacAddress| mac.to_u64().to_be_bytes()[2..].to_vec();
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(v6(target).octets());
    if let Some((kind, mac)) = option {
        message.extend([kind, 1]);
        message.extend(octets(mac));
    }
    let sum = icmpv6_checksum(v6(from), v6(to), &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [octets(OURS), octets(THEIRS)].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, message.len() as u8, 58, 255]);
    frame.extend(v6(from).octets());
    frame.extend(v6(to).octets());
    frame.extend(message);
    frame
}

fn found(address: &str, mac: MacAddress, packets: &[u32]) -> Action<u32> {
    Action::Found {
        interface: 3,
        address: ip(address),
        mac,
        packets: packets.to_vec(),
    }
}

/// RFC 1122, section 2.3.2.2, and RFC 4861, section 7.2.2.
#[test]
fn packets_wait_until_the_neighbour_answers() {
    for (address, answer) in [
        ("192.0.2.9", arp_reply([192, 0, 2, 9], THEIRS)),
        ("2001:db8::9", advertisement("2001:db8::9", THEIRS, 0x60)),
    ] {
        let mut table = Table::new();
        assert!(matches!(
            table.resolve(s(1), address, Some(1))[..],
            [Action::Transmit { interface: 3, .. }]
        ));
        assert_eq!(table.resolve(s(1), address, Some(2)), []);
        let actions = if address.contains(':') {
            table.nd(s(1), &answer)
        } else {
            table.arp(s(1), &answer)
        };
        assert_eq!(actions, [found(address, THEIRS, &[1, 2])]);
        assert_eq!(table.state(address), Some(State::Reachable));
        assert_eq!(
            table.resolve(s(2), address, Some(3)),
            [found(address, THEIRS, &[3])]
        );
    }
}

/// RFC 4861, section 7.3.3: three requests a second apart, then resolution fails.
#[test]
fn a_neighbour_without_an_answer_is_unreachable() {
    let mut table = Table::new();
    table.resolve(s(0), "192.0.2.9", Some(1));
    for now in 1..3 {
        assert!(matches!(table.tick(s(now))[..], [Action::Transmit { .. }]));
    }
    let unreachable = Action::Unreachable {
        interface: 3,
        address: ip("192.0.2.9"),
        packets: vec![1],
    };
    assert_eq!(table.tick(s(3)), [unreachable]);
    assert_eq!(table.neighbours.next_deadline(), None);
}

/// RFC 4861, section 7.3.2: a neighbour that is not heard from is probed by unicast, and removed if it does not answer.
#[test]
fn confirmed_neighbours_are_probed_again() {
    let mut table = Table::new();
    table.resolve(s(0), "192.0.2.9", None);
    table.arp(s(0), &arp_reply([192, 0, 2, 9], THEIRS));
    let due = table.neighbours.next_deadline().unwrap();
    assert!((s(15)..s(45)).contains(&due), "{due:?}");
    let asked = table.tick(due);
    let [Action::Transmit { frame, .. }] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(frame[..6], THEIRS.to_u64().to_be_bytes()[2..]);
    assert_eq!(table.state("192.0.2.9"), Some(State::Probe));
    // The first probe is answered, the next one is not.
    assert_eq!(table.arp(due, &arp_reply([192, 0, 2, 9], THEIRS)), []);
    assert_eq!(table.state("192.0.2.9"), Some(State::Reachable));
    let mut now = table.neighbours.next_deadline().unwrap();
    for _ in 0..3 {
        assert!(matches!(table.tick(now)[..], [Action::Transmit { .. }]));
        now += s(1);
    }
    let lost = Action::Lost {
        interface: 3,
        address: ip("192.0.2.9"),
    };
    assert_eq!(table.tick(now), [lost]);
}

/// RFC 826: the sender of a request to us is added; RFC 5227: an announcement only updates a known neighbour.
#[test]
fn arp_requests_are_answered_and_noted() {
    let mut table = Table::new();
    let actions = table.arp(s(0), &arp_frame(1, [192, 0, 2, 9], THEIRS, [192, 0, 2, 1]));
    assert_eq!(actions[0], found("192.0.2.9", THEIRS, &[]));
    assert!(matches!(actions[1], Action::Transmit { .. }));
    assert_eq!(table.state("192.0.2.9"), Some(State::Stale));
    // For another host, without a source, from another link, with our own address.
    for (from, to) in [
        ([192, 0, 2, 8], [192, 0, 2, 7]),
        ([192, 0, 2, 8], [192, 0, 2, 8]),
        ([203, 0, 113, 8], [192, 0, 2, 7]),
        ([192, 0, 2, 1], [192, 0, 2, 1]),
    ] {
        assert_eq!(table.arp(s(0), &arp_frame(1, from, THEIRS, to)), []);
    }
    assert_eq!(table.neighbours.counts().conflicts, 1);
    // A probe for our address (RFC 5227, section 2.1.1) is answered, and no neighbour is added.
    let actions = table.arp(s(0), &arp_frame(1, [0; 4], THEIRS, [192, 0, 2, 1]));
    assert!(matches!(actions[..], [Action::Transmit { .. }]));
    // The neighbour has moved and announces it.
    let other = MacAddress::from_u64(0x0200_0000_0002);
    let actions = table.arp(s(1), &arp_frame(1, [192, 0, 2, 9], other, [192, 0, 2, 9]));
    assert_eq!(actions, [found("192.0.2.9", other, &[])]);
}

/// RFC 4861, sections 7.2.3 and 7.2.4; RFC 4862, section 5.4.3.
#[test]
fn solicitations_are_answered() {
    let mut table = Table::new();
    let asked = nd_frame(
        135,
        0,
        "2001:db8::9",
        "ff02::1:ff00:1",
        "2001:db8::1",
        Some((1, THEIRS)),
    );
    let actions = table.nd(s(0), &asked);
    assert_eq!(actions[0], found("2001:db8::9", THEIRS, &[]));
    let Action::Transmit { frame, .. } = &actions[1] else {
        panic!();
    };
    assert_eq!(frame[..6], THEIRS.to_u64().to_be_bytes()[2..]);
    assert_eq!((frame[54], frame[58], frame[21]), (136, 0xe0, 255));
    // A host probes our address: the reply goes to all nodes.
    let probe = nd_frame(135, 0, "::", "ff02::1:ff00:1", "2001:db8::1", None);
    let actions = table.nd(s(0), &probe);
    let [Action::Transmit { frame, .. }] = &actions[..] else {
        panic!();
    };
    assert_eq!(
        (frame[..6].to_vec(), frame[58]),
        (vec![0x33, 0x33, 0, 0, 0, 1], 0xa0)
    );
    // Our link-local address is ours too.
    let local = interface_info().link_local().to_string();
    let asked = nd_frame(135, 0, "fe80::9", &local, &local, Some((1, THEIRS)));
    assert_eq!(table.nd(s(0), &asked).len(), 2);
}

/// RFC 4861, section 7.1: invalid messages change nothing.
#[test]
fn malformed_messages_are_dropped() {
    let mut table = Table::new();
    table.resolve(s(0), "2001:db8::9", Some(1));
    let sound = advertisement("2001:db8::9", THEIRS, 0x60);
    let mut damaged = Vec::new();
    for (at, octet) in [(21, 254), (55, 1), (60, 9), (79, 0), (78, 9)] {
        let mut frame = sound.clone();
        frame[at] = octet;
        damaged.push(frame);
    }
    damaged.push(sound[..70].to_vec());
    damaged.push(nd_frame(135, 0, "::", "2001:db8::1", "2001:db8::1", None));
    damaged.push(nd_frame(
        136,
        0x40,
        "2001:db8::9",
        "ff02::1",
        "2001:db8::9",
        None,
    ));
    let count = damaged.len() as u64;
    for frame in damaged {
        assert_eq!(table.nd(s(0), &frame), [], "{frame:?}");
    }
    assert_eq!(table.neighbours.counts().invalid, count);
    assert_eq!(table.nd(s(0), &sound).len(), 1);
}

/// RFC 4861, section 7.2.5: without the override flag, a different address only starts probing.
#[test]
fn only_advertisements_with_the_override_flag_override() {
    let mut table = Table::new();
    table.resolve(s(0), "2001:db8::9", None);
    table.nd(s(0), &advertisement("2001:db8::9", THEIRS, 0x60));
    let other = MacAddress::from_u64(0x0200_0000_0002);
    assert_eq!(
        table.nd(s(1), &advertisement("2001:db8::9", other, 0x40)),
        []
    );
    assert_eq!(table.state("2001:db8::9"), Some(State::Stale));
    let actions = table.nd(s(1), &advertisement("2001:db8::9", other, 0x20));
    assert_eq!(actions, [found("2001:db8::9", other, &[])]);
}

/// RFC 6583: a scan of a large link fills neither the memory nor the link.
#[test]
fn a_scan_is_bounded() {
    let mut table = Table::with(Limits {
        neighbours: 100,
        waiting: 2,
        waiting_in_all: 100,
        asks_per_second: 50,
    });
    for host in 1..200u8 {
        table.resolve(
            s(0),
            &format!("192.0.2.{}", host.max(2)),
            Some(u32::from(host)),
        );
    }
    let counts = table.neighbours.counts();
    assert_eq!(counts.asked, 50);
    assert!(counts.not_asked > 100);
    assert_eq!(table.neighbours.list(s(0)).count(), 50);
}

#[test]
fn static_neighbours_are_not_probed_and_not_overridden() {
    let mut table = Table::new();
    let address = ip("192.0.2.9");
    table
        .neighbours
        .set(s(0), 3, address, THEIRS, &mut table.out);
    assert_eq!(
        std::mem::take(&mut table.out),
        [found("192.0.2.9", THEIRS, &[])]
    );
    let other = MacAddress::from_u64(0x0200_0000_0002);
    assert_eq!(table.arp(s(1), &arp_reply([192, 0, 2, 9], other)), []);
    assert_eq!(table.neighbours.next_deadline(), None);
    assert_eq!(table.neighbours.mac(3, address), Some(THEIRS));
    assert!(table.neighbours.remove(3, address, &mut table.out));
    assert!(!table.neighbours.remove(3, address, &mut table.out));
}

#[derive(Clone, Debug)]
enum Event {
    Resolve(u8, bool),
    Reply(u8, u8),
    Request(u8, u8),
    Advertise(u8, u8, u8),
    Remove(u8),
    Flush,
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (2..12u8, any::<bool>()).prop_map(|(host, with)| Event::Resolve(host, with)),
        2 => (2..12u8, 1..3u8).prop_map(|(host, mac)| Event::Reply(host, mac)),
        1 => (2..12u8, 1..3u8).prop_map(|(host, mac)| Event::Request(host, mac)),
        2 => (2..12u8, 1..3u8, any::<u8>()).prop_map(|(host, mac, flags)| Event::Advertise(host, mac, flags)),
        1 => (2..12u8).prop_map(Event::Remove),
        1 => Just(Event::Flush),
        4 => (0..20_000u64).prop_map(Event::Pass),
    ]
}

fn host(number: u8) -> IpAddr {
    if number.is_multiple_of(2) {
        Ipv4Addr::new(192, 0, 2, number).into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)).into()
    }
}

proptest! {
    /// Each packet is released once or counted, memory is bounded, and changes of MAC addresses are reported in order.
    #[test]
    fn nothing_is_lost_in_silence(events in prop::collection::vec(event(), 1..200)) {
        let mut table = Table::with(Limits { neighbours: 6, waiting: 3, waiting_in_all: 7, asks_per_second: 5 });
        let mut now = Duration::ZERO;
        let (mut given, mut out) = (0u32, 0u64);
        let mut installed: std::collections::BTreeMap<IpAddr, MacAddress> = Default::default();
        for event in events {
            let mac = |number: u8| MacAddress::from_u64(0x0200_0000_0000 | u64::from(number));
            let actions = match event {
                Event::Resolve(number, with) => {
                    given += u32::from(with);
                    table.resolve(now, &host(number).to_string(), with.then_some(given))
                }
                Event::Reply(number, from) => table.arp(now, &arp_reply([192, 0, 2, number], mac(from))),
                Event::Request(number, from) => {
                    table.arp(now, &arp_frame(1, [192, 0, 2, number], mac(from), [192, 0, 2, 1]))
                }
                Event::Advertise(number, from, flags) => {
                    table.nd(now, &advertisement(&format!("2001:db8::{number:x}"), mac(from), flags))
                }
                Event::Remove(number) => {
                    table.neighbours.remove(3, host(number), &mut table.out);
                    std::mem::take(&mut table.out)
                }
                Event::Flush => {
                    table.neighbours.flush(3, &mut table.out);
                    std::mem::take(&mut table.out)
                }
                Event::Pass(ms) => {
                    now += Duration::from_millis(ms);
                    table.tick(now)
                }
            };
            for action in actions {
                match action {
                    Action::Found { address, mac, packets, .. } => {
                        installed.insert(address, mac);
                        out += packets.len() as u64;
                    }
                    Action::Lost { address, .. } => {
                        prop_assert!(installed.remove(&address).is_some());
                    }
                    Action::Unreachable { packets, .. } => out += packets.len() as u64,
                    Action::Transmit { .. } => {}
                }
            }
            let listed: std::collections::BTreeMap<_, _> = table
                .neighbours
                .list(now)
                .filter_map(|shown| Some((shown.address, shown.mac?)))
                .collect();
            prop_assert_eq!(&listed, &installed);
            prop_assert!(table.neighbours.list(now).count() <= 6);
            let waiting = table.neighbours.entries.values().map(|entry| entry.waiting.len()).sum::<usize>();
            prop_assert_eq!(table.neighbours.held, waiting);
            prop_assert!(waiting <= 7);
            let timers = table.neighbours.list(now).filter(|shown| shown.state != State::Permanent).count();
            prop_assert_eq!(table.neighbours.next_deadline().is_some(), timers > 0);
        }
        table.neighbours.flush(3, &mut table.out);
        for action in &table.out {
            if let Action::Unreachable { packets, .. } = action {
                out += packets.len() as u64;
            }
        }
        prop_assert_eq!(u64::from(given), out + table.neighbours.counts().overflowed);
        prop_assert_eq!(table.neighbours.held, 0);
        prop_assert!(table.neighbours.ranks.is_empty());
    }

    /// Any octets.
    #[test]
    fn no_frame_does_harm(frame in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut table = Table::new();
        table.neighbours.received_arp(s(0), &table.interface_info, &frame, &mut table.out);
        table.neighbours.received_nd(s(0), &table.interface_info, &frame, &mut table.out);
    }
}
