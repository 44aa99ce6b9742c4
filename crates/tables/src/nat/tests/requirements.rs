// SPDX-License-Identifier: Apache-2.0
//! Requirements of RFC 4787 (UDP), RFC 5382 (TCP) and RFC 5508 (ICMP), one by one.

use std::collections::BTreeSet;

use super::*;

const REMOTE: &str = "192.0.2.1:53";
const OTHER: &str = "192.0.2.2:80";
const HOST: &str = "10.0.0.1:5000";

fn contents() -> [Content; 2] {
    [Content::Udp(3), segment(SYN)]
}

/// RFC 4787, REQ-1; RFC 5382, REQ-1; RFC 5508, REQ-1: endpoint-independent mapping.
#[test]
fn one_inside_endpoint_has_one_external_endpoint() {
    for content in [Content::Udp(3), segment(SYN)] {
        let mut nat = Nat::new(&settings()).unwrap();
        let first = external(&mut nat, HOST, REMOTE, content.clone());
        assert_eq!(external(&mut nat, HOST, OTHER, content.clone()), first);
        assert_ne!(external(&mut nat, "10.0.0.1:5001", REMOTE, content), first);
    }
    let mut nat = Nat::new(&settings()).unwrap();
    let echo = |nat: &mut Nat, to| external(nat, "10.0.0.1:9", to, Content::EchoRequest).port();
    let first = echo(&mut nat, "192.0.2.1:9");
    assert_eq!(echo(&mut nat, "192.0.2.2:9"), first);
}

/// RFC 4787, REQ-2: all mappings of a host have one external address.
#[test]
fn a_host_has_one_external_address() {
    let mut nat = Nat::new(&settings()).unwrap();
    // As many mappings as there may be, in two blocks for each host.
    for host in 1..=12 {
        let ip = |port: u16| format!("10.0.0.{host}:{port}");
        let first = external(&mut nat, &ip(1), REMOTE, Content::Udp(3));
        for port in 2..=80 {
            let other = external(&mut nat, &ip(port), REMOTE, Content::Udp(3));
            assert_eq!(other.ip(), first.ip());
        }
    }
}

/// RFC 4787, REQ-3; RFC 5382, REQ-7: no port overloading. Exhausted hosts and pools refuse new mappings, and keep the others.
#[test]
fn exhausted_ports_are_reported_and_mappings_stay() {
    let mut settings = settings();
    settings.pool = PortPool {
        addresses: vec!["198.51.100.1".parse().unwrap()],
        first_port: 1024,
        last_port: 1024 + 4 * 8 + 6,
        block_size: 8,
        blocks_per_host: 3,
        deterministic: Vec::new(),
        hold_down: HoldDown::default(),
    };
    let mut nat = Nat::new(&settings).unwrap();
    let mut known = Vec::new();
    let mut send = |nat: &mut Nat, host: u8, port: u16| {
        let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), port);
        let octets = packet(source, socket(REMOTE), Content::Udp(1));
        let sent = outbound(nat, &octets, 0)?;
        known.push((source, ends(&sent).0));
        Ok(())
    };
    for port in 0..24 {
        assert_eq!(send(&mut nat, 1, port), Ok(()));
    }
    assert_eq!(send(&mut nat, 1, 24), Err(NatDrop::HostLimit));
    for port in 0..8 {
        assert_eq!(send(&mut nat, 2, port), Ok(()));
    }
    assert_eq!(send(&mut nat, 2, 8), Err(NatDrop::NoPorts));
    assert_eq!(send(&mut nat, 3, 1), Err(NatDrop::NoPorts));
    let mut externals: Vec<SocketAddrV4> = known.iter().map(|(_, external)| *external).collect();
    externals.sort();
    externals.dedup();
    assert_eq!(externals.len(), 32);
    for (internal, external) in known {
        let answer = packet(socket(REMOTE), external, Content::Udp(1));
        assert_eq!(ends(&inbound(&mut nat, &answer, 0).unwrap()).1, internal);
    }
    assert_eq!(nat.counters().dropped[NatDrop::NoPorts as usize], 2);
    // All expire, and the ports are free again.
    assert_eq!(nat.expire(301, 10_000), 32);
    assert_eq!((nat.len(), nat.hosts()), (0, 0));
    let (assigned, returned): (Vec<BlockEvent>, Vec<BlockEvent>) =
        blocks(&mut nat).partition(|event| event.is_assigned);
    assert_eq!((assigned.len(), returned.len()), (4, 4));
    // Two hosts have got an external address, and have none at the end.
    for events in [&assigned, &returned] {
        let of_binding = events.iter().filter(|event| event.is_first_or_last);
        let hosts: BTreeSet<Ipv4Addr> = of_binding.clone().map(|event| event.host).collect();
        assert_eq!((of_binding.count(), hosts.len()), (2, 2));
    }
    assert!(assigned[0].is_first_or_last && returned[3].is_first_or_last);
    let octets = packet(socket("10.0.0.9:1"), socket(REMOTE), Content::Udp(1));
    assert!(outbound(&mut nat, &octets, 302).is_ok());
}

