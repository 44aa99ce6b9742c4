// SPDX-License-Identifier: Apache-2.0
//! Devices that write arbitrary values.

use proptest::prelude::*;

use super::*;
use crate::fuzz::driver::{fuzz_driver_ring, scribble};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn no_device_breaks_a_driver(octets in prop::collection::vec(any::<u8>(), 0..1500)) {
        fuzz_driver_ring(&octets);
    }

    #[test]
    fn rings_work_again_after_scribbling(
        octets in prop::collection::vec(any::<u8>(), 0..1000),
        mergeable in any::<bool>(),
        event_index in any::<bool>(),
        steps in prop::collection::vec((any::<u8>(), any::<u16>()), 1..50),
    ) {
        fn check<Q: Queue>(octets: &[u8], mergeable: bool, event_index: bool, steps: &[Step]) {
            let (mapping, layout, _file) = memory(16, BUFFER, Q::PACKED);
            let features = features(Q::PACKED, mergeable, event_index);
            scribble::<Q>(&mapping, &layout, features, octets);
            assert!(layout.write(&mapping));
            check_sender_on::<Q>(&mapping, &layout, event_index, steps);
            check_receiver_on::<Q>(&mapping, &layout, mergeable, event_index, steps);
        }
        check::<Split>(&octets, mergeable, event_index, &steps);
        check::<Packed>(&octets, mergeable, event_index, &steps);
    }
}

#[test]
fn a_buffer_that_the_device_does_not_have_is_a_fault() {
    fn check<Q: Queue>() {
        let (mapping, layout, _file) = memory(8, BUFFER, Q::PACKED);
        let features = features(Q::PACKED, false, false);
        let mut receiver = Receiver::<Q>::new(&mapping, &layout, 0, features).unwrap();
        let mut device = Device::new(&mapping, layout.queue(0).unwrap(), Q::PACKED, false);
        let (first, second) = (device.take().unwrap(), device.take().unwrap());
        device.give(&first, 50);
        device.give(&first, 50);
        // The first one is still a valid frame, the second is not.
        assert_eq!(receiver.ready(64), 1);
        assert!(matches!(receiver.next(), Some(Received::Frame(_))));
        assert_eq!(receiver.fault(), Some(Fault::Id(0)));
        device.give(&second, 50);
        assert_eq!((receiver.ready(64), receiver.errors()), (0, 1));

        let mut sender = Sender::<Q>::new(&mapping, &layout, 1, features).unwrap();
        let mut device = Device::new(&mapping, layout.queue(1).unwrap(), Q::PACKED, false);
        let header = OffloadHeader::default();
        for _ in 0..8 {
            assert_eq!(
                sender.put(&header, [&[1_u8; 60][..]].into_iter(), 60),
                PutResult::Sent
            );
        }
        sender.publish();
        let mut chain = device.take().unwrap();
        device.give(&chain, 0);
        assert_eq!(sender.ready(1), 1);
        chain.id = 8;
        device.give(&chain, 0);
        assert_eq!(sender.ready(2), 0);
        assert_eq!(sender.fault(), Some(Fault::Id(8)));
        assert_eq!(
            sender.put(&header, [&[1_u8; 60][..]].into_iter(), 60),
            PutResult::Full
        );
        assert_eq!(
            sender.put(&header, [&[1_u8; 200][..]].into_iter(), 200),
            PutResult::Full
        );
    }
    check::<Split>();
    check::<Packed>();
}

#[test]
fn an_index_ahead_of_the_ring_is_a_fault() {
    let (mapping, layout, _file) = memory(8, BUFFER, false);
    let features = features(false, false, false);
    let mut receiver = Receiver::<Split>::new(&mapping, &layout, 0, features).unwrap();
    let device = Device::new(&mapping, layout.queue(0).unwrap(), false, false);
    let index = layout.queue(0).unwrap().device_area + 2;
    device.write(index, &9_u16.to_le_bytes());
    assert_eq!(receiver.ready(64), 0);
    let fault = receiver.fault().unwrap();
    assert_eq!(
        fault,
        Fault::Index {
            ahead: 9,
            outstanding: 8
        }
    );
    assert!(fault.to_string().contains("used ring"));
}

#[test]
fn a_buffer_that_was_not_published_cannot_be_used() {
    let (mapping, layout, _file) = memory(2, BUFFER, false);
    let features = features(false, false, false);
    let mut sender = Sender::<Split>::new(&mapping, &layout, 1, features).unwrap();
    let mut device = Device::new(&mapping, layout.queue(1).unwrap(), false, false);
    let header = OffloadHeader::default();
    let mut put = || sender.put(&header, [&[1_u8; 60][..]].into_iter(), 60);
    assert_eq!(put(), PutResult::Sent);
    sender.publish();
    let first = device.take().unwrap();
    let mut put = || sender.put(&header, [&[1_u8; 60][..]].into_iter(), 60);
    assert_eq!(put(), PutResult::Sent);
    // The second one, instead of the first.
    device.give(&Chain { id: 1, ..first }, 0);
    assert_eq!(sender.ready(1), 0);
    assert_eq!(sender.fault(), None);
    assert!(sender.is_consistent());
}
