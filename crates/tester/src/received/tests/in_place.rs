// SPDX-License-Identifier: Apache-2.0
//! Frames recorded where they lie, compared with the same frames recorded from copies.

use std::path::Path;

use proptest::prelude::*;
use quietwire_dpdk::{FrameSource, FramesTaken, SlotBuffer};
use quietwire_memory::Mapping;

use super::*;
use crate::frame::FrameWriter;
use crate::frame::tests::trial;
use crate::traffic::{Program, Traffic};
use crate::trial::{FrameSizes, Trial};
use crate::writer::{Described, Share};

const BUFFER: usize = 2048;
const FLOWS: u16 = 2;
/// Frames of a receive burst.
const BURST: usize = 24;

/// Disposition of a frame on the way.
#[derive(Clone, Copy, Debug)]
enum Disposition {
    Arrives,
    Lost,
    Twice,
    /// Arrives after the next frame.
    Late,
    /// One bit, from the front.
    Damaged(usize),
    /// Octets are added.
    Padded(usize),
    /// Octets are cut off.
    Short(usize),
}

fn disposition() -> impl Strategy<Value = Disposition> {
    prop_oneof![
        12 => Just(Disposition::Arrives),
        1 => Just(Disposition::Lost),
        1 => Just(Disposition::Twice),
        1 => Just(Disposition::Late),
        1 => (0usize..8 * 300).prop_map(Disposition::Damaged),
        1 => (1usize..9).prop_map(Disposition::Padded),
        1 => (1usize..40).prop_map(Disposition::Short),
    ]
}

/// Returns the statistics of plain frames from port 0, of three ports.
fn plain(ip: IpVersion) -> Received {
    let identity = FrameIdentity {
        place: signature_place(ip),
        flows: usize::from(FLOWS) + 1,
        source: 0,
        window: 512,
        checksums: Checksums::of_plain(ip),
        pattern: None,
        replayed: None,
    };
    let mut observed = Received::new(epoch(), 10, identity, 3, HZ);
    observed.times.slices = Some(Slices::new(0, HZ, HZ));
    observed
}

/// Returns frames of a writer, in bursts with one time stamp each.
fn written(writer: &mut FrameWriter, memory: &Mapping, bursts: &[(usize, u64)]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut tick = 1000;
    for (count, pause) in bursts {
        tick += pause;
        writer.write_in_place(*count, tick, |source| {
            for _ in 0..*count {
                let octets = memory.span(0, BUFFER).unwrap();
                let length = source.next_length();
                source.write(SlotBuffer { octets, mark: None });
                let mut frame = vec![0; length];
                octets.copy_to(&mut frame);
                frames.push(frame);
            }
            FramesTaken {
                sent: *count,
                written: *count,
            }
        });
    }
    frames
}

fn arrived(frames: Vec<Vec<u8>>, dispositions: &[Disposition]) -> Vec<Vec<u8>> {
    let mut arrived: Vec<Vec<u8>> = Vec::new();
    let mut late: Option<Vec<u8>> = None;
    for (mut frame, disposition) in frames.into_iter().zip(dispositions.iter().cycle()) {
        let before = late.take();
        match *disposition {
            Disposition::Arrives => arrived.push(frame),
            Disposition::Lost => {}
            Disposition::Twice => arrived.extend([frame.clone(), frame]),
            Disposition::Late => late = Some(frame),
            Disposition::Damaged(bit) => {
                let at = bit / 8 % frame.len();
                frame[at] ^= 1 << (bit % 8);
                arrived.push(frame);
            }
            Disposition::Padded(octets) => {
                frame.resize(frame.len() + octets, 0);
                arrived.push(frame);
            }
            Disposition::Short(octets) => {
                frame.truncate(frame.len() - octets);
                arrived.push(frame);
            }
        }
        arrived.extend(before);
    }
    arrived
}

/// The slots of a ring with these frames left.
struct Slots<'f> {
    memory: &'f Mapping,
    frames: &'f [Vec<u8>],
}

impl<'f> Slots<'f> {
    /// Returns the next frame, and the place in which it lies.
    fn peek(&self) -> Option<(&'f [u8], Span<'f>)> {
        let frame = self.frames.first()?;
        let place = self.memory.span(0, frame.len()).unwrap();
        place.copy_from(frame);
        Some((frame.as_slice(), place))
    }

    fn advance(&mut self) {
        self.frames = &self.frames[1..];
    }
}

impl FilledSlots for Slots<'_> {
    fn take_while(&mut self, most: usize, mut take: impl FnMut(Span<'_>) -> bool) -> usize {
        for taken in 0..most {
            let Some((_, place)) = self.peek() else {
                return taken;
            };
            if !take(place) {
                return taken;
            }
            self.advance();
        }
        most
    }
}

