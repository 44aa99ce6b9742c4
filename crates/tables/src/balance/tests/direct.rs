// SPDX-License-Identifier: Apache-2.0
//! Backends that answer clients directly: packets to them keep the virtual endpoint, and no answer passes.

use super::*;

fn direct(number: u8) -> Backend {
    Backend {
        endpoint: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, number), 80),
        ..backend(number, 1, BackendState::Up)
    }
}

fn directs(protocol: NatProtocol, backends: &[Backend]) -> Balancers {
    let settings = BalanceSettings {
        protocol,
        is_direct: true,
        ..settings(100)
    };
    let set = BackendSet::new(backends);
    Balancers::new(vec![Balancer::new(&settings, set).unwrap()])
}

/// Sends a packet on its way to a backend, as the router does. `None` for other packets, which stay.
fn left(stage: &mut Balancers, octets: &[u8]) -> Option<Vec<u8>> {
    let mut left = octets.to_vec();
    if stage.is_to_direct(octets) && stage.send(&mut left, octets.len(), 0) {
        return Some(left);
    }
    assert_eq!(left, octets);
    None
}

#[test]
fn packets_are_routed_to_a_backend_and_arrive_with_the_virtual_endpoint() {
    let mut stage = directs(NatProtocol::Tcp, &[direct(1)]);
    let (to, from, server) = (socket(VIRTUAL), client(7), direct(1).endpoint);
    let request = packet(from, to, 6, SYN);
    assert_eq!(left(&mut stage, &request), None);
    let routed = sent(&mut stage, &request).unwrap();
    assert_eq!(routed, packet(from, server, 6, SYN));
    assert_eq!(left(&mut stage, &routed), Some(request.clone()));
    // Packets of other clients to the backend itself, and packets of the backend.
    for other in [
        packet(client(8), server, 6, SYN),
        packet(from, SocketAddrV4::new(*server.ip(), 81), 6, SYN),
        packet(server, from, 6, SYN | ACK),
        packet(to, from, 6, SYN | ACK),
    ] {
        assert_eq!(left(&mut stage, &other), None);
        assert!(!stage.is_from_backend(&other));
    }
    // The path reports a packet to the client as too big: the backend that has sent it gets the error.
    let router = Ipv4Addr::new(192, 0, 2, 250);
    let error = error_about(&packet(to, from, 6, ACK), router, *to.ip());
    let routed_error = sent(&mut stage, &error).unwrap();
    let expected = error_about(&packet(server, from, 6, ACK), router, *server.ip());
    assert_eq!(routed_error, expected);
    assert_eq!(left(&mut stage, &routed_error), Some(error));
    // The router itself reports a packet of the client.
    let mut own = error_about(&routed, router, *from.ip());
    let length = own.len();
    stage.translate_own_error(&mut own, length);
    assert_eq!(own, error_about(&request, router, *from.ip()));
}

#[test]
fn each_packet_of_a_client_arrives_as_it_was_whatever_its_backend() {
    let mut stage = directs(NatProtocol::Udp, &[direct(1), direct(2), direct(3)]);
    let mut servers = std::collections::BTreeSet::new();
    for number in 0..60 {
        let request = packet(client(number), socket(VIRTUAL), 17, 0);
        let routed = sent(&mut stage, &request).unwrap();
        servers.insert(ends(&routed).1);
        assert_eq!(left(&mut stage, &routed), Some(request));
    }
    assert_eq!(servers.len(), 3);
}

#[test]
fn the_further_packets_of_the_client_complete_a_connection() {
    let mut stage = directs(NatProtocol::Tcp, &[direct(1)]);
    let balancer = &mut stage.balancers_mut()[0];
    // Open; not complete; without a SYN before.
    for (number, packets) in [(0, &[SYN, ACK][..]), (1, &[SYN, SYN][..]), (2, &[ACK][..])] {
        for flags in packets {
            balancer.to_backend(client(number), *flags, 0).unwrap();
        }
    }
    balancer.expire(60, 100);
    assert_eq!(balancer.len(), 3);
    balancer.expire(61, 100);
    assert_eq!(balancer.len(), 1);
    assert!(balancer.backend_of(client(0)).is_some());
    balancer.to_backend(client(0), ACK, 61).unwrap();
    balancer.expire(961, 100);
    assert_eq!(balancer.len(), 1);
    // The client closes.
    balancer.to_backend(client(0), FIN | ACK, 961).unwrap();
    balancer.expire(961 + 241, 100);
    assert!(balancer.is_empty());
    // An idle connection ends, because a close of the backend does not pass.
    for flags in [SYN, ACK] {
        balancer.to_backend(client(5), flags, 2000).unwrap();
    }
    balancer.expire(2900, 100);
    assert_eq!(balancer.len(), 1);
    balancer.expire(2901, 100);
    assert!(balancer.is_empty());
}
