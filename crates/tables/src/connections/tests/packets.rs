// SPDX-License-Identifier: Apache-2.0
//! Packets that have no connection for what they are, and protocols other than TCP.

use proptest::prelude::*;

use super::*;

fn verdict(sent: &Sent, change: impl FnOnce(&mut Vec<u8>)) -> (CtState, Option<InvalidReason>) {
    let mut tracker = Tracker::new(&Settings::of_size(1)).unwrap();
    let mut octets = sent.octets();
    change(&mut octets);
    let packet = Packet::read(sent.ethertype(), &octets, octets.len(), sent.zone);
    let mut tracked = [Tracked::UNTRACKED];
    tracker.track(&[packet], 0, &mut tracked);
    (tracked[0].state, tracked[0].reason)
}

fn invalid(reason: InvalidReason) -> (CtState, Option<InvalidReason>) {
    (CtState::Invalid, Some(reason))
}

const NEW: (CtState, Option<InvalidReason>) = (CtState::New, None);

#[test]
fn damaged_packets_are_malformed() {
    let syn = Talk::new(1).segment(0, SYN, 0);
    let v6 = udp(end("2001:db8::1", 1), end("2001:db8::2", 2));
    assert_eq!(verdict(&syn, |_| {}), NEW);
    assert_eq!(verdict(&v6, |_| {}), NEW);
    let malformed = invalid(InvalidReason::Malformed);
    for length in 0..40 {
        assert_eq!(verdict(&syn, |octets| octets.truncate(length)), malformed);
        assert_eq!(verdict(&v6, |octets| octets.truncate(length)), malformed);
    }
    // Version, header length, total length below the header and beyond the packet, TCP data offset.
    for (at, octet) in [
        (0, 0x65),
        (0, 0x44),
        (3, 19),
        (3, 41),
        (32, 0x40),
        (32, 0x60),
    ] {
        assert_eq!(
            verdict(&syn, |octets| octets[at] = octet),
            malformed,
            "{at}"
        );
    }
    // Padding does not count, nor does the part of a long packet in further buffers.
    assert_eq!(verdict(&syn, |octets| octets.resize(60, 0)), NEW);
    let mut long = syn.octets();
    long[2..4].copy_from_slice(&9000u16.to_be_bytes());
    let packet = Packet::read(0x0800, &long, 9000, 0);
    let mut tracker = Tracker::new(&Settings::of_size(1)).unwrap();
    tracker.commit(&packet, 0).unwrap();
    assert_eq!(all(&tracker)[0].octets, [9000, 0]);
}

#[test]
fn packets_in_tagged_frames_are_the_same_connection() {
    let syn = Talk::new(1).segment(0, SYN, 0);
    let mut tracker = Tracker::new(&Settings::of_size(2)).unwrap();
    let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0, 7], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8]];
    for tags in tags {
        let mut frame = [&[0; 12][..], tags, &[0x08, 0], &syn.octets()].concat();
        // Padding.
        frame.resize(80, 0);
        let packet = Packet::of_frame(&frame, frame.len(), 0);
        tracker.commit(&packet, 0).unwrap();
        for length in 0..14 + tags.len() {
            let short = Packet::of_frame(&frame[..length], length, 0);
            assert!(tracker.commit(&short, 0).is_err());
        }
    }
    assert_eq!(tracker.len(), 1);
}

#[test]
fn fragments_without_a_header_are_invalid() {
    let v4 = udp(end("10.0.0.1", 1), end("10.0.0.2", 2));
    let fragment = |octets: [u8; 2]| verdict(&v4, |packet| packet[6..8].copy_from_slice(&octets));
    assert_eq!(fragment([0x40, 0]), NEW);
    assert_eq!(fragment([0x20, 0]), NEW);
    assert_eq!(fragment([0x20, 1]), invalid(InvalidReason::Fragment));
    assert_eq!(fragment([0x1f, 0xff]), invalid(InvalidReason::Fragment));
    let v6 = udp(end("2001:db8::1", 1), end("2001:db8::2", 2));
    for (offset, expected) in [(0, NEW), (8, invalid(InvalidReason::Fragment))] {
        let with_header = |octets: &mut Vec<u8>| {
            octets[6] = 44;
            octets[5] += 8;
            drop(octets.splice(40..40, [17, 0, 0, offset | 1, 0, 0, 0, 7]));
        };
        assert_eq!(verdict(&v6, with_header), expected);
    }
}

