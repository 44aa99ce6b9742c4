// SPDX-License-Identifier: Apache-2.0
//! Queue of frames for one port of the device, in transmit order.

use std::collections::VecDeque;

use quietwire_dpdk::{Burst, Eal, Mbuf, TxQueue, cycles};

/// Counter to which a frame belongs once it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No counter: the frame is not of the counted part.
    Uncounted,
    Forwarded,
    Copy,
    Damaged,
    Unrecognisable,
    Misdirected,
}

/// Data about a waiting frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameFacts {
    pub(super) kind: Kind,
    /// Index of the port that received the frame.
    pub(super) side: usize,
    pub(super) sequence: u32,
    /// Time stamp of the tester.
    pub(super) tick: u64,
}

impl FrameFacts {
    /// The note of a frame that is not of the counted part.
    pub(super) const UNCOUNTED: Self = Self {
        kind: Kind::Uncounted,
        side: 0,
        sequence: 0,
        tick: 0,
    };
}

/// Frames due at the same time.
#[derive(Debug)]
struct Batch {
    due: u64,
    burst: Burst,
    /// One note for each frame, including those already sent.
    notes: Vec<FrameFacts>,
    sent: usize,
}

/// Queue of one port.
#[derive(Debug)]
pub(super) struct DelayLine {
    eal: Eal,
    batches: VecDeque<Box<Batch>>,
    /// Empty batches for reuse.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Batch>>,
}

impl DelayLine {
    pub(super) fn new(eal: &Eal) -> Self {
        Self {
            eal: eal.clone(),
            batches: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Appends a frame. It is sent at tick `due` at the earliest, and after all frames before it.
    #[inline(always)]
    pub(super) fn push(&mut self, frame: Mbuf<'_>, note: FrameFacts, due: u64) {
        let last = self.batches.back();
        if !last.is_some_and(|last| last.due == due && last.burst.space() > 0) {
            self.begin_batch(due);
        }
        if let Some(batch) = self.batches.back_mut()
            && batch.burst.push(frame).is_ok()
        {
            batch.notes.push(note);
        }
    }

    fn begin_batch(&mut self, due: u64) {
        let mut batch = self.spare.pop().unwrap_or_else(|| {
            Box::new(Batch {
                due,
                burst: Burst::new(&self.eal),
                notes: Vec::new(),
                sent: 0,
            })
        });
        batch.due = due;
        self.batches.push_back(batch);
    }

    /// Sends the frames due, as far as the port has space. Calls `sent` with the note of each frame and its transmit tick.
    #[inline(always)]
    pub(super) fn send(&mut self, tx: &mut TxQueue, mut sent: impl FnMut(&FrameFacts, u64)) {
        while let Some(batch) = self.batches.front_mut() {
            let now = cycles::now();
            if batch.due > now {
                return;
            }
            let before = batch.burst.len();
            tx.send(&mut batch.burst);
            let count = before.saturating_sub(batch.burst.len());
            for note in batch.notes.iter().skip(batch.sent).take(count) {
                sent(note, now);
            }
            batch.sent = batch.sent.saturating_add(count);
            if !batch.burst.is_empty() {
                return;
            }
            if let Some(batch) = self.batches.pop_front() {
                self.keep(batch);
            }
        }
    }

    /// Drops all frames. Calls `dropped` with the note of each.
    pub(super) fn clear(&mut self, mut dropped: impl FnMut(&FrameFacts)) {
        while let Some(mut batch) = self.batches.pop_front() {
            batch.notes.iter().skip(batch.sent).for_each(&mut dropped);
            batch.burst.free();
            self.keep(batch);
        }
    }

    fn keep(&mut self, mut batch: Box<Batch>) {
        batch.notes.clear();
        batch.sent = 0;
        self.spare.push(batch);
    }
}
