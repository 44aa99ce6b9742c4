// SPDX-License-Identifier: Apache-2.0
use std::sync::Arc;

use quietwire_memory::Mapping;

use super::*;
use crate::message::Direction;

/// A ring with both of its ends in this process.
struct Pair {
    sender: Sender,
    receiver: Receiver,
    _mapping: Arc<Mapping>,
}

impl Pair {
    fn new(direction: Direction, log2_size: u8, buffer_size: u32) -> Self {
        let layout = Layout::new(1, 1, log2_size, buffer_size).unwrap();
        let (mapping, _) = Mapping::create("memif-test", layout.region_size()).unwrap();
        let mapping = Arc::new(mapping);
        layout.write(&mapping).unwrap();
        let place = layout.place(direction, 0).unwrap();
        let regions = [Arc::clone(&mapping)];
        let (sender, receiver) = match direction {
            Direction::ClientToServer => (
                Sender::client(&mapping, &layout, 0).unwrap(),
                Receiver::server(&regions, &place).unwrap(),
            ),
            Direction::ServerToClient => (
                Sender::server(&regions, &place).unwrap(),
                Receiver::client(&mapping, &layout, 0).unwrap(),
            ),
        };
        Self {
            sender,
            receiver,
            _mapping: mapping,
        }
    }
}

/// Copies a frame out.
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

const DIRECTIONS: [Direction; 2] = [Direction::ClientToServer, Direction::ServerToClient];

#[test]
fn frames_go_round_the_ring_in_order() {
    for direction in DIRECTIONS {
        let mut pair = Pair::new(direction, 4, 128);
        for round in 0..10_000_u32 {
            let frame = [round.to_le_bytes(); 10].concat();
            assert_eq!(pair.sender.put([&frame[..]].into_iter()), Put::Sent);
            assert!(pair.sender.publish());
            assert_eq!(pair.receiver.ready(32), 1);
            assert_eq!(copied(pair.receiver.next().unwrap()), Some(frame));
            assert!(pair.receiver.next().is_none());
            pair.receiver.release();
        }
        assert_eq!((pair.sender.errors(), pair.receiver.errors()), (0, 0));
    }
}
