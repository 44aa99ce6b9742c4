// SPDX-License-Identifier: Apache-2.0
//! Generated packets there and back, compared with packets built from the start, and with a map of bindings.

use std::collections::HashMap;

use proptest::prelude::*;

use super::plain::{fields_v4, v4_with};
use super::*;

fn content() -> impl Strategy<Value = Content> {
    let data = || prop::collection::vec(any::<u8>(), 0..1300);
    prop_oneof![
        (any::<(u16, u16)>(), any::<u8>(), data())
            .prop_map(|(ports, flags, data)| { Content::Tcp { ports, flags, data } }),
        (any::<(u16, u16)>(), data()).prop_map(|(ports, data)| Content::Udp {
            ports,
            data,
            has_checksum: true,
        }),
        (any::<u16>(), any::<u16>(), data()).prop_map(|(identifier, sequence, data)| {
            Content::Echo {
                is_reply: false,
                identifier,
                sequence,
                data,
            }
        }),
    ]
}

/// An address of a client, not of the prefix.
fn address() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits & !(0xffff << 112) | 0x2a00 << 112))
}

/// An address of the Internet.
fn global() -> impl Strategy<Value = Ipv4Addr> {
    (11..=99u8, any::<[u8; 3]>()).prop_map(|(first, [b, c, d])| Ipv4Addr::new(first, b, c, d))
}

