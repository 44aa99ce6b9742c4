// SPDX-License-Identifier: Apache-2.0
//! Files read again by another implementation of pcapng, and the figures of their times.

use std::collections::BTreeMap;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgParser};
use proptest::prelude::*;

use super::*;
use crate::latency::{Recorder, Sample, SignedRecorder};

const START: TrialStart = TrialStart {
    unix_ns: 1_700_000_000_123_456_789,
    tick: 5_000,
};
/// Not a whole number of nanoseconds for each tick.
const HZ: u64 = 2_600_000_000;
/// A sequence number beyond those of the streams.
const NEVER_SENT: u32 = 1_000_000;

/// Code of the option with the identifier of a packet (epb_packetid of the draft).
const PACKET_ID: u16 = 5;

/// Transmit and receive time of each frame in a file, nanoseconds.
type Frames = BTreeMap<(u32, u32), [Option<u64>; 2]>;

/// Reads a file of one trial with the crate `pcap-file`.
fn read(file: &[u8]) -> Frames {
    let (mut rest, mut parser) = PcapNgParser::new(file).unwrap();
    let mut frames = Frames::new();
    let mut last = 0;
    while !rest.is_empty() {
        let (after, block) = parser.next_block(rest).unwrap();
        rest = after;
        let Block::EnhancedPacket(packet) = block else {
            assert!(matches!(block, Block::InterfaceDescription(_)));
            continue;
        };
        let word = |at: usize| u32::from_be_bytes(packet.data[at..at + 4].try_into().unwrap());
        let (port, sequence) = (word(8), word(12));
        assert_eq!(packet.data[..8], START.unix_ns.to_be_bytes());
        let identifier = (u64::from(port) << 32) | u64::from(sequence);
        let has_identifier = |it: &EnhancedPacketOption<'_>| match it {
            EnhancedPacketOption::Unknown(it) => {
                it.code == PACKET_ID && *it.value == identifier.to_le_bytes()
            }
            _ => false,
        };
        assert!(packet.options.iter().any(has_identifier), "{packet:?}");
        let time = u64::try_from(packet.timestamp.as_nanos()).unwrap();
        assert!(last <= time);
        last = time;
        let times = frames.entry((port, sequence)).or_default();
        times[packet.interface_id as usize] = Some(time);
    }
    let [transmit, receive] = parser.interfaces() else {
        panic!("{:?}", parser.interfaces());
    };
    assert_ne!(format!("{transmit:?}"), format!("{receive:?}"));
    frames
}

/// Returns the differences that RFC 5481 defines, computed from the times of a port.
fn variation(frames: &Frames, port: u32) -> (Vec<i64>, Vec<u64>) {
    let delays: BTreeMap<u32, u64> = frames
        .iter()
        .filter(|((of, _), _)| *of == port)
        .filter_map(|((_, sequence), times)| Some((*sequence, times[1]? - times[0]?)))
        .collect();
    let before = |sequence: u32| delays.get(&sequence.checked_sub(1)?);
    let ipdv = delays.iter().filter_map(|(sequence, delay)| {
        Some(delay.cast_signed() - before(*sequence)?.cast_signed())
    });
    let min = delays.values().min().copied().unwrap_or(0);
    let pdv = delays.values().map(|delay| delay - min);
    (ipdv.collect(), pdv.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn ipdv_and_pdv_of_the_file_are_those_of_the_result(
        frames in prop::collection::vec((0u64..1 << 40, prop::option::of(1u64..50_000_000)), 1..60),
        second in prop::collection::vec((0u64..1 << 40, prop::option::of(1u64..50_000_000)), 0..60),
    ) {
        let ports = [frames, second].map(|mut frames| {
            frames.sort_unstable();
            frames
        });
        let mut samples = Samples::with_capacity(200);
        let mut sent = Vec::new();
        for (port, frames) in (0u8..).zip(&ports) {
            sent.push(frames.iter().map(|(tick, _)| START.tick + tick).collect::<Vec<_>>());
            for (sequence, (_, delay)) in (0u32..).zip(frames) {
                if let Some(delay_ns) = *delay {
                    samples.add(Sample { port, sequence, delay_ns });
                }
            }
        }
        // A frame that was never sent has no place in the file.
        samples.add(Sample { port: 0, sequence: NEVER_SENT, delay_ns: 1 });
        let streams = [0u8, 1].map(|port| Stream { port, sent: &sent[usize::from(port)] });
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("times.pcapng");
        let mut file = TimeStampFile::create(&path).unwrap();
        file.append(START, Scale::new(HZ), &streams, &samples).unwrap();
        prop_assert_eq!(file.left_out, 0);
        let read = read(&std::fs::read(&path).unwrap());
        prop_assert_eq!(read.len(), sent[0].len() + sent[1].len());
        for port in [0u8, 1] {
            let mut result = Samples::with_capacity(200);
            let of_port = samples.of_port(port);
            of_port.iter().filter(|it| it.sequence < NEVER_SENT).for_each(|it| result.add(*it));
            let (ipdv, pdv) = variation(&read, u32::from(port));
            let mut of_file = SignedRecorder::default();
            ipdv.iter().for_each(|value| of_file.record(*value, 1));
            prop_assert_eq!(of_file.summary(0).unwrap(), result.ipdv().summary(0).unwrap());
            let mut of_file = Recorder::default();
            pdv.iter().for_each(|value| of_file.record(*value, 1));
            prop_assert_eq!(of_file.summary().unwrap(), result.pdv().summary().unwrap());
        }
    }
}

#[test]
fn a_full_file_omits_later_time_stamps() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = TimeStampFile::create(&directory.path().join("times.pcapng")).unwrap();
    file.times = TIMES_MAX - 2;
    let streams = [Stream {
        port: 0,
        sent: &[5_000, 6_000, 7_000],
    }];
    file.append(START, Scale::new(HZ), &streams, &Samples::default())
        .unwrap();
    assert_eq!((file.left_out, file.times), (1, TIMES_MAX));
    let read = read(&std::fs::read(file.path()).unwrap());
    assert_eq!(read.len(), 2);
}

#[test]
fn an_interface_has_its_name_and_nanoseconds() {
    let head = head_text();
    for name in ["transmit", "receive", "quietwire"] {
        assert!(head.contains(name), "{head}");
    }
    assert_eq!(pcapng::head().len() % 4, 0);
}

/// Returns the head of a file as text, one character for each octet.
fn head_text() -> String {
    pcapng::head().into_iter().map(char::from).collect()
}
