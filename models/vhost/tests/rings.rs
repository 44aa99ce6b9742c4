// SPDX-License-Identifier: Apache-2.0
//! Driver and device of a virtqueue in every order that the memory model allows. The memory reports an access to a buffer that nothing
//! orders with an access of the other side.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use quietwire_memory::{Defect, Mapping, check_with, found, spawn};
use quietwire_vhost_model::address_space::{AddressSpace, Region};
use quietwire_vhost_model::driver::{self, Layout, Packed, Queue, Split};
use quietwire_vhost_model::features::{F_EVENT_IDX, F_RING_PACKED, F_VERSION_1};
use quietwire_vhost_model::ring::{
    self, OffloadHeader, PutResult, RawHeader, Receive, Received, Ring, RingConfig, Transmit,
};

/// Octets of a frame: not the length of copies without a call, for which a device takes another path.
const FRAME: usize = 8;
const BUFFER: u32 = 64;
const SIZE: u16 = 2;
/// Preemptions in `make test`. A ring has more accesses than most models.
const PREEMPTIONS: usize = 2;

/// The memory of both queues of a driver.
struct Memory {
    mapping: Arc<Mapping>,
    layout: Layout,
    features: u64,
}

impl Memory {
    fn new<Q: Queue>(more: u64) -> Self {
        let packed = if Q::PACKED { F_RING_PACKED } else { 0 };
        let layout = Layout::new(1, SIZE, SIZE, BUFFER, Q::PACKED).unwrap();
        let (mapping, ()) = Mapping::create("model", layout.total()).unwrap();
        Self {
            mapping: Arc::new(mapping),
            layout,
            features: F_VERSION_1 | packed | more,
        }
    }

    /// Calls `start` with the device's configuration of a queue.
    fn device<T>(&self, index: u32, start: impl FnOnce(&RingConfig<'_>) -> T) -> T {
        let base = Layout::address(0);
        let len = self.mapping.len() as u64;
        let region = Region::new(base, base, len, &self.mapping, 0).unwrap();
        let space = AddressSpace::new(vec![region], None).unwrap();
        let queue = self.layout.queue(index).unwrap();
        start(&RingConfig {
            size: SIZE,
            descriptors: base + queue.descriptors,
            driver: base + queue.driver_area,
            device: base + queue.device_area,
            space: &space,
            base: if self.layout.is_packed() {
                0x8000_8000
            } else {
                0
            },
            features: self.features,
            log: None,
            ring_log_address: None,
            inflight: None,
        })
    }
}

/// Returns the two ends of a transmit queue.
fn to_device<Q: Queue>(more: u64) -> (driver::Sender<Q>, ring::Receiver) {
    let memory = Memory::new::<Q>(more);
    let Memory {
        mapping,
        layout,
        features,
    } = &memory;
    let sender = driver::Sender::new(mapping, layout, 1, *features).unwrap();
    let receiver = memory.device(1, |config| ring::Receiver::new(config).unwrap());
    mapping.make_words();
    (sender, receiver)
}

/// Returns the two ends of a receive queue.
fn to_driver<Q: Queue>() -> (driver::Receiver<Q>, ring::Sender) {
    let memory = Memory::new::<Q>(0);
    let Memory {
        mapping,
        layout,
        features,
    } = &memory;
    let receiver = driver::Receiver::new(mapping, layout, 0, *features).unwrap();
    let mut sender = memory.device(0, |config| ring::Sender::new(config).unwrap());
    sender.request_notifications(false);
    mapping.make_words();
    (receiver, sender)
}

/// Returns the number of a frame, which all its octets have.
fn number_of(octets: [u8; FRAME]) -> u8 {
    let [number, ..] = octets;
    assert_eq!(octets, [number; FRAME], "a torn frame");
    number
}

/// Sends a frame and publishes it. Returns `None` if the ring is full, otherwise whether the device is known to want a notification.
fn driver_sends<Q: Queue>(sender: &mut driver::Sender<Q>, number: u8) -> Option<bool> {
    if sender.ready(1) == 0 {
        return None;
    }
    let octets = [number; FRAME];
    let header = OffloadHeader::default();
    let put = sender.put(&header, [&octets[..]].into_iter(), FRAME);
    assert_eq!(put, driver::PutResult::Sent);
    Some(sender.publish())
}

fn device_receives(receiver: &mut ring::Receiver) -> Option<u8> {
    if receiver.ready(1) == 0 {
        return None;
    }
    let mut octets = [0; FRAME];
    match receiver.next() {
        Some(Received::Frame { first, .. }) => {
            assert_eq!(first.copy_to(&mut octets), FRAME, "a short frame");
        }
        other => panic!("not a frame: {other:?}"),
    }
    receiver.release();
    Some(number_of(octets))
}

fn device_sends(sender: &mut ring::Sender, number: u8) -> bool {
    if sender.ready(1) == 0 {
        return false;
    }
    let octets = [number; FRAME];
    let put = sender.put(RawHeader::PLAIN, [&octets[..]].into_iter(), FRAME as u32);
    assert_eq!(put, PutResult::Sent);
    sender.publish();
    true
}

fn driver_receives<Q: Queue>(receiver: &mut driver::Receiver<Q>) -> Option<u8> {
    if receiver.ready(1) == 0 {
        return None;
    }
    let mut octets = [0; FRAME];
    match receiver.next() {
        Some(driver::Received::Frame(frame)) => {
            assert_eq!(frame.first.copy_to(&mut octets), FRAME, "a short frame");
        }
        other => panic!("not a frame: {other:?}"),
    }
    receiver.release();
    Some(number_of(octets))
}

/// Sends `frames` frames on a ring of two: slots are used again.
fn transmit<Q: Queue + Send + 'static>(frames: u8) {
    let (mut sender, mut receiver) = to_device::<Q>(0);
    receiver.request_notifications(false);
    let thread = spawn(move || {
        let mut last = 0;
        for _ in 0..frames {
            if let Some(number) = device_receives(&mut receiver) {
                assert_eq!(number, last + 1, "frames out of order");
                last = number;
            }
        }
        (receiver, last)
    });
    let mut sent = 0;
    for _ in 0..frames {
        sent += u8::from(driver_sends(&mut sender, sent + 1).is_some());
    }
    let (mut receiver, last) = thread.join().unwrap();
    for number in last + 1..=sent {
        assert_eq!(device_receives(&mut receiver), Some(number));
    }
    assert_eq!(device_receives(&mut receiver), None);
    assert!(sender.fault().is_none() && sender.is_consistent());
    assert_eq!(receiver.counters(), ring::Counters::default());
}

