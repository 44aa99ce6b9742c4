// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets of packets: any frame before a source guard, as a rejected one, and changed by rules; any packets through NAT of both
//! versions, a load balancer and a prefix pair, one after the other, and their owners among forwarding CPUs.
//!
//! An input of the latter has packets from their IP headers on. In front of each are two octets: what is done with it, with the seconds
//! since the packet before in the upper half, and its length.

use std::net::{SocketAddr, SocketAddrV6};

use quietwire_base::fuzz::{check, planted};

use crate::balance::{
    Backend, BackendSet, BackendState, BalanceEndpoint, BalanceOutcome, BalanceSettings, Balancer,
    Balancers,
};
use crate::drops::PortDrop;
use crate::filter::{
    Element, RejectWith, Rejection, SourceGuard, clamp_mss, clamp_mss_to_mtu, set_dscp,
};
use crate::nat::{
    FilteringBehaviour, HoldDown, MappingBehaviour, Nat, NatOutcome, NatProtocol, NatSettings,
    NatTimeouts, PortPool,
};
use crate::nat66::{Nat66, Nat66Settings, external_number};
use crate::nptv6::PrefixPair;
use crate::owner::Owners;

/// Most packets of an input.
const PACKETS_MAX: usize = 64;
/// Forwarding CPUs.
const CPUS: u16 = 3;
const VIRTUAL: &str = "198.51.100.2:80";
const VIRTUAL_IPV6: &str = "[2001:db8::2]:80";

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn nat_settings() -> NatSettings {
    NatSettings {
        pool: PortPool {
            addresses: vec!["198.51.100.1".parse().unwrap()],
            first_port: 1024,
            last_port: 2047,
            block_size: 64,
            blocks_per_host: 2,
            deterministic: Vec::new(),
            hold_down: HoldDown::default(),
        },
        forwards: Vec::new(),
        pairs: Vec::new(),
        mappings_max: 64,
        hosts_max: 8,
        mapping: MappingBehaviour::default(),
        filtering: FilteringBehaviour::default(),
        timeouts: NatTimeouts::default(),
    }
}

/// Returns NAT66 and its NAT.
fn nat66_tables() -> (Nat66, Nat) {
    let mut settings = nat_settings();
    settings.pool.addresses = vec![external_number(0)];
    let nat66 = Nat66::new(&nat66_settings());
    (nat66.unwrap(), Nat::new(&settings).unwrap())
}

fn nat66_settings() -> Nat66Settings {
    Nat66Settings {
        externals: vec!["2001:db8::1".parse().unwrap()],
        hosts_max: nat_settings().hosts_max,
    }
}

/// Translates a packet by NAT66 in the direction of a number. Returns true if it is not translated.
fn fuzz_nat66((nat66, nat): &mut (Nat66, Nat), direction: u8, packet: &mut [u8], now: u32) -> bool {
    let size = packet.len();
    let outcome = match direction {
        0 => nat66.outbound(nat, packet, size, now),
        1 => nat66.inbound(nat, packet, size, now),
        _ => nat66.hairpin(nat, packet, size, now),
    };
    while let Some(event) = nat.take_event() {
        assert!(nat66.note(nat, &event).is_some());
    }
    outcome == NatOutcome::Untouched
}

/// Returns a load balancer and its two backends.
fn balancers<E: BalanceEndpoint>(endpoint: &str, backends: [&str; 2]) -> Balancers<E> {
    let of_version = |text: &str| E::of_socket(socket(text)).unwrap();
    let backend = |text: &str| Backend {
        endpoint: of_version(text),
        weight: 1,
        state: BackendState::Up,
    };
    let settings = BalanceSettings {
        protocol: NatProtocol::Tcp,
        endpoint: of_version(endpoint),
        connections_max: 16,
        is_direct: false,
    };
    let backends = BackendSet::new(&backends.map(backend));
    Balancers::new(vec![Balancer::new(&settings, backends).unwrap()])
}

fn balancers_of_ipv6() -> Balancers<SocketAddrV6> {
    balancers(
        VIRTUAL_IPV6,
        ["[2001:db8:1::1]:8080", "[2001:db8:1::2]:8080"],
    )
}

fn owners() -> Owners {
    let mut owners = Owners::new(CPUS);
    owners.add_nat(&nat_settings(), &[], &[(0x0a00_0000, 0xffff_ff00)]);
    owners.add_nat66(&nat_settings(), &nat66_settings(), &[], &[(0, 1 << 127)]);
    owners.add_balancer(NatProtocol::Tcp, [VIRTUAL, VIRTUAL_IPV6].map(socket));
    owners
}

