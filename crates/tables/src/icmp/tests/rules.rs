// SPDX-License-Identifier: Apache-2.0
//! Single rules of the RFCs.

use super::*;

/// Returns an echo request over IPv6 behind extension headers, the first of which is of type `first`.
fn echo6_behind(from: &str, first: u8, extensions: &[u8]) -> Vec<u8> {
    let (from, to) = (v6(from), v6("2001:db8::1"));
    let mut message = vec![128, 0, 0, 0, 0, 3, 0, 4, b'h', b'i'];
    let sum = icmpv6_checksum(from.into(), to.into(), &message);
    put_checksum(&mut message, 2, sum);
    with_headers(from, to, first, extensions, &message)
}

fn with_headers(from: [u8; 16], to: [u8; 16], first: u8, headers: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![
        0x6b,
        0x90,
        0,
        0,
        0,
        (headers.len() + rest.len()) as u8,
        first,
        64,
    ];
    packet.extend(from);
    packet.extend(to);
    packet.extend(headers);
    packet.extend(rest);
    packet
}

const OPTIONS: [u8; 8] = [58, 0, 1, 4, 0, 0, 0, 0];

/// RFC 1122, section 3.2.1.3; RFC 4443, section 2.4 (e.6): no packet makes us send to a group or to ourselves.
#[test]
fn only_single_hosts_are_answered_rfc_1122_3_2_1_3() {
    for from in [
        [0, 0, 0, 1],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [240, 0, 0, 1],
        [255; 4],
    ] {
        let mut packet = Vec::new();
        PacketBuilder::ipv4(from, [192, 0, 2, 1], 64)
            .icmpv4_echo_request(3, 4)
            .write(&mut packet, b"")
            .unwrap();
        assert_eq!(echo_reply(&packet), None, "{from:?}");
        assert_eq!(
            error(&udp4(from, FAR4, 9), Error::NetUnreachable, us4()),
            None,
            "{from:?}"
        );
    }
    for from in ["::", "::1", "ff02::1"] {
        assert_eq!(echo_reply(&echo6_behind(from, 58, &[])), None, "{from}");
        let packet = udp6(from, "2001:db8:9::9", 9);
        assert_eq!(error(&packet, Error::NetUnreachable, us6()), None, "{from}");
    }
}

/// RFC 1812, section 4.3.2.5: replies have the type of service of requests, errors have precedence internetwork control. RFC 6864, section
/// 4.3: a packet that may be fragmented has an identification.
#[test]
fn type_of_service_rfc_1812_4_3_2_5() {
    let mut request = echo4(b"hello");
    // DSCP 46 with ECN 1; identification 0x1234; may be fragmented.
    request[1] = 46 << 2 | 1;
    request[4..8].copy_from_slice(&[0x12, 0x34, 0, 0]);
    let reply = echo_reply(&request).unwrap();
    assert_eq!(reply[1], 46 << 2);
    assert_eq!(reply[4..8], [0x12, 0x34, 0, 0]);
    request[6] = 0x40;
    assert_eq!(echo_reply(&request).unwrap()[6], 0x40);
    let answer = error(&udp4(HOST4, FAR4, 9), Error::NetUnreachable, us4()).unwrap();
    assert_eq!(answer[1], 0xc0);
    let reply = echo_reply(&echo6_behind("2001:db8::7", 58, &[])).unwrap();
    assert_eq!(reply[..2], [0x6b, 0x80]);
}

/// RFC 8200, section 4: extension headers may precede a request. RFC 6946: atomic fragments.
#[test]
fn requests_behind_extension_headers_are_answered_rfc_8200_4() {
    let plain = echo_reply(&echo6_behind("2001:db8::7", 58, &[])).unwrap();
    let whole = [58, 0, 0, 0, 0, 0, 0, 9];
    for (first, headers) in [(60, OPTIONS), (0, OPTIONS), (44, whole)] {
        let request = echo6_behind("2001:db8::7", first, &headers);
        assert_eq!(echo_reply(&request).as_ref(), Some(&plain), "{first}");
    }
    // The first of several, and a later one.
    for place in [1, 8] {
        let part = [58, 0, 0, place, 0, 0, 0, 9];
        let request = echo6_behind("2001:db8::7", 44, &part);
        assert_eq!(echo_reply(&request), None);
    }
}

/// RFC 4443, section 2.4 (e.1, e.2): no errors about errors and redirects, behind any extension headers.
#[test]
fn errors_behind_extension_headers_are_recognised_rfc_4443_2_4_e() {
    let authentication = [58, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let about = |first, headers: &[u8], rest: &[u8]| {
        let packet = with_headers(v6("2001:db8::7"), v6("2001:db8:9::9"), first, headers, rest);
        error(&packet, Error::TimeExceeded, us6())
    };
    for (first, headers) in [(58, &[][..]), (60, &OPTIONS), (51, &authentication)] {
        for kind in [1, 4, 100, 127, 137] {
            assert_eq!(
                about(first, headers, &[kind, 0, 0, 0]),
                None,
                "{first} {kind}"
            );
        }
        for kind in [128, 129, 135, 143] {
            assert!(
                about(first, headers, &[kind, 0, 0, 0]).is_some(),
                "{first} {kind}"
            );
        }
        assert_eq!(about(first, headers, &[]), None, "the type is missing");
    }
    // A later fragment of ICMP may belong to an error; one of UDP does not.
    assert_eq!(about(44, &[58, 0, 0, 8, 0, 0, 0, 9], &[200; 8]), None);
    assert!(about(44, &[17, 0, 0, 8, 0, 0, 0, 9], &[1; 8]).is_some());
    // An extension header without an end.
    assert_eq!(about(60, &[], &[58, 9, 0, 0]), None);
}

/// RFC 4443, section 3.4: the pointer is the offset of the next header field; RFC 792: the first octet of the word.
#[test]
fn parameter_problems_point_rfc_4443_3_4() {
    let behind = |first, headers: &[u8]| {
        let packet = with_headers(
            v6("2001:db8::7"),
            v6("2001:db8::1"),
            first,
            headers,
            &[0; 8],
        );
        let answer = error(&packet, Error::ProtocolUnreachable, us6()).unwrap();
        assert_eq!(answer[40..42], [4, 1]);
        answer[47]
    };
    assert_eq!(behind(132, &[]), 6);
    assert_eq!(behind(60, &[132, 0, 1, 4, 0, 0, 0, 0]), 40);
    let two = [[60, 0, 1, 4, 0, 0, 0, 0], [132, 0, 1, 4, 0, 0, 0, 0]];
    assert_eq!(behind(0, &two.concat()), 48);

    let answer = error(&udp4(HOST4, FAR4, 9), Error::ParameterProblem(21), us4()).unwrap();
    assert_eq!(
        (answer[20..22].to_vec(), &answer[24..28]),
        (vec![12, 0], &[21, 0, 0, 0][..])
    );
    let packet = udp6("2001:db8::7", "2001:db8:9::9", 9);
    let answer = error(&packet, Error::ParameterProblem(7), us6()).unwrap();
    assert_eq!(
        (answer[40..42].to_vec(), &answer[44..48]),
        (vec![4, 0], &[0, 0, 0, 7][..])
    );
}

/// Intervals below a microsecond add up.
#[test]
fn frequent_attempts_do_not_stop_the_clock() {
    let mut limit = RateLimit::new(100);
    let sent = (0..250_000)
        .filter(|attempt| limit.take(Duration::from_nanos(900 * attempt)))
        .count();
    // Ten in a burst, and 22 in the following 225 milliseconds.
    assert_eq!(sent, 32);
}
