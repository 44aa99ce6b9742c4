// SPDX-License-Identifier: Apache-2.0
//! Several forwarding CPUs: each packet goes to its owner, which has all state that it requires.

use std::collections::HashSet;

use super::*;
use crate::nat::{NatProtocol, ReplicateIpv6, SavedMappingIpv6};
use crate::owner::{FragmentOwners, Owners};
use crate::share::Share;

const CPUS: u16 = 3;
const HOSTS: u16 = 20;

/// The tables of all CPUs, and the owners of packets.
struct Cpus {
    owners: Owners,
    switches: Vec<Switch>,
}

fn several_settings() -> (NatSettings, Nat66Settings) {
    let mut nat = nat_settings();
    nat.pool.addresses = vec![external_number(0), external_number(1)];
    nat.pool.last_port = 1024 + 1023;
    nat.hosts_max = 100;
    let nat66 = Nat66Settings {
        externals: vec![a6("2001:db8::2"), external()],
        hosts_max: 100,
    };
    (nat, nat66)
}

fn owners(forwards: &[Forward<SocketAddrV6>]) -> Owners {
    let (nat, nat66) = several_settings();
    let sources = [(a6("fd00:1::").to_bits(), !0 << 80)];
    let mut owners = Owners::new(CPUS);
    owners.add_nat66(&nat, &nat66, forwards, &sources);
    owners
}

impl Cpus {
    fn new() -> Self {
        let (nat, nat66) = several_settings();
        let switch = |number| {
            let share = Share::new(number, CPUS).unwrap();
            Switch {
                nat: Nat::with_share(&nat, share).unwrap(),
                nat66: Nat66::with_share(&nat66, share).unwrap(),
            }
        };
        Self {
            owners: owners(&[]),
            switches: (0..CPUS).map(switch).collect(),
        }
    }

    fn set_forwards(&mut self, forwards: &[Forward<SocketAddrV6>]) {
        self.owners = owners(forwards);
        for switch in &mut self.switches {
            assert_eq!(switch.set_forwards(forwards), 0);
        }
    }

    fn owner(&self, packet: &[u8]) -> u16 {
        self.owners.of_ipv6(packet).unwrap()
    }

    fn switch(&mut self, packet: &[u8]) -> &mut Switch {
        let owner = self.owner(packet);
        &mut self.switches[usize::from(owner)]
    }

    fn send(&mut self, packet: &[u8]) -> Result<Vec<u8>, NatDrop> {
        self.switch(packet).send(packet, 0)
    }

    fn receive(&mut self, packet: &[u8]) -> Result<Vec<u8>, NatDrop> {
        self.switch(packet).receive(packet, 0)
    }

    fn hairpin(&mut self, packet: &[u8]) -> Vec<u8> {
        let (outcome, made) = self.switch(packet).run(packet, 0, Nat66::hairpin);
        assert_eq!(outcome, NatOutcome::Hairpinned);
        made
    }
}

fn inside(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, host)
}

#[test]
fn answers_and_errors_have_the_owner_of_the_host() {
    let mut cpus = Cpus::new();
    let mut endpoints = HashSet::new();
    for host in 1..=HOSTS {
        for content in [udp((5000, 53)), tcp((5000, 80), 2), echo(7, false)] {
            let packet = v6(Header::plain(inside(host), remote()), &content);
            let owner = cpus.owner(&packet);
            let sent = cpus.send(&packet).unwrap();
            let (address, port) = ends_v6(&sent).0;
            let protocol = content.protocol(true);
            assert!(endpoints.insert((address, port, protocol)), "{host}");
            let external = content.clone().with_port(true, port).answer();
            let answer = v6(Header::plain(remote(), address), &external);
            assert_eq!(cpus.owner(&answer), owner);
            let received = cpus.receive(&answer).unwrap();
            let expected = Header::plain(remote(), inside(host));
            assert_eq!(received, v6(expected, &content.clone().answer()));
            // The tracker has received the answer with its inside destination.
            assert_eq!(cpus.owner(&received), owner);
            // Errors of routers on both sides.
            let router = a6("2001:db8:e::1");
            let error = error_v6(Header::plain(router, address), (3, 0, 0), &sent);
            assert_eq!(cpus.owner(&error), owner);
            let expected = error_v6(Header::plain(router, inside(host)), (3, 0, 0), &packet);
            assert_eq!(cpus.receive(&error).unwrap(), expected);
            assert_eq!(cpus.owner(&expected), owner);
            let error = error_v6(Header::plain(inside(host), remote()), (1, 4, 0), &received);
            assert_eq!(cpus.owner(&error), owner);
            let expected = error_v6(Header::plain(address, remote()), (1, 4, 0), &answer);
            assert_eq!(cpus.send(&error).unwrap(), expected);
        }
    }
    let hosts: Vec<usize> = cpus.switches.iter().map(|one| one.nat66.hosts()).collect();
    assert_eq!(hosts.iter().sum::<usize>(), usize::from(HOSTS));
    assert!(hosts.iter().all(|hosts| *hosts > 0), "{hosts:?}");
}

#[test]
fn hosts_of_other_cpus_reach_one_another_and_have_one_external_address() {
    let mut cpus = Cpus::new();
    let mut addresses = HashSet::new();
    for host in 1..=HOSTS {
        let other = inside(host % HOSTS + 1);
        let packet = v6(Header::plain(other, remote()), &udp((7000, 53)));
        let (address, port) = ends_v6(&cpus.send(&packet).unwrap()).0;
        let packet = v6(Header::plain(inside(host), remote()), &udp((6000, 53)));
        let own = ends_v6(&cpus.send(&packet).unwrap()).0.0;
        let packet = v6(Header::plain(inside(host), address), &udp((5000, port)));
        let owner = cpus.owner(&packet);
        let received = cpus.hairpin(&packet);
        let (from, to) = ends_v6(&received);
        assert_eq!((from.0, to), (own, (other, 7000)));
        let answer = v6(Header::plain(other, from.0), &udp((7000, from.1)));
        assert_eq!(cpus.owner(&answer), owner);
        let expected = Header::plain(address, inside(host));
        assert_eq!(cpus.hairpin(&answer), v6(expected, &udp((port, 5000))));
        addresses.insert(own);
    }
    assert_eq!(addresses.len(), 2);
}

