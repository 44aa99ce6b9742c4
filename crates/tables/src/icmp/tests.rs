// SPDX-License-Identifier: Apache-2.0

mod oracle;
mod rules;

use std::time::Duration;

use etherparse::{IpNumber, Ipv4Header, Ipv4Slice, Ipv6Slice, PacketBuilder};
use proptest::prelude::*;

use super::*;

const HOST4: [u8; 4] = [192, 0, 2, 7];
const FAR4: [u8; 4] = [198, 51, 100, 9];

fn v6(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

fn us4() -> IpAddr {
    "192.0.2.1".parse().unwrap()
}

fn us6() -> IpAddr {
    "2001:db8::1".parse().unwrap()
}

fn udp4(from: [u8; 4], to: [u8; 4], length: usize) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(from, to, 64)
        .udp(1, 2)
        .write(&mut packet, &vec![0x5a; length])
        .unwrap();
    packet
}

fn udp6(from: &str, to: &str, length: usize) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv6(v6(from), v6(to), 64)
        .udp(1, 2)
        .write(&mut packet, &vec![0x5a; length])
        .unwrap();
    packet
}

fn echo4(payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(HOST4, [192, 0, 2, 1], 64)
        .icmpv4_echo_request(3, 4)
        .write(&mut packet, payload)
        .unwrap();
    packet
}

/// RFC 1122, section 3.2.2.6.
#[test]
fn the_data_of_an_echo_request_are_in_the_reply() {
    let reply = echo_reply(&echo4(b"hello")).unwrap();
    let mut expected = Vec::new();
    PacketBuilder::ipv4([192, 0, 2, 1], HOST4, 64)
        .icmpv4_echo_reply(3, 4)
        .write(&mut expected, b"hello")
        .unwrap();
    assert_eq!(reply[20..], expected[20..]);
    let header = Ipv4Header::from_slice(&reply).unwrap().0;
    assert_eq!(header.header_checksum, header.calc_header_checksum());

    let mut request = Vec::new();
    PacketBuilder::ipv6(v6("2001:db8::7"), v6("2001:db8::1"), 64)
        .icmpv6_echo_request(3, 4)
        .write(&mut request, b"hello")
        .unwrap();
    let mut expected = Vec::new();
    PacketBuilder::ipv6(v6("2001:db8::1"), v6("2001:db8::7"), 64)
        .icmpv6_echo_reply(3, 4)
        .write(&mut expected, b"hello")
        .unwrap();
    assert_eq!(echo_reply(&request).unwrap(), expected);
}

#[test]
fn malformed_echo_requests_are_not_answered() {
    let request = echo4(b"hello");
    for at in [20, 21, 22, 28] {
        let mut damaged = request.clone();
        damaged[at] ^= 1;
        assert_eq!(echo_reply(&damaged), None, "{at}");
    }
    assert_eq!(echo_reply(&request[..25]), None);
    assert_eq!(echo_reply(&udp4(HOST4, FAR4, 10)), None);
    assert_eq!(echo_reply(&[]), None);
}

/// RFC 792; RFC 1812, section 4.3.2; RFC 1191.
#[test]
fn errors_of_ipv4() {
    for (error_kind, kind, code, second) in [
        (Error::NetUnreachable, 3, 0, 0),
        (Error::HostUnreachable, 3, 1, 0),
        (Error::ProtocolUnreachable, 3, 2, 0),
        (Error::PortUnreachable, 3, 3, 0),
        (Error::TooBig(1400), 3, 4, 1400),
        (Error::Prohibited, 3, 13, 0),
        (Error::TimeExceeded, 11, 0, 0),
    ] {
        let packet = udp4(HOST4, FAR4, 1000);
        let answer = error(&packet, error_kind, us4()).unwrap();
        // As much of the packet as fits 576 octets (section 4.3.2.3).
        assert_eq!(answer.len(), 576);
        let slice = Ipv4Slice::from_slice(&answer).unwrap();
        let header = slice.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!((header.source, header.destination), ([192, 0, 2, 1], HOST4));
        let message = slice.payload().payload;
        assert_eq!((message[0], message[1]), (kind, code));
        assert_eq!(
            u32::from_be_bytes(message[4..8].try_into().unwrap()),
            second
        );
        assert_eq!(message[8..], packet[..548]);
        assert_eq!(checksum(message), 0);
    }
}

