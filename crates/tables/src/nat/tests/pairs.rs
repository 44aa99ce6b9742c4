// SPDX-License-Identifier: Apache-2.0
//! One-to-one translations.

use proptest::prelude::*;

use super::*;

const EXTERNAL: &str = "203.0.113.9:5000";

fn with_pair() -> Nat {
    let pair = Pair {
        internal: "10.0.0.9".parse().unwrap(),
        external: "203.0.113.9".parse().unwrap(),
    };
    Nat::new(&NatSettings {
        pairs: vec![pair],
        ..settings()
    })
    .unwrap()
}

#[test]
fn a_host_with_a_pair_keeps_its_ports_and_is_reached_at_all_of_them() {
    let mut nat = with_pair();
    for content in [Content::Udp(3), segment(SYN), Content::Other(47)] {
        let port = if matches!(content, Content::Other(_)) {
            0
        } else {
            5000
        };
        let inside = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), port);
        let outside = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 9), port);
        let remote = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), port);
        let sent = outbound(&mut nat, &packet(inside, remote, content.clone()), 0).unwrap();
        assert_eq!(sent, packet(outside, remote, content.clone()));
        let request = packet(remote, outside, content.clone());
        let received = inbound(&mut nat, &request, 0).unwrap();
        assert_eq!(received, packet(remote, inside, content));
    }
    assert!(nat.is_empty());
    let (inside, remote) = (socket("10.0.0.9:7"), socket("192.0.2.1:53"));
    let external = nat.external_of(NatProtocol::Tcp, inside, remote);
    assert_eq!(external, Some(socket("203.0.113.9:7")));
}

#[test]
fn errors_about_packets_of_a_pair_reach_its_host() {
    let mut nat = with_pair();
    let original = packet(
        socket("10.0.0.9:5000"),
        socket("192.0.2.1:80"),
        Content::Udp(3),
    );
    let translated = outbound(&mut nat, &original, 0).unwrap();
    let error = error_about(&translated, "192.0.2.254", socket(EXTERNAL));
    let received = inbound(&mut nat, &error, 0).unwrap();
    let expected = error_about(&original, "192.0.2.254", socket("10.0.0.9:5000"));
    assert_eq!(received, expected);
    // An error of the host itself goes the other way.
    let request = packet(socket("192.0.2.1:80"), socket(EXTERNAL), Content::Udp(3));
    let arrived = inbound(&mut nat, &request, 0).unwrap();
    let error = error_about(&arrived, "10.0.0.9", socket("192.0.2.1:80"));
    let sent = outbound(&mut nat, &error, 0).unwrap();
    assert_eq!(
        sent,
        error_about(&request, "203.0.113.9", socket("192.0.2.1:80"))
    );
    // One of the router, with its own address.
    let mut own = error_about(&arrived, "198.51.100.254", socket("192.0.2.1:80"));
    let length = own.len();
    nat.translate_own_error(&mut own, length);
    assert_eq!(
        own,
        error_about(&request, "198.51.100.254", socket("192.0.2.1:80"))
    );
}

#[test]
fn fragments_of_a_pair_pass_and_truncated_first_fragments_do_not() {
    let mut nat = with_pair();
    let whole = packet(
        socket("10.0.0.9:5000"),
        socket("192.0.2.1:80"),
        Content::Udp(30),
    );
    let mut later = whole.clone();
    put(&mut later, 6, 3);
    put(&mut later, 10, 0);
    let sum = checksum(&later[..20]);
    put(&mut later, 10, sum);
    let sent = outbound(&mut nat, &later, 0).unwrap();
    assert_eq!(checksum(&sent[..20]), 0);
    assert_eq!(sent[20..], later[20..]);
    let mut first = packet(
        socket("10.0.0.9:5000"),
        socket("192.0.2.1:80"),
        segment(SYN),
    );
    put(&mut first, 6, 0x2000);
    put(&mut first, 2, 28);
    first.truncate(28);
    assert_eq!(outbound(&mut nat, &first, 0), Err(NatDrop::Malformed));
}