fn length() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![32u8, 40, 48, 56, 64, 96])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn valid_packets_are_those_of_the_plain_model_and_return(
        content in content(),
        client in address(),
        server in global(),
        length in length(),
        class: u8,
        ttl: u8,
        sequence: u16,
    ) {
        let prefix = net(&format!("2001:db8::/{length}"));
        let mapped = Ipv6Addr::from_bits(prefix.ipv6_of(server.to_bits()).unwrap());
        let mut switch = Switch::with(&nat_settings(), &Nat64Settings { prefix, ..settings() });
        let header = Header { source: client, destination: mapped, class, ttl };
        let sent = switch.send(&v6(header, &content), 0).unwrap();
        let ((external, port), _) = ends_v4(&sent);
        let header = Header { source: external, destination: server, class, ttl };
        let external_content = content.clone().with_port(true, port);
        let fields = match sent.len() {
            ..=1260 => (fields_v4(&sent).0, 0),
            _ => (0, 0x4000),
        };
        prop_assert_eq!(&sent, &v4_with(header, fields, &external_content));
        // The answer, with other data of the same length.
        let mut answer = external_content.answer();
        let mut expected = content.answer();
        for one in [&mut answer, &mut expected] {
            if let Content::Echo { sequence: number, .. } = one {
                *number = sequence;
            }
        }
        let back = Header { source: server, destination: external, class: ttl, ttl: class };
        let (received, identification) = switch
            .receive_part(&v4_with(back, (sequence, 0), &answer), 0)
            .unwrap();
        let header = Header { source: mapped, destination: client, class: ttl, ttl: class };
        prop_assert_eq!(&received, &v6(header, &expected));
        prop_assert_eq!(identification, Some(u32::from(sequence)));
    }

    #[test]
    fn bindings_are_those_of_a_map(
        steps in prop::collection::vec(
            (1..7u16, 1..20u16, 1..4u8, 0..3u8, prop_oneof![6 => Just(0u32), 2 => 1..40u32, 1 => Just(400u32)]),
            1..150,
        ),
    ) {
        const TIMEOUT_S: u32 = 50;
        let mut nat = nat_settings();
        nat.timeouts = NatTimeouts {
            udp_s: TIMEOUT_S,
            tcp_established_s: TIMEOUT_S,
            tcp_transitory_s: TIMEOUT_S,
            icmp_s: TIMEOUT_S,
        };
        let mut switch = Switch::with(&nat, &settings());
        // External port and last second, by protocol, client and port.
        let mut known: HashMap<(u8, Ipv6Addr, u16), (u16, u32)> = HashMap::new();
        let mut now = 0;
        for (host, port, remote, kind, seconds) in steps {
            now += seconds;
            switch.expire(now);
            known.retain(|_, (_, last)| *last + TIMEOUT_S >= now);
            let client = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host);
            let remote = Ipv4Addr::new(203, 0, 113, remote);
            let content = match kind {
                0 => udp((port, 53), b"a"),
                1 => tcp((port, 80), 0x10),
                _ => echo(port, false),
            };
            let key = (kind, client, port);
            let packet = v6(Header::plain(client, mapped(remote)), &content);
            let sent = match switch.send(&packet, now) {
                Ok(sent) => sent,
                Err(reason) => {
                    prop_assert!(!known.contains_key(&key), "{:?}", reason);
                    prop_assert!(matches!(reason, NatDrop::HostLimit | NatDrop::NoPorts), "{:?}", reason);
                    continue;
                }
            };
            let ((external, external_port), _) = ends_v4(&sent);
            if let Some((former, _)) = known.get(&key) {
                prop_assert_eq!(*former, external_port);
            }
            for ((other_kind, other, other_port), (taken, _)) in &known {
                let is_other = (*other_kind, *other, *other_port) != key;
                prop_assert!(!is_other || *other_kind != kind || *taken != external_port);
            }
            known.insert(key, (external_port, now));
            let answer = content.clone().answer().with_port(false, external_port);
            let answer = v4(Header::plain(remote, external), &answer);
            let received = switch.receive(&answer, now).unwrap();
            prop_assert_eq!(received, v6(Header::plain(mapped(remote), client), &content.answer()));
            let mut listed = 0;
            for one in switch.nat.list(0, usize::MAX).0 {
                let client = switch.nat64.client(*one.internal.ip()).unwrap();
                let key = (match one.protocol.name() { "udp" => 0, "tcp" => 1, _ => 2 }, client, one.internal.port());
                prop_assert_eq!(known.get(&key).map(|(port, _)| *port), Some(one.external.port()));
                listed += 1;
            }
            prop_assert_eq!(listed, known.len());
            let clients: std::collections::HashSet<Ipv6Addr> = known.keys().map(|(_, client, _)| *client).collect();
            // One that got no port may be left.
            prop_assert!((clients.len()..=clients.len() + 1).contains(&switch.nat64.clients()));
        }
        switch.expire(now + TIMEOUT_S + 1);
        prop_assert_eq!((switch.nat.len(), switch.nat.hosts()), (0, 0));
        prop_assert!(switch.nat64.clients() <= 1);
    }

    #[test]
    fn any_octets_are_translated_or_dropped(
        mut octets in prop::collection::vec(any::<u8>(), 0..160),
        next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 58, 60, 1]),
        kind: u8,
        is_v6: bool,
        space in 0..70usize,
        cut in 0..160usize,
    ) {
        let mut switch = Switch::new();
        let (_, port) = switch.open(client(), server(), &udp((5000, 53), b"a"));
        if is_v6 && let Some(header) = octets.first_chunk_mut::<48>() {
            header[0] = 0x60;
            header[4] = 0;
            header[6] = next;
            header[8..24].copy_from_slice(&client().octets());
            header[24..40].copy_from_slice(&mapped(server()).octets());
            header[40] = kind;
        } else if let Some(header) = octets.first_chunk_mut::<28>() {
            header[0] = 0x45;
            header[2] = 0;
            header[9] = next;
            // The number of the first client.
            header[16..20].copy_from_slice(&[240, 0, 0, 0]);
            header[20] = kind;
            header[22..24].copy_from_slice(&port.to_be_bytes());
            header[10..12].fill(0);
            let sum = plain::obvious_sum(&header[..20]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let mut buffer = [&vec![0; space][..], &octets].concat();
        let length = octets.len().min(cut);
        let (nat, nat64) = (&mut switch.nat, &mut switch.nat64);
        let translated = match is_v6 {
            true => nat64.send(nat, &mut buffer, (space, length), 0),
            false => nat64.receive(nat, &mut buffer, (space, length)),
        };
        if let Ok(one) = translated {
            prop_assert!(one.start < one.end && one.end <= buffer.len());
            prop_assert_eq!(buffer[one.start] >> 4, if one.is_ipv6 { 6 } else { 4 });
        }
    }

    #[test]
    fn a_changed_octet_is_no_panic(
        content in content(),
        at in any::<prop::sample::Index>(),
        value: u8,
        is_error: bool,
    ) {
        let mut switch = Switch::new();
        let header = Header::plain(client(), mapped(server()));
        let packet = v6(header, &content);
        let sent = switch.send(&packet, 0).unwrap();
        let (external, _) = ends_v4(&sent).0;
        let mut outside = match is_error {
            true => plain::error_v4(Header::plain(server(), external), (0, 0), (3, 3, 0), &sent),
            false => sent,
        };
        let place = at.index(outside.len());
        outside[place] = value;
        let mut buffer = [&[0; SPACE][..], &outside].concat();
        let length = outside.len();
        let _ = switch.nat.inbound(&mut buffer[SPACE..], length, 0);
        let _ = switch.nat64.receive(&mut switch.nat, &mut buffer, (SPACE, length));
        let mut inside = match is_error {
            true => plain::error_v6(header, (1, 4, 0), &packet),
            false => packet,
        };
        let place = at.index(inside.len());
        inside[place] = value;
        let _ = switch.send(&inside, 0);
    }
}
