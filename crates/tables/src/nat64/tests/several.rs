// SPDX-License-Identifier: Apache-2.0
//! Several forwarding CPUs: each packet goes to its owner, which has all state that it requires.

use std::collections::HashSet;

use super::plain::{error_v4, error_v6, fields_v4, v4_with};
use super::*;
use crate::changes::Applied;
use crate::nat::ReplicateIpv6;
use crate::owner::Owners;
use crate::share::Share;

const CPUS: u16 = 3;

/// The tables of all CPUs, and the owners of packets.
struct Cpus {
    owners: Owners,
    switches: Vec<Switch>,
}

impl Cpus {
    fn new() -> Self {
        let mut nat = nat_settings();
        nat.pool.last_port = 1024 + 1023;
        nat.hosts_max = 100;
        let nat64 = Nat64Settings {
            clients_max: 100,
            ..settings()
        };
        let mut owners = Owners::new(CPUS);
        owners.add_nat(&nat, &[], &[]);
        owners.add_nat64(nat64.prefix);
        let switch = |number| Switch {
            nat: Nat::with_share(&nat, Share::new(number, CPUS).unwrap()).unwrap(),
            nat64: Nat64::new(&nat64).unwrap(),
        };
        Self {
            owners,
            switches: (0..CPUS).map(switch).collect(),
        }
    }

    fn send(&mut self, packet: &[u8]) -> Result<Vec<u8>, NatDrop> {
        let owner = self.owners.of_ipv6(packet).unwrap();
        self.switches[usize::from(owner)].send(packet, 0)
    }

    fn receive(&mut self, packet: &[u8]) -> Result<Vec<u8>, NatDrop> {
        let owner = self.owners.of_ipv4(packet).unwrap();
        self.switches[usize::from(owner)].receive(packet, 0)
    }
}

fn clients() -> impl Iterator<Item = Ipv6Addr> {
    (1..=20).map(|host| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host))
}

#[test]
fn answers_have_the_owner_of_the_client() {
    let mut cpus = Cpus::new();
    let mut endpoints = HashSet::new();
    for client in clients() {
        for content in [udp((5000, 53), b"a"), tcp((5000, 80), 2), echo(7, false)] {
            let packet = v6(Header::plain(client, mapped(server())), &content);
            let sent = cpus.send(&packet).unwrap();
            let (address, port) = ends_v4(&sent).0;
            let protocol = content.protocol(false);
            assert!(endpoints.insert((address, port, protocol)), "{client}");
            let answer = content.clone().answer();
            let external = answer.clone().with_port(false, port);
            let received = cpus
                .receive(&v4(Header::plain(server(), address), &external))
                .unwrap();
            let expected = Header::plain(mapped(server()), client);
            assert_eq!(received, v6(expected, &answer));
            // Errors about both.
            let header = Header::plain(a4("203.0.113.1"), address);
            let error = error_v4(header, (5, 0), (11, 0, 0), &sent);
            let header = Header::plain(mapped(a4("203.0.113.1")), client);
            let expected = error_v6(header, (3, 0, 0), &packet);
            assert_eq!(cpus.receive(&error).unwrap(), expected);
            let header = Header::plain(client, mapped(server()));
            let sent = cpus.send(&error_v6(header, (1, 4, 0), &received)).unwrap();
            let inner = v4_with(Header::plain(server(), address), (0, 0), &external);
            let header = Header::plain(address, server());
            let expected = error_v4(header, fields_v4(&sent), (3, 3, 0), &inner);
            assert_eq!(sent, expected);
        }
    }
    let hosts: Vec<usize> = cpus.switches.iter().map(|one| one.nat.hosts()).collect();
    assert_eq!(hosts.iter().sum::<usize>(), 20);
    assert!(hosts.iter().all(|hosts| *hosts > 0), "{hosts:?}");
}

#[test]
fn clients_of_other_cpus_reach_one_another() {
    let mut cpus = Cpus::new();
    for (number, client) in clients().enumerate() {
        let other = clients().nth((number + 1) % 20).unwrap();
        let packet = v6(
            Header::plain(other, mapped(server())),
            &udp((7000, 53), b"a"),
        );
        let (address, port) = ends_v4(&cpus.send(&packet).unwrap()).0;
        let packet = v6(
            Header::plain(client, mapped(address)),
            &udp((5000, port), b"b"),
        );
        let received = cpus.send(&packet).unwrap();
        let (from, to) = ends_v6(&received);
        assert_eq!(to, (other, 7000));
        let answer = v6(Header::plain(other, from.0), &udp((7000, from.1), b"c"));
        let received = cpus.send(&answer).unwrap();
        let expected = Header::plain(mapped(address), client);
        assert_eq!(received, v6(expected, &udp((port, 5000), b"c")));
    }
}

#[test]
fn mappings_of_a_standby_have_the_owner_of_the_client() {
    let (mut first, mut second) = (Cpus::new(), Cpus::new());
    let mut opened = Vec::new();
    for client in clients() {
        let content = udp((5000, 53), b"a");
        let packet = v6(Header::plain(client, mapped(server())), &content);
        opened.push((client, ends_v4(&first.send(&packet).unwrap()).0));
    }
    for (number, switch) in first.switches.iter().enumerate() {
        let (limits, mut list) = ((usize::MAX, usize::MAX), Vec::new());
        let next = switch.nat64.share_into(&switch.nat, 0, limits, &mut list);
        assert_eq!(next, None);
        for change in &list {
            let owner = second.owners.of_mapping_ipv6(change.saved());
            assert_eq!(usize::from(owner), number);
            let other = &mut second.switches[number];
            let applied = other.nat64.apply(&mut other.nat, change, 0);
            other.pass_events();
            assert_eq!(applied, Ok(Applied::Added));
        }
    }
    for (client, (address, port)) in opened {
        let answer = v4(Header::plain(server(), address), &udp((53, port), b"b"));
        let received = second.receive(&answer).unwrap();
        let expected = ((mapped(server()), 53), (client, 5000));
        assert_eq!(ends_v6(&received), expected);
    }
}
