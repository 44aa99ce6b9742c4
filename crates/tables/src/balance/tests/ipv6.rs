// SPDX-License-Identifier: Apache-2.0
//! Load balancers of IPv6: packets as a plain model builds them, and the tables that both IP versions share.

use std::net::{Ipv6Addr, SocketAddrV6};

use super::*;
use crate::changes::{Applied, ApplyError, Replicate};
use crate::nat64::tests::plain::{Content, Header, ends_v6, error_v6, obvious_sum, v6, v6_around};

type Stage = Balancers<SocketAddrV6>;

fn end(text: &str) -> SocketAddrV6 {
    text.parse().unwrap()
}

fn endpoint() -> SocketAddrV6 {
    end("[2001:db8::80]:80")
}

fn router() -> Ipv6Addr {
    "2001:db8:f::1".parse().unwrap()
}

fn server(number: u16, port: u16) -> SocketAddrV6 {
    let address = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, number);
    SocketAddrV6::new(address, port, 0, 0)
}

fn from(number: u16) -> SocketAddrV6 {
    let address = Ipv6Addr::new(0x2001, 0xdb8, 2, number / 7, 0, 0, 0, number);
    SocketAddrV6::new(address, 1024 + number, 0, 0)
}

fn up(endpoint: SocketAddrV6) -> Backend<SocketAddrV6> {
    Backend {
        endpoint,
        weight: 1,
        state: BackendState::Up,
    }
}

fn table(
    (protocol, is_direct): (NatProtocol, bool),
    backends: &[Backend<SocketAddrV6>],
) -> Balancer<SocketAddrV6> {
    let settings = BalanceSettings {
        protocol,
        endpoint: endpoint(),
        connections_max: 64,
        is_direct,
    };
    Balancer::new(&settings, BackendSet::new(backends)).unwrap()
}

fn stage(protocol: NatProtocol, is_direct: bool, backends: &[Backend<SocketAddrV6>]) -> Stage {
    Balancers::new(vec![table((protocol, is_direct), backends)])
}

fn header(from: SocketAddrV6, to: SocketAddrV6) -> Header<Ipv6Addr> {
    Header::plain(*from.ip(), *to.ip())
}

fn tcp(from: SocketAddrV6, to: SocketAddrV6, flags: u8) -> Vec<u8> {
    let content = Content::Tcp {
        ports: (from.port(), to.port()),
        flags,
        data: vec![1, 2, 3],
    };
    v6(header(from, to), &content)
}

fn udp(from: SocketAddrV6, to: SocketAddrV6, has_checksum: bool) -> Vec<u8> {
    let content = Content::Udp {
        ports: (from.port(), to.port()),
        data: vec![1, 2, 3],
        has_checksum,
    };
    v6(header(from, to), &content)
}

/// Receives a packet, or else sends it, as the router does. `None` for one that stays.
fn passed(stage: &mut Stage, octets: &[u8]) -> Option<Vec<u8>> {
    let (mut passed, length) = (octets.to_vec(), octets.len());
    let is_translated = match stage.is_to_virtual(octets) {
        true => stage.receive(&mut passed, length, 0) == BalanceOutcome::Translated,
        false => stage.is_from_backend(octets) && stage.send(&mut passed, length, 0),
    };
    assert!(is_translated || passed == octets);
    is_translated.then_some(passed)
}