/// Records frames like a ring: those that are not recorded where they lie are copied. Returns the number of copied frames, and of those
/// that were read in rows.
fn record_in_place(
    observed: &mut Received,
    memory: &Mapping,
    frames: &[Vec<u8>],
    now: u64,
) -> (usize, usize) {
    let (mut copied, mut in_rows) = (0, 0);
    let mut reader = Reader::new(observed);
    reader.turn = Turn::at(now);
    let mut slots = Slots { memory, frames };
    while !slots.frames.is_empty() {
        let before = slots.frames;
        let row = reader.read_row(&mut slots, before.len());
        assert_eq!(row.frames, before.len() - slots.frames.len());
        let octets: usize = before[..row.frames].iter().map(Vec::len).sum();
        assert_eq!(row.octets, octets as u64);
        in_rows += row.frames;
        for _ in 0..reader.one_by_one() {
            let Some((frame, place)) = slots.peek() else {
                break;
            };
            if !reader.read_in_place(place) {
                copied += 1;
                reader.read(frame);
            }
            slots.advance();
        }
    }
    assert_eq!(reader.end(), now);
    (copied, in_rows)
}

fn assert_same(one: &Received, other: &Received) {
    let counts = |observed: &Received| {
        (
            observed.foreign,
            observed.unknown,
            observed.damaged,
            observed.counted(),
        )
    };
    assert_eq!(counts(one), counts(other));
    assert_eq!(one.latency.summary(), other.latency.summary());
    let variation = |observed: &Received| observed.delays.ipdv.summary(2);
    assert_eq!(variation(one), variation(other));
    let rest = |observed: &Received| {
        let Received {
            trackers,
            samples,
            times,
            ..
        } = observed;
        format!("{trackers:?} {samples:?} {times:?}")
    };
    assert_eq!(rest(one), rest(other));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn frames_recorded_in_place_are_recorded_as_from_copies(
        is_v6: bool,
        size in prop_oneof![Just(84u16), 84u16..400],
        sending in 1..=FLOWS + 1,
        port in prop_oneof![5 => Just(0u8), 1 => Just(1), 1 => Just(7)],
        is_warm_up in prop_oneof![9 => Just(false), 1 => Just(true)],
        bursts in prop::collection::vec((1usize..40, 0u64..90), 1..8),
        dispositions in prop::collection::vec(disposition(), 1..60),
    ) {
        let ip = if is_v6 { IpVersion::V6 } else { IpVersion::V4 };
        let size = if is_v6 { size } else { size - 20 };
        let trial = Trial { ip, ..trial(FrameSizes::Fixed(size), sending, 1) };
        let mut writer = FrameWriter::new(&trial, port, 1, Share::WHOLE).unwrap();
        writer.begin(if is_warm_up { epoch().warm_up() } else { epoch() });
        let memory = Mapping::create("received", BUFFER).unwrap().0;
        let frames = arrived(written(&mut writer, &memory, &bursts), &dispositions);
        let (mut in_place, mut from_copies) = (plain(ip), plain(ip));
        for (number, burst) in frames.chunks(BURST).enumerate() {
            let now = 2000 + number as u64 * 100;
            record_in_place(&mut in_place, &memory, burst, now);
            record(&mut from_copies, burst, now);
        }
        assert_same(&in_place, &from_copies);
    }
}

/// Descriptions without a checked payload: UDP, no UDP checksum, tags and TCP, and tunnels with and without outer checksum.
static DESCRIBED: [&str; 5] = [
    "[traffic]\n[traffic.udp]\nsource = { first = 1024, count = 3 }\n",
    "[traffic]\n[traffic.udp]\nchecksum = false\n",
    "[traffic]\n[[traffic.vlan]]\nid = { first = 1, count = 3 }\n[traffic.ipv6]\n[traffic.tcp]\n",
    "[traffic]\n[traffic.vxlan]\nvni = { first = 1, count = 3 }\n[traffic.inner.ipv4]\n",
    "[traffic]\n[traffic.ipv6]\n[traffic.vxlan]\nvni = 7\n[traffic.inner.ipv6]\n[traffic.inner.tcp]\n",
];