#[test]
fn dynamic_hosts_reach_a_pair_by_its_external_address() {
    let mut nat = with_pair();
    let mut request = packet(
        socket("10.0.0.1:5000"),
        socket("203.0.113.9:80"),
        segment(SYN),
    );
    let length = request.len();
    assert_eq!(nat.hairpin(&mut request, length, 0), NatOutcome::Hairpinned);
    assert_sound(&request);
    let (source, destination) = ends(&request);
    assert_eq!(destination, socket("10.0.0.9:80"));
    let mut answer = packet(destination, source, segment(SYN | ACK));
    assert_eq!(nat.hairpin(&mut answer, length, 0), NatOutcome::Hairpinned);
    assert_sound(&answer);
    assert_eq!(
        ends(&answer),
        (socket("203.0.113.9:80"), socket("10.0.0.1:5000"))
    );
}

#[test]
fn addresses_of_two_pairs_or_of_the_pool_are_refused() {
    let pair = |internal: &str, external: &str| Pair {
        internal: internal.parse().unwrap(),
        external: external.parse().unwrap(),
    };
    for pairs in [
        vec![pair("10.0.0.9", "198.51.100.1")],
        vec![
            pair("10.0.0.9", "203.0.113.1"),
            pair("10.0.0.9", "203.0.113.2"),
        ],
        vec![
            pair("10.0.0.9", "203.0.113.1"),
            pair("10.0.0.8", "203.0.113.1"),
        ],
    ] {
        let error = NatSettings {
            pairs,
            ..settings()
        }
        .check()
        .unwrap_err();
        assert!(
            matches!(error, NatSettingsError::PairTwice { .. }),
            "{error}"
        );
    }
}

proptest! {
    #[test]
    fn translations_of_a_pair_are_reversed_on_return(
        protocol: u8,
        more_fragments: bool,
        offset in prop_oneof![Just(0u16), 1..8u16],
        payload in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut nat = with_pair();
        let mut octets = packet(socket("10.0.0.9:0"), socket("192.0.2.1:0"), Content::Other(200));
        octets[9] = protocol;
        octets.extend(&payload);
        let length = octets.len();
        put(&mut octets, 2, length as u16);
        put(&mut octets, 6, offset | u16::from(more_fragments) << 13);
        put(&mut octets, 10, 0);
        let sum = checksum(&octets[..20]);
        put(&mut octets, 10, sum);
        let Ok(sent) = outbound(&mut nat, &octets, 0) else {
            return Ok(());
        };
        prop_assert_eq!(checksum(&sent[..20]), 0);
        prop_assert_eq!(&sent[12..16], &[203, 0, 113, 9]);
        // Back as it was: the other way round.
        let mut back = sent.clone();
        let (from, to) = (sent[12..16].to_vec(), sent[16..20].to_vec());
        back[12..16].copy_from_slice(&to);
        back[16..20].copy_from_slice(&from);
        if let Ok(received) = inbound(&mut nat, &back, 0)
            && protocol != 1
        {
            let mut expected = octets.clone();
            let (from, to) = (octets[12..16].to_vec(), octets[16..20].to_vec());
            expected[12..16].copy_from_slice(&to);
            expected[16..20].copy_from_slice(&from);
            let same = |octets: &[u8]| (octets[..10].to_vec(), octets[12..20].to_vec());
            prop_assert_eq!(same(&received), same(&expected));
            for (at, (got, wanted)) in received.iter().zip(&expected).enumerate().skip(20) {
                // Both are zero in arithmetic modulo 2^16 - 1.
                let is_sum = matches!((protocol, at), (6, 36 | 37) | (17 | 33 | 136, 26 | 27));
                prop_assert!(got == wanted || is_sum, "octet {}", at);
            }
        }
    }
}