/// RFC 6888, REQ-15: external ports do not follow from the inside ports, nor from the external ports before.
#[test]
fn external_ports_are_drawn() {
    let ports = || {
        let mut nat = Nat::new(&settings()).unwrap();
        let sent = (0..32).map(|port| {
            let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), port);
            let octets = packet(source, socket(REMOTE), Content::Udp(1));
            ends(&outbound(&mut nat, &octets, 0).unwrap()).0.port()
        });
        sent.collect::<Vec<u16>>()
    };
    assert_ne!(ports(), ports());
}

/// RFC 4787, REQ-4: parity of ports.
#[test]
fn parity_is_preserved_while_ports_are_left() {
    let mut nat = Nat::new(&settings()).unwrap();
    for port in 5000..5032 {
        let external = external(
            &mut nat,
            &format!("10.0.0.1:{port}"),
            REMOTE,
            Content::Udp(1),
        );
        assert_eq!(external.port() % 2, port % 2);
    }
}

/// Returns settings of one external address with these ports, in blocks of eight.
fn ports(first_port: u16, last_port: u16) -> NatSettings {
    let mut settings = settings();
    settings.pool.addresses.truncate(1);
    settings.pool.block_size = 8;
    (settings.pool.first_port, settings.pool.last_port) = (first_port, last_port);
    settings
}

/// Returns the external port of a port of the host 10.0.0.`host`.
fn external_port(nat: &mut Nat, host: u8, port: u16, content: Content) -> Result<u16, NatDrop> {
    let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), port);
    let octets = packet(source, socket(REMOTE), content);
    outbound(nat, &octets, 0).map(|octets| ends(&octets).0.port())
}

/// RFC 4787, REQ-3a: an external port is below 1024 if the inside port is, and has its parity (REQ-4).
#[test]
fn an_external_port_is_of_the_range_of_the_inside_port() {
    // Two blocks of each range, of which a host gets one of each.
    let mut nat = Nat::new(&ports(1008, 1039)).unwrap();
    for content in contents() {
        for step in 0..8 {
            for first in [500, 5000] {
                let port = first + step;
                let external = external_port(&mut nat, 1, port, content.clone()).unwrap();
                assert_eq!(external < 1024, port < 1024, "{port} {external}");
                assert_eq!(external % 2, port % 2);
            }
        }
        for port in [508, 5008] {
            let refused = external_port(&mut nat, 1, port, content.clone());
            assert_eq!(refused, Err(NatDrop::HostLimit));
        }
    }
    assert_eq!(blocks(&mut nat).count(), 2);
    // An echo requires no block of well-known ports.
    for host in 2..4 {
        let mut nat = Nat::new(&ports(1008, 1039)).unwrap();
        let external = external_port(&mut nat, host, 9, Content::EchoRequest).unwrap();
        assert!(external >= 1024);
    }
}

/// RFC 4787, REQ-3a, is a recommendation: a mapping of the other range is better than none.
#[test]
fn a_host_without_ports_of_a_range_gets_those_of_the_other() {
    // One block of well-known ports, and one of others.
    for (inside, other_inside) in [(500, 5000), (5000, 500)] {
        let mut nat = Nat::new(&ports(1016, 1031)).unwrap();
        let mut externals = BTreeSet::new();
        for step in 0..16 {
            let external = external_port(&mut nat, 1, inside + step, Content::Udp(1)).unwrap();
            let is_first_block = step < 8;
            assert_eq!((external < 1024) == (inside < 1024), is_first_block);
            assert!(externals.insert(external));
        }
        let refused = external_port(&mut nat, 1, other_inside, Content::Udp(1));
        assert_eq!(refused, Err(NatDrop::HostLimit));
    }
    // Another host has the block.
    let mut nat = Nat::new(&ports(1016, 1031)).unwrap();
    assert!(external_port(&mut nat, 1, 500, Content::Udp(1)).unwrap() < 1024);
    assert!(external_port(&mut nat, 2, 500, Content::Udp(1)).unwrap() >= 1024);
    assert_eq!(
        external_port(&mut nat, 3, 500, Content::Udp(1)),
        Err(NatDrop::NoPorts)
    );
}