/// Translates packets. One that is not translated does not change, and no packet changes its length.
fn fuzz_translation(octets: &[u8]) -> bool {
    let mut nat = Nat::new(&nat_settings()).unwrap();
    let mut balancers: Balancers = balancers(VIRTUAL, ["10.0.1.1:8080", "10.0.1.2:8080"]);
    let mut balancers_ipv6 = balancers_of_ipv6();
    let inside = "fd01:203:405::/48".parse().unwrap();
    let prefixes = PrefixPair::new(inside, "2001:db8:1::/48".parse().unwrap()).unwrap();
    let owners = owners();
    let mut of_ipv6 = None;
    let (mut rest, mut now, mut translated) = (octets, 0, 0u32);
    for _ in 0..PACKETS_MAX {
        let Some((head, after)) = rest.split_first_chunk::<2>() else {
            break;
        };
        let [what, length] = *head;
        let (before, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        now += u32::from(what >> 4);
        nat.expire(now, usize::MAX);
        let mut packet = before.to_vec();
        let size = packet.len();
        let is_untouched = match what & 15 {
            0 => nat.outbound(&mut packet, size, now) == NatOutcome::Untouched,
            1 => nat.inbound(&mut packet, size, now) == NatOutcome::Untouched,
            2 => nat.hairpin(&mut packet, size, now) == NatOutcome::Untouched,
            3 => nat.show_inside(&mut packet, size) == NatOutcome::Untouched,
            4 => balancers.receive(&mut packet, size, now) == BalanceOutcome::Untouched,
            5 => !balancers.send(&mut packet, size, now),
            6 => prefixes.send(&mut packet, size) != Ok(true),
            8..=10 => {
                let tables = of_ipv6.get_or_insert_with(nat66_tables);
                fuzz_nat66(tables, what & 3, &mut packet, now)
            }
            11 => balancers_ipv6.receive(&mut packet, size, now) == BalanceOutcome::Untouched,
            12 => !balancers_ipv6.send(&mut packet, size, now),
            _ => prefixes.receive(&mut packet, size) != Ok(true),
        };
        assert_eq!(packet.len(), size);
        if is_untouched {
            assert_eq!(packet, before);
        } else {
            translated += 1;
        }
        for owner in [owners.of_ipv4(before), owners.of_ipv6(before)] {
            assert!(owner.is_none_or(|owner| owner < CPUS), "{owner:?}");
        }
    }
    planted("tables-translation", || nat.len() > 3);
    translated > 0
}

#[test]
fn translation() {
    check(
        env!("CARGO_MANIFEST_DIR"),
        "tables-translation",
        fuzz_translation,
    );
}

/// Judges a frame, answers it, and changes it. No packet of another host passes the guard, an answer goes to the sender and is no longer
/// than an ICMP error, and a change is reported.
fn fuzz_frames(octets: &[u8]) -> bool {
    const HOST_V4: &str = "192.0.2.7";
    const HOST_V6: &str = "2001:db8::7";
    /// Ethernet header, two tags, and the longest ICMPv6 error (RFC 4443, section 2.4 (c)).
    const ANSWER_MAX: usize = 14 + 8 + 1280;
    let elements = ["02:00:00:00:00:01", HOST_V4, HOST_V6];
    let guard = SourceGuard::new(&elements.map(|one| one.parse::<Element>().unwrap()));
    let violation = guard.violation(octets, octets.len());
    if violation.is_none()
        && let Ok(parsed) = quietwire_packet::parse(octets)
    {
        if let Some(header) = parsed.ipv4(octets) {
            let source = header.source();
            assert!(source.is_unspecified() || source.to_string() == HOST_V4);
        }
        if let Some(header) = parsed.ipv6(octets) {
            let source = header.source();
            assert!(source.is_unspecified() || source.to_string() == HOST_V6);
        }
    }
    for with in [None, Some(RejectWith::PortUnreachable)] {
        if let Some(rejection) = Rejection::of(octets, None, with) {
            let mut answer = vec![0; rejection.frame_length()];
            assert!(rejection.write(octets, &mut answer));
            assert_eq!(answer[..6], octets[6..12]);
            assert!(answer.len() <= ANSWER_MAX, "{}", answer.len());
            assert!(with.is_none() || !rejection.is_reset());
        }
    }
    let mut changed = octets.to_vec();
    let is_changed = set_dscp(&mut changed, 46) | clamp_mss(&mut changed, 1000);
    assert_eq!(is_changed, changed != octets);
    let mut changed = octets.to_vec();
    let is_changed = clamp_mss_to_mtu(&mut changed, |vlan| vlan.map(|vlan| vlan % 1500));
    assert_eq!(is_changed, changed != octets);
    planted("tables-frames", || violation == Some(PortDrop::GuardNd));
    violation.is_none()
}

#[test]
fn frames() {
    check(env!("CARGO_MANIFEST_DIR"), "tables-frames", fuzz_frames);
}
