// SPDX-License-Identifier: Apache-2.0
//! Cost of the address table per frame: `cargo bench -p quietwire-tables --bench fdb`.
//!
//! Bursts of 64 frames, each with a known source address and a known destination: hash and prefetch all, then learn and look up all, as the
//! bridge does. The addresses are taken in turn from 1 to 1,000,000, all in a table with space for 1,000,000. Criterion's elements per
//! second are frames per second of one CPU.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quietwire_tables::fdb::{Fdb, Key};

const BURST: usize = 64;
const ENTRIES_MAX: u32 = 1_000_000;
const ADDRESSES: [u64; 5] = [1, 2_000, 20_000, 200_000, 1_000_000];

fn key(number: u64) -> Key {
    Key::of_number(0x0200_0000_0000 | number)
}

fn burst(fdb: &Fdb, next: &mut u64, addresses: u64) -> u64 {
    let now = fdb.now(7);
    let mut hashes = [(fdb.hash(key(0)), fdb.hash(key(0))); BURST];
    for hashes in &mut hashes {
        let source = *next;
        *next = if source + 1 == addresses {
            0
        } else {
            source + 1
        };
        let destination = if source < addresses / 2 {
            source + addresses / 2
        } else {
            source - addresses / 2
        };
        *hashes = (fdb.hash(key(destination)), fdb.hash(key(source)));
        fdb.prefetch(hashes.0);
        fdb.prefetch(hashes.1);
    }
    let mut ports = 0;
    for (destination, source) in hashes {
        black_box(fdb.learn(source, 1, now, u32::MAX));
        ports += u64::from(fdb.look_up(destination, now).unwrap_or(9));
    }
    ports
}

fn learn_and_look_up(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fdb");
    group.throughput(Throughput::Elements(BURST as u64));
    for addresses in ADDRESSES {
        let fdb = Fdb::new(ENTRIES_MAX, 300);
        for number in 0..addresses {
            fdb.learn(fdb.hash(key(number)), 1, fdb.now(7), u32::MAX);
        }
        let mut next = 0;
        group.bench_function(format!("{addresses} addresses"), |bencher| {
            bencher.iter(|| burst(&fdb, &mut next, addresses));
        });
    }
    group.finish();
}

criterion_group!(benches, learn_and_look_up);
criterion_main!(benches);
