// SPDX-License-Identifier: Apache-2.0

mod both;
mod device;
mod hostile;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use proptest::prelude::*;
use quietwire_memory::Mapping;

use self::device::{Chain, Device};
use super::*;
use crate::features::{
    F_ACCESS_PLATFORM, F_EVENT_IDX, F_IN_ORDER, F_RING_PACKED, F_VERSION_1, NET_F_MRG_RXBUF,
};
use crate::ring::header::{HEADER_LEN, OffloadHeader};

/// Octets of a buffer's data.
const BUFFER: u32 = 100;

fn features(packed: bool, mergeable: bool, event_index: bool) -> u64 {
    let bit = |set, bit| if set { bit } else { 0 };
    F_VERSION_1
        | bit(packed, F_RING_PACKED)
        | bit(mergeable, NET_F_MRG_RXBUF)
        | bit(event_index, F_EVENT_IDX)
}

fn memory(size: u16, buffer_size: u32, packed: bool) -> (Arc<Mapping>, Layout, OwnedFd) {
    let layout = Layout::new(1, size, size, buffer_size, packed).unwrap();
    let (mapping, file) = Mapping::create("quietwire-test", layout.total()).unwrap();
    (Arc::new(mapping), layout, file)
}

/// Returns octets that distinguish frames.
fn frame(number: u32, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (number as usize * 31 + at * 7 + at / 256) as u8)
        .collect()
}

fn header(number: u32) -> OffloadHeader {
    match number % 3 {
        0 => OffloadHeader::default(),
        1 => OffloadHeader {
            flags: 1,
            csum_start: number as u16,
            csum_offset: 6,
            ..OffloadHeader::default()
        },
        _ => OffloadHeader {
            flags: 1,
            gso_type: 1,
            gso_size: 1400,
            hdr_len: number as u16,
            ..OffloadHeader::default()
        },
    }
}

/// Returns the octets of a frame, all pieces.
fn octets(frame: &Frame<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    for span in std::iter::once(frame.first).chain(frame.rest.clone()) {
        let mut copy = vec![0; span.len()];
        assert_eq!(span.copy_to(&mut copy), copy.len());
        octets.extend(copy);
    }
    assert_eq!(octets.len(), frame.length as usize);
    octets
}

/// Step of a test: what happens next, and a number for its details.
type Step = (u8, u16);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((any::<u8>(), any::<u16>()), 1..300)
}

/// Checks a sender whose device returns buffers in arbitrary order.
fn check_sender<Q: Queue>(size: u16, event_index: bool, steps: &[Step]) {
    let (mapping, layout, _file) = memory(size, BUFFER, Q::PACKED);
    check_sender_on::<Q>(&mapping, &layout, event_index, steps);
}

fn check_sender_on<Q: Queue>(
    mapping: &Arc<Mapping>,
    layout: &Layout,
    event_index: bool,
    steps: &[Step],
) {
    let size = layout.queue(1).unwrap().size;
    let features = features(Q::PACKED, false, event_index);
    let mut sender = Sender::<Q>::new(mapping, layout, 1, features).unwrap();
    let mut device = Device::new(mapping, layout.queue(1).unwrap(), Q::PACKED, event_index);
    let (mut number, mut sent) = (0, VecDeque::new());
    let (mut published, mut held): (usize, Vec<Chain>) = (0, Vec::new());
    let mut is_waiting = true;
    device.want_kick(true);
    for (kind, detail) in steps {
        match kind % 8 {
            0..4 => {
                let most = sender.ready(usize::from(detail % 70));
                assert!(most <= usize::from(detail % 70));
                let mut has_chain = false;
                for _ in 0..most {
                    number += 1;
                    // Mostly short frames, some in chains.
                    let length =
                        1 + number as usize * 37 % 100 * (1 + usize::from(number % 5 == 0) * 3);
                    let data = frame(number, length);
                    let (a, b) = data.split_at(usize::from(*detail) % (length + 1));
                    has_chain |= length > BUFFER as usize;
                    match sender.put(&header(number), [a, b].into_iter(), length) {
                        PutResult::Sent => sent.push_back((header(number), data)),
                        PutResult::Full => assert!(has_chain || length > BUFFER as usize),
                        PutResult::Bad => {
                            assert!(length > (BUFFER as usize + 12) * usize::from(size) - 12)
                        }
                    }
                }
                let is_new = sent.len() > published;
                published = sent.len();
                let is_known = sender.publish();
                // The device does not change its request meanwhile.
                assert!(!sender.settle(), "nothing was missed");
                assert_eq!(is_known, is_new && is_waiting, "kick");
                if is_new && event_index && is_waiting {
                    // The event has passed, unless the device requests another one.
                    device.want_kick(false);
                    is_waiting = false;
                }
            }
            4..6 => {
                while let Some(chain) = device.take() {
                    let (header, data) = sent.pop_front().unwrap();
                    let expected: Vec<u8> = header.encode().iter().chain(&data).copied().collect();
                    assert_eq!(device.octets(&chain), expected);
                    held.push(chain);
                }
                assert!(sent.is_empty());
                published = 0;
                is_waiting = detail % 2 == 0;
                device.want_kick(is_waiting);
            }
            _ => {
                for turn in 0..usize::from(detail % 40) {
                    if !held.is_empty() {
                        let chain = held.swap_remove((turn * usize::from(*detail)) % held.len());
                        device.give(&chain, 0);
                    }
                }
            }
        }
        assert_eq!(sender.fault(), None);
    }
    // All lent buffers return.
    while let Some(chain) = device.take() {
        held.push(chain);
    }
    for chain in held.drain(..) {
        device.give(&chain, 0);
    }
    let all = (0..=size).map(|_| sender.ready(usize::from(size))).max();
    assert_eq!(all, Some(usize::from(size)));
}

