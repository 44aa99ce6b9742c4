// SPDX-License-Identifier: Apache-2.0
//! Tests of the back end with scripted requests.

use super::*;

#[test]
fn a_ring_starts_whatever_the_order_of_its_settings() {
    let event = RingEvent {
        index: 1,
        has_descriptor: true,
    };
    let settings: [(R, Vec<u32>); 5] = [
        (R::SetFeatures(F_VERSION_1 | F_PROTOCOL_FEATURES), vec![]),
        (R::SetMemoryTable(table()), vec![1]),
        (
            R::SetRingSize {
                index: 1,
                size: RingSize::new(64).unwrap(),
            },
            vec![],
        ),
        (
            R::SetRingAddresses {
                index: 1,
                addresses: addresses(1),
            },
            vec![],
        ),
        (R::SetRingKick(event), vec![4]),
    ];
    for rotation in 0..settings.len() {
        for reverse in [false, true] {
            let mut order = settings.to_vec();
            order.rotate_left(rotation);
            if reverse {
                order.reverse();
            }
            let mut side = Side::new(BackendConfig::default());
            let last = order.pop().unwrap();
            for (request, files) in order {
                side.tell(request, files);
                assert!(side.rings.is_empty());
            }
            side.tell(last.0, last.1);
            assert_eq!(side.rings.len(), 1);
            assert_eq!(side.rings[0].kick, Kick::Event(4));
            assert_eq!(side.rings[0].call, None);
            assert!(!side.rings[0].is_enabled);
            let ready = Action::DeviceReady {
                features: F_VERSION_1 | F_PROTOCOL_FEATURES,
                protocol_features: 0,
                rings: 2,
            };
            assert!(side.log.contains(&ready));
        }
    }
}

#[test]
fn a_ring_without_kick_descriptor_is_polled() {
    let mut side = side(0, 0);
    side.set_up(0);
    side.tell(
        R::SetRingSize {
            index: 1,
            size: RingSize::new(2).unwrap(),
        },
        vec![],
    );
    side.tell(
        R::SetRingAddresses {
            index: 1,
            addresses: addresses(1),
        },
        vec![],
    );
    side.tell(
        R::SetRingKick(RingEvent {
            index: 1,
            has_descriptor: false,
        }),
        vec![],
    );
    assert_eq!(side.rings[1].kick, Kick::Poll);
}

#[test]
fn rings_are_enabled_by_request_or_by_the_lack_of_protocol_features() {
    let mut side = side(0, 0);
    side.set_up(0);
    side.tell(
        R::SetRingEnable {
            index: 1,
            is_enabled: true,
        },
        vec![],
    );
    side.set_up(1);
    assert_eq!(
        (side.rings[0].is_enabled, side.rings[1].is_enabled),
        (false, true)
    );
    side.take_log();
    side.tell(
        R::SetRingEnable {
            index: 0,
            is_enabled: true,
        },
        vec![],
    );
    side.tell(
        R::SetRingEnable {
            index: 0,
            is_enabled: true,
        },
        vec![],
    );
    side.tell(
        R::SetRingEnable {
            index: 0,
            is_enabled: false,
        },
        vec![],
    );
    let enable = |is_enabled| Action::EnableRing {
        index: 0,
        is_enabled,
    };
    assert_eq!(side.take_log(), [enable(true), enable(false)]);
    // All rings at once.
    side.tell(R::SetFeatures(F_VERSION_1), vec![]);
    assert_eq!(side.take_log(), [enable(true)]);
}

#[test]
fn stopping_a_ring_replies_where_it_has_stopped() {
    let mut side = side(0, 0);
    side.set_up(0);
    side.set_up(1);
    side.take_log();
    let replies = side
        .ask(R::GetRingBase { index: 1 }, false, vec![])
        .unwrap();
    assert_eq!(replies, [(Reply::RingBase { index: 1, bits: 41 }, vec![])]);
    assert_eq!(side.take_log(), [Action::StopRing { index: 1 }]);
    // Again: the ring does not run, and keeps its position.
    let replies = side
        .ask(R::GetRingBase { index: 1 }, false, vec![])
        .unwrap();
    assert_eq!(replies, [(Reply::RingBase { index: 1, bits: 41 }, vec![])]);
    // A ring that never ran.
    let replies = side
        .ask(R::GetRingBase { index: 3 }, false, vec![])
        .unwrap();
    assert_eq!(replies, [(Reply::RingBase { index: 3, bits: 0 }, vec![])]);
    assert_eq!(side.take_log(), []);
    let _ = side
        .ask(R::GetRingBase { index: 0 }, false, vec![])
        .unwrap();
    assert_eq!(
        side.take_log(),
        [Action::StopRing { index: 0 }, Action::DeviceGone]
    );
    // The next kick descriptor starts it at the position of its stop.
    side.tell(
        R::SetRingKick(RingEvent {
            index: 1,
            has_descriptor: true,
        }),
        vec![9],
    );
    assert_eq!(side.rings[0].base, RingBase::Split { available: 41 });
    assert!(matches!(side.log[0], Action::DeviceReady { rings: 4, .. }));
}

