// SPDX-License-Identifier: Apache-2.0
//! Cost of filter rules, with and without the check for malformed frames: `cargo bench -p quietwire-tables --bench filter`.
//!
//! Bursts of 64 frames, which eight rules do not match. Criterion's elements per second are frames per second of one CPU.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quietwire_base::BURST_MAX;
use quietwire_tables::filter::{
    Action, Fallback, FurtherMatch, MalformedAction, PacketMatch, PortRule, PortRules, Ports,
    Protocol, RuleTable, Verdict,
};

const RULES: u16 = 8;

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
    let rule = |number: u16| PortRule {
        port: None,
        group: None,
        vlan: None,
        packet: PacketMatch {
            protocol: Some(Protocol(17)),
            destination_port: Some(Ports {
                first: 1000 + number,
                last: 1000 + number,
            }),
            ..PacketMatch::default()
        },
        further: FurtherMatch::default(),
        sets: Vec::new(),
        ct_states: None,
        action: Action::Drop,
        frames: Default::default(),
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

criterion_group!(benches, judge_bursts);
criterion_main!(benches);
