// SPDX-License-Identifier: Apache-2.0
//! Copying frames out of a forwarding thread: into a ring of octets, which the control thread empties.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_dpdk::{Burst, cycles};
use rtrb::{Consumer, Producer, RingBuffer};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::filter::Sieve;

/// Octets of one thread's ring.
const RING: usize = 4 << 20;

/// What stands before the octets of a frame in the ring.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    ticks: u64,
    /// Octets that the frame has.
    length: u32,
    /// Octets of it that follow.
    kept: u32,
    port: u16,
    kind: u16,
    /// Place of the frame in its burst; of [`SENT`], how many of the burst were sent.
    place: u32,
}

const HEAD: usize = size_of::<Head>();
/// Came in.
const RECEIVED: u16 = 0;
/// Is handed to the driver now, which may not take it.
const OFFERED: u16 = 1;
/// So many frames of the burst were taken.
const SENT: u16 = 2;

/// Which way the frames of a capture go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// Those that come in.
    In,
    /// Those that go out.
    Out,
    /// All.
    #[default]
    Both,
}

/// A forwarding thread's side.
#[derive(Debug)]
pub(crate) struct CaptureTap {
    sieve: Arc<Sieve>,
    directions: Directions,
    snap_length: usize,
    ring: Producer<u8>,
    missed: Arc<AtomicU64>,
    /// Frames were offered, and it is not said yet how many were sent.
    offered: bool,
}

/// The control thread's side.
#[derive(Debug)]
pub(super) struct CaptureReader {
    ring: Consumer<u8>,
    missed: Arc<AtomicU64>,
    offered: Vec<(u32, Frame)>,
}

/// A frame that was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) ticks: u64,
    pub(super) port: u16,
    pub(super) is_outward: bool,
    pub(super) length: u32,
    pub(super) octets: Vec<u8>,
}

/// Both sides for one thread.
pub(super) fn capture(
    sieve: &Arc<Sieve>,
    directions: Directions,
    snap_length: usize,
) -> (CaptureTap, CaptureReader) {
    let (writer, reader) = RingBuffer::new(RING);
    let missed = Arc::new(AtomicU64::new(0));
    let tap = CaptureTap {
        sieve: Arc::clone(sieve),
        directions,
        snap_length,
        ring: writer,
        missed: Arc::clone(&missed),
        offered: false,
    };
    let reader = CaptureReader {
        ring: reader,
        missed,
        offered: Vec::new(),
    };
    (tap, reader)
}

impl CaptureTap {
    /// A burst came in by a port.
    pub(crate) fn received(&mut self, port: u16, burst: &Burst) {
        if self.directions != Directions::Out {
            self.copy(RECEIVED, port, burst.frames().zip(burst.lengths()));
        }
    }

    /// A burst is handed to the driver of a port; [`Self::sent`] follows.
    pub(crate) fn offered(&mut self, port: u16, burst: &Burst) {
        if self.directions != Directions::In {
            self.offered = self.copy(OFFERED, port, burst.frames().zip(burst.lengths()));
        }
    }

    /// So many of the frames were taken, from the first.
    pub(crate) fn sent(&mut self, port: u16, count: usize) {
        if std::mem::take(&mut self.offered) {
            let head = Head {
                port,
                kind: SENT,
                place: count as u32,
                ..Head::default()
            };
            // There is room: `copy` left it.
            let _ = self.ring.push_entire_slice(head.as_bytes());
        }
    }