#[test]
fn descriptors_of_a_running_ring_are_replaced() {
    let mut side = side(0, 0);
    side.set_up(0);
    assert_eq!(side.backend.descriptors_held(), 0);
    side.take_log();
    let event = RingEvent {
        index: 0,
        has_descriptor: true,
    };
    let none = RingEvent {
        index: 0,
        has_descriptor: false,
    };
    side.tell(R::SetRingCall(event), vec![50]);
    side.tell(R::SetRingCall(none), vec![]);
    side.tell(R::SetRingKick(event), vec![51]);
    side.tell(R::SetRingError(event), vec![52]);
    assert_eq!(
        side.take_log(),
        [
            Action::SetCall {
                index: 0,
                call: Some(50)
            },
            Action::SetCall {
                index: 0,
                call: None
            },
            Action::SetKick {
                index: 0,
                kick: Kick::Event(51)
            },
            Action::SetError {
                index: 0,
                error: Some(52)
            },
        ]
    );
    // Descriptors of other rings are kept, one of each kind.
    for file in 0..10 {
        let event = RingEvent {
            index: 1,
            has_descriptor: true,
        };
        side.tell(R::SetRingCall(event), vec![file]);
        side.tell(R::SetRingKick(event), vec![file]);
        side.tell(R::SetRingError(event), vec![file]);
    }
    assert_eq!(side.backend.descriptors_held(), 3);
}

#[test]
fn logging_starts_and_stops_while_rings_run() {
    let mut side = side(F_LOG_ALL, PROTOCOL_F_LOG_SHMFD);
    side.set_up(0);
    side.take_log();
    let features = F_VERSION_1 | F_PROTOCOL_FEATURES;
    let area = LogArea::new(0x1000, 0x2000).unwrap();
    assert_eq!(side.number(R::SetLogBase(area), false, vec![8]), 0);
    side.tell(R::SetFeatures(features | F_LOG_ALL), vec![]);
    side.tell(R::SetFeatures(features | F_LOG_ALL), vec![]);
    let logged = RingAddresses {
        log: Some(0x5000),
        ..addresses(0)
    };
    side.tell(
        R::SetRingAddresses {
            index: 0,
            addresses: logged,
        },
        vec![],
    );
    side.tell(
        R::SetRingAddresses {
            index: 0,
            addresses: addresses(0),
        },
        vec![],
    );
    side.tell(R::SetFeatures(features), vec![]);
    assert_eq!(
        side.take_log(),
        [
            Action::SetLog {
                size: 0x1000,
                offset: 0x2000,
                file: 8
            },
            Action::SetLogging(true),
            Action::SetRingLogging {
                index: 0,
                log: Some(0x5000)
            },
            Action::SetRingLogging {
                index: 0,
                log: None
            },
            Action::SetLogging(false),
        ]
    );
    assert_eq!(side.rings.len(), 1);
    let moved = RingAddresses {
        used: USER,
        ..addresses(0)
    };
    let error = SessionError::RingRunning {
        request: code::SET_VRING_ADDR,
        index: 0,
    };
    let moved = R::SetRingAddresses {
        index: 0,
        addresses: moved,
    };
    assert_eq!(side.ask(moved, false, vec![]), Err(error));
}