/// Returns frames of a description from port 0, eight with each time stamp, and statistics of such frames.
fn described(text: &str, sizes: &[u16], count: usize, epoch: Epoch) -> (Vec<Vec<u8>>, Received) {
    let traffic = Traffic::parse(text, Path::new("t.toml")).unwrap();
    let program = Arc::new(Program::new(&traffic, sizes, 0).unwrap());
    let identity = FrameIdentity {
        place: program.place(),
        flows: program.flows() as usize + 1,
        source: 0,
        window: 512,
        checksums: Checksums::new(program.covers().to_vec()),
        pattern: None,
        replayed: None,
    };
    let mut writer = Described::new(program, 0, Share::WHOLE);
    writer.begin(epoch);
    let frames = (0..count).map(|number| {
        let mut frame = vec![0; usize::from(sizes[number % sizes.len()]) - 4];
        let flow = writer.next_flow();
        writer.write_frame(flow, &mut frame, 1000 + number as u64 / 8);
        frame
    });
    let frames = frames.collect();
    let mut observed = Received::new(self::epoch(), 10, identity, 3, HZ);
    observed.times.slices = Some(Slices::new(0, HZ, HZ));
    (frames, observed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn described_frames_recorded_in_place_are_recorded_as_from_copies(
        text in prop::sample::select(&DESCRIBED[..]),
        sizes in prop::collection::vec(170u16..700, 1..4),
        is_warm_up in prop_oneof![9 => Just(false), 1 => Just(true)],
        count in 1usize..100,
        dispositions in prop::collection::vec(disposition(), 1..60),
    ) {
        let of_part = if is_warm_up { epoch().warm_up() } else { epoch() };
        let (frames, mut in_place) = described(text, &sizes, count, of_part);
        let (_, mut from_copies) = described(text, &sizes, 0, of_part);
        let memory = Mapping::create("received", BUFFER).unwrap().0;
        for (number, burst) in arrived(frames, &dispositions).chunks(BURST).enumerate() {
            let now = 2000 + number as u64 * 100;
            record_in_place(&mut in_place, &memory, burst, now);
            record(&mut from_copies, burst, now);
        }
        assert_same(&in_place, &from_copies);
    }
}

#[test]
fn long_described_frames_that_arrive_unchanged_are_not_copied() {
    let memory = Mapping::create("received", BUFFER).unwrap().0;
    for text in DESCRIBED {
        for (size, copied) in [(180, 20), (300, 0), (1518, 0)] {
            let (mut frames, mut observed) = described(text, &[size], 20, epoch());
            let counts = record_in_place(&mut observed, &memory, &frames, 3000);
            assert_eq!(counts, (copied, 0), "{text}");
            assert_eq!(received(&observed).iter().sum::<u64>(), 20, "{text}");
            // Another frame of the tester or a damaged one is.
            let mut last = frames.pop().unwrap();
            last[14] ^= 1;
            record_in_place(&mut observed, &memory, &[last], 3000);
            assert_eq!(observed.damaged + observed.foreign, damage(text), "{text}");
        }
    }
}

/// Returns 1 if the checksums of a description's frames cover the first octet after the Ethernet header.
fn damage(text: &str) -> u64 {
    u64::from(!text.contains("ipv6") && !text.contains("vlan"))
}

#[test]
fn frames_that_arrive_unchanged_are_not_copied() {
    let memory = Mapping::create("received", BUFFER).unwrap().0;
    for (ip, size) in [
        (IpVersion::V4, 64),
        (IpVersion::V6, 84),
        (IpVersion::V4, 1518),
    ] {
        let trial = Trial {
            ip,
            ..trial(FrameSizes::Fixed(size), 1, 1)
        };
        let mut writer = FrameWriter::new(&trial, 0, 1, Share::WHOLE).unwrap();
        writer.begin(epoch());
        let mut frames = written(&mut writer, &memory, &[(20, 0), (20, 10)]);
        let mut observed = plain(ip);
        // All but the first of each burst are frames of a row.
        assert_eq!(
            record_in_place(&mut observed, &memory, &frames, 3000),
            (0, 38)
        );
        assert_eq!(received(&observed)[0], 40);
        assert_eq!(latency(&observed).0, 40);
        // One that changed is, and counts as damaged.
        let mut last = frames.pop().unwrap();
        last[45] ^= 1;
        assert_eq!(
            record_in_place(&mut observed, &memory, &[last], 3000),
            (1, 0)
        );
        assert_eq!(observed.damaged, 1);
    }
}

/// Frames of a capture have no signature, even if they look like frames of the tester.
#[test]
fn frames_of_a_capture_and_described_frames_are_copied() {
    let memory = Mapping::create("received", BUFFER).unwrap().0;
    let trial = trial(FrameSizes::Fixed(64), 1, 1);
    let mut writer = FrameWriter::new(&trial, 0, 1, Share::WHOLE).unwrap();
    writer.begin(epoch());
    let frames = written(&mut writer, &memory, &[(3, 0)]);
    let identity = |replayed| FrameIdentity {
        place: signature_place(IpVersion::V4),
        flows: 2,
        source: 0,
        window: 512,
        checksums: Checksums::of_plain(IpVersion::V4),
        pattern: None,
        replayed,
    };
    let mut observed = Received::new(epoch(), 0, identity(Some((Arc::new(capture()), 1))), 3, HZ);
    let copied = (3, 0);
    assert_eq!(
        record_in_place(&mut observed, &memory, &frames, 3000),
        copied
    );
    assert_eq!(observed.foreign, 3);
    let described = FrameIdentity {
        checksums: Checksums::new(Vec::new()),
        ..identity(None)
    };
    let mut observed = Received::new(epoch(), 0, described, 3, HZ);
    assert_eq!(
        record_in_place(&mut observed, &memory, &frames, 3000),
        copied
    );
    assert_eq!(received(&observed)[0], 3);
}