/// Checks a receiver whose device takes buffers in order and returns them in arbitrary order.
fn check_receiver<Q: Queue>(size: u16, mergeable: bool, event_index: bool, steps: &[Step]) {
    let (mapping, layout, _file) = memory(size, BUFFER, Q::PACKED);
    check_receiver_on::<Q>(&mapping, &layout, mergeable, event_index, steps);
}

fn check_receiver_on<Q: Queue>(
    mapping: &Arc<Mapping>,
    layout: &Layout,
    mergeable: bool,
    event_index: bool,
    steps: &[Step],
) {
    const BUFFER: usize = super::tests::BUFFER as usize;
    let size = layout.queue(0).unwrap().size;
    let features = features(Q::PACKED, mergeable, event_index);
    let mut receiver = Receiver::<Q>::new(mapping, layout, 0, features).unwrap();
    let mut device = Device::new(mapping, layout.queue(0).unwrap(), Q::PACKED, event_index);
    let mut held: Vec<Chain> = Vec::new();
    let (mut number, mut sent) = (0, VecDeque::new());
    let mut is_waiting = false;
    device.want_kick(false);
    for (kind, detail) in steps {
        match kind % 4 {
            0 | 1 => {
                while let Some(chain) = device.take() {
                    held.push(chain);
                }
                for turn in 0..usize::from(detail % 40) {
                    number += 1;
                    let longest = if mergeable { 4 * BUFFER } else { BUFFER };
                    let length = 1 + number as usize * 37 % longest;
                    if (length + HEADER_LEN).div_ceil(BUFFER + HEADER_LEN) > held.len() {
                        break;
                    }
                    let at = turn * usize::from(*detail) % held.len();
                    held.rotate_left(if kind % 16 < 8 { 0 } else { at });
                    let data = frame(number, length);
                    let used = device.write_frame(&held, &header(number).encode(), &data);
                    held.drain(..used);
                    sent.push_back((header(number), data));
                }
            }
            2 => {
                let ready = receiver.ready(usize::from(detail % 70));
                assert!(ready <= usize::from(detail % 70));
                for _ in 0..ready {
                    // Single-buffer frames are received with either method.
                    if detail % 2 == 0
                        && let Some((span, _)) = receiver.next_contiguous()
                    {
                        let mut octets = vec![0; span.len()];
                        span.copy_to(&mut octets);
                        assert_eq!(octets, sent.pop_front().unwrap().1);
                        continue;
                    }
                    let Some(received) = receiver.next() else {
                        break;
                    };
                    let Received::Frame(frame) = received else {
                        panic!("a valid frame is bad");
                    };
                    let (header, data) = sent.pop_front().unwrap();
                    assert_eq!(octets(&frame), data);
                    // Without mergeable buffers, no feature uses the header, and it is not read.
                    let header = if mergeable {
                        OffloadHeader {
                            num_buffers: frame.header.num_buffers(),
                            ..header
                        }
                    } else {
                        OffloadHeader::default()
                    };
                    assert_eq!(frame.header.parse(), header);
                }
                let wants = receiver.release();
                assert!(is_waiting || !wants);
                assert!(!receiver.settle(), "nothing was missed");
            }
            _ => {
                while let Some(chain) = device.take() {
                    held.push(chain);
                }
                is_waiting = detail % 2 == 0;
                device.want_kick(is_waiting);
            }
        }
        assert_eq!(receiver.fault(), None);
    }
    while receiver.ready(64) > 0 {
        while let Some(Received::Frame(frame)) = receiver.next() {
            assert_eq!(octets(&frame), sent.pop_front().unwrap().1);
        }
        receiver.release();
    }
    assert!(sent.is_empty());
    while let Some(chain) = device.take() {
        held.push(chain);
    }
    // The device has all buffers except a batch that does not justify a write yet.
    assert!(held.len() + if size < 96 { 1 } else { 32 } > usize::from(size));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn frames_reach_a_device_as_they_are(
        exponent in 1_u32..9,
        event_index in any::<bool>(),
        steps in steps(),
    ) {
        check_sender::<Split>(1 << exponent, event_index, &steps);
        check_sender::<Packed>(1 << exponent, event_index, &steps);
    }

    #[test]
    fn frames_of_a_device_arrive_as_they_are(
        exponent in 1_u32..9,
        mergeable in any::<bool>(),
        event_index in any::<bool>(),
        steps in steps(),
    ) {
        check_receiver::<Split>(1 << exponent, mergeable, event_index, &steps);
        check_receiver::<Packed>(1 << exponent, mergeable, event_index, &steps);
    }
}

