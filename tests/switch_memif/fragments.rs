// SPDX-License-Identifier: Apache-2.0
//! Fragments through connection tracking and NAT, in any order (RFC 4787, REQ-14).

use std::time::{Duration, Instant};

use etherparse::Ipv4Header;
use quietwire_switch::report::{ConnectionsReport, PortDrop, PortDrops, PortReport};

use crate::bench::{Bench, Peer, until};
use crate::nat::{
    FROM_A, FROM_B, HOST, OWN, REMOTE, SHARED, TO_A, TO_B, echo, pass, source_port, start, trimmed,
    udp,
};

/// Returns a datagram in fragments of 24 octets of payload.
pub(super) fn fragments(frame: &[u8], identification: u16) -> Vec<Vec<u8>> {
    let (headers, payload) = frame.split_at(34);
    let count = payload.chunks(24).count();
    let fragment = |(number, part): (usize, &[u8])| {
        let mut fragment = [headers, part].concat();
        let more = u16::from(number + 1 < count);
        fragment[16..18].copy_from_slice(&(part.len() as u16 + 20).to_be_bytes());
        fragment[18..20].copy_from_slice(&identification.to_be_bytes());
        fragment[20..22].copy_from_slice(&((number as u16 * 3) | (more << 13)).to_be_bytes());
        let (mut header, _) = Ipv4Header::from_slice(&fragment[14..34]).unwrap();
        header.header_checksum = header.calc_header_checksum();
        fragment[14..34].copy_from_slice(&header.to_bytes());
        fragment
    };
    payload.chunks(24).enumerate().map(fragment).collect()
}

/// Returns the drops of the port with this number.
fn drops(bench: &Bench, port: usize) -> PortDrops {
    let ports: Vec<PortReport> = bench.show("ports");
    ports[port].counts.drops
}

/// Rules of connections without prefixes of sources.
fn rules() -> String {
    SHARED.replace("sources = [\"10.0.0.0/24\"]\n", "")
}

/// Sends the fragments of a frame, the last one first, and checks that those of another frame leave, the first one first. Returns the
/// identification of these.
fn pass_reversed(
    from: &mut Peer,
    to: &mut Peer,
    (frame, number): (&[u8], u16),
    leaves: &[u8],
) -> u16 {
    let mut sent = fragments(frame, number);
    sent.reverse();
    from.send(&sent);
    let received = to.receive(sent.len());
    let identification = u16::from_be_bytes([received[0][18], received[0][19]]);
    let expected = fragments(leaves, identification);
    let received: Vec<&[u8]> = received.iter().map(|one| trimmed(one)).collect();
    assert_eq!(received[0], expected[0]);
    assert_eq!(received.len(), expected.len());
    for one in &expected {
        assert!(received.contains(&&one[..]), "{one:x?} of {received:x?}");
    }
    identification
}

#[test]
fn fragments_pass_in_both_directions_behind_the_first_one() {
    let (bench, mut a, mut b) = start(&rules());
    let whole = udp(TO_A, (HOST, 4000), (REMOTE, 53), 64);
    let sent = fragments(&whole, 7);
    assert_eq!(sent.len(), 2);
    a.send(&sent);
    let received = b.receive(2);
    let external = source_port(&received[0]);
    let expected = udp(FROM_B, (OWN, external), (REMOTE, 53), 63);
    let identification = u16::from_be_bytes([received[0][18], received[0][19]]);
    let expected = fragments(&expected, identification);
    for (received, expected) in received.iter().zip(&expected) {
        assert_eq!(trimmed(received), expected);
    }
    let answer = fragments(&udp(TO_B, (REMOTE, 53), (OWN, external), 64), 9);
    b.send(&answer);
    let expected = fragments(&udp(FROM_A, (REMOTE, 53), (HOST, 4000), 63), 9);
    for (received, expected) in a.receive(2).iter().zip(&expected) {
        assert_eq!(trimmed(received), expected);
    }
    let connections: ConnectionsReport = bench.show("connections");
    assert_eq!(connections.connections[0].packets, [2, 2]);
}

