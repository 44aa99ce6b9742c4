// SPDX-License-Identifier: Apache-2.0
//! Frames of descriptions and captures in the buffers of a ring, compared with those in packet buffers.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use quietwire_memory::Mapping;

use super::*;
use crate::frame::tests::trial;
use crate::frame::{Epoch, FrameWriter};
use crate::traffic::{Capture, Program, Traffic};
use crate::trial::FrameSizes;
use crate::writer::Share;

const SLOTS: usize = 5;
const BUFFER: usize = 2048;

/// A ring whose buffers are used again and again. At first they have other octets.
struct Slots {
    memory: Mapping,
    marks: [u32; SLOTS],
    next: usize,
    /// True if the buffers have marks.
    is_own: bool,
}

impl Slots {
    fn new(is_own: bool) -> Self {
        let memory = Mapping::create("described", SLOTS * BUFFER).unwrap().0;
        let dirt = vec![0xa5; SLOTS * BUFFER];
        memory.span(0, SLOTS * BUFFER).unwrap().copy_from(&dirt);
        Self {
            memory,
            marks: [0; SLOTS],
            next: 0,
            is_own,
        }
    }

    /// Has a source write the next `count` frames. Returns them.
    fn write(&mut self, source: &mut impl FrameSource, count: usize) -> Vec<Vec<u8>> {
        let mut written = Vec::new();
        for _ in 0..count {
            let start = (self.next * BUFFER) as u64;
            let octets = self.memory.span(start, BUFFER).unwrap();
            let mark = self.is_own.then_some(&mut self.marks[self.next]);
            let mut frame = vec![0; source.next_length()];
            source.write(SlotBuffer { octets, mark });
            octets.copy_to(&mut frame);
            written.push(frame);
            self.next = (self.next + 1) % SLOTS;
        }
        written
    }
}

fn taken(count: usize) -> FramesTaken {
    FramesTaken {
        sent: count,
        written: count,
    }
}

/// Descriptions: mixed sizes with checked payloads, tags and TCP, a tunnel, one size with several flows, and one without.
static TEXTS: [&str; 5] = [
    "[traffic]\nsizes = [[70, 3], [594, 2], [1518, 1]]\nintegrity = true\nflows = { count = 50, order = \"zipf\" }\n\
     [traffic.ipv4]\ndestination = { first = \"16.0.0.1\", step = 256, count = 50 }\n",
    "[traffic]\nsizes = { genome = \"3bc2g\" }\n[[traffic.vlan]]\nid = { first = 1, count = 100 }\n[traffic.ipv6]\n[traffic.tcp]\n",
    "[traffic]\nsizes = 200\n[traffic.vxlan]\nvni = { first = 1, count = 64 }\n[traffic.inner.ipv6]\n",
    "[traffic]\nsizes = 64\n[traffic.udp]\nsource = { first = 1024, count = 7 }\n",
    "[traffic]\nsizes = 128\nintegrity = true\n",
];

/// Returns the writer of a port's frames.
fn described(text: &str, port: u8, has_many_sizes: bool) -> Described {
    let traffic = Traffic::parse(text, Path::new("t.toml")).unwrap();
    // More templates than marks can number.
    let sizes: Vec<u16> = if has_many_sizes {
        (300..700).collect()
    } else {
        traffic.sizes.as_ref().unwrap().sequence()
    };
    let program = Program::new(&traffic, &sizes, port).unwrap();
    let mut writer = Described::new(Arc::new(program), port, Share::WHOLE);
    writer.begin(Epoch::of_trial(3));
    writer
}

