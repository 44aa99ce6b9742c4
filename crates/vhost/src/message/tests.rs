// SPDX-License-Identifier: Apache-2.0
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Splits a message into its header and its payload.
fn split(message: &[u8]) -> (Header, &[u8]) {
    let (header, payload) = message.split_first_chunk().unwrap();
    (Header::parse(header).unwrap(), payload)
}

/// Returns a message with these parts.
fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap();
    let mut octets: Vec<u8> = [request, flags, size]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    octets.extend_from_slice(payload);
    octets
}

fn parse(octets: &[u8], descriptors: usize) -> Result<FrontendRequest, MessageError> {
    let (header, payload) = split(octets);
    FrontendRequest::parse(header, payload, descriptors)
}

fn u32s(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn u64s(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn region() -> Region {
    Region::new(0x1000, 0x2000, 0x7000_0000, 0x4000).unwrap()
}

/// Returns one request of each kind.
fn samples() -> Vec<FrontendRequest> {
    use FrontendRequest as R;
    let size = RingSize::new(256).unwrap();
    let event = RingEvent {
        index: 3,
        has_descriptor: true,
    };
    let polled = RingEvent {
        index: 3,
        has_descriptor: false,
    };
    let far = Region::new(0x10_0000, 1, 0, 0).unwrap();
    vec![
        R::GetFeatures,
        R::SetFeatures(1 << 32),
        R::SetOwner,
        R::ResetOwner,
        R::SetMemoryTable(MemoryTable::new(vec![region(), far]).unwrap()),
        R::SetLogBase(LogArea::new(0x1000, 0x2000).unwrap()),
        R::SetLogEvent,
        R::SetRingSize { index: 255, size },
        R::SetRingAddresses {
            index: 2,
            addresses: RingAddresses {
                descriptors: 1,
                available: 2,
                used: 3,
                log: Some(4),
            },
        },
        R::SetRingAddresses {
            index: 2,
            addresses: RingAddresses::default(),
        },
        R::SetRingBase {
            index: 1,
            bits: 0x8000_8000,
        },
        R::GetRingBase { index: 1 },
        R::SetRingKick(event),
        R::SetRingKick(polled),
        R::SetRingCall(event),
        R::SetRingCall(polled),
        R::SetRingError(event),
        R::SetRingError(polled),
        R::GetProtocolFeatures,
        R::SetProtocolFeatures(0b1000),
        R::GetQueueNumber,
        R::SetRingEnable {
            index: 1,
            is_enabled: true,
        },
        R::SetRingEnable {
            index: 1,
            is_enabled: false,
        },
        R::SendRarp([2, 0, 0, 0, 0, 1]),
        R::SetMtu(9000),
        R::SetRequestChannel,
        R::IotlbUpdate(IotlbEntry::new(0x1000, 0x1000, 0x2000, Permission::Write).unwrap()),
        R::IotlbInvalidate(IotlbRange::new(0x1000, 0x1000).unwrap()),
        R::GetConfig {
            offset: 6,
            size: 2,
            flags: 0,
        },
        R::SetConfig(ConfigWrite::new(0, 1, vec![1, 2, 3]).unwrap()),
        R::GetInflight {
            rings: 2,
            ring_size: size,
        },
        R::SetInflight(InflightArea::new(0x1000, 0, 2, size).unwrap()),
        R::ResetDevice,
        R::GetMemorySlots,
        R::AddRegion(region()),
        R::RemoveRegion(region()),
        R::SetStatus(15),
        R::GetStatus,
    ]
}

#[test]
fn each_request_has_the_layout_of_the_specification() {
    let octets = |request: &FrontendRequest| request.encode(false);
    use FrontendRequest as R;
    assert_eq!(octets(&R::GetFeatures), message(1, 1, &[]));
    assert_eq!(R::SetFeatures(7).encode(true), message(2, 9, &u64s(&[7])));
    let table = MemoryTable::new(vec![region()]).unwrap();
    let mut payload = u32s(&[1, 0]);
    payload.extend(u64s(&[0x1000, 0x2000, 0x7000_0000, 0x4000]));
    assert_eq!(octets(&R::SetMemoryTable(table)), message(5, 1, &payload));
    let addresses = RingAddresses {
        descriptors: 1,
        available: 2,
        used: 3,
        log: Some(4),
    };
    let mut payload = u32s(&[5, 1]);
    payload.extend(u64s(&[1, 3, 2, 4]));
    assert_eq!(
        octets(&R::SetRingAddresses {
            index: 5,
            addresses
        }),
        message(9, 1, &payload)
    );
    let polled = RingEvent {
        index: 6,
        has_descriptor: false,
    };
    assert_eq!(
        octets(&R::SetRingKick(polled)),
        message(12, 1, &u64s(&[0x106]))
    );
    assert_eq!(octets(&R::SetStatus(4)), message(39, 1, &u64s(&[4])));
    let mut payload = u64s(&[0]);
    payload.extend(u64s(&[0x1000, 0x2000, 0x7000_0000, 0x4000]));
    assert_eq!(octets(&R::AddRegion(region())), message(37, 1, &payload));
    let entry = IotlbEntry::new(1, 2, 3, Permission::ReadWrite).unwrap();
    let mut payload = u64s(&[1, 2, 3]);
    payload.extend([3, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(octets(&R::IotlbUpdate(entry)), message(22, 1, &payload));
    let miss = BackendRequest::IotlbMiss {
        iova: 9,
        permission: Permission::Read,
    };
    let mut payload = u64s(&[9, 0, 0]);
    payload.extend([1, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(miss.encode(false), message(1, 1, &payload));
    let reply = Reply::RingBase { index: 1, bits: 77 };
    assert_eq!(reply.encode(), message(11, 5, &u32s(&[1, 77])));
    assert_eq!(
        Reply::acknowledge(5, false).encode(),
        message(5, 5, &u64s(&[1]))
    );
}

#[test]
fn each_request_survives_encoding_and_no_other_length_or_number_of_descriptors_parses() {
    for request in samples() {
        let octets = request.encode(true);
        let count = request.descriptors();
        assert_eq!(parse(&octets, count).as_ref(), Ok(&request));
        let (_, payload) = split(&octets);
        // Optional descriptor of REM_MEM_REG.
        let wrong = if matches!(request, FrontendRequest::RemoveRegion(_)) {
            2
        } else {
            count + 1
        };
        assert!(
            matches!(parse(&octets, wrong), Err(MessageError::Descriptors { .. })),
            "{request:?}"
        );
        if count > 0 {
            assert!(parse(&octets, count - 1).is_err(), "{request:?}");
        }
        let mut longer = payload.to_vec();
        longer.push(0);
        assert!(
            parse(&message(request.code(), 1, &longer), count).is_err(),
            "{request:?}"
        );
        // Padding at the end of a C structure is optional.
        let padding = match request {
            FrontendRequest::IotlbUpdate(_) | FrontendRequest::IotlbInvalidate(_) => 6,
            FrontendRequest::GetInflight { .. } | FrontendRequest::SetInflight(_) => 4,
            _ => 0,
        };
        for len in 0..payload.len() - padding {
            let shorter = message(request.code(), 1, &payload[..len]);
            assert!(
                parse(&shorter, count).is_err(),
                "{request:?} of {len} octets"
            );
        }
        // A payload whose length differs from the header.
        let (header, _) = split(&octets);
        assert!(FrontendRequest::parse(header, &longer, count).is_err());
        // The same as a reply.
        let reply = message(request.code(), 5, payload);
        assert!(matches!(
            parse(&reply, count),
            Err(MessageError::Direction { .. })
        ));
    }
}

#[test]
fn values_out_of_range_are_errors() {
    let table = |count: u32, regions: &[[u64; 4]]| {
        let mut payload = u32s(&[count, 0]);
        payload.extend(u64s(regions.as_flattened()));
        message(5, 1, &payload)
    };
    let good = [0, 0x1000, 0, 0];
    let cases = [
        table(0, &[]),
        table(1, &[good, good]),
        table(9, &[good; 9]),
        table(1, &[[0, 0, 0, 0]]),
        table(1, &[[u64::MAX, 1, 0, 0]]),
        table(1, &[[0, 2, u64::MAX, 0]]),
        table(1, &[[0, 2, 0, u64::MAX - 1]]),
        table(2, &[good, [0xfff, 1, 0x9000, 0]]),
        message(6, 1, &u64s(&[0, 0])),
        message(6, 1, &u64s(&[2, u64::MAX])),
        message(8, 1, &u32s(&[256, 1])),
        message(8, 1, &u32s(&[0, 0])),
        message(8, 1, &u32s(&[0, 32_769])),
        message(9, 1, &{
            let mut payload = u32s(&[0, 2]);
            payload.extend(u64s(&[0; 4]));
            payload
        }),
        message(12, 1, &u64s(&[0x200])),
        message(18, 1, &u32s(&[0, 2])),
        message(39, 1, &u64s(&[256])),
        message(24, 1, &u32s(&[0, 1, 0])),
        message(24, 1, &u32s(&[0, 0, 0])),
        message(25, 1, &[u32s(&[0, 257, 0]), vec![0; 257]].concat()),
        message(31, 1, &[u64s(&[0, 0]), vec![0, 0, 1, 0]].concat()),
        message(32, 1, &u64s(&[0, 0, 0x0001_0001])),
        message(22, 1, &u64s(&[0, 1, 0, 0x0100])),
        message(22, 1, &u64s(&[0, 1, 0, 0x0200])),
        message(22, 1, &u64s(&[0, 0, 0, 0x0203])),
        message(22, 1, &u64s(&[5, 0, 0, 0x0300])),
    ];
    for octets in cases {
        for descriptors in 0..=8 {
            let result = parse(&octets, descriptors);
            assert!(
                matches!(
                    result,
                    Err(MessageError::Value { .. } | MessageError::Length { .. })
                ),
                "{octets:?}: {result:?}"
            );
        }
    }
}

#[test]
fn headers_are_checked() {
    let header = |flags: u32, size: u32| {
        let mut octets = [0; Header::LENGTH];
        octets.copy_from_slice(&u32s(&[1, flags, size]));
        Header::parse(&octets)
    };
    assert_eq!(header(0, 0), Err(MessageError::Version(0)));
    assert_eq!(header(2, 0), Err(MessageError::Version(2)));
    assert_eq!(header(0x11, 0), Err(MessageError::Flags(0x11)));
    assert_eq!(header(1, 4096).map(Header::size), Ok(4096));
    for size in [4097, 0x1_0000, u32::MAX] {
        assert_eq!(
            header(1, size),
            Err(MessageError::PayloadSize { request: 1, size })
        );
    }
    let all = header(0b1101, 8).unwrap();
    assert!(all.is_reply() && all.need_reply());
}

#[test]
fn tables_may_have_space_for_eight_regions() {
    let mut payload = u32s(&[1, 0]);
    payload.extend(u64s(&[0x1000, 0x2000, 0x7000_0000, 0x4000]));
    payload.resize(8 + 8 * 32, 0xff);
    let table = MemoryTable::new(vec![region()]).unwrap();
    assert_eq!(
        parse(&message(5, 1, &payload), 1),
        Ok(FrontendRequest::SetMemoryTable(table))
    );
}

#[test]
fn unknown_requests_parse_with_any_payload() {
    for number in [0, 23, 26, 33, 35, 41, 99, u32::MAX] {
        let octets = message(number, 1, &[1; 100]);
        assert_eq!(parse(&octets, 5), Ok(FrontendRequest::Unknown(number)));
    }
}

#[test]
fn bases_have_the_bits_of_the_specification() {
    let packed = RingBase::Packed {
        available: 5,
        available_wrap: true,
        used: 3,
        used_wrap: false,
    };
    assert_eq!(packed.bits(), 0x0003_8005);
    assert_eq!(RingBase::from_bits(0x0003_8005, true), Some(packed));
    assert_eq!(RingBase::initial(true).bits(), 0x8000_8000);
    assert_eq!(
        RingBase::from_bits(0xffff, false),
        Some(RingBase::Split { available: 0xffff })
    );
    assert_eq!(RingBase::from_bits(0x1_0000, false), None);
}

#[test]
fn the_whole_address_space_can_be_invalidated() {
    let all = IotlbRange::new(0, 0).unwrap();
    assert_eq!((all.first(), all.last()), (0, u64::MAX));
    assert_eq!(IotlbRange::new(5, u64::MAX).unwrap().last(), u64::MAX);
    let request = FrontendRequest::IotlbInvalidate(all);
    assert_eq!(parse(&request.encode(false), 0), Ok(request));
}

#[test]
fn replies_survive_encoding() {
    let size = RingSize::new(64).unwrap();
    let replies = [
        Reply::Number {
            request: code::GET_FEATURES,
            value: u64::MAX,
        },
        Reply::acknowledge(code::SET_MEM_TABLE, true),
        Reply::RingBase {
            index: 255,
            bits: u32::MAX,
        },
        Reply::Config(None),
        Reply::Config(ConfigWrite::new(2, 0, vec![1, 2])),
        Reply::Inflight(None),
        Reply::Inflight(InflightArea::new(4096, 0, 2, size)),
    ];
    for reply in replies {
        let octets = reply.encode();
        let (header, payload) = split(&octets);
        let count = reply.descriptors();
        assert_eq!(Reply::parse(header, payload, count).as_ref(), Ok(&reply));
        assert!(
            Reply::parse(header, payload, count + 1).is_err(),
            "{reply:?}"
        );
        let mut longer = payload.to_vec();
        longer.push(0);
        let longer = message(reply.code(), 5, &longer);
        let (header, payload) = split(&longer);
        assert!(Reply::parse(header, payload, count).is_err(), "{reply:?}");
        let request = message(reply.code(), 1, payload);
        let (header, payload) = split(&request);
        assert!(Reply::parse(header, payload, count).is_err(), "{reply:?}");
    }
}

#[test]
fn requests_of_the_back_end_survive_encoding() {
    let permission = Permission::Write;
    let requests = [
        BackendRequest::IotlbMiss {
            iova: u64::MAX,
            permission,
        },
        BackendRequest::IotlbAccessFail {
            iova: 1,
            permission,
        },
        BackendRequest::ConfigChange,
        BackendRequest::Unknown(6),
    ];
    for request in requests {
        let octets = request.encode(true);
        let (header, payload) = split(&octets);
        assert_eq!(BackendRequest::parse(header, payload, 0), Ok(request));
        if !matches!(request, BackendRequest::Unknown(_)) {
            assert!(BackendRequest::parse(header, payload, 1).is_err());
        }
        for is_success in [false, true] {
            let octets = request.acknowledge(is_success);
            let (header, payload) = split(&octets);
            assert_eq!(
                BackendRequest::parse_acknowledgement(header, payload, 0),
                Ok((request.code(), is_success))
            );
            assert!(BackendRequest::parse(header, payload, 0).is_err());
        }
    }
    let update = message(1, 1, &u64s(&[0, 1, 0, 0x0203]));
    let (header, payload) = split(&update);
    assert!(BackendRequest::parse(header, payload, 0).is_err());
}

#[test]
fn errors_name_the_request() {
    let error = parse(&message(5, 1, &u32s(&[0, 0])), 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "vhost-user message SET_MEM_TABLE: number of memory regions is out of range"
    );
    assert_eq!(request_name(23), "23");
}

proptest! {
    #[test]
    fn any_octets_parse_or_are_an_error(octets in vec(any::<u8>(), 0..400)) {
        crate::fuzz::fuzz_message(&octets);
    }

    #[test]
    fn any_payload_of_a_known_request_parses_or_is_an_error(
        descriptors in 0u8..10,
        request in 0u32..44,
        flags in prop_oneof![Just(1u32), Just(5), Just(9)],
        head in vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 0..48),
        more in prop_oneof![Just(0usize), 0usize..300],
    ) {
        let mut payload = head;
        payload.resize(payload.len() + more, 0);
        let mut octets = vec![descriptors];
        octets.extend(message(request, flags, &payload));
        crate::fuzz::fuzz_message(&octets);
    }

    #[test]
    fn samples_with_changed_octets_parse_or_are_an_error(
        which in any::<prop::sample::Index>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let samples = samples();
        let sample = which.get(&samples);
        let mut octets = vec![u8::try_from(sample.descriptors()).unwrap()];
        octets.extend(sample.encode(false));
        for (place, value) in changes {
            let at = place.index(octets.len());
            octets[at] = value;
        }
        crate::fuzz::fuzz_message(&octets);
    }

    #[test]
    fn numbers_survive_encoding(
        numbers in prop::array::uniform4(any::<u64>()),
        index in any::<u8>(),
        log in any::<Option<u64>>(),
        bits in any::<u32>(),
    ) {
        let [a, b, c, d] = numbers;
        let addresses = RingAddresses { descriptors: a, available: b, used: c, log };
        let mut requests = vec![
            FrontendRequest::SetFeatures(a),
            FrontendRequest::SetProtocolFeatures(b),
            FrontendRequest::SetRingAddresses { index, addresses },
            FrontendRequest::SetRingBase { index, bits },
        ];
        requests.extend(Region::new(a, b, c, d).map(FrontendRequest::AddRegion));
        requests.extend(LogArea::new(a, b).map(FrontendRequest::SetLogBase));
        requests.extend(IotlbRange::new(a, b).map(FrontendRequest::IotlbInvalidate));
        requests.extend(
            IotlbEntry::new(a, b, c, Permission::Read).map(FrontendRequest::IotlbUpdate),
        );
        for request in requests {
            prop_assert_eq!(parse(&request.encode(true), request.descriptors()), Ok(request));
        }
        for is_packed in [false, true] {
            if let Some(base) = RingBase::from_bits(bits, is_packed) {
                prop_assert_eq!(base.bits(), bits);
            }
        }
    }
}