#[test]
fn fragments_pass_in_both_directions_in_any_order() {
    // With and without rules, which track connections.
    for keys in [rules(), String::new()] {
        let (bench, mut a, mut b) = start(&keys);
        let first = pass(&mut a, &mut b, udp(TO_A, (HOST, 4000), (REMOTE, 53), 64));
        let external = source_port(&first);
        for number in 7..10 {
            let sent = udp(TO_A, (HOST, 4000), (REMOTE, 53), 64);
            let leaves = udp(FROM_B, (OWN, external), (REMOTE, 53), 63);
            pass_reversed(&mut a, &mut b, (&sent, number), &leaves);
            let sent = udp(TO_B, (REMOTE, 53), (OWN, external), 64);
            let leaves = udp(FROM_A, (REMOTE, 53), (HOST, 4000), 63);
            let kept = pass_reversed(&mut b, &mut a, (&sent, number), &leaves);
            assert_eq!(kept, number);
        }
        // Echoes.
        let request = echo(TO_A, HOST, REMOTE, 64, 5, false);
        let whole = pass(&mut a, &mut b, request.clone());
        let identifier = u16::from_be_bytes([whole[38], whole[39]]);
        let leaves = echo(FROM_B, OWN, REMOTE, 63, identifier, false);
        pass_reversed(&mut a, &mut b, (&request, 20), &leaves);
        let reply = echo(TO_B, REMOTE, OWN, 64, identifier, true);
        let leaves = echo(FROM_A, REMOTE, HOST, 63, 5, true);
        pass_reversed(&mut b, &mut a, (&reply, 21), &leaves);
        for port in [0, 1] {
            assert_eq!(drops(&bench, port).sum(), 0);
        }
    }
}

#[test]
fn a_fragment_whose_first_one_does_not_arrive_is_dropped_after_seconds() {
    let (bench, mut a, mut b) = start(&rules());
    let whole = udp(TO_A, (HOST, 4000), (REMOTE, 53), 64);
    let sent = fragments(&whole, 7);
    let started = Instant::now();
    a.send(&sent[1..]);
    until("the fragment is dropped", || {
        (drops(&bench, 0)[PortDrop::FragmentTimeout] == 1).then_some(())
    });
    // By a coarse clock.
    assert!(started.elapsed() >= Duration::from_millis(500));
    let ports: Vec<PortReport> = bench.show("ports");
    assert_eq!(ports[0].counts.rx_frames, 1);
    // The first one is too late for it.
    a.send(&sent[..1]);
    assert_eq!(b.receive(1).len(), 1);
    let connections: ConnectionsReport = bench.show("connections");
    assert_eq!(connections.counters.invalid["fragment"], 0);
}

#[test]
fn a_flood_of_later_fragments_leaves_other_traffic_alone() {
    const FLOOD: u16 = 4000;
    let (bench, mut a, mut b) = start(&rules());
    let first = pass(&mut a, &mut b, udp(TO_A, (HOST, 4000), (REMOTE, 53), 64));
    for begin in (0..FLOOD).step_by(500) {
        let flood = (begin..begin + 500).map(|number| {
            let source = format!("10.0.{}.{}", number % 2, number % 200 + 2);
            let whole = udp(TO_A, (source.as_str(), 9), (REMOTE, 53), 64);
            fragments(&whole, number).remove(1)
        });
        a.send(&flood.collect::<Vec<_>>());
        let again = pass(&mut a, &mut b, udp(TO_A, (HOST, 4000), (REMOTE, 53), 64));
        assert_eq!(again, first);
        // Fragments in order require no space.
        let in_order = fragments(&udp(TO_A, (HOST, 4000), (REMOTE, 53), 64), 60_000 + begin);
        a.send(&in_order);
        assert_eq!(b.receive(2).len(), 2);
    }
    until("all fragments of the flood are dropped", || {
        let drops = drops(&bench, 0);
        let overflow = drops[PortDrop::FragmentOverflow];
        let sum = overflow + drops[PortDrop::FragmentTimeout];
        (overflow > 0 && sum == u64::from(FLOOD)).then_some(())
    });
}
