// SPDX-License-Identifier: Apache-2.0
//! Tests with the driver's and the device's side of the same rings.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::address_space::{AddressSpace, Region};
use crate::features::NET_F_CSUM;
use crate::ring;
use crate::ring::{RawHeader, Receive, Ring, RingConfig, Transmit};

/// Largest frame: several buffers.
const LONGEST: usize = 700;

struct Both<Q> {
    receiver: Receiver<Q>,
    sender: Sender<Q>,
    device_receiver: ring::Receiver,
    device_sender: ring::Sender,
}

fn both<Q: Queue>(size: u16, features: u64) -> Both<Q> {
    let (mapping, layout, _file) = memory(size, BUFFER, Q::PACKED);
    let receiver = Receiver::new(&mapping, &layout, 0, features).unwrap();
    let sender = Sender::new(&mapping, &layout, 1, features).unwrap();
    let start = Layout::address(0);
    let region = Region::new(start, start, mapping.len() as u64, &mapping, 0).unwrap();
    let space = AddressSpace::new(vec![region], None).unwrap();
    let config = |index| {
        let queue = layout.queue(index).unwrap();
        RingConfig {
            size,
            descriptors: start + queue.descriptors,
            driver: start + queue.driver_area,
            device: start + queue.device_area,
            space: &space,
            base: if Q::PACKED { 0x8000_8000 } else { 0 },
            features: features | NET_F_CSUM,
            log: None,
            ring_log_address: None,
            inflight: None,
        }
    };
    Both {
        receiver,
        sender,
        device_receiver: ring::Receiver::new(&config(1)).unwrap(),
        device_sender: ring::Sender::new(&config(0)).unwrap(),
    }
}

fn collect<'s>(
    first: quietwire_memory::Span<'s>,
    rest: impl Iterator<Item = quietwire_memory::Span<'s>>,
) -> Vec<u8> {
    let mut octets = Vec::new();
    for span in std::iter::once(first).chain(rest) {
        let mut copy = vec![0; span.len()];
        span.copy_to(&mut copy);
        octets.extend(copy);
    }
    octets
}

/// Writes a frame into the next buffer and marks the buffer with its number. A buffer that has a mark has the octets of the frame with
/// this number.
fn write_in_place<Q: Queue>(
    sender: &mut Sender<Q>,
    number: u32,
    data: &[u8],
    written: &mut HashMap<u32, Vec<u8>>,
) -> Result<(), PutResult> {
    let buffer = sender.buffer(data.len())?;
    let mark = buffer.mark.unwrap();
    if *mark > 0 {
        let marked = &written[mark];
        assert_eq!(
            &collect(buffer.octets.sub(0, marked.len()).unwrap(), [].into_iter()),
            marked
        );
    }
    *mark = number;
    buffer.octets.copy_from(data);
    written.insert(number, data.to_vec());
    sender.fill(data.len());
    Ok(())
}

