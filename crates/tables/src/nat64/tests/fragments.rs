// SPDX-License-Identifier: Apache-2.0
//! Fragments: of clients, of servers, and those that the translator makes.

use proptest::prelude::*;

use super::plain::{fields_v4, payload_v4, payload_v6, v4_around, v4_with, v6_around};
use super::*;

const MORE: u16 = 0x2000;

/// Returns the fragments of an IPv6 packet at these places of its payload.
fn cut_v6(
    header: Header<Ipv6Addr>,
    identification: u32,
    content: &Content,
    places: &[usize],
) -> Vec<Vec<u8>> {
    let payload = payload_v6(&header, content);
    let mut starts = vec![0];
    starts.extend(places);
    let parts = starts.iter().enumerate().map(|(number, start)| {
        let end = starts.get(number + 1).copied().unwrap_or(payload.len());
        let has_more = u16::from(end < payload.len());
        let [high, low] = (*start as u16 | has_more).to_be_bytes();
        let [a, b, c, d] = identification.to_be_bytes();
        let extension = [content.protocol(true), 0, high, low, a, b, c, d];
        v6_around(
            header,
            44,
            &[&extension[..], &payload[*start..end]].concat(),
        )
    });
    parts.collect()
}

#[test]
fn fragments_of_clients_are_those_of_one_datagram() {
    // RFC 6146, section 3.4; RFC 7915, section 5.1.1.
    let segment = Content::Tcp {
        ports: (5001, 80),
        flags: 0x10,
        data: vec![1; 40],
    };
    for content in [udp((5000, 53), &[1; 60]), segment] {
        let mut switch = Switch::new();
        let header = Header::plain(client(), mapped(server()));
        let pieces = cut_v6(header, 0xabcd_0007, &content, &[24]);
        let first = switch.send(&pieces[0], 0).unwrap();
        let second = switch.send(&pieces[1], 0).unwrap();
        let ((address, port), _) = ends_v4(&first);
        let header = Header::plain(address, server());
        let payload = payload_v4(&header, &content.clone().with_port(true, port));
        let (identification, field) = fields_v4(&first);
        assert_eq!(field, MORE);
        let protocol = content.protocol(false);
        let around =
            |field, payload: &[u8]| v4_around(header, (identification, field), protocol, payload);
        assert_eq!(first, around(MORE, &payload[..24]));
        assert_eq!(second, around(3, &payload[24..]));
    }
}

#[test]
fn later_fragments_require_the_first() {
    let mut switch = Switch::new();
    let header = Header::plain(client(), mapped(server()));
    let content = udp((5000, 53), &[1; 60]);
    let pieces = cut_v6(header, 7, &content, &[24]);
    assert_eq!(switch.send(&pieces[1], 0), Err(NatDrop::Fragment));
    // A whole datagram in one fragment (RFC 6946).
    let atomic = &cut_v6(header, 7, &content, &[])[0];
    let sent = switch.send(atomic, 0).unwrap();
    let ((address, port), _) = ends_v4(&sent);
    let expected = v4_with(
        Header::plain(address, server()),
        fields_v4(&sent),
        &content.with_port(true, port),
    );
    assert_eq!((fields_v4(&sent).1, sent), (0, expected));
}

#[test]
fn fragments_of_servers_are_those_of_one_datagram() {
    let mut switch = Switch::new();
    let (address, port) = switch.open(client(), server(), &udp((5000, 53), b"a"));
    let header = Header::plain(server(), address);
    let content = udp((53, port), &[2; 60]);
    let payload = payload_v4(&header, &content);
    let first = v4_around(header, (77, MORE), 17, &payload[..32]);
    let second = v4_around(header, (77, 4), 17, &payload[32..]);
    assert_eq!(switch.receive(&second, 0), Err(NatDrop::Fragment));
    let expected = cut_v6(
        Header::plain(mapped(server()), client()),
        77,
        &udp((53, 5000), &[2; 60]),
        &[32],
    );
    assert_eq!(switch.receive(&first, 0).unwrap(), expected[0]);
    assert_eq!(switch.receive(&second, 0).unwrap(), expected[1]);
    // Without checksum, none can be computed (RFC 6146, section 3.4).
    let without = Content::Udp {
        ports: (53, port),
        data: vec![2; 60],
        has_checksum: false,
    };
    let payload = payload_v4(&header, &without);
    let first = v4_around(header, (78, MORE), 17, &payload[..32]);
    assert_eq!(switch.receive(&first, 0), Err(NatDrop::Fragment));
}

