// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: records of eight octets are packets. The tracker and the reference must agree on each.

use quietwire_base::fuzz::{check, planted};

use super::super::reference::Reference;
use super::sequences::{CONVERSATIONS, Draft, Hosts, Shape, settings};
use super::*;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const RECORD: usize = 8;
const RECORDS_MAX: usize = 256;
/// Seconds to wait before a packet.
const WAITS: [u32; 8] = [0, 0, 0, 0, 1, 5, 30, 1000];
const IS_REPLY: u8 = 0x80;
const IS_ERROR: u8 = 0x40;
const IS_DROPPED: u8 = 0x20;

/// Returns a number of both signs and of any size, most often 0.
fn shift(number: u8, places: u8) -> i32 {
    i32::from(number.cast_signed()).wrapping_shl(u32::from(places & 31))
}

fn draft(record: [u8; RECORD]) -> (u32, Draft) {
    let [
        first,
        flags,
        sequence,
        places,
        acknowledgement,
        others,
        window,
        last,
    ] = record;
    let draft = Draft {
        conversation: usize::from(first & 0x0f) % CONVERSATIONS,
        is_reply: first & IS_REPLY != 0,
        shape: if first & IS_ERROR != 0 {
            Shape::Error
        } else {
            Shape::Flags(flags)
        },
        sequence: shift(sequence, places),
        acknowledgement: shift(acknowledgement, others),
        window: u16::from(window) * 257,
        scale: (last & 0x0f < 15).then_some(last & 0x0f),
        data: u16::from(last >> 4) * 100,
        is_accepted: first & IS_DROPPED == 0,
    };
    (WAITS[usize::from(others >> 5)], draft)
}

/// Plays packets, one by one. Returns true if there was a connection.
fn fuzz_connections(octets: &[u8]) -> bool {
    let mut tracker = Tracker::new(&settings()).unwrap();
    let mut reference = Reference::new(&settings());
    let mut hosts = Hosts::new();
    let mut now = 0;
    let (records, _) = octets.as_chunks::<RECORD>();
    for record in records.iter().take(RECORDS_MAX) {
        let (wait, draft) = draft(*record);
        now += wait;
        tracker.expire(now, usize::MAX);
        reference.expire(now);
        let sent = hosts.packet(&draft);
        let tracked = classify(&mut tracker, &sent, now);
        let expected = reference.track(&sent);
        let verdict = (tracked.state, tracked.reason, tracked.direction);
        assert_eq!(verdict, expected, "{sent:?}");
        let is_first = tracked.state == CtState::New && tracked.connection.is_none();
        if is_first && draft.is_accepted {
            let made = tracker.commit(&read(&sent), now).map(|_| ());
            assert_eq!(made, reference.commit(&sent), "{sent:?}");
        }
        let list = all(&tracker);
        assert_eq!(list, reference.list());
        planted("tables-connections", || {
            list.iter().any(|one| one.state == State::TcpTimeWait)
        });
    }
    tracker.counters().created > 0
}

#[test]
fn connections() {
    check(CRATE, "tables-connections", fuzz_connections);
}
