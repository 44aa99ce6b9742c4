// SPDX-License-Identifier: Apache-2.0
//! Cost of the connection tracker and of NAT: `cargo bench -p quietwire-tables --bench connections`.
//!
//! Bursts of 64 datagrams of random connections out of 1, 60,000 and a million, each known in both directions: parse, classify, update.
//! Then new connections, each of which replaces the oldest embryonic one of a full table, source NAT, and the search of a burst for fragments,
//! which the switch does before it tracks or translates. Criterion's elements per second are packets per second of one CPU.

#![allow(clippy::expect_used)]

mod common {
    pub(crate) mod random;
}

use std::hint::black_box;

use common::random::Random;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use quietwire_tables::connections::{Packet, Settings, Tracked, Tracker};
use quietwire_tables::fragment_order::may_be_fragment;
use quietwire_tables::nat::{
    FilteringBehaviour, HoldDown, MappingBehaviour, Nat, NatSettings, NatTimeouts, PortPool,
};

const BURST: usize = 64;
const LENGTH: usize = 46;

/// Returns a datagram of flow `number`; odd directions are replies.
fn datagram(number: u32, is_reply: bool) -> [u8; LENGTH] {
    let client = (0x0a00_0000 | number >> 8).to_be_bytes();
    let server = 0xc000_0201u32.to_be_bytes();
    let client_port = (1024 + (number & 0xff) as u16).to_be_bytes();
    let server_port = 53u16.to_be_bytes();
    let mut octets = [0; LENGTH];
    octets[..4].copy_from_slice(&[0x45, 0, 0, LENGTH as u8]);
    octets[8..10].copy_from_slice(&[64, 17]);
    let ends = match is_reply {
        true => (server, client, server_port, client_port),
        false => (client, server, client_port, server_port),
    };
    octets[12..16].copy_from_slice(&ends.0);
    octets[16..20].copy_from_slice(&ends.1);
    octets[20..22].copy_from_slice(&ends.2);
    octets[22..24].copy_from_slice(&ends.3);
    octets[24..26].copy_from_slice(&[0, (LENGTH - 20) as u8]);
    octets
}

fn read(octets: &[u8; LENGTH]) -> Packet {
    Packet::read(0x0800, octets, LENGTH, 0)
}

fn tracker(flows: u32) -> Tracker {
    let mut tracker = Tracker::new(&Settings::of_size(flows)).expect("memory");
    for number in 0..flows {
        let request = read(&datagram(number, false));
        tracker.commit(&request, 0).expect("space");
        let mut tracked = [Tracked::UNTRACKED];
        tracker.track(&[read(&datagram(number, true))], 0, &mut tracked);
    }
    tracker
}

fn known(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tracked");
    group.throughput(Throughput::Elements(BURST as u64));
    for flows in [1, 60_000, 1_000_000] {
        let mut tracker = tracker(flows);
        let mut random = Random(3);
        println!(
            "{flows} flows: {} octets per entry",
            tracker.octets() / tracker.capacity()
        );
        group.bench_function(format!("{flows}"), |bencher| {
            bencher.iter_batched_ref(
                || -> Vec<[u8; LENGTH]> {
                    let number = |_| (random.next() >> 32) as u32 % flows;
                    (0..BURST)
                        .map(number)
                        .map(|one| datagram(one, false))
                        .collect()
                },
                |burst| {
                    let mut packets = [Packet::UNTRACKED; BURST];
                    for (packet, octets) in packets.iter_mut().zip(burst.iter()) {
                        *packet = read(octets);
                    }
                    let mut tracked = [Tracked::UNTRACKED; BURST];
                    tracker.track(&packets, 0, &mut tracked);
                    black_box(tracked[BURST - 1])
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn new(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("new");
    group.throughput(Throughput::Elements(1));
    for size in [60_000, 1_000_000] {
        let mut tracker = Tracker::new(&Settings::of_size(size)).expect("memory");
        let mut number = 0;
        group.bench_function(format!("{size}"), |bencher| {
            bencher.iter(|| {
                number = (number + 1) & 0xff_ffff;
                let packet = read(&datagram(number, false));
                let mut tracked = [Tracked::UNTRACKED];
                tracker.track(&[packet], 0, &mut tracked);
                black_box(tracker.commit(&packet, 0).is_ok())
            });
        });
    }
    group.finish();
}

fn source_nat(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("source-nat");
    group.throughput(Throughput::Elements(BURST as u64));
    for flows in [1, 60_000] {
        let addresses = (1..=4).map(|one| [198, 51, 100, one].into()).collect();
        let mut nat = Nat::new(&NatSettings {
            pool: PortPool {
                addresses,
                first_port: 1024,
                last_port: u16::MAX,
                block_size: 256,
                blocks_per_host: 2,
                deterministic: Vec::new(),
                hold_down: HoldDown::default(),
            },
            forwards: Vec::new(),
            pairs: Vec::new(),
            mappings_max: flows,
            hosts_max: flows,
            mapping: MappingBehaviour::default(),
            filtering: FilteringBehaviour::default(),
            timeouts: NatTimeouts::default(),
        })
        .expect("memory");
        let mut random = Random(3);
        group.bench_function(format!("{flows}"), |bencher| {
            bencher.iter_batched_ref(
                || -> Vec<[u8; LENGTH]> {
                    let number = |_| (random.next() >> 32) as u32 % flows;
                    (0..BURST)
                        .map(number)
                        .map(|one| datagram(one, false))
                        .collect()
                },
                |burst| {
                    for octets in burst.iter() {
                        nat.prefetch_outbound(octets);
                    }
                    for octets in burst.iter_mut() {
                        black_box(nat.outbound(octets, LENGTH, 0));
                    }
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// Searches bursts without fragments.
fn fragment_search(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fragment-search");
    group.throughput(Throughput::Elements(BURST as u64));
    for (name, ethertype, next_header) in [("IPv4", [8u8, 0], 0u8), ("IPv6", [0x86, 0xdd], 17)] {
        let mut frame = [0u8; 14 + LENGTH];
        frame[12..14].copy_from_slice(&ethertype);
        frame[20] = next_header;
        let burst = [frame; BURST];
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut frames = black_box(&burst).iter();
                frames.any(|frame| may_be_fragment(frame))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, known, new, source_nat, fragment_search);
criterion_main!(benches);
