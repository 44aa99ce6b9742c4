// SPDX-License-Identifier: Apache-2.0
//! Both ends of a ring in every order that the memory model allows. The memory reports an access to a buffer that nothing orders with an
//! access of the other end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use quietwire_memif_model::message::{Direction, RingLocation};
use quietwire_memif_model::ring::{Layout, PutResult, Received, Receiver, RingSizes, Sender};
use quietwire_memory::{Defect, Mapping, check, found};

/// Octets of a frame, and of a buffer.
const FRAME: usize = 4;
const DIRECTIONS: [Direction; 2] = [Direction::ClientToServer, Direction::ServerToClient];

/// Returns both ends of a ring.
fn ends(direction: Direction, log2_size: u8) -> (Sender, Receiver) {
    let buffer = u32::try_from(FRAME).unwrap();
    let layout = Layout::new(1, 1, RingSizes::both(log2_size), buffer).unwrap();
    let memory = Arc::new(Mapping::create("model", layout.region_size()).unwrap().0);
    layout.write(&memory).unwrap();
    let place: RingLocation = layout.place(direction, 0).unwrap();
    let regions = [Arc::clone(&memory)];
    match direction {
        Direction::ClientToServer => (
            Sender::client(&memory, &layout, 0).unwrap(),
            Receiver::server(&regions, &place).unwrap(),
        ),
        Direction::ServerToClient => (
            Sender::server(&regions, &place).unwrap(),
            Receiver::client(&memory, &layout, 0).unwrap(),
        ),
    }
}

/// Puts a frame with this number into the ring and publishes it. Returns false if the ring is full, otherwise whether the receiver must be
/// woken.
fn send(sender: &mut Sender, number: u8) -> Option<bool> {
    if sender.space(1) == 0 {
        return None;
    }
    let octets = [number; FRAME];
    assert_eq!(sender.put([&octets[..]].into_iter()), PutResult::Sent);
    Some(sender.publish())
}

/// Takes the next frame out of the ring and returns its slot.
fn receive(receiver: &mut Receiver) -> Option<u8> {
    if receiver.ready(1) == 0 {
        return None;
    }
    let mut octets = [0; FRAME];
    match receiver.next() {
        Some(Received::Frame(frame)) => {
            assert_eq!(frame.first.copy_to(&mut octets), FRAME, "a short frame");
        }
        other => panic!("not a frame: {other:?}"),
    }
    receiver.release();
    let [number, ..] = octets;
    assert_eq!(octets, [number; FRAME], "a torn frame");
    Some(number)
}

/// The sender fills the ring and then reuses slots that return; the receiver takes all frames that it finds.
fn exchange(direction: Direction, frames: u8) {
    let (mut sender, mut receiver) = ends(direction, 1);
    let thread = thread::spawn(move || {
        let mut last = 0;
        for _ in 0..frames {
            if let Some(number) = receive(&mut receiver) {
                assert_eq!(number, last + 1, "frames out of order");
                last = number;
            }
        }
        assert_eq!(receiver.errors(), 0);
        (receiver, last)
    });
    let mut sent = 0;
    for _ in 0..frames {
        sent += u8::from(send(&mut sender, sent + 1).is_some());
    }
    let (mut receiver, last) = thread.join().unwrap();
    for number in last + 1..=sent {
        assert_eq!(receive(&mut receiver), Some(number));
    }
    assert_eq!(receive(&mut receiver), None);
    assert_eq!((sender.errors(), receiver.errors()), (0, 0));
}

#[test]
fn frames_arrive_whole_and_in_order() {
    for direction in DIRECTIONS {
        check(move || exchange(direction, 3));
    }
}

/// Without the release of an index, the receiver reads a buffer that is not written yet; without its acquisition, likewise.
#[test]
fn the_model_finds_weak_orders_of_indices() {
    for direction in DIRECTIONS {
        for defect in [Defect::RelaxedStores, Defect::RelaxedLoads] {
            let message = found(defect, move || exchange(direction, 3));
            let expected = [
                "Causality violation",
                "not a frame",
                "a torn frame",
                "a short frame",
                "Concurrent",
            ];
            assert!(
                expected.iter().any(|part| message.contains(part)),
                "{message}"
            );
        }
    }
}

/// The receiver unmasks interrupts before it sleeps; the sender publishes a frame, and checks again whether the receiver wants an
/// interrupt. At least one of both notices the other.
fn sleep(direction: Direction) {
    let (mut sender, mut receiver) = ends(direction, 0);
    receiver.mask_interrupts();
    let sleeps = Arc::new(AtomicBool::new(false));
    let its_sleeps = Arc::clone(&sleeps);
    let thread = thread::spawn(move || {
        let finds_frames = receiver.unmask_interrupts();
        its_sleeps.store(!finds_frames, Ordering::Relaxed);
        receiver
    });
    let is_woken = send(&mut sender, 1).unwrap() || sender.settle();
    let receiver = thread.join().unwrap();
    let sleeps = sleeps.load(Ordering::Relaxed);
    assert!(!sleeps || is_woken, "asleep beside a frame");
    drop(receiver);
}

#[test]
fn a_receiver_that_goes_to_sleep_is_woken() {
    for direction in DIRECTIONS {
        check(move || sleep(direction));
    }
}

#[test]
fn the_model_finds_missing_fences() {
    for direction in DIRECTIONS {
        let message = found(Defect::NoFences, move || sleep(direction));
        assert!(message.contains("asleep beside a frame"), "{message}");
    }
}
