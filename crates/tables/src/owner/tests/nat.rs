// SPDX-License-Identifier: Apache-2.0
//! NAT of several CPUs: one inside endpoint has one external endpoint, no two have the same, and answers have the owner of their questions.

use std::collections::HashMap;

use super::*;
use crate::changes::Replicate;
use crate::nat::{
    FilteringBehaviour, HoldDown, MappingBehaviour, Nat, NatDrop, NatOutcome, NatTimeouts, Pair,
    PoolGrowth, PortPool,
};
use crate::share::Share;

const CPUS: u16 = 2;
const TIMEOUT_S: u32 = 50;
/// Prefix of the inside hosts.
const SOURCES: [(u32, u32); 1] = [(0x0a00_0000, 0xffff_ff00)];

pub(super) fn settings() -> NatSettings {
    NatSettings {
        pool: PortPool {
            addresses: vec![
                Ipv4Addr::new(198, 51, 100, 2),
                Ipv4Addr::new(198, 51, 100, 1),
            ],
            first_port: 1024,
            last_port: 1024 + 127,
            block_size: 8,
            blocks_per_host: 2,
            deterministic: Vec::new(),
            hold_down: HoldDown::default(),
        },
        forwards: Vec::new(),
        pairs: vec![Pair {
            internal: Ipv4Addr::new(10, 0, 0, 200),
            external: Ipv4Addr::new(198, 51, 100, 200),
        }],
        mappings_max: 1000,
        hosts_max: 100,
        mapping: MappingBehaviour::default(),
        filtering: FilteringBehaviour::default(),
        timeouts: NatTimeouts {
            udp_s: TIMEOUT_S,
            tcp_established_s: TIMEOUT_S,
            tcp_transitory_s: TIMEOUT_S,
            icmp_s: TIMEOUT_S,
        },
    }
}

/// The tables of all CPUs, and the owners of packets.
struct Cpus {
    owners: Owners,
    nats: Vec<Nat>,
}

impl Cpus {
    fn new(count: u16, forwards: &[Forward]) -> Self {
        let settings = NatSettings {
            forwards: forwards.to_vec(),
            ..settings()
        };
        Self::of(count, &settings)
    }

    fn of(count: u16, settings: &NatSettings) -> Self {
        let mut owners = Owners::new(count);
        owners.add_nat(settings, &settings.forwards, &SOURCES);
        let nat = |number| Nat::with_share(settings, Share::new(number, count).unwrap()).unwrap();
        Self {
            owners,
            nats: (0..count).map(nat).collect(),
        }
    }

    fn set_forwards(&mut self, forwards: &[Forward]) {
        let mut owners = Owners::new(self.owners.count());
        owners.add_nat(&settings(), forwards, &SOURCES);
        self.owners = owners;
        for nat in &mut self.nats {
            assert_eq!(nat.set_forwards(forwards), 0);
        }
    }

    fn owner(&self, octets: &[u8]) -> u16 {
        self.owners.of_ipv4(octets).unwrap()
    }

    fn translate(
        &mut self,
        octets: &[u8],
        translate: impl Fn(&mut Nat, &mut [u8], usize) -> NatOutcome,
    ) -> Result<Vec<u8>, NatDrop> {
        let owner = self.owner(octets);
        let (mut octets, length) = (octets.to_vec(), octets.len());
        match translate(&mut self.nats[usize::from(owner)], &mut octets, length) {
            NatOutcome::Dropped(reason) => Err(reason),
            outcome => {
                assert_ne!(outcome, NatOutcome::Untouched);
                Ok(octets)
            }
        }
    }

    fn outbound(&mut self, octets: &[u8], now: u32) -> Result<Vec<u8>, NatDrop> {
        self.translate(octets, |nat, octets, length| {
            nat.outbound(octets, length, now)
        })
    }

    fn inbound(&mut self, octets: &[u8], now: u32) -> Result<Vec<u8>, NatDrop> {
        self.translate(octets, |nat, octets, length| {
            nat.inbound(octets, length, now)
        })
    }

    fn hairpin(&mut self, octets: &[u8]) -> Result<Vec<u8>, NatDrop> {
        self.translate(octets, |nat, octets, length| nat.hairpin(octets, length, 0))
    }
}

fn inside(host: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), port)
}

fn remote(host: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), port)
}

