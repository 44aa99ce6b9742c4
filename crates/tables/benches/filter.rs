// SPDX-License-Identifier: Apache-2.0
//! Cost of filter rules, with and without the check for malformed frames: `cargo bench -p quietwire-tables --bench filter`.
//!
//! Bursts of 64 frames, which eight rules do not match. Criterion's elements per second are frames per second of one CPU. `rules` has filters
//! of up to 100,000 rules beside one without rules, `another rule for each frame` has frames on which different ones of them decide, and
//! `elements` is the time for a change of 10,000 elements of a set to be ready for forwarding threads (goal: under 10 ms).

mod common {
    pub(crate) mod random;
}

use std::sync::Arc;

use common::random::Random;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quietwire_base::BURST_MAX;
use quietwire_tables::filter::{
    Action, Continued, Element, Fallback, MalformedAction, PacketMatch, PortRule, PortRules, Ports,
    Protocol, RuleCounters, RuleTable, SetField, Verdict,
};

const RULES: u16 = 8;
/// Frames of different rules.
const FRAMES: usize = 4096;

/// Returns a frame of an IPv4 packet with the options and the field of flags and fragment offset.
fn ipv4(tags: &[u16], options: &[u8], fragment: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for vlan in tags {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([8, 0]);
    let length = u16::try_from(20 + options.len() + 24).unwrap_or(0);
    let [high, low] = length.to_be_bytes();
    let words = u8::try_from(5 + options.len() / 4).unwrap_or(0);
    frame.extend([0x40 | words, 0, high, low, 0, 0]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1]);
    frame.extend(options);
    frame.extend([0, 9, 0, 53, 0, 24, 0, 0]);
    frame.extend([0; 16]);
    frame
}

/// Returns a frame of an IPv6 packet with this number of destination options headers.
fn ipv6(extensions: u8) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, extensions * 8 + 24]);
    frame.extend([if extensions > 0 { 60 } else { 17 }, 64]);
    frame.extend([0x20; 32]);
    for left in (0..extensions).rev() {
        frame.extend([if left > 0 { 60 } else { 17 }, 0, 1, 4, 0, 0, 0, 0]);
    }
    frame.extend([0, 9, 0, 53, 0, 24, 0, 0]);
    frame.extend([0; 16]);
    frame
}

fn judge_bursts(criterion: &mut Criterion) {
    let rule = |number: u16| {
        PortRule::new(
            PacketMatch {
                protocol: Some(Protocol(17)),
                destination_port: Some(Ports {
                    first: 1000 + number,
                    last: 1000 + number,
                }),
                ..PacketMatch::default()
            },
            Action::Drop,
        )
    };
    let mut group = criterion.benchmark_group("filter");
    group.throughput(Throughput::Elements(BURST_MAX as u64));
    for (name, frame) in [
        ("udp", ipv4(&[], &[], 0)),
        ("udp in a vlan", ipv4(&[7], &[], 0)),
        ("udp of ipv6", ipv6(0)),
        ("ipv4 with options", ipv4(&[], &[7, 3, 4, 0], 0)),
        ("fragment", ipv4(&[], &[], 0x2003)),
        ("three extension headers", ipv6(3)),
    ] {
        for malformed in [MalformedAction::Match, MalformedAction::Drop] {
            let fallback = Fallback {
                malformed,
                ..Fallback::default()
            };
            let table = RuleTable::new((0..RULES).map(rule), fallback);
            let rules = PortRules::new(table.into(), 0, None);
            let frames = vec![frame.clone(); BURST_MAX];
            let mut verdicts = [Verdict::Short; BURST_MAX];
            group.bench_function(format!("{name}, {malformed:?}"), |bencher| {
                bencher.iter(|| {
                    let burst = frames.iter().map(|frame| (&frame[..], frame.len() as u32));
                    rules.judge(std::hint::black_box(burst), &mut verdicts)
                });
            });
        }
    }
    group.finish();
}

/// Returns a rule that drops packets from one address.
fn from_address(number: u32) -> PortRule {
    PortRule::new(
        PacketMatch {
            source: format!("{}/32", std::net::Ipv4Addr::from_bits(0x0a00_0000 + number))
                .parse()
                .ok(),
            ..PacketMatch::default()
        },
        Action::Drop,
    )
}

fn judge_by_many_rules(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rules");
    group.throughput(Throughput::Elements(BURST_MAX as u64));
    for count in [0u32, 10, 1000, 10_000, 100_000] {
        let table = RuleTable::new((0..count).map(from_address), Fallback::default());
        let rules = PortRules::new(table.into(), 0, None);
        let frames = vec![ipv4(&[], &[], 0); BURST_MAX];
        let mut verdicts = [Verdict::Short; BURST_MAX];
        group.bench_function(format!("{count} rules"), |bencher| {
            bencher.iter(|| {
                let burst = frames.iter().map(|frame| (&frame[..], frame.len() as u32));
                rules.judge(std::hint::black_box(burst), &mut verdicts)
            });
        });
    }
    group.finish();
}

fn judge_by_another_rule_for_each_frame(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("another rule for each frame");
    group.throughput(Throughput::Elements(BURST_MAX as u64));
    for count in [10u32, 1000, 10_000, 100_000] {
        let counters = RuleCounters::default();
        let mut own = counters.thread();
        let rules = (0..count).map(|number| PortRule {
            frames: counters.rule(),
            ..from_address(number)
        });
        let table = RuleTable::new(rules, Fallback::counted_in(&counters));
        let rules = PortRules::new(table.into(), 0, None);
        let mut random = Random(7);
        let frames: Vec<Vec<u8>> = (0..FRAMES)
            .map(|_| {
                let number = (random.next() >> 32) as u32 % count;
                let mut frame = ipv4(&[], &[], 0);
                frame[26..30].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes());
                frame
            })
            .collect();
        let mut bursts = frames.chunks(BURST_MAX).cycle();
        let mut verdicts = [Verdict::Short; BURST_MAX];
        group.bench_function(format!("{count} rules"), |bencher| {
            bencher.iter(|| {
                let burst = bursts.next().unwrap_or_default();
                let burst = burst.iter().map(|frame| (&frame[..], frame.len() as u32));
                let out = (&mut verdicts, None::<&mut Continued>, &mut own);
                rules.judge(std::hint::black_box(burst), out)
            });
        });
    }
    group.finish();
}

fn change_elements(criterion: &mut Criterion) {
    let rule = PortRule {
        sets: vec![(SetField::Source, 0)],
        packet: PacketMatch::default(),
        ..from_address(0)
    };
    let element = |number: u32| {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + 7 * number);
        Element::Ipv4(address, address)
    };
    let few: Vec<Element> = (0..1000).map(element).collect();
    let many: Vec<Element> = (0..11_000).map(element).collect();
    let table = RuleTable::with_sets([rule], &[few], Fallback::default());
    let sets = [many];
    criterion.bench_function("elements: 10,000 added to 1,000", |bencher| {
        bencher.iter(|| Arc::new(std::hint::black_box(&table).with_elements(&sets)));
    });
}

criterion_group!(
    benches,
    judge_bursts,
    judge_by_many_rules,
    judge_by_another_rule_for_each_frame,
    change_elements
);
criterion_main!(benches);
