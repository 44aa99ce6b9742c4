// SPDX-License-Identifier: Apache-2.0
//! Cost of a bridge decision: `cargo bench -p quietwire-tables --bench bridge`.
//!
//! Bursts of 64 frames between known stations, 1 to 20,000 of them in turn, through a plain bridge and through one with VLANs. Criterion's
//! elements per second are frames per second of one CPU.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quietwire_base::BURST_MAX;
use quietwire_packet::VlanId;
use quietwire_tables::bridge::{
    BridgePort, BridgeTables, Clock, Decisions, Ingress, PortVlans, Settings, Storm, Trunk,
    VlanSet, decide_with,
};
use quietwire_tables::fdb::{Fdb, Key};

const ADDRESSES: [u32; 3] = [1, 2_000, 20_000];
/// The part of a frame that a decision requires.
type Frame = [u8; 20];

fn address(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [2, 0, a, b, c, d]
}

/// Returns a frame from each station on port 0 to one on port 1, in a VLAN if one is given.
fn frames(addresses: u32, vlan: u16) -> Vec<Frame> {
    let frame = |number: u32| {
        let mut frame = [0; 20];
        frame[..6].copy_from_slice(&address(addresses + (number * 7) % addresses));
        frame[6..12].copy_from_slice(&address(number));
        let [a, b] = vlan.to_be_bytes();
        frame[12..16].copy_from_slice(&[0x81, 0, a, b]);
        frame
    };
    (0..addresses.max(BURST_MAX as u32))
        .map(|number| frame(number % addresses))
        .collect()
}

fn decide_on_bursts(criterion: &mut Criterion) {
    let trunk = |number| BridgePort {
        vlans: PortVlans::Trunk(Box::new(Trunk::new(VlanSet::all()))),
        ..BridgePort::new(number)
    };
    let bridges = [
        ("plain", 0, [BridgePort::new(0), BridgePort::new(1)]),
        ("vlan", 10, [trunk(0), trunk(1)]),
    ];
    let mut group = criterion.benchmark_group("bridge");
    group.throughput(Throughput::Elements(BURST_MAX as u64));
    for (name, vlan, ports) in bridges {
        assert!(vlan == 0 || VlanId::new(vlan).is_ok());
        let settings = Settings {
            ports: ports.into(),
            ..Settings::default()
        };
        let Ok(tables) = BridgeTables::new(&settings) else {
            continue;
        };
        for addresses in ADDRESSES {
            let fdb = Fdb::new(65_536, 300);
            let teach = |from, to| {
                for number in from..to {
                    let [a, b, c, d, e, f] = address(number);
                    let key = Key::in_vlan(vlan, u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
                    fdb.learn(fdb.hash(key), u16::from(from > 0), fdb.now(7), u32::MAX);
                }
            };
            teach(0, addresses);
            teach(addresses, 2 * addresses);
            let frames = frames(addresses, vlan);
            let mut bursts = frames.chunks(BURST_MAX).cycle();
            let (mut storm, mut decisions) = (Storm::default(), Decisions::default());
            let clock = Clock { now_s: 7, ticks: 0 };
            group.bench_function(format!("{name}, {addresses} addresses"), |bencher| {
                bencher.iter(|| {
                    let burst = bursts.next().unwrap_or_default();
                    let burst = burst.iter().map(|frame| &frame[..]);
                    let from = Ingress::Port(0);
                    decide_with(
                        &tables,
                        &fdb,
                        from,
                        &mut storm,
                        clock,
                        burst,
                        &mut decisions,
                    )
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, decide_on_bursts);
criterion_main!(benches);