    /// Copies what is watched; true when there was something.
    fn copy<'a>(
        &mut self,
        kind: u16,
        port: u16,
        frames: impl Iterator<Item = (&'a [u8], u32)>,
    ) -> bool {
        let ticks = cycles::now();
        let mut any = false;
        for (place, (octets, length)) in frames.enumerate() {
            if !self.sieve.lets_through(port, octets) {
                continue;
            }
            let kept = octets.get(..self.snap_length).unwrap_or(octets);
            let head = Head {
                ticks,
                length,
                kept: kept.len() as u32,
                port,
                kind,
                place: place as u32,
            };
            // With room for the word on how many were sent.
            if self.ring.slots() < 2 * HEAD + kept.len() {
                self.missed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            any = true;
            let _ = self.ring.push_entire_slice(head.as_bytes());
            let _ = self.ring.push_entire_slice(kept);
        }
        any
    }
}

impl CaptureReader {
    /// The next frame. A frame that went out is there once it is known that it did.
    pub(super) fn next(&mut self, ready: &mut Vec<Frame>) -> bool {
        let mut head = Head::default();
        // Head and octets are pushed one after the other: the head is looked at first, and left until all is there.
        let Ok(chunk) = self.ring.read_chunk(HEAD) else {
            return false;
        };
        let (first, second) = chunk.as_slices();
        let bytes = head.as_mut_bytes();
        let (front, back) = bytes.split_at_mut(first.len());
        front.copy_from_slice(first);
        back.copy_from_slice(second);
        let kept = head.kept as usize;
        if self.ring.slots() < HEAD + kept {
            return false;
        }
        if let Ok(chunk) = self.ring.read_chunk(HEAD) {
            chunk.commit_all();
        }
        let mut octets = vec![0; kept];
        // They are there: see above.
        let _ = self.ring.pop_entire_slice(&mut octets);
        let frame = Frame {
            ticks: head.ticks,
            port: head.port,
            is_outward: head.kind == OFFERED,
            length: head.length,
            octets,
        };
        match head.kind {
            RECEIVED => ready.push(frame),
            OFFERED => self.offered.push((head.place, frame)),
            _ => {
                let sent = self.offered.drain(..);
                ready.extend(
                    sent.filter(|(place, _)| *place < head.place)
                        .map(|(_, frame)| frame),
                );
            }
        }
        true
    }

    /// Frames that there was no room for.
    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::Filter;
    use super::*;

    fn pair(directions: Directions) -> (CaptureTap, CaptureReader) {
        let sieve = Arc::new(Sieve::new(Filter::default(), None));
        capture(&sieve, directions, 96)
    }

    fn read(reader: &mut CaptureReader) -> Vec<Frame> {
        let mut frames = Vec::new();
        while reader.next(&mut frames) {}
        frames
    }

    #[test]
    fn frames_that_were_not_taken_are_not_captured() {
        let (mut tap, mut reader) = pair(Directions::Both);
        let frames: Vec<Vec<u8>> = (0..3).map(|n| vec![n; 60 + usize::from(n)]).collect();
        let burst = || frames.iter().map(|one| (&one[..], one.len() as u32));
        assert!(tap.copy(RECEIVED, 1, burst()));
        assert_eq!(read(&mut reader).len(), 3);
        tap.offered = tap.copy(OFFERED, 2, burst());
        // Not known yet.
        assert_eq!(read(&mut reader), []);
        tap.sent(2, 2);
        let sent = read(&mut reader);
        let lengths: Vec<u32> = sent.iter().map(|one| one.length).collect();
        assert_eq!(lengths, [60, 61]);
        assert!(sent.iter().all(|one| one.is_outward && one.port == 2));
        assert_eq!(sent[1].octets, frames[1]);
    }

    #[test]
    fn what_nobody_takes_is_missed_and_counted_and_the_rest_is_whole() {
        let (mut tap, mut reader) = pair(Directions::Both);
        let long = vec![7; 1500];
        let rounds = 60_000;
        for _ in 0..rounds {
            tap.offered = tap.copy(OFFERED, 0, [(&long[..], 1500)].into_iter());
            tap.sent(0, 1);
        }
        let frames = read(&mut reader);
        assert!(
            frames
                .iter()
                .all(|one| one.octets == long[..96] && one.length == 1500)
        );
        assert_eq!(frames.len() as u64 + reader.missed(), rounds);
        assert!(reader.missed() > 0);
        // There is room again.
        assert!(tap.copy(RECEIVED, 0, [(&long[..], 1500)].into_iter()));
        assert_eq!(read(&mut reader).len(), 1);
    }
}
