// SPDX-License-Identifier: Apache-2.0
//! Cost of a lookup in the classifier by number of rules: `cargo bench -p quietwire-tables --bench classifier`.
//!
//! Bursts of 64 keys of IPv4 packets, each of which matches a random rule. Prints the time per packet (median of 31
//! rounds of all packets), the time of compilation, that of a change of one rule, the memory per rule and the worst case. Filters of routers
//! ("acl") have specific prefixes; those of firewalls often have only one, and ranges of ports. Hostile ones have different overlapping ranges of
//! ports, which no bits separate.

#![allow(clippy::expect_used)]

mod common {
    pub(crate) mod random;
}

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::random::Random;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ipnet::{IpNet, Ipv4Net};
use quietwire_base::BURST_MAX;
use quietwire_tables::classifier::{Classifier, Key, NO_RULE, Rule};

/// Number of prepared packets.
const KEYS: usize = 1 << 16;

/// Returns random bits. The upper ones are the better ones.
fn number(random: &mut Random) -> u64 {
    random.next() >> 16
}

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[number(random) as usize % all.len()]
}

/// The fields of a packet of which its key is made, as a switch makes it from a frame.
#[derive(Clone, Copy)]
struct Fields {
    addresses: [u32; 2],
    ports: [u16; 2],
}

/// A rule, and a packet that it matches.
type Sample = (Rule, Fields);

/// Makes a rule of a kind.
type Make = fn(&mut Random) -> Sample;

impl Fields {
    #[inline(always)]
    fn key(self) -> Key {
        let mut key = Key::EMPTY;
        key.set_ethertype(0x0800);
        key.set_ipv4(self.addresses[0], self.addresses[1]);
        key.set_protocol(6);
        key.set_ports(self.ports[0], self.ports[1]);
        key
    }
}

const SERVICES: [u16; 8] = [22, 25, 53, 80, 123, 443, 3306, 8080];

fn prefix(random: &mut Random, length: u8) -> (IpNet, u32) {
    let bits = (number(random) as u32 % 16 * 0x0b00_0000).wrapping_add(number(random) as u32 >> 8);
    let net = Ipv4Net::new(bits.into(), length).expect("a length").trunc();
    let host = net.network().to_bits() | (number(random) as u32 & net.hostmask().to_bits());
    (net.into(), host)
}

fn sample(random: &mut Random, lengths: (u8, u8), ports: (u16, u16)) -> Sample {
    let mut rule = Rule::ANY.with_protocol(6);
    let mut addresses = [0; 2];
    for (number, (address, length)) in addresses.iter_mut().zip([lengths.0, lengths.1]).enumerate()
    {
        let (net, host) = prefix(random, length);
        *address = host;
        if length > 0 {
            rule = match number {
                0 => rule.with_source(net),
                _ => rule.with_destination(net),
            };
        }
    }
    rule = rule.with_ports(0..=u16::MAX, ports.0..=ports.1);
    let ports = [number(random) as u16, ports.0];
    (rule, Fields { addresses, ports })
}

fn acl(random: &mut Random) -> Sample {
    let lengths = (
        one_of(random, &[0, 16, 24, 24, 32, 32]),
        one_of(random, &[16, 24, 28, 32, 32, 32]),
    );
    let port = one_of(random, &SERVICES);
    sample(random, lengths, (port, port))
}

fn firewall(random: &mut Random) -> Sample {
    let lengths = (
        one_of(random, &[0, 16, 24, 32]),
        one_of(random, &[0, 8, 24, 32]),
    );
    let port = one_of(random, &SERVICES);
    let high = number(random) as u16 % 60_000 + 1024;
    let ports = match number(random) % 3 {
        0 => (high, high + 100),
        1 => (high, high),
        _ => (port, port),
    };
    sample(random, lengths, ports)
}

/// Most hostile rules that are measured: each packet is compared with many of them.
const HOSTILE_MAX: usize = 10_000;

fn hostile(random: &mut Random) -> Sample {
    let first = number(random) as u16 % 30_000;
    let last = first + 1_000 + number(random) as u16 % 30_000;
    sample(random, (0, 0), (first, last))
}

fn measure(classifier: &Classifier, packets: &[Fields]) -> Duration {
    let mut found = [NO_RULE; BURST_MAX];
    let mut keys = [Key::EMPTY; BURST_MAX];
    let began = Instant::now();
    for burst in packets.chunks(BURST_MAX) {
        for (key, fields) in keys.iter_mut().zip(burst) {
            *key = fields.key();
        }
        classifier.lookup(black_box(&keys), &mut found);
        black_box(&found);
    }
    began.elapsed()
}

fn lookups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("classifier");
    group.throughput(Throughput::Elements(KEYS as u64));
    group.sample_size(20);
    let kinds: [(&str, Make); 3] = [("acl", acl), ("firewall", firewall), ("hostile", hostile)];
    for (kind, make) in kinds {
        for count in [10usize, 100, 1000, 10_000, 100_000] {
            if kind == "hostile" && count > HOSTILE_MAX {
                continue;
            }
            let mut random = Random(7);
            let samples: Vec<Sample> = (0..count).map(|_| make(&mut random)).collect();
            let rules: Vec<Rule> = samples.iter().map(|(rule, _)| *rule).collect();
            let keys: Vec<Fields> = (0..KEYS).map(|_| one_of(&mut random, &samples).1).collect();
            let began = Instant::now();
            let classifier = Classifier::new(&rules);
            let compiled = began.elapsed();
            let mut other = rules.clone();
            other[count / 2] = make(&mut random).0;
            let began = Instant::now();
            let is_patched = classifier.changed(&rules, &other).is_some();
            let changed = began.elapsed();
            let mut times: Vec<Duration> = (0..31).map(|_| measure(&classifier, &keys)).collect();
            times.sort_unstable();
            let each_ns = times[times.len() / 2].as_secs_f64() * 1e9 / KEYS as f64;
            let shape = classifier.shape();
            println!(
                "{kind}: {count} rules: {each_ns:.1} ns a packet, compiled in {compiled:?}, changed in {changed:?} ({}), {} octets a rule, {shape:?}",
                if is_patched { "one rule" } else { "refused" },
                shape.octets / count
            );
            group.bench_function(format!("{kind}, {count} rules"), |bencher| {
                bencher.iter(|| measure(&classifier, &keys));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, lookups);
criterion_main!(benches);