/// A host gets a block of the wanted range again while it is held for it.
#[test]
fn a_held_block_of_another_range_waits_for_its_host() {
    let mut settings = ports(1016, 1031);
    settings.pool.hold_down = HoldDown {
        seconds: 120,
        blocks_max: 2,
    };
    let mut nat = Nat::new(&settings).unwrap();
    for port in [500, 5000] {
        external_port(&mut nat, 1, port, Content::Udp(1)).unwrap();
    }
    assert_eq!(nat.expire(301, usize::MAX), 2);
    for port in [5000, 500] {
        let octets = packet(
            SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), port),
            socket(REMOTE),
            Content::Udp(1),
        );
        let external = ends(&outbound(&mut nat, &octets, 301).unwrap()).0.port();
        assert_eq!(external < 1024, port < 1024);
    }
}

/// RFC 4787, REQ-5 and REQ-6: the timeout of UDP, which only outbound packets extend.
#[test]
fn outbound_datagrams_extend_a_mapping_and_inbound_ones_do_not() {
    let mut nat = Nat::new(&settings()).unwrap();
    let request = packet(socket(HOST), socket(REMOTE), Content::Udp(1));
    let external = ends(&outbound(&mut nat, &request, 0).unwrap()).0;
    let answer = packet(socket(REMOTE), external, Content::Udp(1));
    assert!(inbound(&mut nat, &answer, 299).is_ok());
    assert!(inbound(&mut nat, &answer, 300).is_ok());
    assert_eq!(inbound(&mut nat, &answer, 301), Err(NatDrop::NoMapping));
    outbound(&mut nat, &request, 302).unwrap();
    outbound(&mut nat, &request, 500).unwrap();
    let listed = nat.list(0, 10_000).0;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].internal, listed[0].expires_in_s),
        (socket(HOST), Some(300))
    );
}

/// RFC 5508, REQ-2: the timeout of echoes.
#[test]
fn mappings_of_echoes_end_after_a_minute() {
    let mut nat = Nat::new(&settings()).unwrap();
    let request = packet(
        socket("10.0.0.1:9"),
        socket("192.0.2.1:9"),
        Content::EchoRequest,
    );
    let external = ends(&outbound(&mut nat, &request, 0).unwrap()).0;
    let remote = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), external.port());
    let reply = packet(remote, external, Content::EchoReply);
    assert!(inbound(&mut nat, &reply, 60).is_ok());
    assert_eq!(inbound(&mut nat, &reply, 61), Err(NatDrop::NoMapping));
}

/// RFC 4787, REQ-8; RFC 5382, REQ-3: endpoint-independent filtering.
#[test]
fn any_remote_host_reaches_a_mapping_and_none_reaches_other_ports() {
    let mut nat = Nat::new(&settings()).unwrap();
    for content in contents() {
        let external = external(&mut nat, HOST, REMOTE, content.clone());
        let other = packet(socket(OTHER), external, content.clone());
        let received = inbound(&mut nat, &other, 0).unwrap();
        assert_sound(&received);
        assert_eq!(ends(&received), (socket(OTHER), socket(HOST)));
        let unknown = SocketAddrV4::new(*external.ip(), external.port() ^ 1);
        let unknown = packet(socket(OTHER), unknown, content);
        assert_eq!(inbound(&mut nat, &unknown, 0), Err(NatDrop::NoMapping));
    }
    // Not to an external address.
    let mut foreign = packet(socket(OTHER), socket("203.0.113.1:1"), Content::Udp(1));
    let length = foreign.len();
    assert_eq!(nat.inbound(&mut foreign, length, 0), NatOutcome::Untouched);
}

