// SPDX-License-Identifier: Apache-2.0
//! Load balancers of three CPUs choose as one does, and answers come back through the CPU of the client.

use std::net::SocketAddrV6;

use super::*;
use crate::balance::{
    Backend, BackendSet, BackendState, BalanceOutcome, BalanceSettings, Balancer, Balancers,
};
use crate::nat64::tests::plain;

const CPUS: u16 = 3;

fn socket(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn backends() -> Vec<Backend> {
    let backend = |number: u8| Backend {
        endpoint: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, number), 8080),
        weight: 1,
        state: BackendState::Up,
    };
    (1..6).map(backend).collect()
}

fn balancers() -> Balancers {
    let settings = BalanceSettings {
        protocol: NatProtocol::Tcp,
        endpoint: socket("198.51.100.80:80"),
        connections_max: 1000,
        is_direct: false,
    };
    let set = BackendSet::new(&backends());
    Balancers::new(vec![Balancer::new(&settings, set).unwrap()])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn cpus_choose_as_one_and_answers_come_back_through_the_cpu_of_the_client(
        clients in prop::collection::vec((any::<u32>(), 1u16..), 1..60),
    ) {
        let virtual_endpoint = socket("198.51.100.80:80");
        let mut owners = Owners::new(CPUS);
        let endpoints = backends().into_iter().map(|one| one.endpoint);
        owners.add_balancer(NatProtocol::Tcp, endpoints.chain([virtual_endpoint]));
        // The backends are inside hosts of NAT too, and their own connections are those of NAT.
        owners.add_nat(&nat::settings(), &[], &[(0x0a00_0000, 0xffff_ff00)]);
        let mut one = balancers();
        let mut each: Vec<Balancers> = (0..CPUS).map(|_| balancers()).collect();
        for (address, port) in clients {
            // A client is not one of the servers.
            let client = SocketAddrV4::new(Ipv4Addr::from_bits(address | 0xc000_0000), port);
            let mut sent = packet(client, virtual_endpoint, segment(SYN));
            let length = sent.len();
            let mut model = sent.clone();
            prop_assert_eq!(one.receive(&mut model, length, 0), BalanceOutcome::Translated);
            let owner = owners.of_ipv4(&sent).unwrap();
            let mine = &mut each[usize::from(owner)];
            prop_assert_eq!(mine.receive(&mut sent, length, 0), BalanceOutcome::Translated);
            prop_assert_eq!(&sent, &model);
            // The tracker sees this packet, with the backend as its destination.
            prop_assert_eq!(owners.of_ipv4(&sent), Some(owner));
            let (_, backend) = ends(&sent);
            let mut answer = packet(backend, client, segment(SYN | ACK));
            prop_assert_eq!(owners.of_ipv4(&answer), Some(owner));
            prop_assert!(mine.send(&mut answer, length, 0));
            prop_assert_eq!(ends(&answer), (virtual_endpoint, client));
            // Errors about both directions.
            for about in [packet(client, backend, segment(ACK)), packet(virtual_endpoint, client, segment(ACK))] {
                let to = *ends(&about).0.ip();
                prop_assert_eq!(owners.of_ipv4(&error_about(&about, to)), Some(owner));
            }
            let own = packet(SocketAddrV4::new(*backend.ip(), 50_000), client, segment(SYN));
            prop_assert_eq!(owners.of_ipv4(&own), Some(owner_of_host(backend.ip().to_bits(), CPUS)));
        }
        prop_assert_eq!(one.balancers()[0].len(), each.iter().map(|one| one.balancers()[0].len()).sum::<usize>());
    }
}

fn end_v6(address: u128, port: u16) -> SocketAddrV6 {
    SocketAddrV6::new(address.into(), port, 0, 0)
}

/// Returns a segment between two endpoints of IPv6.
fn packet_v6(from: SocketAddrV6, to: SocketAddrV6, flags: u8) -> Vec<u8> {
    let content = plain::Content::Tcp {
        ports: (from.port(), to.port()),
        flags,
        data: Vec::new(),
    };
    plain::v6(plain::Header::plain(*from.ip(), *to.ip()), &content)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn packets_of_ipv6_and_errors_about_them_have_the_owner_of_the_client(
        clients in prop::collection::vec((any::<u128>(), 1u16..), 1..60),
        count in 1..9u16,
    ) {
        let virtual_endpoint: SocketAddrV6 = "[2001:db8::80]:80".parse().unwrap();
        let servers: [SocketAddrV6; 2] =
            ["[2001:db8:1::1]:8080", "[2001:db8:1::2]:8080"].map(|text| text.parse().unwrap());
        let mut owners = Owners::new(count);
        owners.add_balancer(NatProtocol::Tcp, servers.into_iter().chain([virtual_endpoint]));
        let router: Ipv6Addr = "2001:db8:f::1".parse().unwrap();
        for ((address, port), server) in clients.into_iter().zip(servers.into_iter().cycle()) {
            let client = end_v6(address, port);
            let owner = owners.of_client(IpAddr::V6(*client.ip()));
            prop_assert!(owner < count);
            for (from, to) in [(client, virtual_endpoint), (client, server), (server, client), (virtual_endpoint, client)] {
                let sent = packet_v6(from, to, SYN);
                prop_assert_eq!(owners.of_ipv6(&sent), Some(owner));
                let error = plain::error_v6(plain::Header::plain(router, *from.ip()), (2, 0, 1280), &sent);
                prop_assert_eq!(owners.of_ipv6(&error), Some(owner));
            }
            // Connections of a server itself are those of the pair.
            let own = packet_v6(SocketAddrV6::new(*server.ip(), 50_000, 0, 0), client, SYN);
            let pair = owner_of_pair(server.ip().to_bits(), address, count);
            prop_assert_eq!(owners.of_ipv6(&own), Some(pair));
        }
    }
}