#[test]
fn a_packet_from_an_endpoint_to_itself_is_invalid() {
    for (one, other) in [("10.0.0.1", "10.0.0.1"), ("2001:db8::1", "2001:db8::1")] {
        let same = verdict(&udp(end(one, 7), end(other, 7)), |_| {});
        assert_eq!(same, invalid(InvalidReason::SameEndpoint));
        assert_eq!(verdict(&udp(end(one, 7), end(other, 8)), |_| {}), NEW);
    }
}

#[test]
fn messages_between_neighbours_are_not_tracked() {
    let echo = |address: &str| Sent {
        zone: 0,
        source: end(address, 9),
        destination: end(
            if address.contains(':') {
                "2001:db8::2"
            } else {
                "10.0.0.2"
            },
            9,
        ),
        content: Content::EchoRequest,
    };
    let of_type = |address, at: usize, kind| verdict(&echo(address), |octets| octets[at] = kind);
    for kind in [130, 133, 135, 136, 143] {
        assert_eq!(of_type("2001:db8::1", 40, kind), (CtState::Untracked, None));
    }
    for kind in [5, 13, 17] {
        assert_eq!(
            of_type("10.0.0.1", 20, kind),
            invalid(InvalidReason::IcmpType)
        );
    }
    assert_eq!(
        of_type("2001:db8::1", 40, 200),
        invalid(InvalidReason::IcmpType)
    );
    assert_eq!(
        of_type("10.0.0.1", 20, 0),
        invalid(InvalidReason::NoConnection)
    );
    assert_eq!(
        of_type("10.0.0.1", 20, 3),
        invalid(InvalidReason::Unrelated)
    );
    let packet = Packet::read(0x0806, &[0; 28], 28, 0);
    let mut tracker = Tracker::new(&Settings::of_size(1)).unwrap();
    let mut tracked = [Tracked::UNTRACKED];
    tracker.track(&[packet], 0, &mut tracked);
    assert_eq!(tracked, [Tracked::UNTRACKED]);
    assert_eq!(tracker.counters().packets[CtState::Untracked as usize], 1);
}

#[test]
fn echoes_of_both_sides_with_one_identifier_are_two_connections() {
    let mut tracker = Tracker::new(&Settings::of_size(4)).unwrap();
    let (a, b) = (end("10.0.0.1", 9), end("10.0.0.2", 9));
    let echo = |source, destination, content| Sent {
        zone: 0,
        source,
        destination,
        content,
    };
    for (source, destination, content, expected) in [
        (a, b, Content::EchoRequest, CtState::New),
        (a, b, Content::EchoReply, CtState::Invalid),
        (b, a, Content::EchoRequest, CtState::New),
        (b, a, Content::EchoReply, CtState::Established),
        (a, b, Content::EchoRequest, CtState::Established),
        (a, b, Content::EchoReply, CtState::Established),
    ] {
        let tracked = pass(&mut tracker, &echo(source, destination, content), 0);
        assert_eq!(tracked.state, expected);
    }
    assert_eq!(tracker.len(), 2);
}

#[test]
fn datagrams_are_established_once_both_sides_have_sent() {
    let mut tracker = Tracker::new(&Settings::of_size(4)).unwrap();
    let (a, b) = (end("10.0.0.1", 1000), end("10.0.0.2", 53));
    for (source, destination, expected, timeout_s) in [
        (a, b, CtState::New, 30),
        (a, b, CtState::New, 30),
        (b, a, CtState::Established, 300),
        (a, b, CtState::Established, 300),
    ] {
        let tracked = pass(&mut tracker, &udp(source, destination), 0);
        assert_eq!(tracked.state, expected);
        assert_eq!(all(&tracker)[0].expires_in_s, timeout_s);
    }
    // An IPv6 packet with the IPv4 address in it is another one.
    let mapped = udp(end("::a00:1", 1000), end("::a00:2", 53));
    assert_eq!(pass(&mut tracker, &mapped, 0).state, CtState::New);
    assert_eq!(tracker.len(), 2);
}