/// RFC 4443, sections 3.1 to 3.4.
#[test]
fn errors_of_ipv6() {
    for (error_kind, kind, code, second) in [
        (Error::NetUnreachable, 1, 0, 0),
        (Error::Prohibited, 1, 1, 0),
        (Error::HostUnreachable, 1, 3, 0),
        (Error::PortUnreachable, 1, 4, 0),
        (Error::TooBig(1400), 2, 0, 1400),
        (Error::TimeExceeded, 3, 0, 0),
        (Error::ProtocolUnreachable, 4, 1, 6),
    ] {
        let packet = udp6("2001:db8::7", "2001:db8:9::9", 2000);
        let answer = error(&packet, error_kind, us6()).unwrap();
        assert_eq!(answer.len(), 1280);
        let slice = Ipv6Slice::from_slice(&answer).unwrap();
        let message = slice.payload().payload;
        assert_eq!((message[0], message[1]), (kind, code));
        assert_eq!(
            u32::from_be_bytes(message[4..8].try_into().unwrap()),
            second
        );
        assert_eq!(message[8..], packet[..1232]);
        let (from, to) = (
            slice.header().source_addr(),
            slice.header().destination_addr(),
        );
        assert_eq!(icmpv6_checksum(from, to, message), 0);
    }
}

/// RFC 1122, section 3.2.2; RFC 1812, section 4.3.2.7; RFC 4443, section 2.4 (e).
#[test]
fn errors_that_may_not_be_sent() {
    let answer = error(&udp4(HOST4, FAR4, 10), Error::TimeExceeded, us4()).unwrap();
    assert_eq!(
        error(&answer, Error::TimeExceeded, us4()),
        None,
        "about an error"
    );
    assert!(error(&echo4(b""), Error::TimeExceeded, us4()).is_some());
    for (from, to) in [
        ([0; 4], FAR4),
        ([127, 0, 0, 1], FAR4),
        ([224, 0, 0, 1], FAR4),
        ([255; 4], FAR4),
        (HOST4, [224, 0, 0, 1]),
        (HOST4, [255; 4]),
    ] {
        assert_eq!(
            error(&udp4(from, to, 10), Error::TimeExceeded, us4()),
            None,
            "{from:?} {to:?}"
        );
    }
    let mut later = Ipv4Header::new(8, 64, IpNumber::UDP, HOST4, FAR4).unwrap();
    later.fragment_offset = 8.try_into().unwrap();
    let mut packet = Vec::new();
    later.write(&mut packet).unwrap();
    packet.extend([0; 8]);
    assert_eq!(
        error(&packet, Error::TimeExceeded, us4()),
        None,
        "a later fragment"
    );

    let answer = error(
        &udp6("2001:db8::7", "2001:db8:9::9", 10),
        Error::TimeExceeded,
        us6(),
    )
    .unwrap();
    assert_eq!(error(&answer, Error::TimeExceeded, us6()), None);
    assert_eq!(
        error(&udp6("::", "2001:db8:9::9", 10), Error::TimeExceeded, us6()),
        None
    );
    let group = udp6("2001:db8::7", "ff0e::1", 10);
    assert_eq!(error(&group, Error::TimeExceeded, us6()), None);
    assert!(error(&group, Error::TooBig(1280), us6()).is_some());
    // Packet of the other IP version.
    assert_eq!(error(&group, Error::TooBig(1280), us4()), None);
}

/// RFC 1812, section 4.3.2.8.
#[test]
fn errors_are_limited() {
    let mut limit = RateLimit::new(100);
    let at_once = (0..1000)
        .filter(|_| limit.take(Duration::from_secs(5)))
        .count();
    assert_eq!(at_once, 10);
    assert_eq!(limit.suppressed(), 990);
    let later = (0..1000u64)
        .filter(|ms| limit.take(Duration::from_secs(5) + Duration::from_millis(*ms)))
        .count();
    assert!((95..=100).contains(&later), "{later}");
}

#[test]
fn packets_of_an_interface_suppress_no_errors_of_others() {
    let mut limits = InterfaceRateLimits::new(RateLimit::new(100));
    let now = Duration::from_secs(5);
    let at_once = (0..1000).filter(|_| limits.take(3, now)).count();
    assert_eq!(at_once, 10);
    assert!(limits.take(4, now) && !limits.take(3, now));
}

proptest! {
    #[test]
    fn no_packet_does_harm(packet in prop::collection::vec(any::<u8>(), 0..200), six in any::<bool>()) {
        let mut packet = packet;
        if let Some(first) = packet.first_mut() {
            *first = if six { 0x60 } else { 0x45 };
        }
        drop(echo_reply(&packet));
        for source in [us4(), us6()] {
            if let Some(answer) = error(&packet, Error::TimeExceeded, source) {
                prop_assert!(answer.len() <= 1280);
            }
        }
    }
}