fn content(protocol: NatProtocol, is_answer: bool) -> Content {
    match (protocol, is_answer) {
        (NatProtocol::Tcp, _) => segment(ACK),
        (NatProtocol::Udp, _) => Content::Udp(7),
        (NatProtocol::Icmp, false) => Content::EchoRequest,
        (NatProtocol::Icmp, true) => Content::EchoReply,
    }
}

fn protocol() -> impl Strategy<Value = NatProtocol> {
    prop::sample::select(vec![NatProtocol::Tcp, NatProtocol::Udp, NatProtocol::Icmp])
}

fn flow() -> impl Strategy<Value = (u8, u16, u8, NatProtocol, u32)> {
    let seconds = prop_oneof![8 => Just(0u32), 2 => 1..30u32, 1 => Just(400u32)];
    (1..12u8, 1..30u16, 1..4u8, protocol(), seconds)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn answers_have_the_owner_of_their_questions_and_no_external_endpoint_is_shared(
        flows in prop::collection::vec(flow(), 1..150),
    ) {
        let mut cpus = Cpus::new(CPUS, &[]);
        // External endpoint and last second, by protocol and inside endpoint, of all CPUs.
        let mut known: HashMap<(u8, SocketAddrV4), (SocketAddrV4, u32)> = HashMap::new();
        let mut now = 0;
        for (host, port, far, protocol, seconds) in flows {
            now += seconds;
            for nat in &mut cpus.nats {
                nat.expire(now, usize::MAX);
            }
            known.retain(|_, (_, last)| *last + TIMEOUT_S >= now);
            let source = inside(host, port);
            let is_echo = protocol == NatProtocol::Icmp;
            let original = packet(source, remote(far, if is_echo { port } else { 80 }), content(protocol, false));
            let owner = cpus.owner(&original);
            let key = (protocol as u8, source);
            let translated = match cpus.outbound(&original, now) {
                Ok(translated) => translated,
                Err(reason) => {
                    // Only new mappings are refused.
                    prop_assert!(!known.contains_key(&key), "{:?}", reason);
                    prop_assert!(matches!(reason, NatDrop::HostLimit | NatDrop::NoPorts), "{:?}", reason);
                    continue;
                }
            };
            let (external, _) = ends(&translated);
            if let Some((former, _)) = known.get(&key) {
                prop_assert_eq!(*former, external);
            }
            for ((other_protocol, other), (taken, _)) in &known {
                if (*other_protocol, *other) != key {
                    prop_assert!(*other_protocol != key.0 || *taken != external, "{} and {} share {}", other, source, external);
                }
                if other.ip() == source.ip() {
                    prop_assert_eq!(taken.ip(), external.ip());
                }
            }
            known.insert(key, (external, now));
            let from = remote(far, if is_echo { external.port() } else { 80 });
            let answer = packet(from, external, content(protocol, true));
            prop_assert_eq!(cpus.owner(&answer), owner);
            prop_assert_eq!(ends(&cpus.inbound(&answer, now).unwrap()).1, source);
            // A router outside cannot deliver the packet.
            let error = error_about(&translated, *external.ip());
            prop_assert_eq!(cpus.owner(&error), owner);
            let error = cpus.inbound(&error, now).unwrap();
            let (_, destination) = ends(&error);
            prop_assert_eq!(destination.ip(), source.ip());
            // The tracker has received the error with its inside destination.
            prop_assert_eq!(cpus.owner(&error), owner);
            // A router inside cannot deliver the answer.
            let received = packet(from, source, content(protocol, true));
            prop_assert_eq!(cpus.owner(&error_about(&received, *from.ip())), owner);
            let count: usize = cpus.nats.iter().map(Nat::len).sum();
            prop_assert_eq!(count, known.len());
        }
    }

    #[test]
    fn packets_between_inside_hosts_by_external_endpoints_and_their_answers_have_one_owner(
        (from, to) in (1..40u8, 1..40u8),
        is_paired: (bool, bool),
        count in 1..5u16,
    ) {
        prop_assume!(from != to);
        let mut cpus = Cpus::new(count, &[]);
        let from = inside(if is_paired.0 { 200 } else { from }, 7);
        let to = inside(if is_paired.1 { 200 } else { to }, 9);
        prop_assume!(from.ip() != to.ip());
        // The other host has an external endpoint.
        let opening = packet(to, remote(1, 80), Content::Udp(1));
        let (target, _) = ends(&cpus.outbound(&opening, 0).unwrap());
        let question = packet(from, target, Content::Udp(1));
        let owner = cpus.owner(&question);
        let received = cpus.hairpin(&question).unwrap();
        let (external, receiver) = ends(&received);
        prop_assert_eq!(receiver, to);
        prop_assert!(external.ip() != from.ip());
        let answer = packet(to, external, Content::Udp(1));
        prop_assert_eq!(cpus.owner(&answer), owner);
        // From the endpoint that it was sent to.
        prop_assert_eq!(ends(&cpus.hairpin(&answer).unwrap()), (target, from));
        prop_assert_eq!(cpus.owner(&error_about(&received, *external.ip())), owner);
    }
}