#[test]
fn fragments_of_icmp_are_dropped() {
    let mut switch = Switch::new();
    let header = Header::plain(client(), mapped(server()));
    let content = Content::Echo {
        is_reply: false,
        identifier: 9,
        sequence: 1,
        data: vec![0; 60],
    };
    let pieces = cut_v6(header, 7, &content, &[24]);
    assert_eq!(switch.send(&pieces[0], 0), Err(NatDrop::Fragment));
    let (address, port) = switch.open(client(), server(), &content);
    let header = Header::plain(server(), address);
    let payload = payload_v4(&header, &content.answer().with_port(false, port));
    let first = v4_around(header, (77, MORE), 1, &payload[..32]);
    assert_eq!(switch.receive(&first, 0), Err(NatDrop::Fragment));
}

#[test]
fn datagrams_that_allow_fragments_become_fragments_of_1280_octets() {
    // RFC 7915, section 4.1.
    let mut switch = Switch::new();
    let (address, port) = switch.open(client(), server(), &udp((5000, 53), b"a"));
    let header = Header::plain(server(), address);
    let content = udp((53, port), &[3; 1400]);
    let packet = v4_with(header, (99, 0), &content);
    let (whole, identification) = switch.receive_part(&packet, 0).unwrap();
    assert_eq!(identification, Some(99));
    let frames: Vec<Vec<u8>> = pieces(&whole, 99, MTU_MIN)
        .map(|piece| {
            let mut frame = vec![0; piece.frame_length()];
            assert!(piece.write(&[9; 14], &mut frame));
            assert_eq!(frame[..14], [9; 14]);
            frame[14..].to_vec()
        })
        .collect();
    let expected = cut_v6(
        Header::plain(mapped(server()), client()),
        99,
        &udp((53, 5000), &[3; 1400]),
        &[1232],
    );
    assert_eq!(frames, expected);
    assert_eq!(frames[0].len(), 1280);
    let (_, identification) = switch
        .receive_part(&v4_with(header, (99, 0x4000), &content), 0)
        .unwrap();
    assert_eq!(identification, None);
}

#[test]
fn malformed_packets_have_no_fragments() {
    let good = v6(
        Header::plain(client(), mapped(server())),
        &udp((1, 2), &[0; 100]),
    );
    assert!(pieces(&good, 1, 100).count() > 1);
    assert_eq!(pieces(&good, 1, 55).count(), 0);
    assert_eq!(pieces(&good, 1, 40).count(), 0);
    assert_eq!(pieces(&good[..100], 1, 1280).count(), 0);
    assert_eq!(pieces(&[0x45; 60], 1, 1280).count(), 0);
    let piece = pieces(&good, 1, 100).next().unwrap();
    assert!(!piece.write(&[0; 14], &mut [0; 20]));
}

/// Joins the fragments of a datagram: identification, and octets at their places.
fn joined(frames: &[Vec<u8>]) -> (u32, Vec<u8>) {
    let mut octets = Vec::new();
    let mut identification = 0;
    for (number, frame) in frames.iter().enumerate() {
        assert_eq!(frame[6], 44);
        let field = u16::from_be_bytes([frame[42], frame[43]]);
        assert_eq!(usize::from(field & 0xfff8), octets.len());
        assert_eq!(field & 1 != 0, number + 1 < frames.len());
        identification = u32::from_be_bytes(frame[44..48].try_into().unwrap());
        octets.extend(&frame[48..]);
    }
    (identification, octets)
}

proptest! {
    #[test]
    fn pieces_are_the_datagram_again(
        data in prop::collection::vec(any::<u8>(), 0..4000),
        identification: u32,
        mtu in 56..2000u16,
        again in 56..2000u16,
    ) {
        let header = Header::plain(client(), mapped(server()));
        let content = udp((1, 2), &data);
        let whole = v6(header, &content);
        let write = |piece: Piece<'_>| {
            let mut frame = vec![0; piece.frame_length()];
            assert!(piece.write(&[0; 14], &mut frame));
            frame[14..].to_vec()
        };
        let frames: Vec<Vec<u8>> = pieces(&whole, identification, mtu).map(write).collect();
        prop_assert!(frames.iter().all(|frame| frame.len() <= usize::from(mtu)));
        prop_assert_eq!(joined(&frames), (identification, payload_v6(&header, &content)));
        // Fragments of fragments.
        let smaller: Vec<Vec<u8>> = frames
            .iter()
            .flat_map(|frame| pieces(frame, 0, again).map(write).collect::<Vec<_>>())
            .collect();
        prop_assert_eq!(joined(&smaller), (identification, payload_v6(&header, &content)));
    }
}