#[test]
fn a_forward_is_on_the_cpu_of_its_host_alone() {
    let forward = |host: u16| Forward {
        protocol: NatProtocol::Tcp,
        external: SocketAddrV6::new(external(), 1000 + 16 * host, 0, 0),
        internal: SocketAddrV6::new(inside(host), 80, 0, 0),
    };
    let forwards: Vec<_> = (1..=HOSTS).map(forward).collect();
    let mut cpus = Cpus::new();
    cpus.set_forwards(&forwards);
    let counts: Vec<usize> = cpus.switches.iter().map(|one| one.nat.forwards()).collect();
    assert_eq!(counts.iter().sum::<usize>(), forwards.len());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    for one in &forwards {
        let port = one.external.port();
        let packet = v6(Header::plain(remote(), external()), &tcp((9, port), 2));
        let owner = cpus.owner(&packet);
        let expected = Header::plain(remote(), *one.internal.ip());
        let received = cpus.receive(&packet).unwrap();
        assert_eq!(received, v6(expected, &tcp((9, 80), 2)));
        let answer = v6(
            Header::plain(*one.internal.ip(), remote()),
            &tcp((80, 9), 0x12),
        );
        assert_eq!(cpus.owner(&answer), owner);
        let sent = cpus.send(&answer).unwrap();
        assert_eq!(ends_v6(&sent).0, (external(), port));
        let other = &mut cpus.switches[usize::from((owner + 1) % CPUS)];
        assert_eq!(other.receive(&packet, 0), Err(NatDrop::NoMapping));
    }
    // A host that stays keeps its connections; the others end.
    cpus.set_forwards(&forwards[..1]);
    let left: usize = cpus.switches.iter().map(|one| one.nat66.hosts()).sum();
    assert_eq!(left, 1);
    cpus.set_forwards(&[]);
    for switch in &cpus.switches {
        assert_eq!((switch.nat.len(), switch.nat66.hosts()), (0, 0));
    }
}

/// Returns a datagram in two fragments, the second one from octet 64 of the payload on.
fn fragments(header: Header<Ipv6Addr>, content: &Content, identification: u32) -> [Vec<u8>; 2] {
    let payload = v6(header, content)[40..].to_vec();
    let fragment = |part: &[u8], field: u16| {
        let extension = [
            &[17, 0][..],
            &field.to_be_bytes(),
            &identification.to_be_bytes(),
            part,
        ];
        v6_around(header, 44, &extension.concat())
    };
    [fragment(&payload[..64], 1), fragment(&payload[64..], 64)]
}

fn in_frame(packet: &[u8]) -> Vec<u8> {
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    [&ethernet[..], packet].concat()
}

#[test]
fn all_fragments_to_an_external_port_have_the_owner_of_the_whole_packet() {
    let mut cpus = Cpus::new();
    let mut table = FragmentOwners::new();
    let content = Content::Udp {
        ports: (5000, 53),
        data: (0..100).collect(),
        has_checksum: true,
    };
    for host in 1..=HOSTS {
        let out = Header::plain(inside(host), remote());
        let question = v6(out, &content);
        let owner = cpus.owner(&question);
        let (address, port) = ends_v6(&cpus.send(&question).unwrap()).0;
        let back = Header::plain(remote(), address);
        let answer = content.clone().with_port(true, port).answer();
        let [first, later] = fragments(back, &answer, u32::from(host));
        let owners = cpus.owners.clone();
        let mut of = |packet: &[u8], now| owners.of_ordered(&in_frame(packet), &mut table, now);
        // Before the first fragment, only the addresses are known.
        let by_addresses = owners.of_frame(&in_frame(&later));
        assert_eq!(of(&later, 0), by_addresses);
        assert_eq!([of(&first, 0), of(&later, 14)], [Some(owner); 2]);
        assert_eq!(of(&later, 15), by_addresses);
        assert_eq!(of(&v6(back, &answer), 0), Some(owner));
        // Those of the host stay on its CPU.
        for fragment in fragments(out, &content, 7) {
            assert_eq!(of(&fragment, 0), Some(owner));
        }
        let switch = &mut cpus.switches[usize::from(owner)];
        for fragment in [first, later] {
            let received = switch.receive(&fragment, 0).unwrap();
            assert_eq!(received[24..40], inside(host).octets());
        }
    }
}

#[test]
fn a_mapping_of_another_switch_belongs_to_the_cpu_of_its_port_block() {
    let mut cpus = Cpus::new();
    for block in 0..16 {
        let saved = SavedMappingIpv6 {
            protocol: NatProtocol::Udp,
            is_answered: false,
            internal: SocketAddrV6::new(inside(1 + block), 5, 0, 0),
            external: SocketAddrV6::new(external(), 1027 + 16 * block, 0, 0),
        };
        let owner = cpus.owners.of_mapping_ipv6(&saved);
        for (number, switch) in (0..).zip(&mut cpus.switches) {
            let change = crate::nat::MappingChange::Present(saved);
            let applied = switch.nat66.apply(&mut switch.nat, &change, 0);
            switch.pass_events();
            assert_eq!(applied.is_ok(), number == owner, "block {block}");
        }
    }
}
