// SPDX-License-Identifier: Apache-2.0
//! Any frames, whole or cut short, through the bridge: every frame of a burst gets one decision, and it is the one that
//! the bridge by the book gives.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quietwire_dpdk::BURST_MAX;
use quietwire_packet::MacAddress;
use quietwire_switch::bridge::{Decisions, ReferenceBridge, decide};
use quietwire_switch::fdb::{Fdb, Key};

const AGEING_S: u32 = 3;
/// More than one input can hold addresses, so that the table is never full: the book knows no such thing.
const ENTRIES_MAX: u32 = 65_536;

/// Takes what is asked for from the front, or what is left.
fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

fn octet(input: &mut &[u8]) -> u8 {
    take(input, 1).first().copied().unwrap_or(0)
}

/// A frame as it stands in the input, or one whose addresses are of a few, so that they meet.
fn frame(input: &mut &[u8]) -> Vec<u8> {
    let length = usize::from(octet(input) % 64);
    if length < 48 {
        return take(input, length).to_vec();
    }
    let mut frame = vec![
        2,
        0,
        0,
        0,
        0,
        octet(input) % 8,
        2,
        0,
        0,
        0,
        0,
        octet(input) % 8,
    ];
    frame.resize(length, 0);
    frame
}

fuzz_target!(|input: &[u8]| {
    let mut input = input;
    let fdb = Fdb::new(ENTRIES_MAX, AGEING_S);
    let mut reference = ReferenceBridge::new(AGEING_S);
    let mut decisions = Decisions::default();
    let mut now_s = 0;
    while !input.is_empty() {
        let step = octet(&mut input);
        let port = u16::from(step & 3);
        // The table's clock goes round: what is over has to be taken out now and then.
        fdb.sweep(0, fdb.buckets(), now_s);
        now_s += u32::from(step >> 2 & 3);
        if step & 0x10 != 0 {
            fdb.sweep(0, fdb.buckets(), now_s);
            assert_eq!(fdb.entries() as usize, reference.entries(now_s));
        }
        if step & 0x20 != 0 {
            let address = MacAddress([2, 0, 0, 0, 0, octet(&mut input) % 8]);
            fdb.remove(Key::of(address));
            reference.remove(address);
        }
        let count = usize::from(octet(&mut input)) % (BURST_MAX + 1);
        let frames: Vec<Vec<u8>> = (0..count).map(|_| frame(&mut input)).collect();
        decide(
            &fdb,
            port,
            now_s,
            frames.iter().map(Vec::as_slice),
            &mut decisions,
        );
        assert_eq!(decisions.as_slice().len(), frames.len());
        for (frame, decision) in frames.iter().zip(decisions.as_slice()) {
            assert_eq!(*decision, reference.decide(port, now_s, frame));
        }
    }
});