/// Indices of 16 bits wrap.
#[test]
fn rings_run_for_longer_than_their_counters() {
    let steps: Vec<Step> = (0..4000).map(|step| ([0, 4, 6, 6][step % 4], 39)).collect();
    for size in [64, 256] {
        check_sender::<Split>(size, true, &steps);
        check_sender::<Packed>(size, true, &steps);
        let steps: Vec<Step> = steps.iter().map(|step| (step.0 / 2, step.1)).collect();
        check_receiver::<Split>(size, true, true, &steps);
        check_receiver::<Packed>(size, true, true, &steps);
    }
}

#[test]
fn descriptors_of_a_steady_stream_are_not_written_again() {
    let (mapping, layout, _file) = memory(8, 100, false);
    let features = features(false, false, false);
    let mut sender = Sender::<Split>::new(&mapping, &layout, 1, features).unwrap();
    let queue = layout.queue(1).unwrap();
    let mut device = Device::new(&mapping, queue, false, false);
    let data = frame(1, 60);
    let mut turn = |device: &mut Device| {
        for _ in 0..8 {
            assert!(sender.ready(1) == 1 || sender.ready(1) == 1);
            let header = OffloadHeader::default();
            assert_eq!(
                sender.put(&header, [&data[..]].into_iter(), 60),
                PutResult::Sent
            );
            sender.publish();
            let chain = device.take().unwrap();
            assert_eq!(chain.parts.len(), 1);
            assert_eq!(device.octets(&chain).get(12..), Some(&data[..]));
            device.give(&chain, 0);
        }
    };
    turn(&mut device);
    // Whatever is written to these lines now remains, because the driver does not write them again: the length of a
    // descriptor, an entry of the available ring, a header. The device would see it.
    let descriptor = queue.descriptors + 16 * 3 + 8;
    device.write(descriptor, &71_u32.to_le_bytes());
    let mut lengths = Vec::new();
    for _ in 0..8 {
        assert_eq!(sender.ready(1), 1);
        let header = OffloadHeader::default();
        assert_eq!(
            sender.put(&header, [&data[..]].into_iter(), 60),
            PutResult::Sent
        );
        sender.publish();
        let chain = device.take().unwrap();
        lengths.push(chain.parts[0].len);
        device.give(&chain, 0);
    }
    assert_eq!(lengths, [72, 72, 72, 71, 72, 72, 72, 72]);
}