#[test]
fn answers_and_errors_have_the_virtual_endpoint() {
    let (to, client, server) = (endpoint(), from(7), server(1, 8080));
    let mut stage = stage(NatProtocol::Tcp, false, &[up(server)]);
    let request = tcp(client, to, SYN);
    assert!(stage.is_to_virtual(&request) && !stage.is_from_backend(&request));
    let mut copy = request.clone();
    assert!(stage.show_inside(&mut copy, request.len()));
    assert!(stage.balancers()[0].is_empty());
    let arrived = passed(&mut stage, &request).unwrap();
    assert_eq!(arrived, tcp(client, server, SYN));
    assert_eq!(copy, arrived);
    let answer = tcp(server, client, SYN | ACK);
    let received = passed(&mut stage, &answer).unwrap();
    assert_eq!(received, tcp(to, client, SYN | ACK));
    // The path reports a packet to the client as too big.
    let too_big = (2, 0, 1280);
    let error = error_v6(Header::plain(router(), *to.ip()), too_big, &received);
    let expected = error_v6(Header::plain(router(), *server.ip()), too_big, &answer);
    let mut copy = error.clone();
    assert!(stage.show_inside(&mut copy, error.len()));
    assert_eq!(copy, expected);
    assert_eq!(passed(&mut stage, &error), Some(expected));
    // The backend reports a packet of the client, and so does the router.
    let unreachable = (1, 4, 0);
    let error = error_v6(header(server, client), unreachable, &arrived);
    let expected = error_v6(header(to, client), unreachable, &request);
    assert_eq!(passed(&mut stage, &error), Some(expected));
    let own = Header::plain(router(), *client.ip());
    let mut error = error_v6(own, (3, 0, 0), &arrived);
    let length = error.len();
    stage.translate_own_error(&mut error, length);
    assert_eq!(error, error_v6(own, (3, 0, 0), &request));
    let backends = stage.balancers()[0].backends();
    assert_eq!((backends[0].packets_in, backends[0].packets_out), (1, 1));
}

#[test]
fn extension_headers_stay_and_packets_that_cannot_be_translated_do_too() {
    let (to, client, server) = (endpoint(), from(7), server(1, 8080));
    let mut stage = stage(NatProtocol::Tcp, false, &[up(server)]);
    let behind = |next: u8, start: [u8; 8], to: SocketAddrV6| {
        let payload = [&start[..], &tcp(client, to, SYN)[40..]].concat();
        v6_around(header(client, to), next, &payload)
    };
    for (name, next, start) in [
        ("hop-by-hop options", 0, [6, 0, 1, 4, 0, 0, 0, 0]),
        ("destination options", 60, [6, 0, 1, 4, 0, 0, 0, 0]),
        ("routing header at its end", 43, [6, 0, 4, 0, 0, 0, 0, 0]),
        ("atomic fragment", 44, [6, 0, 0, 0, 0, 0, 0, 9]),
    ] {
        let arrived = passed(&mut stage, &behind(next, start, to));
        assert_eq!(arrived, Some(behind(next, start, server)), "{name}");
    }
    let mut version = tcp(client, to, SYN);
    version[0] = 0x40;
    let mut long = tcp(client, to, SYN);
    long[5] += 9;
    let about = tcp(to, client, ACK);
    let mut damaged = error_v6(Header::plain(router(), *to.ip()), (2, 0, 1280), &about);
    *damaged.last_mut().unwrap() ^= 1;
    let echo = Content::Echo {
        is_reply: false,
        identifier: 80,
        sequence: 1,
        data: Vec::new(),
    };
    let other = SocketAddrV6::new(*to.ip(), 81, 0, 0);
    let stranger = tcp(to, from(8), ACK);
    for (name, packet) in [
        ("first fragment", behind(44, [6, 0, 0, 1, 0, 0, 0, 9], to)),
        ("later fragment", behind(44, [6, 0, 0, 8, 0, 0, 0, 9], to)),
        ("segments left", behind(43, [6, 0, 4, 1, 0, 0, 0, 0], to)),
        ("authentication", behind(51, [6, 0, 0, 0, 0, 0, 0, 0], to)),
        ("no upper layer", v6_around(header(client, to), 59, &[])),
        (
            "solicitation",
            v6_around(header(client, to), 58, &[135, 0, 0, 0, 0, 0, 0, 0]),
        ),
        ("echo", v6(header(client, to), &echo)),
        ("other port", tcp(client, other, SYN)),
        ("other protocol", udp(client, to, true)),
        ("version", version),
        ("length", long),
        ("damaged error", damaged),
        (
            "error about no connection",
            error_v6(Header::plain(router(), *to.ip()), (2, 0, 1280), &stranger),
        ),
        (
            "other client of the backend",
            tcp(server, from(8), SYN | ACK),
        ),
    ] {
        assert_eq!(passed(&mut stage, &packet), None, "{name}");
    }
    for length in 0..60 {
        assert_eq!(passed(&mut stage, &tcp(client, to, SYN)[..length]), None);
    }
    assert_eq!(stage.balancers()[0].len(), 1);
}