fn check<Q: Queue>(size: u16, mergeable: bool, event_index: bool, steps: &[Step]) {
    let mut both = both::<Q>(size, features(Q::PACKED, mergeable, event_index));
    let (mut number, mut outbound, mut inbound) = (0, VecDeque::new(), VecDeque::new());
    let mut written = HashMap::new();
    for (kind, detail) in steps {
        let most = usize::from(detail % 65);
        match kind % 4 {
            0 => {
                for _ in 0..both.sender.ready(most) {
                    number += 1;
                    let length = 1 + number as usize * 53 % LONGEST;
                    let data = frame(number, length);
                    if number % 4 == 1 && length <= BUFFER as usize {
                        let filled = both.sender.fill_each(1 + length % 3, length, |buffer| {
                            *buffer.mark.unwrap() = number;
                            buffer.octets.copy_from(&data) == length
                        });
                        written.insert(number, data.clone());
                        outbound.extend(std::iter::repeat_n(
                            (OffloadHeader::default(), data),
                            filled,
                        ));
                        continue;
                    }
                    if number % 3 == 0 && length <= BUFFER as usize {
                        match write_in_place(&mut both.sender, number, &data, &mut written) {
                            Ok(()) => outbound.push_back((OffloadHeader::default(), data)),
                            Err(PutResult::Full) => break,
                            Err(put) => panic!("{put:?}"),
                        }
                        continue;
                    }
                    let header = header(number);
                    match both.sender.put(&header, data.chunks(70), length) {
                        PutResult::Sent => outbound.push_back((header, data)),
                        PutResult::Full => break,
                        PutResult::Bad => assert!(length > 112 * usize::from(size) - 12),
                    }
                }
                both.sender.publish();
            }
            1 => {
                both.device_receiver.ready(most);
                both.device_receiver
                    .take_contiguous(most, usize::MAX, |first, header| {
                        let octets = collect(first, [].into_iter());
                        let (expected_header, expected) = outbound.pop_front().unwrap();
                        assert_eq!(octets, expected);
                        match header {
                            Some(header) => assert_eq!(header.parse(), expected_header),
                            None => assert!(RawHeader::from(expected_header).is_plain()),
                        }
                    });
                while let Some(received) = both.device_receiver.next() {
                    let ring::Received::Frame {
                        header,
                        first,
                        rest,
                        length,
                    } = received
                    else {
                        panic!("no frame: {received:?}");
                    };
                    let octets = collect(first, rest);
                    assert_eq!(octets.len(), length as usize);
                    assert_eq!((header.parse(), octets), outbound.pop_front().unwrap());
                }
                both.device_receiver.release();
            }
            2 => {
                for _ in 0..both.device_sender.ready(most) {
                    number += 1;
                    let longest = if mergeable { LONGEST } else { BUFFER as usize };
                    let length = 1 + number as usize * 53 % longest;
                    let data = frame(number, length);
                    let header = header(number);
                    match both
                        .device_sender
                        .put(header.into(), data.chunks(70), length as u32)
                    {
                        ring::PutResult::Sent => inbound.push_back((header, data)),
                        ring::PutResult::Full | ring::PutResult::TooLong => break,
                        put => panic!("{put:?}"),
                    }
                }
                both.device_sender.publish();
            }
            _ => {
                for _ in 0..both.receiver.ready(most) {
                    // Single-buffer frames are received with either method.
                    if let Some((_, data)) = inbound.front()
                        && data.len() % 2 == 0
                        && let Some((first, header)) = both.receiver.next_contiguous()
                    {
                        assert_eq!(&collect(first, [].into_iter()), data);
                        assert_eq!(header.num_buffers(), u16::from(mergeable));
                        inbound.pop_front();
                        continue;
                    }
                    // The frame after each third is left for the next method.
                    let third = |first: quietwire_memory::Span<'_>, _: RawHeader| {
                        let (_, data) = inbound.front().unwrap();
                        if data.len() % 3 != 0 {
                            return false;
                        }
                        assert_eq!(&collect(first, [].into_iter()), data);
                        inbound.pop_front();
                        true
                    };
                    if both.receiver.take_while(1 + most % 3, third) > 0 {
                        continue;
                    }
                    let received = both.receiver.next();
                    let Some(Received::Frame(frame)) = received else {
                        assert!(received.is_none());
                        break;
                    };
                    let (header, data) = inbound.pop_front().unwrap();
                    assert_eq!(octets(&frame), data);
                    // Without mergeable buffers, no feature uses the header, and it is not read.
                    if !mergeable {
                        assert_eq!(frame.header, RawHeader::PLAIN);
                        continue;
                    }
                    let num_buffers = frame.header.num_buffers();
                    assert_eq!(usize::from(num_buffers), 1 + frame.rest.len());
                    assert_eq!(
                        frame.header.parse(),
                        OffloadHeader {
                            num_buffers,
                            ..header
                        }
                    );
                }
                both.receiver.release();
            }
        }
        assert_eq!((both.receiver.fault(), both.sender.fault()), (None, None));
        assert!(both.receiver.is_consistent() && both.sender.is_consistent());
    }
    let counters = [
        both.device_receiver.counters(),
        both.device_sender.counters(),
    ];
    assert!(
        counters
            .iter()
            .all(|counters| counters.bad + counters.resyncs == 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn frames_pass_between_both_sides(
        exponent in 1_u32..9,
        mergeable in any::<bool>(),
        event_index in any::<bool>(),
        steps in steps(),
    ) {
        check::<Split>(1 << exponent, mergeable, event_index, &steps);
        check::<Packed>(1 << exponent, mergeable, event_index, &steps);
    }
}

/// The property above would also hold if no buffer kept its mark.
#[test]
fn a_buffer_that_is_only_written_in_place_keeps_its_mark() {
    let mut both = both::<Split>(4, features(false, false, false));
    let mut written = HashMap::new();
    let mut marks = Vec::new();
    for number in 1..=8 {
        assert_eq!(both.sender.ready(1), 1);
        marks.push(*both.sender.buffer(4).unwrap().mark.unwrap());
        write_in_place(&mut both.sender, number, &[7; 4], &mut written).unwrap();
        both.sender.publish();
        assert_eq!(both.device_receiver.ready(1), 1);
        assert_eq!(both.device_receiver.take_contiguous(1, 64, |_, _| ()), 1);
        both.device_receiver.release();
    }
    assert_eq!(marks, [0, 0, 0, 0, 1, 2, 3, 4]);
}

#[test]
fn rings_turn_many_times() {
    let steps: Vec<Step> = (0..6_000).map(|step| ((step % 4) as u8, 64)).collect();
    for mergeable in [false, true] {
        check::<Split>(256, mergeable, true, &steps);
        check::<Packed>(256, mergeable, true, &steps);
    }
}

/// Checks threads: a device in another thread returns each frame; the driver compares the returned frames with the sent
/// ones.
fn check_threads<Q: Queue + Send + 'static>(event_index: bool) {
    const FRAMES: u32 = 20_000;
    let both = both::<Q>(128, features(Q::PACKED, true, event_index));
    let (mut receiver, mut sender) = (both.receiver, both.sender);
    let (mut from, mut to) = (both.device_receiver, both.device_sender);
    let device = std::thread::spawn(move || {
        let mut returned = 0;
        while returned < FRAMES {
            if from.ready(32) == 0 {
                std::thread::yield_now();
            }
            while let Some(received) = from.next() {
                let ring::Received::Frame {
                    header,
                    first,
                    rest,
                    length,
                } = received
                else {
                    panic!("no frame: {received:?}");
                };
                let octets = collect(first, rest);
                loop {
                    match to.put(header, std::iter::once(&octets[..]), length) {
                        ring::PutResult::Sent => break,
                        ring::PutResult::Full => {
                            to.publish();
                            std::thread::yield_now();
                            to.ready(64);
                        }
                        put => panic!("{put:?}"),
                    }
                }
                returned += 1;
            }
            to.publish();
            from.release();
        }
    });
    let (mut sent, mut received) = (0_u32, 0_u32);
    while received < FRAMES {
        // Never more frames than either ring can hold.
        let most = (FRAMES - sent).min(48 - (sent - received).min(48));
        for _ in 0..sender.ready(most as usize) {
            let data = frame(sent, 1 + sent as usize * 53 % 250);
            let put = sender.put(&header(sent), data.chunks(70), data.len());
            if put == PutResult::Full {
                break;
            }
            assert_eq!(put, PutResult::Sent);
            sent += 1;
        }
        sender.publish();
        let ready = receiver.ready(32);
        for _ in 0..ready {
            let Some(next) = receiver.next() else {
                break;
            };
            let Received::Frame(next) = next else {
                panic!("a valid frame is bad");
            };
            let data = frame(received, 1 + received as usize * 53 % 250);
            assert_eq!(octets(&next), data, "{received}");
            received += 1;
        }
        receiver.release();
        if ready == 0 {
            std::thread::yield_now();
            assert!(!device.is_finished() || received == FRAMES || receiver.ready(1) > 0);
        }
    }
    device.join().unwrap();
    assert_eq!((receiver.fault(), sender.fault()), (None, None));
}

#[test]
fn frames_pass_between_two_threads() {
    for event_index in [false, true] {
        check_threads::<Split>(event_index);
        check_threads::<Packed>(event_index);
    }
}