#[test]
fn rings_that_are_to_log_wait_for_the_log() {
    let mut waiting = side(F_LOG_ALL, PROTOCOL_F_LOG_SHMFD);
    let features = F_VERSION_1 | F_PROTOCOL_FEATURES | F_LOG_ALL;
    waiting.tell(R::SetFeatures(features), vec![]);
    waiting.set_up(0);
    assert!(waiting.rings.is_empty());
    let area = LogArea::new(0x1000, 0).unwrap();
    assert_eq!(waiting.number(R::SetLogBase(area), false, vec![8]), 0);
    assert_eq!(waiting.rings[0].features, features);

    let mut running = side(F_LOG_ALL, PROTOCOL_F_LOG_SHMFD);
    running.set_up(0);
    let result = running.ask(R::SetFeatures(features), false, vec![]);
    assert_eq!(result, Err(SessionError::LogMissing));

    let mut failing = side(F_LOG_ALL, PROTOCOL_F_LOG_SHMFD | PROTOCOL_F_REPLY_ACK);
    failing.fails = true;
    let result = failing.ask(R::SetLogBase(area), true, vec![8]);
    assert_eq!(result, Err(SessionError::Failed(code::SET_LOG_BASE)));
}

#[test]
fn memory_is_replaced_added_and_removed_while_rings_run() {
    let mut side = side(0, PROTOCOL_F_CONFIGURE_MEM_SLOTS | PROTOCOL_F_REPLY_ACK);
    side.set_up(0);
    side.take_log();
    assert_eq!(side.number(R::GetMemorySlots, false, vec![]), 32);
    let two = MemoryTable::new(vec![region(0), region(1)]).unwrap();
    assert_eq!(side.number(R::SetMemoryTable(two), true, vec![3, 4]), 0);
    assert_eq!(
        side.take_log(),
        [Action::SetMemory(vec![(region(0), 3), (region(1), 4)])]
    );
    for number in 2..32 {
        assert_eq!(side.number(R::AddRegion(region(number)), true, vec![5]), 0);
    }
    assert_eq!(side.backend.regions().len(), 32);
    // Full, overlapping, unknown: refused, and nothing changes.
    side.take_log();
    for request in [R::AddRegion(region(32)), R::RemoveRegion(region(32))] {
        let files = vec![6; request.descriptors()];
        assert_eq!(side.number(request, true, files), 1);
    }
    assert_eq!(side.number(R::RemoveRegion(region(5)), true, vec![]), 0);
    assert_eq!(side.number(R::RemoveRegion(region(6)), true, vec![77]), 0);
    assert_eq!(side.number(R::AddRegion(region(7)), true, vec![6]), 1);
    assert_eq!(side.backend.regions().len(), 30);
    assert_eq!(
        side.take_log(),
        [
            Action::Refused(SessionError::MemorySlots(32)),
            Action::Refused(SessionError::NoSuchRegion(32 << 20)),
            Action::RemoveRegion(region(5)),
            Action::RemoveRegion(region(6)),
            Action::Refused(SessionError::Overlap(7 << 20)),
        ]
    );
    side.fails = true;
    assert_eq!(side.number(R::AddRegion(region(5)), true, vec![5]), 1);
    assert_eq!(side.backend.regions().len(), 30);
    let failed = SessionError::Failed(code::ADD_MEM_REG);
    assert_eq!(
        side.ask(R::AddRegion(region(5)), false, vec![5]),
        Err(failed)
    );
    assert_eq!(
        side.ask(R::GetFeatures, false, vec![]),
        Err(SessionError::Ended)
    );
}

#[test]
fn features_are_a_subset_of_those_on_offer_and_stay_while_rings_run() {
    let mut wrong = side(0, PROTOCOL_F_REPLY_ACK);
    let result = wrong.ask(R::SetFeatures(F_VERSION_1 | NET_F_CSUM), true, vec![]);
    assert_eq!(result, Err(SessionError::NotOffered(NET_F_CSUM)));
    let mut wrong = side(0, 0);
    let result = wrong.ask(R::SetProtocolFeatures(PROTOCOL_F_PAGEFAULT), false, vec![]);
    assert_eq!(result, Err(SessionError::NotOffered(PROTOCOL_F_PAGEFAULT)));
    let mut legacy = side(0, 0);
    legacy.tell(R::SetFeatures(F_PROTOCOL_FEATURES), vec![]);
    let event = RingEvent {
        index: 0,
        has_descriptor: false,
    };
    legacy.tell(R::SetRingKick(event), vec![]);
    legacy.tell(
        R::SetRingSize {
            index: 0,
            size: RingSize::new(2).unwrap(),
        },
        vec![],
    );
    let result = legacy.ask(
        R::SetRingAddresses {
            index: 0,
            addresses: addresses(0),
        },
        false,
        vec![],
    );
    assert_eq!(result, Err(SessionError::Missing(F_VERSION_1)));
    assert_eq!(legacy.backend.close(), []);

    let mut running = side(F_RING_PACKED, 0);
    running.set_up(0);
    let result = running.ask(
        R::SetFeatures(F_VERSION_1 | F_PROTOCOL_FEATURES),
        false,
        vec![],
    );
    assert_eq!(result, Err(SessionError::FeaturesInUse(F_RING_PACKED)));
    assert_eq!(
        running.backend.close(),
        [Action::StopRing { index: 0 }, Action::DeviceGone]
    );
    assert_eq!(running.backend.close(), []);
}