#[test]
fn datagrams_without_checksum_keep_none() {
    let (to, client, server) = (endpoint(), from(7), server(1, 8080));
    let mut stage = stage(NatProtocol::Udp, false, &[up(server)]);
    for has_checksum in [true, false] {
        let arrived = passed(&mut stage, &udp(client, to, has_checksum));
        assert_eq!(arrived, Some(udp(client, server, has_checksum)));
        let received = passed(&mut stage, &udp(server, client, has_checksum));
        assert_eq!(received, Some(udp(to, client, has_checksum)));
    }
}

#[test]
fn backends_that_answer_directly_get_packets_to_the_virtual_endpoint() {
    let to = endpoint();
    let backends = [1, 2, 3].map(|number| up(server(number, 80)));
    let mut stage = stage(NatProtocol::Tcp, true, &backends);
    let mut servers = std::collections::BTreeSet::new();
    let sent = |stage: &mut Stage, routed: &[u8]| {
        let mut octets = routed.to_vec();
        assert!(stage.is_to_direct(routed) && stage.send(&mut octets, routed.len(), 0));
        octets
    };
    for number in 0..60 {
        let client = from(number);
        let request = tcp(client, to, SYN);
        let routed = passed(&mut stage, &request).unwrap();
        let (address, port) = ends_v6(&routed).1;
        let server = SocketAddrV6::new(address, port, 0, 0);
        servers.insert(server);
        assert_eq!(routed, tcp(client, server, SYN));
        assert_eq!(sent(&mut stage, &routed), request);
        // The backend that has sent a packet that is too big gets the error.
        let about = tcp(to, client, ACK);
        let error = error_v6(Header::plain(router(), *to.ip()), (2, 0, 1280), &about);
        let routed_error = passed(&mut stage, &error).unwrap();
        let about = tcp(server, client, ACK);
        let expected = error_v6(Header::plain(router(), address), (2, 0, 1280), &about);
        assert_eq!(routed_error, expected);
        assert_eq!(sent(&mut stage, &routed_error), error);
    }
    assert_eq!(servers.len(), 3);
}

