// SPDX-License-Identifier: Apache-2.0
mod indices;

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use quietwire_memory::{Mapping, SlotBuffer, Span};

use super::reference::Plain;
use super::*;
use crate::message::{Direction, RingLocation};

/// A client's memory with one ring in each direction, and a region without rings.
struct Memory {
    layout: Layout,
    regions: [Arc<Mapping>; 2],
}

impl Memory {
    fn new(log2_size: u8, buffer_size: u32) -> Self {
        let layout = Layout::new(1, 1, RingSizes::both(log2_size), buffer_size).unwrap();
        let map = |len| Arc::new(Mapping::create("memif-test", len).unwrap().0);
        let regions = [map(layout.region_size()), map(4096)];
        layout.write(&regions[0]).unwrap();
        Self { layout, regions }
    }

    fn place(&self, direction: Direction) -> RingLocation {
        self.layout.place(direction, 0).unwrap()
    }

    fn sender(&self, direction: Direction) -> Sender {
        match direction {
            Direction::ClientToServer => Sender::client(&self.regions[0], &self.layout, 0),
            Direction::ServerToClient => Sender::server(&self.regions, &self.place(direction)),
        }
        .unwrap()
    }

    fn receiver(&self, direction: Direction) -> Receiver {
        match direction {
            Direction::ClientToServer => Receiver::server(&self.regions, &self.place(direction)),
            Direction::ServerToClient => Receiver::client(&self.regions[0], &self.layout, 0),
        }
        .unwrap()
    }

    fn plain(&self, direction: Direction, is_client: bool) -> Plain {
        let size = self.layout.buffer_size();
        Plain::new(&self.regions[0], &self.place(direction), is_client, size)
    }

    /// Writes a descriptor like a client.
    fn describe(&self, direction: Direction, slot: u16, fields: (u16, u16, u32, u32)) {
        let (flags, region, length, offset) = fields;
        let place = self.place(direction);
        let slot = u64::from(slot % (1 << place.log2_size));
        let octets = [
            &flags.to_le_bytes()[..],
            &region.to_le_bytes(),
            &length.to_le_bytes(),
            &offset.to_le_bytes(),
        ]
        .concat();
        self.write(u64::from(place.offset) + 128 + 16 * slot, &octets);
    }

    fn set(&self, direction: Direction, at: u64, value: u16) {
        self.write(
            u64::from(self.place(direction).offset) + at,
            &value.to_le_bytes(),
        );
    }

    fn get(&self, direction: Direction, at: u64) -> u16 {
        let at = u64::from(self.place(direction).offset) + at;
        u16::from_le_bytes(self.regions[0].span(at, 2).unwrap().read_array().unwrap())
    }

    fn write(&self, at: u64, octets: &[u8]) {
        let span = self.regions[0].span(at, octets.len()).unwrap();
        span.copy_from(octets);
    }
}

const HEAD: u64 = 6;
const TAIL: u64 = 64;
const C2S: Direction = Direction::ClientToServer;
const S2C: Direction = Direction::ServerToClient;
const DIRECTIONS: [Direction; 2] = [C2S, S2C];

/// Copies a frame out; `None` if it is bad.
fn copied(received: Received<'_>) -> Option<Vec<u8>> {
    let Received::Frame(frame) = received else {
        return None;
    };
    let mut octets = Vec::new();
    for piece in std::iter::once(frame.first).chain(frame.rest) {
        let start = octets.len();
        octets.resize(start + piece.len(), 0);
        piece.copy_to(&mut octets[start..]);
    }
    assert_eq!(octets.len(), frame.length as usize);
    Some(octets)
}

/// A sending end: the tested one or the reference. The former also fills rows of slots if the mark is set, and then reads further ahead.
enum From {
    Ours(Box<Sender>, bool),
    Plain(Plain),
}