#[test]
fn frames_that_do_not_fit_are_bad_and_leave_nothing_behind() {
    fn check<Q: Queue>() {
        let (mapping, layout, _file) = memory(4, 100, Q::PACKED);
        let features = features(Q::PACKED, false, false);
        let mut sender = Sender::<Q>::new(&mapping, &layout, 1, features).unwrap();
        let header = OffloadHeader::default();
        let data = frame(1, 1000);
        // Empty; shorter and longer than stated, in one buffer and in several; longer than all buffers.
        for (segment, length) in [
            (0, 0),
            (9, 10),
            (11, 10),
            (149, 150),
            (151, 150),
            (437, 437),
        ] {
            let put = sender.put(&header, [&data[..segment]].into_iter(), length);
            assert_eq!(put, PutResult::Bad, "{segment} of {length}");
        }
        assert!(!sender.publish());
        assert_eq!(
            sender.put(&header, [&data[..436]].into_iter(), 436),
            PutResult::Sent
        );
        assert_eq!(
            sender.put(&header, [&data[..1]].into_iter(), 1),
            PutResult::Full
        );
        assert_eq!(
            sender.put(&header, [&data[..101]].into_iter(), 101),
            PutResult::Full
        );
        assert!(sender.publish());
        let mut device = Device::new(&mapping, layout.queue(1).unwrap(), Q::PACKED, false);
        let chain = device.take().unwrap();
        assert_eq!(chain.parts.len(), 4);
        assert_eq!(device.octets(&chain).get(12..), Some(&data[..436]));
        device.give(&chain, 0);
        assert_eq!(sender.ready(9), 4);
    }
    check::<Split>();
    check::<Packed>();
}

#[test]
fn buffers_without_a_frame_are_bad_and_return_to_the_device() {
    fn check<Q: Queue>() {
        let (mapping, layout, _file) = memory(8, 100, Q::PACKED);
        let features = features(Q::PACKED, true, false);
        let mut receiver = Receiver::<Q>::new(&mapping, &layout, 0, features).unwrap();
        let mut device = Device::new(&mapping, layout.queue(0).unwrap(), Q::PACKED, false);
        // Length written, number of buffers. In a frame with several buffers, each but the first is also bad alone.
        for (len, buffers) in [
            (0, 1),
            (12, 1),
            (113, 1),
            (u32::MAX, 1),
            (50, 0),
            (50, 9),
            (50, 65),
            (50, u16::MAX),
        ] {
            let chain = device.take().unwrap();
            device.write(chain.parts[0].offset + 10, &u16::to_le_bytes(buffers));
            device.give(&chain, len);
            assert_eq!(receiver.ready(64), 1);
            assert!(
                matches!(receiver.next(), Some(Received::Bad)),
                "{len} {buffers}"
            );
            receiver.release();
        }
        // A piece without octets.
        let (first, second) = (device.take().unwrap(), device.take().unwrap());
        device.write(first.parts[0].offset + 10, &[2, 0]);
        device.give(&first, 112);
        device.give(&second, 0);
        assert_eq!(receiver.ready(64), 2);
        assert!(matches!(receiver.next(), Some(Received::Bad)));
        assert!(receiver.next().is_none());
        receiver.release();
        assert_eq!(receiver.fault(), None);
        let left = std::iter::from_fn(|| device.take()).count();
        assert!(left >= 7, "{left}");
    }
    check::<Split>();
    check::<Packed>();
}

#[test]
fn a_frame_whose_buffers_come_one_by_one_is_waited_for() {
    fn check<Q: Queue>() {
        let (mapping, layout, _file) = memory(8, 100, Q::PACKED);
        let features = features(Q::PACKED, true, false);
        let mut receiver = Receiver::<Q>::new(&mapping, &layout, 0, features).unwrap();
        let mut device = Device::new(&mapping, layout.queue(0).unwrap(), Q::PACKED, false);
        let chains = [device.take().unwrap(), device.take().unwrap()];
        let data = frame(3, 150);
        device.write(chains[0].parts[0].offset + 10, &[2, 0]);
        device.write(chains[0].parts[0].offset + 12, &data[..100]);
        device.write(chains[1].parts[0].offset, &data[100..]);
        device.give(&chains[0], 112);
        assert_eq!(receiver.ready(64), 1);
        assert!(receiver.next().is_none());
        assert_eq!(receiver.ready(64), 0);
        device.give(&chains[1], 50);
        assert_eq!(receiver.ready(64), 2);
        let Some(Received::Frame(frame)) = receiver.next() else {
            panic!("no frame");
        };
        assert_eq!((frame.rest.len(), octets(&frame)), (1, data));
        assert!(receiver.next().is_none());
    }
    check::<Split>();
    check::<Packed>();
}

