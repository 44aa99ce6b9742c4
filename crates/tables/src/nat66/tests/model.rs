// SPDX-License-Identifier: Apache-2.0
//! Generated packets there and back, compared with packets built from the start, and with a map of mappings.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn content() -> impl Strategy<Value = Content> {
    let data = || prop::collection::vec(any::<u8>(), 0..1300);
    prop_oneof![
        (any::<(u16, u16)>(), any::<u8>(), data())
            .prop_map(|(ports, flags, data)| { Content::Tcp { ports, flags, data } }),
        (any::<(u16, u16)>(), data(), any::<bool>()).prop_map(|(ports, data, has_checksum)| {
            Content::Udp {
                ports,
                data,
                has_checksum,
            }
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

/// A global address, not the external one.
fn address() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits & !(0xffff << 112) | 0x2a00 << 112))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn packets_are_those_of_the_plain_model_and_return(
        content in content(),
        from in address(),
        to in address(),
        external in any::<[u16; 7]>(),
        (class, ttl) in any::<(u8, u8)>(),
    ) {
        let [a, b, c, d, e, f, g] = external;
        let external = Ipv6Addr::new(0x2001, a, b, c, d, e, f, g);
        let mut switch = Switch::with(&nat_settings(), &Nat66Settings {
            externals: vec![external],
            ..settings()
        });
        let sent = switch.send(&v6(Header { source: from, destination: to, class, ttl }, &content), 0).unwrap();
        let ((source, port), _) = ends_v6(&sent);
        prop_assert_eq!(source, external);
        let translated = content.clone().with_port(true, port);
        let header = Header { source: external, destination: to, class, ttl };
        prop_assert_eq!(&sent, &v6(header, &translated));
        let back = Header { source: to, destination: external, class: ttl, ttl: class };
        let received = switch.receive(&v6(back, &translated.clone().answer()), 0).unwrap();
        let header = Header { destination: from, ..back };
        prop_assert_eq!(&received, &v6(header, &content.clone().answer()));
        // Errors about both, of a router on the way.
        let router = a6("2001:db8:e::1");
        let error = error_v6(Header::plain(router, external), (3, 0, 0), &sent);
        let inner = v6(Header { source: from, destination: to, class, ttl }, &content);
        let expected = error_v6(Header::plain(router, from), (3, 0, 0), &inner);
        prop_assert_eq!(switch.receive(&error, 0).unwrap(), expected);
        let error = error_v6(Header::plain(from, to), (1, 4, 0), &received);
        let inner = v6(back, &translated.answer());
        let expected = error_v6(Header::plain(external, to), (1, 4, 0), &inner);
        prop_assert_eq!(switch.send(&error, 0).unwrap(), expected);
    }

    #[test]
    fn mappings_are_those_of_a_map(
        steps in prop::collection::vec(
            (1..7u16, 1..20u16, 1..4u16, 0..3u8, prop_oneof![6 => Just(0u32), 2 => 1..40u32, 1 => Just(400u32)], any::<bool>()),
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
        // External port and last second, by protocol, host and port.
        let mut known: HashMap<(u8, Ipv6Addr, u16), (u16, u32)> = HashMap::new();
        let mut now = 0;
        for (number, port, other, kind, seconds, has_expiry) in steps {
            now += seconds;
            // Without it, packets find expired mappings.
            if has_expiry {
                switch.expire(now);
            }
            known.retain(|_, (_, last)| *last + TIMEOUT_S >= now);
            let from = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, number);
            let to = Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, other);
            let content = match kind {
                0 => udp((port, 53)),
                1 => tcp((port, 80), 0x10),
                _ => echo(port, false),
            };
            let key = (kind, from, port);
            let sent = match switch.send(&v6(Header::plain(from, to), &content), now) {
                Ok(sent) => sent,
                Err(reason) => {
                    prop_assert!(!known.contains_key(&key), "{:?}", reason);
                    prop_assert!(matches!(reason, NatDrop::HostLimit | NatDrop::NoPorts), "{:?}", reason);
                    continue;
                }
            };
            let ((source, external_port), _) = ends_v6(&sent);
            prop_assert_eq!(source, external());
            if let Some((former, _)) = known.get(&key) {
                prop_assert_eq!(*former, external_port);
            }
            for ((other_kind, other, other_port), (taken, _)) in &known {
                let is_other = (*other_kind, *other, *other_port) != key;
                prop_assert!(!is_other || *other_kind != kind || *taken != external_port);
            }
            known.insert(key, (external_port, now));
            let answer = content.clone().answer().with_port(false, external_port);
            let received = switch.receive(&v6(Header::plain(to, external()), &answer), now).unwrap();
            prop_assert_eq!(received, v6(Header::plain(to, from), &content.answer()));
            let mut listed = 0;
            for one in switch.nat.list(0, usize::MAX).0 {
                let from = switch.nat66.host(*one.internal.ip()).unwrap();
                prop_assert_eq!(switch.nat66.external(*one.external.ip()), Some(external()));
                let key = (match one.protocol.name() { "udp" => 0, "tcp" => 1, _ => 2 }, from, one.internal.port());
                prop_assert_eq!(known.get(&key).map(|(port, _)| *port), Some(one.external.port()));
                listed += 1;
            }
            prop_assert_eq!(listed, known.len());
        }
        switch.expire(now + TIMEOUT_S + 1);
        prop_assert_eq!((switch.nat.len(), switch.nat.hosts(), switch.nat66.hosts()), (0, 0, 0));
    }

    #[test]
    fn any_octets_are_translated_or_dropped(
        mut octets in prop::collection::vec(any::<u8>(), 0..160),
        next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 58, 60, 51]),
        kind: u8,
        cut in 0..160usize,
        (is_from_host, is_to_external) in any::<(bool, bool)>(),
    ) {
        let mut switch = Switch::new();
        let (_, port) = switch.open(host(), &udp((5000, 53)));
        if let Some(header) = octets.first_chunk_mut::<48>() {
            header[0] = 0x60;
            header[4] = 0;
            header[6] = next;
            if is_from_host {
                header[8..24].copy_from_slice(&host().octets());
            }
            if is_to_external {
                header[24..40].copy_from_slice(&external().octets());
            }
            header[40] = kind;
            header[42..44].copy_from_slice(&port.to_be_bytes());
        }
        let length = octets.len();
        for translate in [Nat66::outbound as Translate, Nat66::inbound, Nat66::hairpin] {
            let mut packet = octets.clone();
            let outcome = translate(&mut switch.nat66, &mut switch.nat, &mut packet, length.min(cut), 0);
            switch.pass_events();
            prop_assert_eq!(packet.len(), length);
            if outcome == NatOutcome::Untouched {
                prop_assert_eq!(&packet, &octets);
            }
        }
        switch.nat66.translate_own_error(&switch.nat, &mut octets, length.min(cut));
    }

    #[test]
    fn a_changed_octet_is_no_panic(
        content in content(),
        at in any::<prop::sample::Index>(),
        value: u8,
        is_error: bool,
    ) {
        let mut switch = Switch::new();
        let header = Header::plain(host(), remote());
        let packet = v6(header, &content);
        let sent = switch.send(&packet, 0).unwrap();
        let mut outside = match is_error {
            true => error_v6(Header::plain(remote(), external()), (2, 0, 1280), &sent),
            false => sent,
        };
        let mut inside = match is_error {
            true => error_v6(header, (1, 4, 0), &packet),
            false => packet,
        };
        let place = at.index(outside.len());
        outside[place] = value;
        let _ = switch.run(&outside, 0, Nat66::inbound);
        let place = at.index(inside.len());
        inside[place] = value;
        let _ = switch.run(&inside, 0, Nat66::outbound);
    }
}