fn forward(external: u16, host: u8) -> Forward {
    Forward {
        protocol: NatProtocol::Tcp,
        external: SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 1), external),
        internal: inside(host, 80),
    }
}

/// Returns the inside hosts of a CPU.
fn hosts_of(cpus: &Cpus, cpu: u16) -> impl Iterator<Item = u8> + use<> {
    let count = cpus.owners.count();
    (1..100).filter(move |host| owner_of_host(inside(*host, 0).ip().to_bits(), count) == cpu)
}

#[test]
fn a_forward_is_on_the_cpu_of_its_host_alone() {
    let forwards: Vec<Forward> = (1..9)
        .map(|host| forward(1000 + 16 * u16::from(host), host))
        .collect();
    let mut cpus = Cpus::new(CPUS, &forwards);
    let counts: Vec<usize> = cpus.nats.iter().map(Nat::forwards).collect();
    assert_eq!(counts.iter().sum::<usize>(), forwards.len());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    for one in &forwards {
        let sent = packet(remote(1, 9), one.external, segment(SYN));
        let answer = packet(one.internal, remote(1, 9), segment(SYN | ACK));
        let owner = cpus.owner(&sent);
        assert_eq!(cpus.owner(&answer), owner);
        assert_eq!(ends(&cpus.inbound(&sent, 0).unwrap()).1, one.internal);
        assert_eq!(ends(&cpus.outbound(&answer, 0).unwrap()).0, one.external);
        let mut octets = sent.clone();
        let other = &mut cpus.nats[usize::from(1 - owner)];
        let outcome = other.inbound(&mut octets, sent.len(), 0);
        assert_eq!(outcome, NatOutcome::Dropped(NatDrop::NoMapping));
    }
    cpus.set_forwards(&[]);
    assert!(
        cpus.nats
            .iter()
            .all(|nat| nat.is_empty() && nat.forwards() == 0)
    );
    let sent = packet(remote(1, 9), forwards[0].external, segment(SYN));
    assert_eq!(cpus.inbound(&sent, 0), Err(NatDrop::NoMapping));
}

#[test]
fn a_host_does_not_get_a_port_that_another_cpu_forwards_out_of_its_block() {
    let mut cpus = Cpus::new(CPUS, &[]);
    let mine = hosts_of(&cpus, 0).next().unwrap();
    let theirs = hosts_of(&cpus, 1).next().unwrap();
    let first = packet(inside(mine, 1), remote(1, 80), segment(SYN));
    let (external, _) = ends(&cpus.outbound(&first, 0).unwrap());
    let start = external.port() - (external.port() - 1024) % 8;
    let port = (start..start + 8).find(|port| *port != external.port());
    let wanted = Forward {
        external: SocketAddrV4::new(*external.ip(), port.unwrap()),
        ..forward(0, theirs)
    };
    cpus.set_forwards(&[wanted]);
    let mut taken = vec![external];
    let outcome = (2..100).find_map(|port| {
        let octets = packet(inside(mine, port), remote(1, 80), segment(SYN));
        match cpus.outbound(&octets, 0) {
            Ok(translated) => {
                taken.push(ends(&translated).0);
                None
            }
            Err(reason) => Some(reason),
        }
    });
    assert_eq!(outcome, Some(NatDrop::HostLimit));
    // Two blocks without the forwarded port.
    assert_eq!(taken.len(), 15);
    assert!(!taken.contains(&wanted.external));
    let sent = packet(remote(1, 9), wanted.external, segment(SYN));
    assert_eq!(cpus.owner(&sent), 1);
    assert_eq!(ends(&cpus.inbound(&sent, 0).unwrap()).1, wanted.internal);
    // Afterwards it does.
    cpus.set_forwards(&[]);
    let octets = packet(inside(mine, 500), remote(1, 80), segment(SYN));
    assert_eq!(ends(&cpus.outbound(&octets, 0).unwrap()).0, wanted.external);
}

