// SPDX-License-Identifier: Apache-2.0
//! Fragments (RFC 4787, REQ-14), in order: those behind the first one are translated like it, and no others.

use std::collections::BTreeSet;

use proptest::prelude::*;
use quietwire_packet::udp_checksum;

use super::*;

const HOST: &str = "10.0.0.1:4000";
const REMOTE: &str = "192.0.2.1:53";

/// Returns a UDP datagram with right checksums, of this many octets of data that differ.
fn datagram(source: SocketAddrV4, destination: SocketAddrV4, data: u16) -> Vec<u8> {
    let mut octets = packet(source, destination, Content::Udp(data));
    for (at, octet) in octets.iter_mut().enumerate().skip(28) {
        *octet = at as u8;
    }
    put(&mut octets, 26, 0);
    let sum = udp_checksum(transport_sum(&octets));
    put(&mut octets, 26, sum);
    assert_sound(&octets);
    octets
}

/// Cuts a datagram into fragments of this many octets of payload.
fn cut(octets: &[u8], identification: u16, size: usize) -> Vec<Vec<u8>> {
    let (header, payload) = octets.split_at(20);
    let count = payload.chunks(size).count();
    let fragment = |(number, part): (usize, &[u8])| {
        let mut fragment = [header, part].concat();
        let more = u16::from(number + 1 < count);
        let length = fragment.len() as u16;
        put(&mut fragment, 2, length);
        put(&mut fragment, 4, identification);
        put(&mut fragment, 6, (number * size / 8) as u16 | more << 13);
        put(&mut fragment, 10, 0);
        let sum = checksum(&fragment[..20]);
        put(&mut fragment, 10, sum);
        fragment
    };
    payload.chunks(size).enumerate().map(fragment).collect()
}

/// Puts fragments together again, which have one identification.
fn joined(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut octets = fragments[0][..20].to_vec();
    for fragment in fragments {
        assert_eq!(checksum(&fragment[..20]), 0, "header checksum");
        assert_eq!(fragment[4..6], fragments[0][4..6], "identification");
        octets.extend(&fragment[20..]);
    }
    let length = octets.len() as u16;
    put(&mut octets, 2, length);
    put(&mut octets, 6, 0);
    put(&mut octets, 10, 0);
    let sum = checksum(&octets[..20]);
    put(&mut octets, 10, sum);
    octets
}

fn each(
    nat: &mut Nat,
    fragments: &[Vec<u8>],
    translate: impl Fn(&mut Nat, &[u8], u32) -> Result<Vec<u8>, NatDrop>,
) -> Result<Vec<Vec<u8>>, NatDrop> {
    fragments.iter().map(|one| translate(nat, one, 0)).collect()
}

#[test]
fn fragments_behind_the_first_one_are_translated_in_both_directions() {
    let mut nat = Nat::new(&settings()).unwrap();
    let (host, remote) = (socket(HOST), socket(REMOTE));
    let question = cut(&datagram(host, remote, 100), 7, 40);
    // Before the first one, they are unknown.
    assert_eq!(outbound(&mut nat, &question[1], 0), Err(NatDrop::Fragment));
    let sent = joined(&each(&mut nat, &question, outbound).unwrap());
    assert_sound(&sent);
    let (external, to) = ends(&sent);
    assert_eq!(to, remote);
    let answer = cut(&datagram(remote, external, 64), 7, 24);
    let received = joined(&each(&mut nat, &answer, inbound).unwrap());
    assert_sound(&received);
    assert_eq!(ends(&received), (remote, host));
    // Too late, and of other datagrams.
    assert!(outbound(&mut nat, &question[1], 14).is_ok());
    assert_eq!(outbound(&mut nat, &question[1], 15), Err(NatDrop::Fragment));
    let other = cut(&datagram(host, remote, 100), 8, 40);
    assert_eq!(outbound(&mut nat, &other[1], 15), Err(NatDrop::Fragment));
    // A first fragment to a port without mapping is not remembered.
    let unknown = SocketAddrV4::new(*external.ip(), 1);
    let scan = cut(&datagram(remote, unknown, 64), 9, 24);
    assert_eq!(inbound(&mut nat, &scan[0], 15), Err(NatDrop::NoMapping));
    assert_eq!(inbound(&mut nat, &scan[1], 15), Err(NatDrop::Fragment));
}

#[test]
fn datagrams_of_hosts_that_share_an_address_have_different_identifications() {
    let mut nat = Nat::new(&NatSettings {
        pool: PortPool {
            addresses: vec!["198.51.100.1".parse().unwrap()],
            ..settings().pool
        },
        ..settings()
    })
    .unwrap();
    let mut known = BTreeSet::new();
    for host in 1..20 {
        let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 9);
        let fragments = cut(&datagram(source, socket(REMOTE), 64), 7, 24);
        let sent = each(&mut nat, &fragments, outbound).unwrap();
        joined(&sent);
        assert!(known.insert([sent[0][4], sent[0][5]]));
    }
}

