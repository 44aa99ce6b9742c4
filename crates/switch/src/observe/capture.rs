// SPDX-License-Identifier: Apache-2.0
//! Capture of frames from a forwarding thread, through a ring of octets that the control thread empties.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_dpdk::{Burst, cycles};
use rtrb::{Consumer, Producer, RingBuffer};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::filter::FrameMatcher;

/// Size of one thread's ring, octets.
const RING: usize = 4 << 20;

/// Header of a captured frame in the ring.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    ticks: u64,
    /// Length of the frame, octets.
    length: u32,
    /// Octets captured.
    kept: u32,
    port: u16,
    kind: u16,
    /// Position of the frame in its burst; for [`SENT`], the number of frames of the burst that were sent.
    place: u32,
}

const HEAD: usize = size_of::<Head>();
/// Received frame.
const RECEIVED: u16 = 0;
/// Frame offered to the driver, which may refuse it.
const OFFERED: u16 = 1;
/// The first frames of the burst were accepted; the place field has their number.
const SENT: u16 = 2;

/// Directions of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// Received frames.
    In,
    /// Sent frames.
    Out,
    /// Both.
    #[default]
    Both,
}

/// A forwarding thread's side.
#[derive(Debug)]
pub(crate) struct CaptureTap {
    matcher: Arc<FrameMatcher>,
    directions: Directions,
    snap_length: usize,
    ring: Producer<u8>,
    missed: Arc<AtomicU64>,
    /// Frames are offered, and the number of accepted frames is not known yet.
    offered: bool,
}

/// The control thread's side.
#[derive(Debug)]
pub(super) struct CaptureReader {
    ring: Consumer<u8>,
    missed: Arc<AtomicU64>,
    offered: Vec<(u32, Frame)>,
}

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) ticks: u64,
    pub(super) port: u16,
    pub(super) is_outward: bool,
    pub(super) length: u32,
    pub(super) octets: Vec<u8>,
}

/// Creates both sides for one thread.
pub(super) fn capture(
    matcher: &Arc<FrameMatcher>,
    directions: Directions,
    snap_length: usize,
) -> (CaptureTap, CaptureReader) {
    let (writer, reader) = RingBuffer::new(RING);
    let missed = Arc::new(AtomicU64::new(0));
    let tap = CaptureTap {
        matcher: Arc::clone(matcher),
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
    /// Copies a burst that was received on a port.
    pub(crate) fn received(&mut self, port: u16, burst: &Burst) {
        if self.directions != Directions::Out {
            self.copy(RECEIVED, port, burst.frames().zip(burst.lengths()));
        }
    }

    /// Copies a burst that is offered to the driver of a port; [`Self::sent`] follows.
    pub(crate) fn offered(&mut self, port: u16, burst: &Burst) {
        if self.directions != Directions::In {
            self.offered = self.copy(OFFERED, port, burst.frames().zip(burst.lengths()));
        }
    }

    /// Records that the first `count` frames of the offered burst were accepted.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a burst has at most BURST_MAX frames"
    )]
    pub(crate) fn sent(&mut self, port: u16, count: usize) {
        if std::mem::take(&mut self.offered) {
            let head = Head {
                port,
                kind: SENT,
                place: count as u32,
                ..Head::default()
            };
            // `copy` reserved the space.
            let _ = self.ring.push_entire_slice(head.as_bytes());
        }
    }

    /// Copies matching frames. Returns true if there was one.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a burst has at most BURST_MAX frames, which have at most 64 KiB each"
    )]
    fn copy<'a>(
        &mut self,
        kind: u16,
        port: u16,
        frames: impl Iterator<Item = (&'a [u8], u32)>,
    ) -> bool {
        let ticks = cycles::now();
        let mut any = false;
        for (place, (octets, length)) in frames.enumerate() {
            if !self.matcher.accepts(port, octets) {
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
            // Space for the record of sent frames is reserved.
            if self.ring.slots() < kept.len().saturating_add(2 * HEAD) {
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
    /// Moves the next frame to `ready`. A transmitted frame is moved once it is known to be sent.
    pub(super) fn next(&mut self, ready: &mut Vec<Frame>) -> bool {
        let mut head = Head::default();
        // Header and octets are pushed one after the other. The header is only peeked until the octets are complete.
        let Ok(chunk) = self.ring.read_chunk(HEAD) else {
            return false;
        };
        let (first, second) = chunk.as_slices();
        let bytes = head.as_mut_bytes();
        let (front, back) = bytes.split_at_mut(first.len());
        front.copy_from_slice(first);
        back.copy_from_slice(second);
        let kept = head.kept as usize;
        if self.ring.slots() < kept.saturating_add(HEAD) {
            return false;
        }
        if let Ok(chunk) = self.ring.read_chunk(HEAD) {
            chunk.commit_all();
        }
        let mut octets = vec![0; kept];
        // The octets are complete, as checked above.
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

    /// Returns the number of frames lost because the ring was full.
    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::Filter;
    use super::*;

    fn pair(directions: Directions) -> (CaptureTap, CaptureReader) {
        let matcher = Arc::new(FrameMatcher::new(Filter::default(), None));
        capture(&matcher, directions, 96)
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
        // The number of sent frames is not known yet.
        assert_eq!(read(&mut reader), []);
        tap.sent(2, 2);
        let sent = read(&mut reader);
        let lengths: Vec<u32> = sent.iter().map(|one| one.length).collect();
        assert_eq!(lengths, [60, 61]);
        assert!(sent.iter().all(|one| one.is_outward && one.port == 2));
        assert_eq!(sent[1].octets, frames[1]);
    }

    #[test]
    fn unread_frames_are_counted_as_missed_and_the_others_are_complete() {
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
        // The ring has space again.
        assert!(tap.copy(RECEIVED, 0, [(&long[..], 1500)].into_iter()));
        assert_eq!(read(&mut reader).len(), 1);
    }
}