#[test]
fn answers_to_a_pool_that_has_grown_have_the_owners_of_their_questions() {
    let mut cpus = Cpus::new(CPUS, &[]);
    let question = |host| packet(inside(host, 5), remote(1, 80), Content::Udp(1));
    let mut known: Vec<(u8, SocketAddrV4)> = (1..9)
        .map(|host| (host, ends(&cpus.outbound(&question(host), 0).unwrap()).0))
        .collect();
    // A lower address than those of the pool.
    let added = Ipv4Addr::new(100, 64, 0, 1);
    let former = settings();
    let mut more = settings();
    more.pool.addresses.push(added);
    for (number, nat) in (0..).zip(&mut cpus.nats) {
        let share = Share::new(number, CPUS).unwrap();
        let known = former.pool.addresses.len();
        let mut growth = PoolGrowth::new(&more.pool, known, share).unwrap();
        assert!(nat.grow(&mut growth));
    }
    let mut owners = Owners::new(CPUS);
    owners.add_nat(&more, &[], &SOURCES);
    cpus.owners = owners;
    for host in 9..100 {
        if let Ok(translated) = cpus.outbound(&question(host), 0) {
            known.push((host, ends(&translated).0));
        }
    }
    assert!(known.iter().any(|(_, external)| *external.ip() == added));
    assert_eq!(known.len(), 3 * 16);
    for (host, external) in known {
        let answer = packet(remote(1, 80), external, Content::Udp(1));
        assert_eq!(cpus.owner(&answer), cpus.owner(&question(host)));
        let answer = cpus.inbound(&answer, 0).unwrap();
        assert_eq!(ends(&answer).1, inside(host, 5));
    }
}

/// Returns a packet in two fragments, the second one from octet 32 of the payload on.
fn fragments(packet: &[u8], identification: u16) -> [Vec<u8>; 2] {
    let (header, payload) = packet.split_at(20);
    let fragment = |part: &[u8], field: u16| {
        let mut fragment = [header, part].concat();
        put(&mut fragment, 2, part.len() as u16 + 20);
        put(&mut fragment, 4, identification);
        put(&mut fragment, 6, field);
        fragment
    };
    let (first, later) = payload.split_at(32);
    // More fragments; in units of eight octets.
    [fragment(first, 0x2000), fragment(later, 4)]
}

fn in_frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], packet].concat()
}