#[test]
fn a_standby_has_the_same_connections() {
    let backends = [1, 2].map(|number| up(server(number, 8080)));
    let tcp = (NatProtocol::Tcp, false);
    let (mut first, mut second) = (table(tcp, &backends), table(tcp, &backends));
    first.allow_changes();
    let mut list = Vec::new();
    assert!(!first.take_changes((1, 1), &mut list));
    assert_eq!(first.take_lost_changes(), 1);
    let mut expected = Vec::new();
    for number in 0..20 {
        let to = first.to_backend(from(number), SYN, 0).unwrap();
        // All switches choose alike.
        assert_eq!(second.next_backend(from(number)), Some(to));
        assert!(first.to_client(to, from(number), SYN | ACK, 0));
        first.to_backend(from(number), ACK, 0).unwrap();
        expected.push((from(number), to));
    }
    assert!(!first.take_changes((100, 100), &mut list));
    for change in &list {
        let (BalancedChange::Present(saved) | BalancedChange::Ended(saved)) = *change;
        let octets = saved.to_octets();
        let read = SavedBalanced::<SocketAddrV6>::from_octets(&octets);
        assert_eq!(read, Some(saved));
        assert_eq!(second.apply(change, 5), Ok(Applied::Added));
    }
    for (client, to) in expected {
        assert_eq!(second.backend_of(client), Some(to));
        assert!(second.to_client(to, client, ACK, 6));
    }
    let unknown = BalancedChange::Present(SavedBalanced {
        client: from(1),
        backend: server(9, 8080),
        is_closing: false,
    });
    assert_eq!(second.apply(&unknown, 6), Err(ApplyError::Invalid));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A model with one map: a client stays with its backend while it is there and not down, and each answer is undone.
    #[test]
    fn connections_stay_with_their_backends_in_any_sequence_of_changes(
        steps in prop::collection::vec(
            (prop::collection::vec((1..6u16, 1..4u32, 0..3usize), 1..5), prop::collection::vec(0..40u16, 1..30)),
            1..12,
        ),
    ) {
        let mut now = stage(NatProtocol::Tcp, false, &[]);
        let mut known: HashMap<SocketAddrV6, SocketAddrV6> = HashMap::new();
        for (wanted, clients) in steps {
            let mut backends: Vec<Backend<SocketAddrV6>> = Vec::new();
            for (number, weight, state) in wanted {
                let endpoint = server(number, 8080);
                if backends.iter().all(|one| one.endpoint != endpoint) {
                    let state = BackendState::ALL[state];
                    backends.push(Backend { endpoint, weight, state });
                }
            }
            let mut next = stage(NatProtocol::Tcp, false, &backends);
            next.inherit(&mut now);
            now = next;
            let state_of = |end: &SocketAddrV6| {
                backends.iter().find(|one| one.endpoint == *end).map(|one| one.state)
            };
            for number in clients {
                let client = from(number);
                let keeps = known.get(&client).filter(|one| {
                    matches!(state_of(one), Some(BackendState::Up | BackendState::Draining))
                });
                let Some(arrived) = passed(&mut now, &tcp(client, endpoint(), ACK)) else {
                    prop_assert!(keeps.is_none());
                    prop_assert!(backends.iter().all(|one| one.state != BackendState::Up));
                    continue;
                };
                let (address, port) = ends_v6(&arrived).1;
                let chosen = SocketAddrV6::new(address, port, 0, 0);
                prop_assert_eq!(&arrived, &tcp(client, chosen, ACK));
                match keeps {
                    Some(former) => prop_assert_eq!(*former, chosen),
                    None => prop_assert_eq!(state_of(&chosen), Some(BackendState::Up)),
                }
                known.insert(client, chosen);
                let answer = passed(&mut now, &tcp(chosen, client, ACK)).unwrap();
                prop_assert_eq!(answer, tcp(endpoint(), client, ACK));
            }
            prop_assert_eq!(now.balancers()[0].len(), known.len());
        }
    }

    /// Checksums of any packets hold: incremental updates and sums of the whole packet agree.
    #[test]
    fn checksums_are_right_for_any_addresses_and_data(
        client: u128,
        ports in (1u16.., 1u16..),
        to: u128,
        data in prop::collection::vec(any::<u8>(), 0..40),
        is_tcp: bool,
    ) {
        let client = SocketAddrV6::new(client.into(), ports.0, 0, 0);
        let server = SocketAddrV6::new(to.into(), ports.1, 0, 0);
        let protocol = if is_tcp { NatProtocol::Tcp } else { NatProtocol::Udp };
        let mut stage = stage(protocol, false, &[up(server)]);
        let content = match is_tcp {
            true => Content::Tcp { ports: (client.port(), 80), flags: SYN, data },
            false => Content::Udp { ports: (client.port(), 80), data, has_checksum: true },
        };
        let mut packet = v6(header(client, endpoint()), &content);
        let length = packet.len();
        prop_assert_eq!(stage.receive(&mut packet, length, 0), BalanceOutcome::Translated);
        let payload = &packet[40..];
        let length = (payload.len() as u32).to_be_bytes();
        let pseudo = [&packet[8..40], &length, &[0, 0, 0, packet[6]]].concat();
        prop_assert_eq!(obvious_sum(&[&pseudo[..], payload].concat()), 0);
        prop_assert_eq!(ends_v6(&packet).1, (*server.ip(), server.port()));
    }

    #[test]
    fn any_record_is_refused_or_read_as_it_is_written(
        mut octets in prop::collection::vec(any::<u8>(), SAVED_BALANCED_IPV6_OCTETS),
        is_plausible: bool,
    ) {
        if is_plausible {
            octets[36] %= 2;
            octets[37] = 0;
        }
        let octets: [u8; SAVED_BALANCED_IPV6_OCTETS] = octets.try_into().unwrap();
        let read = SavedBalanced::<SocketAddrV6>::from_octets(&octets);
        prop_assert_eq!(read.is_some(), octets[36] < 2 && octets[37] == 0);
        if let Some(saved) = read {
            prop_assert_eq!(saved.to_octets(), octets);
        }
    }
}
