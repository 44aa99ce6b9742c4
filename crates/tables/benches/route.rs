// SPDX-License-Identifier: Apache-2.0
//! Cost of routing a frame without ports: `cargo bench -p quietwire-tables --bench route`.
//!
//! Bursts of 64 of the smallest frames, to destinations drawn at random under routes of /24 (IPv4) and /48 (IPv6), are decided on and
//! rewritten in place. Criterion's elements per second are frames per second of one CPU.

#![allow(clippy::expect_used, clippy::panic)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ipnet::{Ipv4Net, Ipv6Net};
use quietwire_base::BURST_MAX;
use quietwire_packet::{MacAddress, checksum};
use quietwire_tables::fib::{Ipv4Routes, Ipv6Routes};
use quietwire_tables::route::{
    Decisions, Interface, InterfaceBinding, Interfaces, NextHop, NextHopWriter, Router, Source,
    Urpf, Vrf, decide, rewrite,
};

const ROUTES: [u32; 2] = [1, 20_000];
/// Number of frames sent in turn: few enough for the cache, like the buffers of a port's ring.
const FRAMES: u32 = 1024;
const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const NEIGHBOUR: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

fn v4(number: u32) -> Ipv4Net {
    Ipv4Net::new((0x1000_0000 + (number << 8)).into(), 24).expect("a length")
}

fn v6(number: u32) -> Ipv6Net {
    let bits = (0x3fff << 112) | (u128::from(number) << 80);
    Ipv6Net::new(bits.into(), 48).expect("a length")
}

/// Returns both tables with this number of routes, all through one neighbour.
fn router(routes: u32) -> Router {
    let mut next_hops = NextHopWriter::new(64).expect("space for next hops");
    let hop = NextHop::Adjacency {
        interface: 1,
        mac: NEIGHBOUR,
    };
    let hop = next_hops.add(hop).expect("space");
    let mut ipv4 = Ipv4Routes::new(1 << 16).expect("memory");
    let mut ipv6 = Ipv6Routes::new(1 << 20).expect("memory");
    for number in 0..routes {
        ipv4.insert(v4(number), hop).expect("space");
    }
    let all = (0..routes).map(|number| (v6(number), hop));
    ipv6.insert_all(all).expect("space");
    let interface = |number| Interface {
        place: InterfaceBinding::Port(number),
        vlan: None,
        mac: STATION,
        mtu: 1500,
        vrf: 0,
        urpf: Urpf::Off,
        ipv4: true,
        ipv6: true,
    };
    Router {
        interfaces: Interfaces::new((0..2).map(|number| (number, interface(number)))),
        vrfs: vec![Vrf {
            ipv4: ipv4.fib(),
            ipv6: ipv6.fib(),
        }],
        next_hops: next_hops.shared(),
        kernel_filter: None,
    }
}

type Frame = Vec<u8>;

fn ethernet(ethertype: [u8; 2]) -> Frame {
    [STATION.0, NEIGHBOUR.0]
        .concat()
        .into_iter()
        .chain(ethertype)
        .collect()
}

fn v4_frame(destination: u32) -> Frame {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[3] = 46;
    (header[8], header[9]) = (64, 17);
    header[12..16].copy_from_slice(&[198, 18, 0, 1]);
    header[16..].copy_from_slice(&destination.to_be_bytes());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&ethernet([8, 0])[..], &header, &[0; 26]].concat()
}

fn v6_frame(destination: u128) -> Frame {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[5] = 26;
    (header[6], header[7]) = (17, 64);
    header[8..12].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
    header[24..].copy_from_slice(&destination.to_be_bytes());
    [&ethernet([0x86, 0xdd])[..], &header, &[0; 26]].concat()
}

/// Returns random route numbers: xorshift32 (Marsaglia, 2003), the same sequence each time.
fn chosen(routes: u32) -> impl Iterator<Item = u32> {
    let mut state = 7u32;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state % routes
    })
    .take(FRAMES as usize)
}

/// Routes a burst and restores each frame's TTL, so that it can be sent again.
fn forward(router: &Router, burst: &mut [Frame], decisions: &mut Decisions, ttl: usize) {
    decide(
        router,
        burst.iter().map(Vec::as_slice),
        &[0; BURST_MAX],
        decisions,
    );
    for (frame, word) in burst.iter_mut().zip(decisions.words()) {
        let Some(to) = word.forwarded() else {
            panic!("every frame has a route, not {:?}", word.decision());
        };
        assert!(rewrite(frame, Source::new(STATION), to));
        // The next frame in this buffer would have the original TTL.
        frame[..6].copy_from_slice(&STATION.0);
        frame[ttl] += 1;
        if ttl == 22 {
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            let sum = quietwire_packet::update_checksum_u16(sum, 63 << 8 | 17, 64 << 8 | 17);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

fn route(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("route");
    group.throughput(Throughput::Elements(BURST_MAX as u64));
    for routes in ROUTES {
        let router = router(routes);
        let v4_frames = chosen(routes).map(|number| v4_frame(v4(number).network().to_bits() | 9));
        let v6_frames = chosen(routes).map(|number| v6_frame(v6(number).network().to_bits() | 9));
        let kinds: [(&str, Vec<Frame>, usize); 2] = [
            ("IPv4", v4_frames.collect(), 22),
            ("IPv6", v6_frames.collect(), 21),
        ];
        for (name, mut frames, ttl) in kinds {
            let mut decisions = Decisions::default();
            let mut at = 0;
            group.bench_function(format!("{name}, {routes} routes"), |bencher| {
                bencher.iter(|| {
                    let burst = &mut frames[at..at + BURST_MAX];
                    at = (at + BURST_MAX) % FRAMES as usize;
                    forward(&router, burst, &mut decisions, ttl);
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, route);
criterion_main!(benches);