#[test]
fn all_fragments_to_an_external_port_have_the_owner_of_the_whole_packet() {
    let mut cpus = Cpus::new(CPUS, &[]);
    let mut table = FragmentOwners::new();
    let mut counts = [0; CPUS as usize];
    for (host, number) in (1..16u8).zip(0u16..) {
        let question = packet(inside(host, 5), remote(1, 80), Content::Udp(60));
        let (external, _) = ends(&cpus.outbound(&question, 0).unwrap());
        let owner = cpus.owner(&question);
        counts[usize::from(owner)] += 1;
        let answer = packet(remote(1, 80), external, Content::Udp(60));
        let [first, later] = fragments(&answer, number);
        let owners = cpus.owners.clone();
        let mut of = |packet: &[u8], now| owners.of_ordered(&in_frame(packet), &mut table, now);
        // Before the first fragment, only the addresses are known.
        let by_addresses = owners.of_frame(&in_frame(&later));
        assert_eq!(of(&later, 0), by_addresses);
        assert_eq!([of(&first, 0), of(&later, 14)], [Some(owner); 2]);
        assert_eq!(of(&later, 15), by_addresses);
        for (whole, from) in [(&answer, 0), (&question, 0), (&question, 9)] {
            assert_eq!(of(whole, from), owners.of_frame(&in_frame(whole)));
        }
        for mut fragment in [first, later] {
            let length = fragment.len();
            let nat = &mut cpus.nats[usize::from(owner)];
            let outcome = nat.inbound(&mut fragment, length, 0);
            assert_eq!(outcome, NatOutcome::Translated);
            assert_eq!(fragment[16..20], inside(host, 5).ip().octets());
        }
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

/// Returns settings with 32 inside hosts, each of which has a computed block of 16 ports.
fn computed() -> NatSettings {
    let mut settings = settings();
    settings.pool.last_port = 1024 + 16 * 16 - 1;
    settings.pool.block_size = 16;
    settings.pool.blocks_per_host = 1;
    settings.pool.deterministic = vec!["10.0.0.0/27".parse().unwrap()];
    settings
}

#[test]
fn a_host_has_ports_of_its_computed_block_on_each_cpu() {
    let settings = computed();
    let pool = &settings.pool;
    for count in [1, 2, 3, 5] {
        let mut cpus = Cpus::of(count, &settings);
        let mut targets = Vec::new();
        for host in 0..32 {
            // Each CPU but its own has one port.
            let ports = 17 - count;
            for port in 0..ports {
                let question = packet(inside(host, 100 + port), remote(1, 80), Content::Udp(1));
                let (external, _) = ends(&cpus.outbound(&question, 0).unwrap());
                let of_port = pool.host_of_port(*external.ip(), external.port());
                assert_eq!(of_port, Some(*inside(host, 0).ip()));
                let answer = packet(remote(1, 80), external, Content::Udp(1));
                assert_eq!(cpus.owner(&answer), cpus.owner(&question));
                let answer = cpus.inbound(&answer, 0).unwrap();
                assert_eq!(ends(&answer).1, inside(host, 100 + port));
                if port == 0 {
                    targets.push(external);
                }
            }
            let one_more = packet(inside(host, 99), remote(1, 80), Content::Udp(1));
            assert_eq!(cpus.outbound(&one_more, 0), Err(NatDrop::HostLimit));
        }
        let mut known: HashMap<SocketAddrV4, (u8, u16)> = HashMap::new();
        for (from, (to, target)) in (0..32).flat_map(|from| {
            let others = (0..32).zip(&targets).filter(move |(to, _)| *to != from);
            others.map(move |other| (from, other))
        }) {
            let question = packet(inside(from, 100), *target, Content::Udp(1));
            let owner = cpus.owner(&question);
            let received = cpus.hairpin(&question).unwrap();
            let (external, receiver) = ends(&received);
            assert_eq!(receiver, inside(to, 100));
            let of_port = pool.host_of_port(*external.ip(), external.port());
            assert_eq!(of_port, Some(*inside(from, 0).ip()));
            assert_eq!(
                *known.entry(external).or_insert((from, owner)),
                (from, owner)
            );
            let answer = packet(receiver, external, Content::Udp(1));
            assert_eq!(cpus.owner(&answer), owner);
            assert_eq!(
                ends(&cpus.hairpin(&answer).unwrap()),
                (*target, inside(from, 100))
            );
        }
        // Each host has sent to hosts of each CPU.
        assert_eq!(known.len(), 32 * usize::from(count));
    }
}

#[test]
fn each_cpu_needs_a_port_of_a_computed_block() {
    let settings = computed();
    assert_eq!(settings.check_shares(16), Ok(()));
    let error = settings.check_shares(17).unwrap_err().to_string();
    assert!(
        error.contains("16 ports of a computed block are too few for 17"),
        "{error}"
    );
}

#[test]
fn each_cpu_needs_a_block() {
    let settings = settings();
    assert_eq!(settings.check_shares(32), Ok(()));
    let error = settings.check_shares(33).unwrap_err();
    assert!(error.to_string().contains("32 port blocks"), "{error}");
}

#[test]
fn a_mapping_of_another_switch_belongs_to_the_cpu_of_its_port_block() {
    let mut cpus = Cpus::new(CPUS, &[]);
    for block in 0..16 {
        let saved = crate::nat::SavedMapping {
            protocol: NatProtocol::Udp,
            is_answered: false,
            internal: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1 + block), 5),
            external: SocketAddrV4::new(
                Ipv4Addr::new(198, 51, 100, 1),
                1027 + 8 * u16::from(block),
            ),
            remote: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        };
        let owner = cpus.owners.of_mapping(&saved);
        for (number, nat) in (0..).zip(&mut cpus.nats) {
            let applied = nat.apply(&crate::nat::MappingChange::Present(saved), 0);
            assert_eq!(applied.is_ok(), number == owner, "block {block}");
        }
    }
}