/// Writes the next frame like the writer of packet buffers.
fn reference(writer: &mut Described, tick: u64) -> Vec<u8> {
    let flow = writer.next_flow();
    let length = writer.program.length(writer.position);
    let mut frame = vec![0xee; usize::from(length)];
    writer.write_frame(flow, &mut frame, tick);
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The buffers are used again and again by three writers in turn, with and without marks, and some frames find no space. The third
    /// writer writes plain frames.
    #[test]
    fn described_frames_in_place_are_those_of_packet_buffers(
        text in prop::sample::select(&TEXTS[..]),
        has_many_sizes: bool,
        is_own: bool,
        bursts in prop::collection::vec((0usize..3, 1usize..9, 0usize..9), 1..30),
    ) {
        let mut writers = [0, 1].map(|port| described(text, port, has_many_sizes));
        let mut references = writers.clone();
        let plain = trial(FrameSizes::Imix, 3, 2);
        let mut plain = FrameWriter::new(&plain, 0, 1, Share::WHOLE).unwrap();
        let mut plain_reference = plain.clone();
        let (mut slots, mut apart) = (Slots::new(is_own), Slots::new(false));
        for (number, (which, count, space)) in bursts.into_iter().enumerate() {
            let tick = 1000 + number as u64;
            let space = space.min(count);
            let mut written = Vec::new();
            let Some(writer) = writers.get_mut(which) else {
                plain.write_in_place(count, tick, |source| {
                    written = slots.write(source, space);
                    taken(space)
                });
                let mut expected = Vec::new();
                plain_reference.write_in_place(count, tick, |source| {
                    expected = apart.write(source, space);
                    taken(space)
                });
                prop_assert_eq!(written, expected);
                continue;
            };
            let sent = writer.write_in_place(count, tick, |source| {
                written = slots.write(source, space);
                taken(space)
            });
            prop_assert_eq!((sent, written.len()), (space, space));
            let expected: Vec<Vec<u8>> =
                (0..count).map(|_| reference(&mut references[which], tick)).collect();
            prop_assert_eq!(&written[..], &expected[..space]);
            let state = |writer: &Described| {
                (writer.number, writer.next, writer.position, writer.sequences.clone())
            };
            prop_assert_eq!(state(&writers[which]), state(&references[which]));
        }
    }

    /// Frames without space are skipped.
    #[test]
    fn frames_of_a_capture_in_place_are_those_of_the_capture(
        is_own: bool,
        bursts in prop::collection::vec((1usize..9, 0usize..9), 1..20),
    ) {
        let capture = Arc::new(capture());
        let mut writer = Replayed::new(Arc::clone(&capture));
        let mut slots = Slots::new(is_own);
        let mut next = 0;
        for (count, space) in bursts {
            let space = space.min(count);
            let mut written = Vec::new();
            let sent = writer.write_in_place(count, |source| {
                written = slots.write(source, space);
                taken(space)
            });
            prop_assert_eq!((sent, written.len()), (space, space));
            for (index, frame) in written.iter().enumerate() {
                let expected = capture.frame((next + index) % capture.frames()).unwrap();
                prop_assert_eq!(&frame[..], expected);
            }
            next += count;
            prop_assert_eq!(writer.number, next as u64);
        }
    }
}

/// Returns a capture of three frames of different lengths.
fn capture() -> Capture {
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|it| it.to_le_bytes()).collect() };
    // Magic number, version 2.4, time zone, accuracy, longest frame, Ethernet.
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for length in [60u8, 61, 200] {
        file.extend(words(&[0, 0, u32::from(length), u32::from(length)]));
        file.extend(vec![length; usize::from(length)]);
    }
    Capture::parse(&file).unwrap()
}

/// A buffer that has a frame of the same kind already gets only what differs: octets that no frame changes stay.
#[test]
fn octets_that_frames_have_in_common_are_written_once() {
    let mut writer = described(TEXTS[3], 0, false);
    let mut slots = Slots::new(true);
    let mut write = |slots: &mut Slots| {
        writer.write_in_place(SLOTS, 7, |source| {
            slots.write(source, SLOTS);
            taken(SLOTS)
        });
    };
    write(&mut slots);
    // The type of the Ethernet header, and an octet of the signature.
    let place = |slots: &Slots, at| slots.memory.span(at, 1).unwrap().read_array::<1>();
    for at in [12, 42] {
        slots.memory.span(at, 1).unwrap().write_array([0x55]);
    }
    write(&mut slots);
    assert_eq!(place(&slots, 12), Some([0x55]));
    assert_eq!(place(&slots, 42), Some(*b"Q"));
}