#[test]
fn inconsistent_queues_are_refused() {
    let (mapping, layout, _file) = memory(8, 100, false);
    let split = features(false, false, false);
    let new = |index, features| Receiver::<Split>::new(&mapping, &layout, index, features).err();
    assert_eq!(new(0, split), None);
    assert_eq!(new(1, split), Some(SetupError::Queue(1)));
    assert_eq!(new(2, split), Some(SetupError::Queue(2)));
    assert_eq!(new(0, split | F_RING_PACKED), Some(SetupError::Kind(0)));
    for features in [0, split | F_ACCESS_PLATFORM, split | F_IN_ORDER] {
        assert_eq!(
            new(0, features),
            Some(SetupError::Features { index: 0, features })
        );
    }
    let packed = Sender::<Packed>::new(&mapping, &layout, 1, features(true, false, false));
    assert_eq!(packed.err(), Some(SetupError::Kind(1)));
    let larger = Layout::new(1, 1024, 1024, 100, false).unwrap();
    let short = Sender::<Split>::new(&mapping, &larger, 1, split);
    assert_eq!(short.err(), Some(SetupError::Memory(1)));
}

#[test]
fn a_request_for_notifications_that_was_missed_is_found_later() {
    fn check<Q: Queue>(event_index: bool) {
        let (mapping, layout, _file) = memory(8, 100, Q::PACKED);
        let features = features(Q::PACKED, false, event_index);
        let mut sender = Sender::<Q>::new(&mapping, &layout, 1, features).unwrap();
        let mut device = Device::new(&mapping, layout.queue(1).unwrap(), Q::PACKED, event_index);
        let mut send = |device: &mut Device, after: &dyn Fn(&mut Sender<Q>) -> bool| {
            // The device polls, and begins to wait after the driver has read its request.
            device.want_kick(false);
            sender.ready(1);
            let put = sender.put(&OffloadHeader::default(), [&[7_u8; 60][..]].into_iter(), 60);
            assert_eq!(put, PutResult::Sent);
            assert!(!sender.publish());
            device.want_kick(true);
            assert!(after(&mut sender));
            assert!(!sender.settle(), "once");
            while let Some(chain) = device.take() {
                device.give(&chain, 0);
            }
        };
        send(&mut device, &|sender| sender.settle());
        // The next frame finds the request, too.
        send(&mut device, &|sender| {
            sender.ready(1);
            let put = sender.put(&OffloadHeader::default(), [&[7_u8; 60][..]].into_iter(), 60);
            put == PutResult::Sent && sender.publish()
        });
    }
    for event_index in [false, true] {
        check::<Split>(event_index);
        check::<Packed>(event_index);
    }
}

#[test]
fn a_row_ends_at_a_refused_frame_and_with_the_free_slots() {
    fn check<Q: Queue>() {
        let (mapping, layout, _file) = memory(8, 100, Q::PACKED);
        let features = features(Q::PACKED, false, false);
        let mut sender = Sender::<Q>::new(&mapping, &layout, 1, features).unwrap();
        let mut device = Device::new(&mapping, layout.queue(1).unwrap(), Q::PACKED, false);
        let mut number = 0_u8;
        let mut fill = |sender: &mut Sender<Q>, most, length, written: u8| {
            let end = number + written;
            sender.fill_each(most, length, |buffer| {
                if number == end {
                    return false;
                }
                buffer.octets.copy_from(&[number; 100][..length]);
                *buffer.mark.unwrap() = 1;
                number += 1;
                true
            })
        };
        // The header of this slot is not all zero for the next frame in it.
        let csum = header(1);
        assert_eq!(
            sender.put(&csum, [&[99_u8; 60][..]].into_iter(), 60),
            PutResult::Sent
        );
        sender.publish();
        let chain = device.take().unwrap();
        device.give(&chain, 0);
        assert_eq!(fill(&mut sender, 9, 101, 9), 0, "too long");
        assert_eq!(fill(&mut sender, 9, 0, 9), 0, "empty");
        assert_eq!(fill(&mut sender, 3, 60, 9), 3);
        assert_eq!(fill(&mut sender, 9, 70, 1), 1, "refused");
        assert_eq!(fill(&mut sender, 9, 60, 9), 3, "the ring is full");
        sender.publish();
        assert_eq!(sender.ready(9), 1);
        assert_eq!(fill(&mut sender, 9, 60, 9), 1);
        sender.publish();
        for number in 0..8 {
            let chain = device.take().unwrap();
            let length = if number == 3 { 70 } else { 60 };
            let expected = [&[0; 12][..], &[number; 100][..length]].concat();
            assert_eq!(device.octets(&chain), expected);
            device.give(&chain, 0);
        }
        assert!(device.take().is_none() && sender.is_consistent());
    }
    check::<Split>();
    check::<Packed>();
}
