// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;

fn text<const N: usize>() -> impl Strategy<Value = Text<N>> {
    proptest::collection::vec(any::<u8>(), N).prop_map(|octets| Text(octets.try_into().unwrap()))
}

fn hello() -> impl Strategy<Value = Message> {
    (text(), any::<[u16; 5]>(), any::<u8>()).prop_map(|(name, words, log2)| {
        Message::Hello(Hello {
            name,
            min_version: words[0].min(words[1]),
            max_version: words[0].max(words[1]),
            max_region: words[2],
            max_s2c_ring: words[3],
            max_c2s_ring: words[4],
            max_log2_ring_size: log2,
        })
    })
}

fn init() -> impl Strategy<Value = Message> {
    let secret = proptest::collection::vec(any::<u8>(), 0..=Secret::LEN);
    (any::<u16>(), any::<u32>(), any::<u8>(), secret, text()).prop_map(
        |(version, id, mode, secret, name)| {
            Message::Init(Init {
                version,
                id,
                mode,
                secret: Secret::new(&secret).unwrap(),
                name,
            })
        },
    )
}

fn add_ring() -> impl Strategy<Value = Message> {
    let log2 = 0..=MAX_LOG2_RING_SIZE;
    (any::<bool>(), any::<[u16; 3]>(), any::<u32>(), log2).prop_map(
        |(is_c2s, words, offset, log2_size)| Message::AddRing {
            place: RingLocation {
                direction: if is_c2s {
                    Direction::ClientToServer
                } else {
                    Direction::ServerToClient
                },
                index: words[0],
                region: words[1],
                offset: offset & !7,
                log2_size,
            },
            private_header_size: words[2],
        },
    )
}

fn any_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        Just(Message::Ack),
        hello(),
        init(),
        (any::<u16>(), 1..=i64::MAX as u64)
            .prop_map(|(index, size)| Message::AddRegion { index, size }),
        add_ring(),
        text().prop_map(|interface| Message::Connect { interface }),
        text().prop_map(|interface| Message::Connected { interface }),
        (any::<u32>(), text()).prop_map(|(code, reason)| Message::Disconnect { code, reason }),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_is_parsed(message in any_message()) {
        let octets = message.encode();
        prop_assert_eq!(Message::parse(&octets, message.descriptors()), Ok(message));
        for descriptors in (0..4).filter(|count| *count != message.descriptors()) {
            let is_refused = matches!(
                Message::parse(&octets, descriptors),
                Err(MessageError::Descriptors { .. })
            );
            prop_assert!(is_refused);
        }
    }

    #[test]
    fn any_octets_are_parsed_or_refused(kind in 0..12_u16, octets in proptest::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzz::fuzz_message(&octets);
        let mut message = octets;
        message.resize(MESSAGE_LEN, 0);
        message[..2].copy_from_slice(&kind.to_le_bytes());
        crate::fuzz::fuzz_message(&message);
    }
}

#[test]
fn the_layout_is_the_protocols() {
    let octets = Message::AddRing {
        place: RingLocation {
            direction: Direction::ClientToServer,
            index: 0x0102,
            region: 0x0304,
            offset: 0x0506_0708,
            log2_size: 10,
        },
        private_header_size: 0x0b0c,
    }
    .encode();
    let expected = [5, 0, 1, 0, 2, 1, 4, 3, 8, 7, 6, 5, 10, 0x0c, 0x0b, 0];
    assert_eq!(octets[..16], expected);

    let octets = Message::Init(Init {
        version: VERSION,
        id: 7,
        mode: MODE_ETHERNET,
        secret: Secret::new(b"s").unwrap(),
        name: Name::truncated("n"),
    })
    .encode();
    assert_eq!(octets[..10], [3, 0, 0, 2, 7, 0, 0, 0, 0, b's']);
    assert_eq!(octets[33], b'n');

    let octets = Message::Hello(Hello {
        name: Name::truncated("h"),
        min_version: VERSION,
        max_version: VERSION,
        max_region: 1,
        max_s2c_ring: 2,
        max_c2s_ring: 3,
        max_log2_ring_size: 14,
    })
    .encode();
    assert_eq!(octets[..3], [2, 0, b'h']);
    assert_eq!(octets[34..46], [0, 2, 0, 2, 1, 0, 2, 0, 3, 0, 14, 0]);

    let octets = Message::AddRegion {
        index: 1,
        size: 0x1000,
    }
    .encode();
    assert_eq!(octets[..12], [4, 0, 1, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = |kind: u16, fields: &[u8], count| {
        let mut octets = kind.to_le_bytes().to_vec();
        octets.extend(fields);
        octets.resize(MESSAGE_LEN, 0);
        assert!(
            matches!(
                Message::parse(&octets, count),
                Err(MessageError::Range { .. })
            ),
            "{kind} {fields:?}"
        );
    };
    refused(ADD_REGION, &[], 1);
    refused(ADD_REGION, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80], 1);
    refused(ADD_RING, &[2], 1);
    refused(ADD_RING, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 15], 1);
    refused(ADD_RING, &[0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 10], 1);
    let mut versions = [0; 36];
    versions[32] = 1;
    refused(HELLO, &versions, 0);
    assert_eq!(
        Message::parse(&[0; MESSAGE_LEN], 0),
        Err(MessageError::Type(0))
    );
}

#[test]
fn texts_print_without_control_characters() {
    let text = Text::<8>([b'a', 0x1b, b'[', 0xff, b' ', 0, b'x', b'y']);
    assert_eq!(text.to_string(), "a?[? ");
    assert_eq!(Name::new(&"x".repeat(33)), None);
    assert_eq!(Name::truncated(&"x".repeat(40)).to_string().len(), 32);
    assert!(Name::default().is_empty());
}

#[test]
fn secrets_compare_whole_and_do_not_print() {
    let secret = |octets: &[u8]| Secret::new(octets).unwrap();
    assert_eq!(secret(b"abc"), secret(b"abc"));
    assert_ne!(secret(b"abc"), secret(b"abd"));
    assert_ne!(secret(b"abc"), secret(b"abcd"));
    assert_ne!(secret(&[7; 24]), secret(&[7; 23]));
    assert_eq!(Secret::new(&[7; 25]), None);
    assert_eq!(format!("{:?}", secret(b"abc")), "Secret");
}