impl From {
    fn send(&mut self, frame: &[u8], cuts: usize) -> bool {
        match self {
            Self::Plain(plain) => plain.send(frame),
            Self::Ours(sender, fills_rows) => {
                // Frames in one piece are written in place if they fit into a buffer, with either method.
                if cuts == 1 {
                    let copy =
                        |buffer: SlotBuffer<'_>| buffer.octets.copy_from(frame) == frame.len();
                    let is_of_row = *fills_rows && frame.len().is_multiple_of(2);
                    if is_of_row && sender.fill_each(1, frame.len(), copy) == 1 {
                        return true;
                    }
                    match sender.buffer(frame.len()) {
                        Ok(buffer) => {
                            buffer.octets.copy_from(frame);
                            sender.fill(frame.len());
                            return true;
                        }
                        Err(PutResult::Full) => return false,
                        Err(PutResult::Bad | PutResult::Sent) => {}
                    }
                }
                let pieces = frame.chunks(frame.len().div_ceil(cuts).max(1));
                match sender.put(pieces) {
                    PutResult::Sent => true,
                    PutResult::Full => false,
                    PutResult::Bad => panic!("a frame of {} octets is bad", frame.len()),
                }
            }
        }
    }

    fn publish(&mut self) {
        if let Self::Ours(sender, _) = self {
            let _ = sender.publish();
        }
    }
}

/// A receiving end, likewise: with the mark, some frames are taken as by an end that handles them in place.
enum To {
    Ours(Box<Receiver>, bool),
    Plain(Plain),
}