/// RFC 4787, REQ-9; RFC 5382, REQ-8: hairpinning with the external source.
#[test]
fn inside_hosts_reach_each_other_by_external_endpoints() {
    let mut nat = Nat::new(&settings()).unwrap();
    for content in contents() {
        let server = external(&mut nat, "10.0.0.2:80", REMOTE, content.clone());
        let mut request = packet(socket(HOST), server, content.clone());
        let length = request.len();
        assert_eq!(
            nat.outbound(&mut request, length, 0),
            NatOutcome::Hairpinned
        );
        assert_sound(&request);
        let (source, destination) = ends(&request);
        assert_eq!(destination, socket("10.0.0.2:80"));
        let client = external(&mut nat, HOST, REMOTE, content.clone());
        assert_eq!(source, client);
        let answer = packet(socket("10.0.0.2:80"), client, content);
        let answer = outbound(&mut nat, &answer, 0).unwrap();
        assert_eq!(ends(&answer), (server, socket(HOST)));
    }
}

/// RFC 5382, REQ-5: transitory and established timeouts.
#[test]
fn an_answered_connection_stays_for_two_hours_and_a_closed_one_for_minutes() {
    let mut nat = Nat::new(&settings()).unwrap();
    let send = |nat: &mut Nat, flags| {
        let octets = packet(socket(HOST), socket(OTHER), segment(flags));
        ends(&outbound(nat, &octets, 0).unwrap()).0
    };
    let left = |nat: &Nat| nat.list(0, 10_000).0[0].expires_in_s;
    let external = send(&mut nat, SYN);
    assert_eq!(left(&nat), Some(240));
    send(&mut nat, ACK);
    assert_eq!(left(&nat), Some(240));
    let answer = packet(socket(OTHER), external, segment(SYN | ACK));
    inbound(&mut nat, &answer, 0).unwrap();
    assert_eq!(left(&nat), Some(240));
    send(&mut nat, ACK);
    assert_eq!(left(&nat), Some(7440));
    // A forged reset does not end the mapping.
    inbound(&mut nat, &packet(socket(OTHER), external, segment(RST)), 0).unwrap();
    assert_eq!(left(&nat), Some(7440));
    inbound(&mut nat, &answer, 0).unwrap();
    send(&mut nat, ACK);
    assert_eq!(left(&nat), Some(7440));
    send(&mut nat, FIN | ACK);
    assert_eq!(left(&nat), Some(240));
    send(&mut nat, ACK);
    send(&mut nat, SYN);
    assert_eq!(left(&nat), Some(240));
}

/// RFC 7857, sections 2.2 and 7.1: a host that answers segments from outside by resets or errors does not keep a mapping alive.
#[test]
fn resets_and_errors_of_a_host_do_not_extend_a_mapping() {
    let mut nat = Nat::new(&settings()).unwrap();
    let send = |nat: &mut Nat, flags, now| {
        let octets = packet(socket(HOST), socket(OTHER), segment(flags));
        ends(&outbound(nat, &octets, now).unwrap()).0
    };
    let left = |nat: &Nat| nat.list(0, 10_000).0[0].expires_in_s;
    let external = send(&mut nat, SYN, 0);
    let answer = packet(socket(OTHER), external, segment(SYN | ACK));
    inbound(&mut nat, &answer, 0).unwrap();
    send(&mut nat, ACK, 0);
    assert_eq!(left(&nat), Some(7440));
    send(&mut nat, RST, 10);
    assert_eq!(left(&nat), Some(240));
    send(&mut nat, RST | ACK, 100);
    assert_eq!(left(&nat), Some(150));
    let received = inbound(&mut nat, &answer, 120).unwrap();
    let error = error_about(&received, "10.0.0.1", ends(&received).0);
    outbound(&mut nat, &error, 150).unwrap();
    assert_eq!(left(&nat), Some(100));
    // Other segments do.
    send(&mut nat, ACK, 150);
    assert_eq!(left(&nat), Some(7440));
}

/// RFC 5382, REQ-9; RFC 5508, REQ-4: errors from the outside reach the host as about its own packet, octet by octet.
#[test]
fn errors_contain_the_original_packet() {
    let mut nat = Nat::new(&settings()).unwrap();
    let contents = [Content::Udp(3), segment(ACK), Content::EchoRequest];
    for (content, port) in contents.into_iter().zip([5000, 5001, 9]) {
        let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), port);
        let original = packet(
            source,
            SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), port),
            content,
        );
        let translated = outbound(&mut nat, &original, 0).unwrap();
        assert_sound(&translated);
        let error = error_about(&translated, "203.0.113.7", ends(&translated).0);
        let received = inbound(&mut nat, &error, 0).unwrap();
        assert_sound(&received);
        assert_eq!(
            received[..12],
            error_about(&original, "203.0.113.7", source)[..12].to_vec()[..]
        );
        assert_eq!(received[20..22], [11, 0]);
        assert_eq!(received[28..], original[..28]);
        assert_eq!(ends(&received).1.ip(), source.ip());
        // Padding behind the packet is not part of it.
        let mut padded = error.clone();
        padded.resize(error.len() + 20, 0xaa);
        assert_eq!(
            inbound(&mut nat, &padded, 0).unwrap()[..error.len()],
            received[..]
        );
    }
}