#[test]
fn rings_that_cannot_be_are_errors() {
    let start = |features: u64, size: u16, addresses: RingAddresses, bits: u32| {
        let mut side = side(features, 0);
        let event = RingEvent {
            index: 0,
            has_descriptor: false,
        };
        side.tell(R::SetRingKick(event), vec![]);
        side.tell(R::SetRingBase { index: 0, bits }, vec![]);
        side.tell(
            R::SetRingAddresses {
                index: 0,
                addresses,
            },
            vec![],
        );
        let size = RingSize::new(size).unwrap();
        side.ask(R::SetRingSize { index: 0, size }, false, vec![])
            .map(|_| side.rings.len())
    };
    let good = addresses(0);
    let bad = |result| matches!(result, Err(SessionError::BadRing { index: 0, .. }));
    assert_eq!(start(0, 32_768, good, 0xffff), Ok(1));
    assert_eq!(start(0, 2, good, 0), Ok(1));
    assert_eq!(start(F_RING_PACKED, 1, good, 0), Ok(1));
    assert_eq!(start(F_RING_PACKED, 32_768, good, 0x7fff_7fff), Ok(1));
    assert!(bad(start(0, 1, good, 0)));
    assert!(bad(start(0, 100, good, 0)));
    assert!(bad(start(0, 128, good, 0x1_0000)));
    assert!(bad(start(F_RING_PACKED, 100, good, 100)));
    assert!(bad(start(F_RING_PACKED, 100, good, 100 << 16)));
    assert!(bad(start(
        0,
        128,
        RingAddresses {
            descriptors: USER + 8,
            ..good
        },
        0
    )));
    assert!(bad(start(
        0,
        128,
        RingAddresses {
            available: USER + 1,
            ..good
        },
        0
    )));
    assert!(bad(start(
        0,
        128,
        RingAddresses {
            used: USER + 2,
            ..good
        },
        0
    )));
    assert!(bad(start(
        F_RING_PACKED,
        128,
        RingAddresses {
            available: USER + 2,
            ..good
        },
        0
    )));
    assert_eq!(
        start(
            0,
            128,
            RingAddresses {
                available: USER + 2,
                ..good
            },
            0
        ),
        Ok(1)
    );

    let mut side = side(0, 0);
    let result = side.ask(R::GetRingBase { index: 4 }, true, vec![]);
    assert_eq!(result, Err(SessionError::NoSuchRing { index: 4, rings: 4 }));
}

#[test]
fn acknowledgements_are_sent_if_negotiated() {
    let mut side = side(0, PROTOCOL_F_REPLY_ACK);
    assert_eq!(side.number(R::SetOwner, true, vec![]), 0);
    assert_eq!(side.number(R::Unknown(77), true, vec![]), 1);
    assert_eq!(side.number(R::SetMtu(67), true, vec![]), 1);
    assert_eq!(side.number(R::SetMtu(u64::MAX), true, vec![]), 1);
    assert_eq!(side.number(R::SetMtu(9000), true, vec![]), 0);
    assert_eq!(side.number(R::GetQueueNumber, true, vec![]), 2);
    side.tell(R::SendRarp([2, 0, 0, 0, 0, 9]), vec![]);
    assert_eq!(side.log.last(), Some(&Action::SendRarp([2, 0, 0, 0, 0, 9])));
    let error = Err(SessionError::Unknown(77));
    assert_eq!(side.ask(R::Unknown(77), false, vec![]), error);

    let mut plain = Side::new(BackendConfig::default());
    plain.tell(R::SetOwner, vec![]);
    assert!(plain.ask(R::ResetOwner, true, vec![]).unwrap().is_empty());
    assert_eq!(plain.ask(R::Unknown(77), true, vec![]), error);
}