impl To {
    fn receive(&mut self, most: usize) -> Vec<Vec<u8>> {
        match self {
            Self::Plain(plain) => (0..most).map_while(|_| plain.receive()).collect(),
            Self::Ours(receiver, is_in_place) => {
                let count = receiver.ready(most);
                let mut frames = Vec::new();
                let copy = |span: Span<'_>| {
                    let mut octets = vec![0; span.len()];
                    span.copy_to(&mut octets);
                    octets
                };
                for number in 0..count {
                    // Single-slot frames are received with either method.
                    let push = |span: Span<'_>| frames.push(copy(span));
                    if number % 2 == 0 && receiver.take_contiguous(number % 7 + 1, push) > 0 {
                        continue;
                    }
                    let mut left = number % 3;
                    let push = |span: Span<'_>| {
                        if left == 0 {
                            return false;
                        }
                        left -= 1;
                        frames.push(copy(span));
                        true
                    };
                    if *is_in_place && receiver.take_while(9, push) > 0 {
                        continue;
                    }
                    let Some(received) = receiver.next() else {
                        break;
                    };
                    frames.push(copied(received).expect("a good frame"));
                }
                receiver.release();
                frames
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Lengths and pieces of frames.
    Send(Vec<(usize, usize)>),
    Receive(usize),
}

fn steps(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    let frames = proptest::collection::vec((1..=longest, 1..5_usize), 1..40);
    let step = prop_oneof![
        frames.prop_map(Step::Send),
        (1..48_usize).prop_map(Step::Receive)
    ];
    proptest::collection::vec(step, 1..60)
}

/// Sends and receives; frames arrive whole and in order, and a drained ring has space again.
fn carry(memory: &Memory, from: &mut From, to: &mut To, steps: &[Step], longest: usize) {
    let mut under_way = VecDeque::new();
    let mut number = 0_u8;
    let check = |under_way: &mut VecDeque<Vec<u8>>, frames: Vec<Vec<u8>>| {
        for frame in frames {
            assert_eq!(Some(frame), under_way.pop_front());
        }
    };
    for step in steps {
        match step {
            Step::Send(lengths) => {
                for (length, cuts) in lengths {
                    number = number.wrapping_add(1);
                    let frame: Vec<u8> = (0..*length).map(|at| number ^ at as u8).collect();
                    if !from.send(&frame, *cuts) {
                        break;
                    }
                    under_way.push_back(frame);
                }
                from.publish();
            }
            Step::Receive(most) => check(&mut under_way, to.receive(*most)),
        }
    }
    while !under_way.is_empty() {
        let frames = to.receive(32);
        assert!(!frames.is_empty(), "{} frames are lost", under_way.len());
        check(&mut under_way, frames);
    }
    assert!(to.receive(32).is_empty());
    assert!(from.send(&vec![1; longest], 1), "an empty ring is full");
    from.publish();
    assert_eq!(to.receive(1), [vec![1; longest]]);
    assert!(!memory.regions[0].has_faulted());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn frames_arrive_whole_and_in_order(
        log2_size in 2..=6_u8,
        buffer_size in 40..200_u32,
        direction in proptest::sample::select(&DIRECTIONS[..]),
        ours in proptest::sample::select(&[(true, true), (true, false), (false, true)][..]),
        is_in_place in any::<bool>(),
        start in any::<u16>(),
        steps in steps(130),
    ) {
        let memory = Memory::new(log2_size, buffer_size);
        let (is_sender_ours, is_receiver_ours) = ours;
        let is_client_sender = direction == C2S;
        let mut from = if is_sender_ours {
            From::Ours(Box::new(memory.sender(direction)), is_in_place)
        } else {
            From::Plain(memory.plain(direction, is_client_sender))
        };
        let mut to = if is_receiver_ours {
            To::Ours(Box::new(memory.receiver(direction)), is_in_place)
        } else {
            To::Plain(memory.plain(direction, !is_client_sender))
        };
        // Starting at random, so that indices also pass 2^16.
        for _ in 0..start % 500 {
            prop_assert!(from.send(b"x", 1));
            from.publish();
            prop_assert_eq!(to.receive(32).len(), 1);
        }
        carry(&memory, &mut from, &mut to, &steps, 130);
        if let From::Ours(sender, _) = &from {
            prop_assert_eq!(sender.errors(), 0);
        }
        if let To::Ours(receiver, _) = &to {
            prop_assert_eq!(receiver.errors(), 0);
        }
    }

}

proptest! {
    #[test]
    fn no_memory_breaks_an_end(octets in proptest::collection::vec(any::<u8>(), 0..2000)) {
        crate::fuzz::fuzz_ring(&octets);
    }
}

#[test]
fn rows_of_frames_end_when_the_ring_is_full_or_a_buffer_is_too_short() {
    for direction in DIRECTIONS {
        let memory = Memory::new(4, 128);
        let (mut sender, mut receiver) = (memory.sender(direction), memory.receiver(direction));
        for _ in 0..20 {
            let mut number = 0;
            let filled = sender.fill_each(10, 60, |buffer| {
                number += 1;
                buffer.octets.write_array([number; 60])
            });
            assert_eq!(filled, 10);
            let _ = sender.publish();
            assert_eq!(receiver.ready(32), 10);
            let mut observed = Vec::new();
            let taken = receiver.take_contiguous(32, |span| {
                assert_eq!(span.len(), 60);
                observed.push(span.read_array::<60>());
            });
            assert_eq!(taken, 10);
            assert_eq!(
                observed,
                (1..=10).map(|octet| Some([octet; 60])).collect::<Vec<_>>()
            );
            receiver.release();
        }
        assert_eq!(sender.fill_each(3, 0, |_| true), 0);
        assert_eq!(sender.fill_each(3, 129, |_| true), 0);
        assert_eq!(sender.buffer(129).err(), Some(PutResult::Bad));
        assert_eq!(sender.fill_each(40, 128, |_| true), 16);
        assert_eq!(sender.buffer(128).err(), Some(PutResult::Full));
    }
}

#[test]
fn a_row_ends_at_a_buffer_that_is_not_written_and_continues_there() {
    for direction in DIRECTIONS {
        let memory = Memory::new(4, 128);
        let (mut sender, mut receiver) = (memory.sender(direction), memory.receiver(direction));
        for _ in 0..20 {
            let mut number = 0;
            let mut four = |sender: &mut Sender| {
                sender.fill_each(10, 60, |buffer| {
                    number += 1;
                    // The fifth is not written the first time.
                    number != 5 && buffer.octets.write_array([number; 60])
                })
            };
            assert_eq!(four(&mut sender), 4);
            assert_eq!(four(&mut sender), 10);
            let _ = sender.publish();
            assert_eq!(receiver.ready(32), 14);
            let mut observed = Vec::new();
            let push = |span: Span<'_>| observed.extend(span.read_array::<1>());
            assert_eq!(receiver.take_contiguous(32, push), 14);
            let expected: Vec<_> = (1..=4).chain(6..=15_u8).map(|octet| [octet]).collect();
            assert_eq!(observed, expected);
            receiver.release();
        }
    }
}

#[test]
fn indices_pass_their_end() {
    for direction in DIRECTIONS {
        let memory = Memory::new(4, 128);
        let (mut sender, mut receiver) = (memory.sender(direction), memory.receiver(direction));
        for round in 0..70_000_u32 {
            let frame = [round.to_le_bytes(); 10].concat();
            assert_eq!(sender.put([&frame[..]].into_iter()), PutResult::Sent);
            assert!(sender.publish());
            assert_eq!(receiver.ready(32), 1);
            assert_eq!(copied(receiver.next().unwrap()), Some(frame));
            assert!(receiver.next().is_none());
            receiver.release();
        }
        assert_eq!((sender.errors(), receiver.errors()), (0, 0));
    }
}

#[test]
fn marks_of_a_client_last_until_the_buffer_is_written_otherwise() {
    let memory = Memory::new(2, 64);
    let (mut sender, mut receiver) = (memory.sender(C2S), memory.receiver(C2S));
    let receive = |receiver: &mut Receiver| {
        assert_eq!(receiver.ready(32), 1);
        let frame = copied(receiver.next().unwrap()).unwrap();
        receiver.release();
        frame
    };
    let send_marked = |sender: &mut Sender, value: u32| {
        let buffer = sender.buffer(10).unwrap();
        buffer.octets.copy_from(&[value as u8; 10]);
        let before = std::mem::replace(buffer.mark.unwrap(), value);
        sender.fill(10);
        let _ = sender.publish();
        before
    };
    for value in 1..=4 {
        assert_eq!(send_marked(&mut sender, value), 0);
        assert_eq!(receive(&mut receiver), [value as u8; 10]);
    }
    // A copied frame takes the mark of its slot alone, and a chain those of all slots.
    assert_eq!(sender.put([&[9_u8; 20][..]].into_iter()), PutResult::Sent);
    let _ = sender.publish();
    assert_eq!(receive(&mut receiver), [9; 20]);
    for (value, before) in [(12, 2), (13, 3), (14, 4), (11, 0)] {
        assert_eq!(send_marked(&mut sender, value), before);
        receive(&mut receiver);
    }
    assert_eq!(sender.put([&[9_u8; 100][..]].into_iter()), PutResult::Sent);
    let _ = sender.publish();
    assert_eq!(receiver.ready(32), 2);
    assert_eq!(copied(receiver.next().unwrap()), Some(vec![9; 100]));
    receiver.release();
    for value in 1..=4 {
        assert_eq!(send_marked(&mut sender, value), 0);
        receive(&mut receiver);
    }
    // A server's ring has the client's buffers.
    let mut server = memory.sender(S2C);
    memory.receiver(S2C).offer();
    assert!(server.buffer(10).unwrap().mark.is_none());
    assert!(matches!(server.buffer(65), Err(PutResult::Bad)));
    assert!(matches!(server.buffer(0), Err(PutResult::Bad)));
}

#[test]
fn rings_of_every_size_fill_up_and_drain() {
    for direction in DIRECTIONS {
        for log2_size in [0, 1, 2, 5, 14] {
            let memory = Memory::new(log2_size, 64);
            let (mut sender, mut receiver) = (memory.sender(direction), memory.receiver(direction));
            let size = 1_usize << log2_size;
            for _ in 0..5 {
                assert_eq!(sender.space(usize::MAX), size);
                for _ in 0..size {
                    assert_eq!(sender.put([&[7_u8; 64][..]].into_iter()), PutResult::Sent);
                }
                assert_eq!(sender.put([&[7_u8][..]].into_iter()), PutResult::Full);
                assert_eq!(receiver.ready(usize::MAX), 0);
                let _ = sender.publish();
                assert_eq!(receiver.ready(usize::MAX), size);
                for _ in 0..size {
                    assert_eq!(copied(receiver.next().unwrap()), Some(vec![7; 64]));
                }
                receiver.release();
                // Slots that are kept for a batch are returned when no frames are left; a client returns 256 at a time.
                for _ in 0..=size / 256 {
                    assert_eq!(receiver.ready(1), 0);
                }
            }
        }
    }
}

#[test]
fn invalid_descriptors_are_bad_and_later_valid_ones_are_frames() {
    let memory = Memory::new(5, 2048);
    let mut receiver = memory.receiver(C2S);
    let region = memory.regions[0].len() as u32;
    let nonsense = [
        (0, 2, 60, 0),
        (0, u16::MAX, 60, 0),
        (0, 0, u32::MAX, 0),
        (0, 0, 60, u32::MAX),
        (0, 0, 61, region - 60),
        (0, 0, u32::MAX, u32::MAX),
        (0, 1, 4097, 0),
        (0, 0, 0, 0),
        // Longer than any frame, within the region.
        (0, 0, 65_536, 0),
    ];
    for (slot, fields) in (0..).zip(nonsense) {
        memory.describe(C2S, slot, fields);
    }
    memory.describe(C2S, 9, (0, 1, 4096, 0));
    memory.describe(C2S, 10, (0, 0, 60, region - 60));
    memory.set(C2S, HEAD, 11);
    assert_eq!(receiver.ready(32), 11);
    for fields in nonsense {
        assert_eq!(copied(receiver.next().unwrap()), None, "{fields:?}");
    }
    assert_eq!(copied(receiver.next().unwrap()).unwrap().len(), 4096);
    assert_eq!(copied(receiver.next().unwrap()).unwrap().len(), 60);
    assert!(receiver.next().is_none());
    receiver.release();
    assert_eq!(receiver.ready(32), 0);
    assert_eq!(memory.get(C2S, TAIL), 11);
    assert_eq!(receiver.errors(), 0);
}

#[test]
fn chains_without_an_end_are_taken_whole() {
    let memory = Memory::new(5, 2048);
    let mut receiver = memory.receiver(C2S);
    for slot in 0..32 {
        memory.describe(C2S, slot, (1, 0, 60, 0));
    }
    memory.set(C2S, HEAD, 32);
    assert_eq!(receiver.ready(32), 32);
    assert_eq!(copied(receiver.next().unwrap()), None);
    assert!(receiver.next().is_none());
    assert_eq!(receiver.ready(32), 0);
    assert_eq!(memory.get(C2S, TAIL), 32);
    // A bad descriptor within a chain invalidates the whole chain, and nothing more.
    memory.describe(C2S, 32, (1, 0, 60, 0));
    memory.describe(C2S, 33, (1, 9, 60, 0));
    memory.describe(C2S, 34, (0, 0, 60, 0));
    memory.describe(C2S, 35, (0, 0, 60, 0));
    memory.set(C2S, HEAD, 36);
    assert_eq!(receiver.ready(32), 4);
    assert_eq!(copied(receiver.next().unwrap()), None);
    assert_eq!(copied(receiver.next().unwrap()).unwrap().len(), 60);
    assert!(receiver.next().is_none());
}

#[test]
fn chains_have_64_pieces_and_65535_octets_at_most() {
    let memory = Memory::new(7, 2048);
    let mut receiver = memory.receiver(C2S);
    let mut head = 0_u16;
    let mut chain = |lengths: &[u32]| {
        for (number, length) in lengths.iter().enumerate() {
            let flags = u16::from(number + 1 < lengths.len());
            memory.describe(C2S, head, (flags, 0, *length, 0));
            head = head.wrapping_add(1);
        }
        memory.set(C2S, HEAD, head);
        assert_eq!(receiver.ready(128), lengths.len());
        let frame = copied(receiver.next().unwrap()).map(|frame| frame.len());
        assert!(receiver.next().is_none());
        // Returns all slots.
        assert_eq!(receiver.ready(128), 0);
        frame
    };
    assert_eq!(chain(&[10; 64]), Some(640));
    assert_eq!(chain(&[10; 65]), None);
    assert_eq!(chain(&[65_000, 535]), Some(65_535));
    assert_eq!(chain(&[65_000, 536]), None);
    assert_eq!(chain(&[1; 128]), None);
    assert_eq!(chain(&[60]), Some(60));
}

#[test]
fn a_receiver_goes_on_where_a_peers_index_jumps_to() {
    let memory = Memory::new(5, 2048);
    let mut receiver = memory.receiver(C2S);
    let mut head = 0_u16;
    for (errors, jump) in [33, 1000, u16::MAX, u16::MAX / 2, 32_768]
        .iter()
        .enumerate()
    {
        head = head.wrapping_add(*jump);
        memory.set(C2S, HEAD, head);
        assert_eq!(receiver.ready(32), 0);
        assert!(receiver.next().is_none());
        assert_eq!(memory.get(C2S, TAIL), head);
        assert_eq!(receiver.errors(), errors as u64 + 1);
        memory.describe(C2S, head, (0, 0, 60, 0));
        head = head.wrapping_add(1);
        memory.set(C2S, HEAD, head);
        assert_eq!(receiver.ready(32), 1);
        assert!(copied(receiver.next().unwrap()).is_some());
        receiver.release();
    }
    // The index moves back over announced frames.
    memory.set(C2S, HEAD, head.wrapping_add(4));
    assert_eq!(receiver.ready(32), 4);
    memory.set(C2S, HEAD, head.wrapping_add(2));
    assert_eq!(receiver.ready(32), 0);
    assert_eq!(receiver.errors(), 6);
}

#[test]
fn a_client_offers_its_buffers_again_where_a_servers_index_jumps_to() {
    for log2_size in [5, 10] {
        let size = 1_u16 << log2_size;
        let memory = Memory::new(log2_size, 2048);
        let mut receiver = memory.receiver(S2C);
        memory.set(S2C, TAIL, 2 * size + 5);
        assert_eq!(receiver.ready(32), 0);
        assert_eq!(receiver.errors(), 1);
        for _ in 0..size / 256 {
            assert_eq!(receiver.ready(32), 0);
        }
        assert_eq!(memory.get(S2C, HEAD), 3 * size + 5);
        // A server that starts there finds the whole ring.
        let mut sender = memory.sender(S2C);
        assert_eq!(sender.space(usize::MAX), usize::from(size));
        assert_eq!(sender.put([&[1_u8; 99][..]].into_iter()), PutResult::Sent);
        let _ = sender.publish();
        assert_eq!(receiver.ready(32), 1);
        assert_eq!(copied(receiver.next().unwrap()), Some(vec![1; 99]));
    }
}

#[test]
fn a_sender_goes_on_where_a_peers_index_jumps_to() {
    for (direction, peer, own) in [(S2C, HEAD, TAIL), (C2S, TAIL, HEAD)] {
        let memory = Memory::new(5, 2048);
        let mut sender = memory.sender(direction);
        assert_eq!(sender.space(32), 32);
        for (errors, index) in [1000_u16, 40, u16::MAX].into_iter().enumerate() {
            memory.set(direction, peer, index);
            assert_eq!(sender.space(64), 0);
            assert_eq!(sender.errors(), errors as u64 + 1);
            assert_eq!(memory.get(direction, own), index);
        }
        memory.set(
            direction,
            peer,
            if direction == S2C { 31 } else { u16::MAX },
        );
        assert_eq!(sender.space(64), 32);
        assert_eq!(sender.put([&[1_u8; 60][..]].into_iter()), PutResult::Sent);
    }
}

#[test]
fn slots_of_a_client_that_are_no_memory_cost_a_frame_each() {
    let memory = Memory::new(5, 2048);
    let region = memory.regions[0].len() as u32;
    let nonsense = [
        (1, 2, 2048, 0),
        (1, u16::MAX, 2048, 0),
        (0, 0, u32::MAX, 0),
        (0, 0, 2048, u32::MAX),
        (0, 0, 0, 0),
        (0, 0, 2, region - 1),
    ];
    for (slot, fields) in (0..).zip(nonsense) {
        memory.describe(S2C, slot, fields);
    }
    let mut sender = memory.sender(S2C);
    let frame = [7_u8; 60];
    for (count, fields) in nonsense.iter().enumerate() {
        assert_eq!(
            sender.put([&frame[..]].into_iter()),
            PutResult::Bad,
            "{fields:?}"
        );
        assert_eq!(sender.errors(), count as u64 + 1);
    }
    assert_eq!(sender.put([&frame[..]].into_iter()), PutResult::Sent);
    assert!(sender.publish());
    assert_eq!(memory.get(S2C, TAIL), 7);
    // The client gets its slots back without frames.
    let mut receiver = memory.receiver(S2C);
    assert_eq!(receiver.ready(32), 7);
    for _ in nonsense {
        assert_eq!(copied(receiver.next().unwrap()), None);
    }
    assert_eq!(copied(receiver.next().unwrap()), Some(frame.to_vec()));
}

#[test]
fn frames_that_no_ring_carries_are_bad() {
    for direction in DIRECTIONS {
        let memory = Memory::new(3, 1000);
        let mut sender = memory.sender(direction);
        assert_eq!(sender.put(std::iter::empty()), PutResult::Bad);
        assert_eq!(sender.put([&[][..], &[]].into_iter()), PutResult::Bad);
        assert_eq!(
            sender.put([&[0_u8; 65_536][..]].into_iter()),
            PutResult::Bad
        );
        // More than the whole ring.
        assert_eq!(sender.put([&[0_u8; 8001][..]].into_iter()), PutResult::Bad);
        assert_eq!(sender.space(64), 8);
        assert_eq!(sender.put([&[0_u8; 1001][..]].into_iter()), PutResult::Sent);
        assert_eq!(sender.put([&[0_u8; 8000][..]].into_iter()), PutResult::Full);
        assert_eq!(sender.space(64), 6);
        let memory = Memory::new(8, 100);
        let mut sender = memory.sender(direction);
        assert_eq!(sender.put([&[0_u8; 6401][..]].into_iter()), PutResult::Bad);
        assert_eq!(sender.put([&[0_u8; 6400][..]].into_iter()), PutResult::Sent);
        assert_eq!(sender.space(256), 192);
    }
}

#[test]
fn frames_of_one_length_leave_descriptors_alone() {
    let memory = Memory::new(2, 2048);
    let mut sender = memory.sender(C2S);
    let mut receiver = memory.receiver(C2S);
    let frame = [1_u8; 60];
    for _ in 0..8 {
        assert_eq!(sender.put([&frame[..]].into_iter()), PutResult::Sent);
        let _ = sender.publish();
        assert_eq!(receiver.ready(1), 1);
        assert_eq!(copied(receiver.next().unwrap()), Some(frame.to_vec()));
        receiver.release();
    }
    // A client does not read regions, which never change; so this shows that it does not write them either.
    memory.describe(C2S, 0, (0, 9, 60, 0));
    // A wrong length is observed and corrected.
    memory.describe(C2S, 1, (0, 9, 59, 0));
    for _ in 0..2 {
        assert_eq!(sender.put([&frame[..]].into_iter()), PutResult::Sent);
    }
    let field = |slot: u64, at| memory.get(C2S, 128 + 16 * slot + at);
    assert_eq!((field(0, 2), field(0, 4)), (9, 60));
    assert_eq!((field(1, 2), field(1, 4)), (0, 60));
}

#[test]
fn interrupts_are_asked_for_and_masked() {
    for direction in DIRECTIONS {
        let memory = Memory::new(5, 2048);
        let (mut sender, mut receiver) = (memory.sender(direction), memory.receiver(direction));
        let put = |sender: &mut Sender| {
            assert_eq!(sender.put([&[1_u8; 60][..]].into_iter()), PutResult::Sent);
            sender.publish()
        };
        assert!(!sender.publish(), "nothing to publish");
        assert!(put(&mut sender));
        assert!(!sender.settle(), "the interrupt is known");
        receiver.mask_interrupts();
        assert!(!put(&mut sender));
        assert!(!sender.settle());
        assert_eq!(receiver.ready(32), 2);
        while receiver.next().is_some() {}
        assert!(!put(&mut sender));
        // The last frame was not announced.
        assert!(receiver.unmask_interrupts());
        assert!(sender.settle());
        assert!(!sender.settle(), "once");
        while receiver.next().is_some() {}
        assert!(!receiver.unmask_interrupts());
        assert!(put(&mut sender));
    }
}

#[test]
fn rings_are_within_their_region_and_have_the_cookie() {
    let memory = Memory::new(5, 2048);
    let place = memory.place(C2S);
    let refused = |place: RingLocation| Receiver::server(&memory.regions, &place).unwrap_err();
    for wrong in [
        RingLocation { region: 2, ..place },
        RingLocation {
            region: u16::MAX,
            ..place
        },
        RingLocation {
            log2_size: 15,
            ..place
        },
        RingLocation {
            log2_size: 255,
            ..place
        },
        RingLocation {
            log2_size: 14,
            ..place
        },
        RingLocation {
            offset: u32::MAX,
            ..place
        },
        RingLocation { offset: 4, ..place },
        RingLocation {
            offset: memory.regions[0].len() as u32 - 64,
            ..place
        },
    ] {
        assert_eq!(refused(wrong), RingError::Location, "{wrong:?}");
    }
    let other = RingLocation { region: 1, ..place };
    assert_eq!(refused(other), RingError::Cookie(0));
    assert_eq!(refused(memory.place(S2C)), RingError::Direction);
    assert!(Sender::server(&memory.regions, &place).is_err());
    assert!(Sender::client(&memory.regions[0], &memory.layout, 1).is_err());
}

#[test]
fn layouts_have_rings_and_buffers_apart() {
    let layout = Layout::new(3, 2, RingSizes::both(6), 1500).unwrap();
    let places: Vec<RingLocation> = layout.places().collect();
    assert_eq!(places.len(), 5);
    let mut areas = Vec::new();
    for place in &places {
        let buffers = layout.buffers(place).unwrap();
        areas.push((u64::from(place.offset), ring_octets(6)));
        areas.extend((0..64).map(|slot| (buffers.offset(slot).into(), 1500)));
    }
    areas.sort_unstable();
    for pair in areas.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
    }
    let (start, len) = areas.last().unwrap();
    assert!(start + len <= layout.region_size() as u64);
    for (c2s, s2c, log2, size) in [
        (0, 0, 6, 2048),
        (1, 1, 15, 64),
        (1, 1, 6, 0),
        (1, 1, 6, 65_536),
    ] {
        assert_eq!(Layout::new(c2s, s2c, RingSizes::both(log2), size), None);
    }
    // Beyond the limit of 32-bit offsets.
    assert_eq!(Layout::new(64, 64, RingSizes::both(14), 2048), None);
    let short = Arc::new(Mapping::create("memif-test", 4096).unwrap().0);
    assert_eq!(layout.write(&short), Err(RingError::Location));
}

#[test]
fn a_server_cannot_make_a_client_read_beyond_a_buffer() {
    let memory = Memory::new(5, 2048);
    let mut receiver = memory.receiver(S2C);
    let other = memory.layout.buffers(&memory.place(C2S)).unwrap().offset(3);
    // Elsewhere in the region, by length and by offset: the client uses its own buffers all the same.
    memory.describe(S2C, 0, (0, 0, 2049, 0));
    memory.describe(S2C, 1, (0, 7, 2048, other));
    let own = memory.layout.buffers(&memory.place(S2C)).unwrap().offset(1);
    memory.write(own.into(), &[3; 2048]);
    memory.set(S2C, TAIL, 2);
    assert_eq!(receiver.ready(32), 2);
    assert_eq!(copied(receiver.next().unwrap()), None);
    assert_eq!(copied(receiver.next().unwrap()), Some(vec![3; 2048]));
}