/// RFC 5508, REQ-5: errors of inside hosts about packets from the outside have the external endpoint in them.
#[test]
fn errors_of_inside_hosts_are_translated() {
    let mut nat = Nat::new(&settings()).unwrap();
    let external = external(&mut nat, HOST, REMOTE, Content::Udp(3));
    let arrived = packet(socket(REMOTE), external, Content::Udp(3));
    let received = inbound(&mut nat, &arrived, 0).unwrap();
    let error = error_about(&received, "10.0.0.1", socket(REMOTE));
    let sent = outbound(&mut nat, &error, 0).unwrap();
    assert_sound(&sent);
    assert_eq!(sent[28..], arrived[..28]);
    assert_eq!(ends(&sent).0.ip(), external.ip());
}

/// RFC 5508, REQ-7: errors about hairpinned packets.
#[test]
fn errors_about_hairpinned_packets_reach_the_sender() {
    let mut nat = Nat::new(&settings()).unwrap();
    let server = external(&mut nat, "10.0.0.2:80", REMOTE, Content::Udp(3));
    let request = packet(socket(HOST), server, Content::Udp(3));
    let received = outbound(&mut nat, &request, 0).unwrap();
    let error = error_about(&received, "10.0.0.2", ends(&received).0);
    let back = outbound(&mut nat, &error, 0).unwrap();
    assert_sound(&back);
    assert_eq!(back[28..], request[..28]);
    assert_eq!(ends(&back).1.ip(), socket(HOST).ip());
    assert_eq!(ends(&back).0.ip(), server.ip());
}

/// RFC 5508, REQ-3, and errors without a mapping.
#[test]
fn damaged_and_unrelated_errors_are_dropped() {
    let mut nat = Nat::new(&settings()).unwrap();
    let original = packet(socket(HOST), socket(REMOTE), Content::Udp(3));
    let translated = outbound(&mut nat, &original, 0).unwrap();
    let source = ends(&translated).0;
    let error = error_about(&translated, "203.0.113.7", source);
    let changed = |at: usize| {
        let mut octets = error.clone();
        octets[at] ^= 1;
        octets
    };
    // The message, the inner header with a right checksum of the message, another inner port.
    assert_eq!(inbound(&mut nat, &changed(30), 0), Err(NatDrop::Checksum));
    let mut inner = translated.clone();
    inner[8] ^= 1;
    let damaged = error_about(&inner, "203.0.113.7", source);
    assert_eq!(inbound(&mut nat, &damaged, 0), Err(NatDrop::Checksum));
    let mut inner = translated.clone();
    inner[21] ^= 1;
    let unrelated = error_about(&inner, "203.0.113.7", source);
    assert_eq!(inbound(&mut nat, &unrelated, 0), Err(NatDrop::NoMapping));
    for length in 20..error.len() {
        let result = inbound(&mut nat, &error[..length], 0);
        assert_eq!(result, Err(NatDrop::Malformed), "{length}");
    }
}

/// RFC 4787, REQ-12; RFC 5382, REQ-10; RFC 5508, REQ-6: errors neither end nor extend a mapping.
#[test]
fn errors_change_no_mapping() {
    let mut nat = Nat::new(&settings()).unwrap();
    let original = packet(socket(HOST), socket(REMOTE), Content::Udp(3));
    let translated = outbound(&mut nat, &original, 0).unwrap();
    let error = error_about(&translated, "203.0.113.7", ends(&translated).0);
    let before = nat.list(0, 10_000).0;
    inbound(&mut nat, &error, 0).unwrap();
    assert_eq!(nat.list(0, 10_000).0, before);
    inbound(&mut nat, &error, 100).unwrap();
    assert_eq!(nat.list(0, 10_000).0[0].expires_in_s, Some(200));
}