#[test]
fn requests_of_features_that_are_not_negotiated_are_refused() {
    let area = InflightArea::new(1, 0, 1, RingSize::new(2).unwrap()).unwrap();
    let range = IotlbRange::new(0, 1).unwrap();
    let config = BackendConfig {
        protocol_features: PROTOCOL_F_REPLY_ACK,
        ..Default::default()
    };
    for (request, file) in [
        (R::SetLogBase(LogArea::new(1, 0).unwrap()), true),
        (
            R::GetInflight {
                rings: 1,
                ring_size: RingSize::new(2).unwrap(),
            },
            false,
        ),
        (R::SetInflight(area), true),
        (R::AddRegion(region(0)), true),
        (R::RemoveRegion(region(0)), false),
        (R::GetMemorySlots, false),
        (R::GetQueueNumber, false),
        (R::SetStatus(1), false),
        (R::GetStatus, false),
        (R::ResetDevice, false),
        (R::SetRequestChannel, true),
        (R::IotlbInvalidate(range), false),
        (R::SendRarp([0; 6]), false),
        (R::SetMtu(1500), false),
        (
            R::GetConfig {
                offset: 0,
                size: 1,
                flags: 0,
            },
            false,
        ),
    ] {
        let mut side = Side::new(config.clone());
        let files = if file { vec![1] } else { vec![] };
        let code = request.code();
        let result = side.ask(request, false, files);
        let is_refused = |request| request == code;
        assert!(
            matches!(result, Err(SessionError::NotNegotiated { request, .. }) if is_refused(request)),
            "{result:?}"
        );
    }
}

#[test]
fn the_device_is_reset_by_request_or_status() {
    for is_status in [false, true] {
        let mut side = side(0, PROTOCOL_F_STATUS | PROTOCOL_F_RESET_DEVICE);
        side.tell(R::SetStatus(15), vec![]);
        assert_eq!(side.number(R::GetStatus, false, vec![]), 15);
        side.set_up(0);
        side.set_up(1);
        side.take_log();
        side.tell(
            if is_status {
                R::SetStatus(0)
            } else {
                R::ResetDevice
            },
            vec![],
        );
        let stop = |index| Action::StopRing { index };
        assert_eq!(side.take_log(), [stop(0), stop(1), Action::DeviceGone]);
        assert_eq!(side.number(R::GetStatus, false, vec![]), 0);
        assert_eq!(side.backend.features(), 0);
        assert_eq!(side.backend.regions(), [region(0)]);
        // QEMU 7.2 resets the device before it asks for the positions of stopped rings.
        let replies = side
            .ask(R::GetRingBase { index: 1 }, false, vec![])
            .unwrap();
        assert_eq!(replies, [(Reply::RingBase { index: 1, bits: 41 }, vec![])]);
        // All settings except the memory are lost.
        side.tell(R::SetFeatures(F_VERSION_1), vec![]);
        side.tell(
            R::SetRingKick(RingEvent {
                index: 0,
                has_descriptor: true,
            }),
            vec![3],
        );
        assert!(side.rings.is_empty());
        side.set_up(0);
        assert_eq!(side.rings.len(), 1);
        assert!(side.rings[0].is_enabled);
        assert_eq!(side.rings[0].base, RingBase::Split { available: 0 });
    }
}

#[test]
fn the_iotlb_is_updated_and_asked_for() {
    let mut side = side(F_ACCESS_PLATFORM, PROTOCOL_F_BACKEND_REQ);
    side.tell(R::SetRequestChannel, vec![12]);
    let entry = IotlbEntry::new(0x1000, 0x1000, USER, Permission::Read).unwrap();
    let range = IotlbRange::new(0x1000, 0x1000).unwrap();
    // IOTLB messages are acknowledged without REPLY_ACK.
    assert_eq!(side.number(R::IotlbUpdate(entry), true, vec![]), 0);
    side.tell(R::IotlbInvalidate(range), vec![]);
    side.fails = true;
    assert_eq!(side.number(R::IotlbUpdate(entry), true, vec![]), 1);
    assert_eq!(
        side.take_log(),
        [
            Action::IotlbChannel(12),
            Action::IotlbUpdate(entry),
            Action::IotlbInvalidate(range),
            Action::IotlbUpdate(entry),
            Action::Refused(SessionError::Failed(code::IOTLB_MSG)),
        ]
    );
    assert!(side.backend.iotlb_miss(0x5000, Permission::Write).is_some());
    let plain = Side::new(BackendConfig::default());
    assert_eq!(plain.backend.iotlb_miss(0x5000, Permission::Write), None);
}