#[test]
fn fragments_between_inside_hosts_have_external_sources() {
    let mut nat = Nat::new(&settings()).unwrap();
    let target = external(&mut nat, HOST, REMOTE, Content::Udp(1));
    let from = socket("10.0.0.2:7");
    let fragments = cut(&datagram(from, target, 64), 7, 24);
    let hairpin = |nat: &mut Nat, octets: &[u8], now: u32| {
        let (mut octets, length) = (octets.to_vec(), octets.len());
        match nat.hairpin(&mut octets, length, now) {
            NatOutcome::Hairpinned => Ok(octets),
            NatOutcome::Dropped(reason) => Err(reason),
            outcome => unreachable!("{outcome:?}"),
        }
    };
    let received = joined(&each(&mut nat, &fragments, hairpin).unwrap());
    assert_sound(&received);
    let (source, destination) = ends(&received);
    assert_eq!(destination, socket(HOST));
    assert!(source.ip() != from.ip());
}

#[test]
fn fragments_that_overlap_the_header_are_dropped() {
    let mut nat = Nat::new(&settings()).unwrap();
    let tcp = packet(socket(HOST), socket(REMOTE), segment(SYN));
    let mut first = tcp.clone();
    put(&mut first, 6, 0x2000);
    assert!(outbound(&mut nat, &first, 0).is_ok());
    for (offset, expected) in [
        (1, Err(NatDrop::Fragment)),
        (2, Err(NatDrop::Fragment)),
        (3, Ok(())),
    ] {
        let mut later = tcp.clone();
        put(&mut later, 6, offset);
        assert_eq!(outbound(&mut nat, &later, 0).map(drop), expected);
    }
    // A header length below that of every TCP header does not let a later fragment replace the control bits.
    let mut short = first.clone();
    short[32] = 0;
    put(&mut short, 4, 8);
    assert!(outbound(&mut nat, &short, 0).is_ok());
    for (offset, expected) in [
        (1, Err(NatDrop::Fragment)),
        (2, Err(NatDrop::Fragment)),
        (3, Ok(())),
    ] {
        let mut later = tcp.clone();
        put(&mut later, 4, 8);
        put(&mut later, 6, offset);
        assert_eq!(outbound(&mut nat, &later, 0).map(drop), expected);
    }
    // The first one must contain the whole header.
    let mut tiny = first[..36].to_vec();
    put(&mut tiny, 2, 36);
    put(&mut tiny, 4, 9);
    assert_eq!(outbound(&mut nat, &tiny, 0), Err(NatDrop::Malformed));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn datagrams_arrive_as_the_same_datagrams_whole(
        flows in prop::collection::vec((1..6u8, 1..20u16, 1..4u8, 1..300u16, 1..20usize), 1..60),
    ) {
        let mut nat = Nat::new(&settings()).unwrap();
        for (number, (host, port, remote, data, size)) in flows.into_iter().enumerate() {
            let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), port);
            let remote = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, remote), 80);
            let whole = datagram(source, remote, data);
            let expected = outbound(&mut nat, &whole, 0).unwrap();
            let fragments = cut(&whole, number as u16, size * 8);
            let mut sent = joined(&each(&mut nat, &fragments, outbound).unwrap());
            // Only the identification differs.
            put(&mut sent, 4, 0);
            put(&mut sent, 10, 0);
            let sum = checksum(&sent[..20]);
            put(&mut sent, 10, sum);
            prop_assert_eq!(&sent, &expected);
            let (external, _) = ends(&expected);
            let answer = datagram(remote, external, data);
            let fragments = cut(&answer, number as u16, size * 8);
            let received = joined(&each(&mut nat, &fragments, inbound).unwrap());
            assert_sound(&received);
            prop_assert_eq!(ends(&received), (remote, source));
        }
    }

    #[test]
    fn any_fragments_are_translated_or_dropped(
        flows in prop::collection::vec((1..4u8, 0..3u16, any::<[u8; 4]>(), any::<bool>()), 1..60),
    ) {
        let mut nat = Nat::new(&settings()).unwrap();
        for (host, identification, [at, value, cut_off, field], is_outbound) in flows {
            let inside = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 9);
            let mut octets = match is_outbound {
                true => datagram(inside, socket(REMOTE), 40),
                false => datagram(socket(REMOTE), socket("198.51.100.1:1030"), 40),
            };
            put(&mut octets, 4, identification);
            put(&mut octets, 6, u16::from(field & 7) | u16::from(field & 8 != 0) << 13);
            let at = usize::from(at) % octets.len();
            if value & 1 != 0 {
                octets[at] = value;
            }
            octets.truncate(octets.len() - usize::from(cut_off % 60));
            let length = octets.len();
            let before = octets.clone();
            let outcome = match is_outbound {
                true => nat.outbound(&mut octets, length, 0),
                false => nat.inbound(&mut octets, length, 0),
            };
            if outcome == NatOutcome::Untouched {
                prop_assert_eq!(before, octets);
            }
        }
    }
}