#[test]
fn forwards_work_in_both_directions_and_never_expire() {
    let forward = Forward {
        protocol: NatProtocol::Tcp,
        external: socket("198.51.100.2:443"),
        internal: socket("10.0.0.5:8443"),
    };
    let in_pool = Forward {
        external: socket("198.51.100.2:1024"),
        internal: socket("10.0.0.6:8443"),
        ..forward
    };
    let settings = NatSettings {
        forwards: vec![forward, in_pool],
        ..settings()
    };
    let mut nat = Nat::new(&settings).unwrap();
    for Forward {
        external, internal, ..
    } in settings.forwards
    {
        let request = packet(socket(REMOTE), external, segment(SYN));
        let received = inbound(&mut nat, &request, 1_000_000).unwrap();
        assert_sound(&received);
        assert_eq!(ends(&received).1, internal);
        let answer = packet(internal, socket(REMOTE), segment(SYN | ACK));
        assert_eq!(
            ends(&outbound(&mut nat, &answer, 1_000_000).unwrap()).0,
            external
        );
    }
    assert_eq!(nat.expire(2_000_000, 10_000), 0);
    assert_eq!(nat.len(), 2);
}

#[test]
fn impossible_settings_are_refused() {
    let forward = Forward {
        protocol: NatProtocol::Udp,
        external: socket("198.51.100.1:53"),
        internal: socket("10.0.0.5:53"),
    };
    let refused = |change: &dyn Fn(&mut NatSettings)| {
        let mut settings = settings();
        change(&mut settings);
        Nat::new(&settings).unwrap_err()
    };
    assert_eq!(
        refused(&|one| one.pool.addresses.clear()),
        NatSettingsError::Addresses(0)
    );
    let twice = refused(&|one| one.pool.addresses = vec![Ipv4Addr::LOCALHOST; 2]);
    assert_eq!(twice, NatSettingsError::Twice(Ipv4Addr::LOCALHOST));
    for (first, last, block) in [(0, 1000, 8), (2000, 1000, 8), (1000, 1006, 8), (1, 2, 0)] {
        let blocks = refused(&|one| {
            (one.pool.first_port, one.pool.last_port, one.pool.block_size) = (first, last, block);
        });
        assert_eq!(blocks, NatSettingsError::Blocks { first, last, block });
    }
    assert_eq!(
        refused(&|one| one.pool.blocks_per_host = 9),
        NatSettingsError::HostBlocks(9)
    );
    assert_eq!(
        refused(&|one| one.mappings_max = 0),
        NatSettingsError::Mappings(0)
    );
    assert_eq!(
        refused(&|one| one.hosts_max = 0),
        NatSettingsError::Hosts(0)
    );
    let icmp = Forward {
        protocol: NatProtocol::Icmp,
        ..forward
    };
    assert_eq!(
        refused(&|one| one.forwards = vec![icmp]),
        NatSettingsError::ForwardProtocol(forward.external)
    );
    let foreign = Forward {
        external: socket("203.0.113.1:53"),
        ..forward
    };
    assert_eq!(
        refused(&|one| one.forwards = vec![foreign]),
        NatSettingsError::ForwardAddress(foreign.external)
    );
    let Forward {
        external, internal, ..
    } = forward;
    assert_eq!(
        refused(&|one| one.forwards = vec![forward; 2]),
        NatSettingsError::ForwardTwice { external, internal }
    );
}

#[test]
fn packets_that_cannot_be_translated_are_dropped() {
    let mut nat = Nat::new(&settings()).unwrap();
    let datagram = packet(socket(HOST), socket(REMOTE), Content::Udp(3));
    let mut fragment = datagram.clone();
    // A later one.
    fragment[7] = 2;
    let gre = packet(socket(HOST), socket(REMOTE), Content::Other(47));
    let reply = packet(
        socket("10.0.0.1:9"),
        socket("192.0.2.1:9"),
        Content::EchoReply,
    );
    let mut redirect = packet(
        socket("10.0.0.1:9"),
        socket("192.0.2.1:9"),
        Content::EchoRequest,
    );
    redirect[20] = 5;
    for (octets, reason) in [
        (&fragment[..], NatDrop::Fragment),
        (&gre[..], NatDrop::Protocol),
        (&reply[..], NatDrop::NoMapping),
        (&redirect[..], NatDrop::IcmpType),
        (&datagram[..27], NatDrop::Malformed),
        (&datagram[..10], NatDrop::Malformed),
        (&[][..], NatDrop::Malformed),
    ] {
        assert_eq!(outbound(&mut nat, octets, 0), Err(reason));
    }
    assert!(nat.is_empty());
}