fn receive<Q: Queue + Send + 'static>(frames: u8) {
    let (mut receiver, mut sender) = to_driver::<Q>();
    let thread = spawn(move || {
        let mut last = 0;
        for _ in 0..frames {
            if let Some(number) = driver_receives(&mut receiver) {
                assert_eq!(number, last + 1, "frames out of order");
                last = number;
            }
        }
        assert!(receiver.fault().is_none());
        (receiver, last)
    });
    let mut sent = 0;
    for _ in 0..frames {
        sent += u8::from(device_sends(&mut sender, sent + 1));
    }
    let (mut receiver, last) = thread.join().unwrap();
    for number in last + 1..=sent {
        assert_eq!(driver_receives(&mut receiver), Some(number));
    }
    assert_eq!(driver_receives(&mut receiver), None);
    assert!(receiver.fault().is_none() && receiver.is_consistent());
    assert_eq!(sender.counters(), ring::Counters::default());
}

/// The device requests notifications before it sleeps; the driver publishes `frames` frames, each for itself, and then settles whether the
/// device wants a notification. At least one of both notices the other.
fn sleep<Q: Queue + Send + 'static>(more: u64, frames: u8) {
    let (mut sender, mut receiver) = to_device::<Q>(more);
    receiver.request_notifications(false);
    let thread = spawn(move || {
        receiver.request_notifications(true);
        receiver.ready(1) == 0
    });
    let mut is_woken = false;
    for number in 1..=frames {
        is_woken |= driver_sends(&mut sender, number) == Some(true);
    }
    is_woken |= sender.settle();
    let sleeps = thread.join().unwrap();
    assert!(!sleeps || is_woken, "asleep beside a frame");
}

fn is_disorder(message: &str) -> bool {
    let signs = [
        "Causality violation",
        "Concurrent",
        "not a frame",
        "a torn frame",
        "a short frame",
        "out of order",
    ];
    signs.iter().any(|sign| message.contains(sign))
}

#[test]
fn frames_to_the_device_arrive_whole_and_in_order() {
    check_with(PREEMPTIONS, || transmit::<Split>(3));
    check_with(PREEMPTIONS, || transmit::<Packed>(3));
}

#[test]
fn frames_to_the_driver_arrive_whole_and_in_order() {
    check_with(PREEMPTIONS, || receive::<Split>(3));
    check_with(PREEMPTIONS, || receive::<Packed>(3));
}

#[test]
fn the_models_find_weak_orders() {
    for defect in [Defect::RelaxedStores, Defect::RelaxedLoads] {
        let models: [fn(u8); 4] = [
            transmit::<Split>,
            transmit::<Packed>,
            receive::<Split>,
            receive::<Packed>,
        ];
        for model in models {
            let message = found(defect, move || model(3));
            assert!(is_disorder(&message), "{message}");
        }
    }
}

#[test]
fn a_device_that_goes_to_sleep_is_woken() {
    for more in [0, F_EVENT_IDX] {
        for frames in 1..=SIZE as u8 {
            check_with(3, move || sleep::<Split>(more, frames));
            check_with(3, move || sleep::<Packed>(more, frames));
        }
    }
}

#[test]
fn the_models_find_missing_fences() {
    for more in [0, F_EVENT_IDX] {
        for model in [sleep::<Split>, sleep::<Packed>] {
            let message = found(Defect::NoFences, move || model(more, 1));
            assert!(message.contains("asleep beside a frame"), "{message}");
        }
    }
}
