// SPDX-License-Identifier: Apache-2.0
//! Cost of a look-up and of a change in the forwarding tables: `cargo bench -p quietwire-tables --bench fib`.
//!
//! Bursts of 64 destinations, uniformly random among those that have a route. Criterion's elements per second are frames per second of one
//! CPU. Routes are /16 to /24 (IPv4) and /32 to /64 (IPv6), as in the Internet's tables.

#![allow(clippy::expect_used)]

mod common {
    pub(crate) mod random;
}

use std::hint::black_box;
use std::time::Instant;

use common::random::Random;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ipnet::{Ipv4Net, Ipv6Net};
use quietwire_tables::fib::{Ipv4Routes, Ipv6Routes};

const BURST: usize = 64;
/// Number of prepared destinations, more than fit the caches.
const DESTINATIONS: usize = 1 << 20;

fn prefixes4(count: usize) -> Vec<Ipv4Net> {
    let mut random = Random(7);
    let mut all = std::collections::BTreeSet::new();
    while all.len() < count {
        // Six of ten are /24.
        let length = match random.next() % 10 {
            0..6 => 24,
            6..8 => 22,
            8 => 20,
            _ => 16,
        };
        let length = if count > 500_000 { 24 } else { length };
        let net = Ipv4Net::new(((random.next() >> 32) as u32).into(), length).expect("a length");
        all.insert(net.trunc());
    }
    all.into_iter().collect()
}

fn prefixes6(count: usize) -> Vec<Ipv6Net> {
    let mut random = Random(7);
    let mut all = std::collections::BTreeSet::new();
    while all.len() < count {
        let length = [32, 36, 40, 44, 48, 48, 48, 48, 56, 64][random.next() as usize % 10];
        // 2000::/3, in which 16,384 /32 are in use.
        let high = 0x2000_0000 | (random.next() % (1 << 14)) << 8;
        let bits = u128::from(high) << 96 | u128::from(random.next()) << 32;
        all.insert(Ipv6Net::new(bits.into(), length).expect("a length").trunc());
    }
    all.into_iter().collect()
}

fn ipv4(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ipv4");
    group.throughput(Throughput::Elements(BURST as u64));
    for count in [1, 20_000, 200_000, 2_000_000] {
        let prefixes = prefixes4(count);
        let mut routes = Ipv4Routes::new(1 << 16).expect("memory");
        let began = Instant::now();
        for (number, prefix) in prefixes.iter().enumerate() {
            routes
                .insert(*prefix, 1 + number as u32 % 1000)
                .expect("space");
        }
        println!("ipv4: {count} routes in {:?}", began.elapsed());
        let mut random = Random(9);
        let destinations: Vec<u32> = (0..DESTINATIONS)
            .map(|_| {
                let prefix = prefixes[random.next() as usize % count];
                prefix.network().to_bits() | random.next() as u32 & prefix.hostmask().to_bits()
            })
            .collect();
        let fib = routes.fib();
        let mut at = 0;
        group.bench_function(format!("{count}"), |bencher| {
            bencher.iter(|| {
                let mut found = [0; BURST];
                fib.look_up_burst(&destinations[at..at + BURST], &mut found);
                at = (at + BURST) % DESTINATIONS;
                black_box(found)
            });
        });
    }
    group.finish();
}

fn ipv6(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ipv6");
    group.throughput(Throughput::Elements(BURST as u64));
    for count in [1, 20_000, 500_000] {
        let prefixes = prefixes6(count);
        let mut routes = Ipv6Routes::new(1 << 22).expect("memory");
        let began = Instant::now();
        let numbered = prefixes.iter().enumerate();
        let all = numbered.map(|(number, prefix)| (*prefix, 1 + number as u32 % 1000));
        routes.insert_all(all).expect("space");
        println!(
            "ipv6: {count} routes in {:?}, {} nodes",
            began.elapsed(),
            routes.nodes()
        );
        let mut random = Random(9);
        let destinations: Vec<u128> = (0..DESTINATIONS)
            .map(|_| {
                let prefix = prefixes[random.next() as usize % count];
                let bits = u128::from(random.next()) << 64 | u128::from(random.next());
                prefix.network().to_bits() | bits & prefix.hostmask().to_bits()
            })
            .collect();
        let fib = routes.fib();
        let mut at = 0;
        group.bench_function(format!("{count}"), |bencher| {
            bencher.iter(|| {
                let mut found = [0; BURST];
                fib.look_up_burst(&destinations[at..at + BURST], &mut found);
                at = (at + BURST) % DESTINATIONS;
                black_box(found)
            });
        });
    }
    group.finish();
}

/// Benchmarks adding and removing one route in a large table.
fn changes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("change");
    let mut routes = Ipv4Routes::new(1 << 16).expect("memory");
    for prefix in prefixes4(1_000_000) {
        routes.insert(prefix, 1).expect("space");
    }
    let prefix: Ipv4Net = "198.51.100.64/26".parse().expect("a prefix");
    let mut epoch = 0;
    group.bench_function("ipv4", |bencher| {
        bencher.iter(|| {
            epoch += 1;
            routes.set_epoch(epoch);
            routes.insert(prefix, 2).expect("space");
            routes.remove(prefix);
            routes.reclaim(epoch);
        });
    });
    let mut routes = Ipv6Routes::new(1 << 22).expect("memory");
    routes
        .insert_all(prefixes6(500_000).into_iter().map(|prefix| (prefix, 1)))
        .expect("space");
    let prefix: Ipv6Net = "2000:100:1:2::/64".parse().expect("a prefix");
    group.bench_function("ipv6", |bencher| {
        bencher.iter(|| {
            epoch += 1;
            routes.set_epoch(epoch);
            routes.insert(prefix, 2).expect("space");
            routes.remove(prefix).expect("space");
            routes.reclaim(epoch);
        });
    });
    group.finish();
}

criterion_group!(benches, ipv4, ipv6, changes);
criterion_main!(benches);
