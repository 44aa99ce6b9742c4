// SPDX-License-Identifier: Apache-2.0
//! Frames written and read where they lie in a ring, without packet buffers.

use quietwire_memif::ring::{PutResult, Received};

use super::rings::{RxRing, TxRing};
use crate::BURST_MAX;
use crate::port::counters::QueueCounters;
use crate::port::in_place::{FrameReader, FrameSource, FramesTaken, Scratch};
use crate::port::transfer::{Sink, Source, count_malformed, notify};

/// Writes up to `count` frames of a source into free slots, and publishes them.
// Not inlined, so that the loop has all registers.
#[inline(never)]
pub(super) fn write(
    ring: &mut TxRing,
    count: usize,
    source: &mut impl FrameSource,
    scratch: &mut Scratch,
    counters: &QueueCounters,
) -> FramesTaken {
    ring.ready(count);
    let (mut taken, mut octets) = (FramesTaken::default(), 0);
    while taken.written < count {
        let length = source.next_length();
        match ring.ring.buffer(length) {
            Ok(buffer) => {
                source.write(buffer);
                ring.ring.fill(length);
            }
            Err(PutResult::Full) => break,
            Err(PutResult::Bad | PutResult::Sent) => {
                let frame = scratch.room(length);
                source.write_apart(frame);
                if !put(ring, frame, counters) {
                    taken.written += 1;
                    continue;
                }
            }
        }
        taken.written += 1;
        taken.sent += 1;
        octets += length as u64;
    }
    if taken.sent > 0 {
        ring.publish();
        notify(ring, counters);
        counters.frames.add(taken.sent as u64);
        counters.octets.add(octets);
    }
    count_malformed(ring.take_malformed(), counters);
    taken
}

/// Puts a frame that is longer than a buffer into the ring. Returns false if it was not sent.
#[cold]
#[inline(never)]
fn put(ring: &mut TxRing, frame: &[u8], counters: &QueueCounters) -> bool {
    match ring.ring.put(std::iter::once(frame)) {
        PutResult::Sent => true,
        PutResult::Full => false,
        PutResult::Bad => {
            counters.refused.add(1);
            false
        }
    }
}

/// Reads up to `most` frames, each of which is copied once: the peer can change it at any time. Returns the number of frames read.
/// Frames longer than `limit` octets (without FCS) are dropped and counted.
#[inline(never)]
pub(super) fn read(
    ring: &mut RxRing,
    most: usize,
    scratch: &mut Scratch,
    reader: &mut impl FrameReader,
    limit: u32,
    counters: &QueueCounters,
) -> usize {
    let ready = ring.ready(most.min(BURST_MAX));
    if ready == 0 {
        count_malformed(ring.take_malformed(), counters);
        return 0;
    }
    reader.begin();
    let (mut frames, mut octets) = (0, 0);
    for _ in 0..ready {
        let length = match ring.ring.next_contiguous() {
            Some(frame) if frame.len() <= limit as usize => scratch.read(frame, reader),
            Some(_) => {
                counters.too_long.add(1);
                continue;
            }
            None => match read_pieces(ring, scratch, reader, limit, counters) {
                Some(length) => length,
                None => continue,
            },
        };
        frames += 1;
        octets += length as u64;
    }
    ring.release();
    counters.frames.add(frames as u64);
    counters.octets.add(octets);
    count_malformed(ring.take_malformed(), counters);
    frames
}

/// Reads a frame in several pieces. Returns its length; `None` if there is none, or none that is valid.
#[cold]
#[inline(never)]
fn read_pieces(
    ring: &mut RxRing,
    scratch: &mut Scratch,
    reader: &mut impl FrameReader,
    limit: u32,
    counters: &QueueCounters,
) -> Option<usize> {
    match ring.ring.next()? {
        Received::Frame(frame) if frame.length <= limit => {
            let pieces = std::iter::once(frame.first).chain(frame.rest);
            Some(scratch.read_pieces(pieces, reader))
        }
        Received::Frame(_) => {
            counters.too_long.add(1);
            None
        }
        Received::Bad => {
            counters.malformed.add(1);
            None
        }
    }
}