#[test]
fn lists_are_filtered_and_flushed() {
    let mut tracker = Tracker::new(&Settings::of_size(64)).unwrap();
    for port in 1..=20 {
        pass(
            &mut tracker,
            &udp(end("10.0.0.1", port), end("10.0.0.2", 53)),
            0,
        );
        pass(&mut tracker, &Talk::new(port).segment(0, SYN, 0), 0);
    }
    let count = |tracker: &Tracker, filter: &ConnectionFilter| {
        let page = tracker.list(filter, 0, 100, 100);
        assert_eq!(page.next, None);
        page.connections.len()
    };
    let filter = ConnectionFilter::default();
    for (filter, expected) in [
        (filter, 40),
        (
            ConnectionFilter {
                protocol: Some(6),
                ..filter
            },
            20,
        ),
        (
            ConnectionFilter {
                port: Some(7),
                ..filter
            },
            2,
        ),
        (
            ConnectionFilter {
                address: Some("192.0.2.0/24".parse().unwrap()),
                ..filter
            },
            20,
        ),
        (
            ConnectionFilter {
                state: Some(State::UdpUnreplied),
                ..filter
            },
            20,
        ),
        (
            ConnectionFilter {
                zone: Some(1),
                ..filter
            },
            0,
        ),
        (
            ConnectionFilter {
                mark: MarkBits::new(1, 1),
                ..filter
            },
            0,
        ),
        (
            ConnectionFilter {
                mark: MarkBits::new(0, 1),
                ..filter
            },
            40,
        ),
        (
            ConnectionFilter {
                label: LabelBits::new(1, 1),
                ..filter
            },
            0,
        ),
        (
            ConnectionFilter {
                label: LabelBits::new(0, 1),
                ..filter
            },
            40,
        ),
    ] {
        assert_eq!(count(&tracker, &filter), expected, "{filter:?}");
    }
    let datagrams = ConnectionFilter {
        protocol: Some(17),
        ..filter
    };
    assert_eq!(tracker.flush(&datagrams, 0, 10), (5, Some(10)));
    assert_eq!(tracker.flush(&datagrams, 10, 100), (15, None));
    assert_eq!(count(&tracker, &filter), 20);
    assert_eq!(tracker.counters().flushed, 20);
}

proptest! {
    /// Frames that are plain, and frames that differ from plain ones in a few octets.
    #[test]
    fn plain_frames_are_read_as_any_others(
        addresses in prop::array::uniform8(0u8..3),
        protocol in prop_oneof![4 => Just(17u8), 4 => Just(6), 1 => any::<u8>()],
        total in 20u16..70,
        octets in prop::collection::vec(any::<u8>(), 100),
        ports in prop::array::uniform4(0u8..2),
        tcp in (0x40u8..0x90, any::<u8>()),
        damage in prop_oneof![
            4 => Just(None),
            1 => (12..60usize, any::<u8>()).prop_map(Some),
            1 => (20..22usize, any::<u8>()).prop_map(Some),
        ],
        (available, padding) in (0..110usize, 0..60usize),
        zone: u16,
    ) {
        let mut frame = octets;
        frame[12..14].copy_from_slice(&[0x08, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame[20..22].copy_from_slice(&[0x40, 0]);
        frame[23] = protocol;
        frame[26..34].copy_from_slice(&addresses);
        frame[34..38].copy_from_slice(&ports);
        frame[46..48].copy_from_slice(&[tcp.0, tcp.1]);
        if let Some((at, octet)) = damage {
            frame[at] = octet;
        }
        frame.truncate(available);
        let length = frame.len() + padding;
        let mut any = Packet::UNTRACKED;
        any.parse_any(&frame, length, zone);
        prop_assert_eq!(format!("{:?}", Packet::of_frame(&frame, length, zone)), format!("{any:?}"));
    }

    #[test]
    fn any_octets_are_read(
        is_v4: bool,
        mut octets in prop::collection::vec(any::<u8>(), 0..120),
        protocol in prop_oneof![Just(1u8), Just(6), Just(17), Just(44), Just(58), any::<u8>()],
        length in 0..200usize,
    ) {
        let (version, at) = if is_v4 { (0x45, 9) } else { (0x60, 6) };
        if let Some(first) = octets.first_mut() {
            *first = version;
        }
        if let Some(octet) = octets.get_mut(at) {
            *octet = protocol;
        }
        let length = length.max(octets.len());
        let ethertype = if is_v4 { 0x0800 } else { 0x86dd };
        let packet = Packet::read(ethertype, &octets, length, 0);
        let mut tracker = Tracker::new(&Settings::of_size(2)).unwrap();
        let mut tracked = [Tracked::UNTRACKED];
        tracker.track(&[packet], 0, &mut tracked);
        let is_new = tracked[0].state == CtState::New;
        prop_assert_eq!(tracker.commit(&packet, 0).is_ok(), is_new);
        prop_assert_eq!(tracked[0].state == CtState::Invalid, tracked[0].reason.is_some());
        prop_assert_eq!(tracker.len(), usize::from(is_new));
    }
}