#[test]
fn the_configuration_space_is_read_only() {
    let mut side = Side::new(BackendConfig {
        protocol_features: PROTOCOL_F_CONFIG | PROTOCOL_F_REPLY_ACK,
        config_space: vec![2, 0, 0, 0, 0, 1],
        ..Default::default()
    });
    side.tell(
        R::SetProtocolFeatures(PROTOCOL_F_CONFIG | PROTOCOL_F_REPLY_ACK),
        vec![],
    );
    let read = |offset, size| R::GetConfig {
        offset,
        size,
        flags: 0,
    };
    let write = crate::message::ConfigWrite::new(4, 0, vec![0, 1]);
    let replies = side.ask(read(4, 2), false, vec![]).unwrap();
    assert_eq!(replies, [(Reply::Config(write.clone()), vec![])]);
    for outside in [read(5, 2), read(u32::MAX, 1)] {
        let replies = side.ask(outside, false, vec![]).unwrap();
        assert_eq!(replies, [(Reply::Config(None), vec![])]);
    }
    assert_eq!(side.number(R::SetConfig(write.unwrap()), true, vec![]), 1);
}

#[test]
fn calls_out_of_order_end_the_session() {
    let mut backend = Backend::<u32>::new(BackendConfig::default());
    assert_eq!(
        backend.memory_mapped(Ok::<_, ()>(())),
        Err(SessionError::OutOfOrder)
    );
    let mut backend = Backend::<u32>::new(BackendConfig::default());
    let _ = backend
        .handle(R::SetMemoryTable(table()), false, vec![1])
        .unwrap();
    assert_eq!(
        backend.handle(R::SetOwner, false, vec![]),
        Err(SessionError::OutOfOrder)
    );
    assert_eq!(
        backend.memory_mapped(Ok::<_, ()>(())),
        Err(SessionError::OutOfOrder)
    );
    let mut backend = Backend::<u32>::new(BackendConfig::default());
    let error = SessionError::Descriptors {
        request: code::SET_OWNER,
        count: 1,
    };
    assert_eq!(backend.handle(R::SetOwner, false, vec![1]), Err(error));
}

/// Checks QEMU's requests when it starts a device of two pairs and migrates it away: one device of two rings after the
/// other, over the same connection, each with its own copy of the features.
#[test]
fn devices_of_two_rings_share_a_connection() {
    let protocol = PROTOCOL_F_MQ | PROTOCOL_F_LOG_SHMFD | PROTOCOL_F_REPLY_ACK;
    let mut side = side(F_LOG_ALL, protocol);
    let features = F_VERSION_1 | F_PROTOCOL_FEATURES;
    for pair in 0..2 {
        assert!(side.number(R::GetFeatures, false, vec![]) & F_PROTOCOL_FEATURES != 0);
        let offered = side.number(R::GetProtocolFeatures, false, vec![]);
        side.tell(R::SetProtocolFeatures(offered & protocol), vec![]);
        side.tell(
            R::SetRingEnable {
                index: 2 * pair,
                is_enabled: true,
            },
            vec![],
        );
        side.tell(
            R::SetRingEnable {
                index: 2 * pair + 1,
                is_enabled: true,
            },
            vec![],
        );
    }
    for pair in 0..2 {
        side.tell(R::SetFeatures(features), vec![]);
        side.set_up(2 * pair);
        side.set_up(2 * pair + 1);
    }
    assert_eq!(side.rings.len(), 4);
    assert!(side.rings.iter().all(|ring| ring.is_enabled));
    side.take_log();
    let area = LogArea::new(0x1000, 0).unwrap();
    side.number(R::SetLogBase(area), true, vec![8]);
    for _ in 0..2 {
        side.tell(R::SetFeatures(features | F_LOG_ALL), vec![]);
    }
    let log = side.take_log();
    let switches = log
        .iter()
        .filter(|action| matches!(action, Action::SetLogging(true)));
    assert_eq!(switches.count(), 1);
    for index in 0..4 {
        let _ = side.ask(R::GetRingBase { index }, false, vec![]).unwrap();
    }
    assert_eq!(side.stopped, [0, 1, 2, 3]);
    assert_eq!(side.take_log().last(), Some(&Action::DeviceGone));
}
