// SPDX-License-Identifier: Apache-2.0
//! Load balancers of three CPUs choose as one does, and answers come back through the CPU of the client.

use super::*;
use crate::balance::{
    Backend, BackendSet, BackendState, BalanceOutcome, BalanceSettings, Balancer, Balancers,
};

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
