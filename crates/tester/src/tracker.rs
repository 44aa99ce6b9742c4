// SPDX-License-Identifier: Apache-2.0
//! Sequence numbers of flows: received, duplicate, reordered, stale.

// Frames from outside: no cast loses a sign.
#![cfg_attr(not(test), deny(clippy::cast_sign_loss))]

use crate::narrow::{index, low_u32};

/// Smallest window of a flow, in frames: a duplicate within it is distinguished from a late frame.
pub(crate) const WINDOW_MIN: u64 = 512;
/// Bits of all windows of a lane: 8 MiB.
const WINDOWS_BITS: u64 = 1 << 26;
/// Seconds of traffic that a window holds, unless there are too many flows.
const WINDOW_S: f64 = 0.1;

const WORD_BITS: u64 = 64;

/// Classification of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next frame, or one after a gap.
    InOrder,
    /// A frame after a later one (RFC 4737, section 3.3).
    Reordered,
    /// A copy of a frame that was received before.
    Duplicate,
    /// A frame behind the window: a late frame or a duplicate. It does not count as received.
    Stale,
}

/// Returns the frames that the window of each of `flows` flows holds, a power of two.
///
/// `rate_pps` is the highest rate of a single flow.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive, and the memory bounds the window"
)]
pub(crate) fn window_for(rate_pps: f64, flows: usize) -> u64 {
    let wanted = ((rate_pps * WINDOW_S) as u64).max(1);
    let most = WINDOWS_BITS
        .checked_div(flows as u64)
        .unwrap_or(WINDOWS_BITS);
    let window = wanted.checked_next_power_of_two().unwrap_or(u64::MAX);
    // Rounded down to a power of two.
    1 << window.min(most).max(WINDOW_MIN).ilog2()
}

/// Sequence numbers of all flows that a lane receives. They begin at zero and are read modulo 2^32.
#[derive(Debug)]
pub(crate) struct Trackers {
    flows: Box<[FlowTracker]>,
    /// A window for each flow, one behind the other: a bit for each sequence number.
    windows: Box<[u64]>,
    /// Words of a window, a power of two.
    words: usize,
}

impl Trackers {
    /// Trackers for `flows` flows with a window of `window` frames each, a power of two, at least [`WINDOW_MIN`].
    pub(crate) fn new(flows: usize, window: u64) -> Self {
        let words = index(window.max(WINDOW_MIN).next_power_of_two() / WORD_BITS);
        Self {
            flows: vec![FlowTracker::default(); flows].into_boxed_slice(),
            windows: vec![0; flows.saturating_mul(words)].into_boxed_slice(),
            words,
        }
    }

    /// Records a frame of a flow. Returns `None` if there is no such flow.
    #[inline(always)]
    pub(crate) fn record(&mut self, flow: usize, sequence: u32) -> Option<Arrival> {
        let window = self.window(flow);
        let tracker = self.flows.get_mut(flow)?;
        let observed = self.windows.get_mut(window)?;
        Some(tracker.record(observed, sequence))
    }

    /// Records the next `count` frames of a flow, which arrived in order. Returns the number of the first; `None` if there is no such
    /// flow.
    #[inline(always)]
    pub(crate) fn record_row(&mut self, flow: usize, count: u64) -> Option<u64> {
        let window = self.window(flow);
        let tracker = self.flows.get_mut(flow)?;
        let observed = self.windows.get_mut(window)?;
        Some(tracker.record_row(observed, count))
    }

    /// Returns the range of a flow's window.
    #[inline(always)]
    fn window(&self, flow: usize) -> std::ops::Range<usize> {
        let first = flow.wrapping_mul(self.words);
        first..first.wrapping_add(self.words)
    }

    /// Returns the state of a flow.
    #[inline(always)]
    pub(crate) fn get(&self, flow: usize) -> Option<Tracked<'_>> {
        Some(Tracked {
            tracker: self.flows.get(flow)?,
            observed: self.windows.get(self.window(flow))?,
        })
    }

    /// Returns the state of each flow.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Tracked<'_>> {
        (0..self.flows.len()).filter_map(|flow| self.get(flow))
    }
}

/// Counters of one flow.
#[derive(Clone, Debug, Default)]
struct FlowTracker {
    /// One more than the highest sequence number received.
    next: u64,
    received: u64,
    duplicates: u64,
    reordered: u64,
    stale: u64,
}

#[inline(always)]
fn window_of(observed: &[u64]) -> u64 {
    (observed.len() as u64).wrapping_mul(WORD_BITS)
}

#[inline(always)]
fn word_of(observed: &[u64], sequence: u64) -> usize {
    index(sequence / WORD_BITS) & observed.len().wrapping_sub(1)
}

#[inline(always)]
fn mark(observed: &mut [u64], sequence: u64) {
    let word = word_of(observed, sequence);
    if let Some(word) = observed.get_mut(word) {
        *word |= 1 << (sequence % WORD_BITS);
    }
}

#[inline(always)]
fn is_marked(observed: &[u64], sequence: u64) -> bool {
    let word = observed.get(word_of(observed, sequence));
    word.is_some_and(|word| word & (1 << (sequence % WORD_BITS)) != 0)
}

/// Calls `change` for each word of a window that has bits of the `count` sequence numbers from `first` on, with these bits.
#[inline(always)]
fn each_word(observed: &mut [u64], first: u64, count: u64, mut change: impl FnMut(&mut u64, u64)) {
    let (mut at, end) = (first, first.wrapping_add(count));
    while at < end {
        let bit = at % WORD_BITS;
        let bits = WORD_BITS.wrapping_sub(bit).min(end.wrapping_sub(at));
        let mask = (u64::MAX >> WORD_BITS.wrapping_sub(bits)) << bit;
        let word = word_of(observed, at);
        if let Some(word) = observed.get_mut(word) {
            change(word, mask);
        }
        at = at.wrapping_add(bits);
    }
}

impl FlowTracker {
    #[inline(always)]
    fn record_row(&mut self, observed: &mut [u64], count: u64) -> u64 {
        let first = self.next;
        each_word(observed, first, count, |word, bits| *word |= bits);
        self.next = self.next.wrapping_add(count);
        self.received = self.received.wrapping_add(count);
        first
    }

    #[inline(always)]
    fn record(&mut self, observed: &mut [u64], sequence: u32) -> Arrival {
        let ahead = sequence.wrapping_sub(low_u32(self.next)).cast_signed();
        if ahead >= 0 {
            if ahead != 0 {
                self.skip(observed, u64::from(ahead.unsigned_abs()));
            }
            mark(observed, self.next);
            self.next = self.next.wrapping_add(1);
            self.received = self.received.wrapping_add(1);
            return Arrival::InOrder;
        }
        self.record_old(observed, u64::from(ahead.unsigned_abs()))
    }

    #[cold]
    fn record_old(&mut self, observed: &mut [u64], back: u64) -> Arrival {
        let sequence = self.next.checked_sub(back);
        let Some(sequence) = sequence.filter(|_| back <= window_of(observed)) else {
            self.stale = self.stale.wrapping_add(1);
            return Arrival::Stale;
        };
        if is_marked(observed, sequence) {
            self.duplicates = self.duplicates.wrapping_add(1);
            return Arrival::Duplicate;
        }
        mark(observed, sequence);
        self.received = self.received.wrapping_add(1);
        self.reordered = self.reordered.wrapping_add(1);
        Arrival::Reordered
    }

    /// Moves on over `count` frames that were not received (yet).
    fn skip(&mut self, observed: &mut [u64], count: u64) {
        if count >= window_of(observed) {
            observed.fill(0);
        } else {
            each_word(observed, self.next, count, |word, bits| *word &= !bits);
        }
        self.next = self.next.wrapping_add(count);
    }
}

/// Received frames of one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracked<'a> {
    tracker: &'a FlowTracker,
    observed: &'a [u64],
}

impl Tracked<'_> {
    /// Returns the highest sequence number received, or 0.
    #[inline(always)]
    pub(crate) fn newest(&self) -> u64 {
        self.tracker.next.saturating_sub(1)
    }

    /// Returns the full sequence number for the 32 bits that a frame carries: the one nearest to the newest.
    pub(crate) fn full(&self, sequence: u32) -> u64 {
        let next = self.tracker.next;
        let ahead = sequence.wrapping_sub(low_u32(next)).cast_signed();
        next.saturating_add_signed(i64::from(ahead))
    }

    /// Returns true if the frame was received and is in the window.
    #[inline(always)]
    pub(crate) fn holds(&self, sequence: u64) -> bool {
        let next = self.tracker.next;
        sequence < next
            && next.wrapping_sub(sequence) <= window_of(self.observed)
            && is_marked(self.observed, sequence)
    }

    /// Returns the number of frames in the window with sequence numbers from `offered` on.
    pub(crate) fn beyond(&self, offered: u64) -> u64 {
        let next = self.tracker.next;
        if self.tracker.received == 0 {
            return 0;
        }
        let first = offered.max(next.saturating_sub(window_of(self.observed)));
        (first..next)
            .filter(|sequence| is_marked(self.observed, *sequence))
            .count() as u64
    }

    /// Returns the distinct frames received.
    pub(crate) fn received(&self) -> u64 {
        self.tracker.received
    }

    /// Returns the frames received again.
    pub(crate) fn duplicates(&self) -> u64 {
        self.tracker.duplicates
    }

    /// Returns the frames received after a later one.
    pub(crate) fn reordered(&self) -> u64 {
        self.tracker.reordered
    }

    /// Returns the frames received from behind the window.
    pub(crate) fn stale(&self) -> u64 {
        self.tracker.stale
    }
}

#[cfg(test)]
mod tests {
    mod windows;

    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Reference implementation: a set of all sequence numbers received.
    #[derive(Default)]
    struct Naive {
        observed: HashSet<u64>,
        next: u64,
    }

    impl Naive {
        fn record(&mut self, sequence: u64, window: u64) -> Arrival {
            if sequence >= self.next {
                self.next = sequence + 1;
                self.observed.insert(sequence);
                Arrival::InOrder
            } else if self.next - sequence > window {
                Arrival::Stale
            } else if self.observed.insert(sequence) {
                Arrival::Reordered
            } else {
                Arrival::Duplicate
            }
        }
    }

    proptest! {
        #[test]
        fn reports_the_same_as_a_set(
            window in prop_oneof![Just(512u64), Just(1024), Just(4096)],
            moves in prop::collection::vec((0u64..8, -1500i64..1500), 1..600),
        ) {
            let (mut fast, mut slow) = (Trackers::new(3, window), Naive::default());
            let mut stale = 0;
            for (kind, jump) in moves {
                let jump = match kind { 0..5 => 0, 5 => jump % 4, 6 => jump % 70, _ => jump };
                let sequence = slow.next.saturating_add_signed(jump);
                let expected = slow.record(sequence, window);
                stale += u64::from(expected == Arrival::Stale);
                prop_assert_eq!(fast.record(1, sequence as u32), Some(expected));
            }
            let flow = fast.get(1).unwrap();
            prop_assert_eq!((flow.received(), flow.stale()), (slow.observed.len() as u64, stale));
            prop_assert_eq!(fast.get(0).unwrap().received() + fast.get(2).unwrap().received(), 0);
        }
    }

    proptest! {
        #[test]
        fn a_row_is_recorded_as_its_frames_one_by_one(
            rows in prop::collection::vec((0u32..700, 0u64..700), 1..40),
        ) {
            let (mut rows_at_once, mut one_by_one) = (Trackers::new(2, 512), Trackers::new(2, 512));
            let mut next = 0;
            for (gap, count) in rows {
                for trackers in [&mut rows_at_once, &mut one_by_one] {
                    trackers.record(1, next + gap);
                }
                next += gap + 1;
                prop_assert_eq!(rows_at_once.record_row(1, count), Some(u64::from(next)));
                for _ in 0..count {
                    prop_assert_eq!(one_by_one.record(1, next), Some(Arrival::InOrder));
                    next += 1;
                }
                prop_assert_eq!(format!("{rows_at_once:?}"), format!("{one_by_one:?}"));
            }
            prop_assert_eq!(rows_at_once.record_row(2, 1), None);
        }
    }

    /// 120 frames are lost, and each tenth frame arrives again 2,000 frames later, as at 10 Mpps. No duplicate may count as received.
    #[test]
    fn late_duplicates_hide_no_loss() {
        let mut trackers = Trackers::new(1, window_for(10e6, 1));
        let is_lost = |sequence: u32| sequence % 1000 == 7 && sequence < 120_000;
        for sequence in 0..200_000 {
            if !is_lost(sequence) {
                trackers.record(0, sequence);
            }
            if sequence % 10 == 0 && sequence >= 2000 {
                trackers.record(0, sequence - 2000);
            }
        }
        let flow = trackers.get(0).unwrap();
        assert_eq!(
            (flow.received(), flow.duplicates(), flow.reordered()),
            (200_000 - 120, 19_800, 0)
        );
        assert_eq!(flow.stale(), 0);
    }

    #[test]
    fn windows_fit_the_rate_and_the_memory() {
        assert_eq!(window_for(0.0, 1), WINDOW_MIN);
        assert_eq!(window_for(1e6, 1), 1 << 17);
        assert_eq!(window_for(10e6, 2), 1 << 20);
        assert_eq!(window_for(1e10, 2), 1 << 25);
        assert_eq!(window_for(10e6, 131_070), WINDOW_MIN);
        assert_eq!(window_for(10e6, 40_000), 1024);
    }

    #[test]
    fn frames_behind_the_window_do_not_count_as_received() {
        let mut trackers = Trackers::new(1, WINDOW_MIN);
        for sequence in [0, 1, 2000, 0, 5, 1999, 1489, 1488] {
            trackers.record(0, sequence);
        }
        let flow = trackers.get(0).unwrap();
        assert_eq!((flow.received(), flow.stale(), flow.reordered()), (5, 3, 2));
    }

    #[test]
    fn numbers_that_were_never_sent_are_counted() {
        let mut trackers = Trackers::new(1, WINDOW_MIN);
        for sequence in [0, 1, 5, 7, 3000] {
            trackers.record(0, sequence);
        }
        let flow = trackers.get(0).unwrap();
        assert_eq!((flow.beyond(3001), flow.beyond(3000)), (0, 1));
        // 5 and 7 are behind the window.
        assert_eq!(flow.beyond(2), 1);
        let unused = Trackers::new(1, WINDOW_MIN);
        assert_eq!(unused.get(0).unwrap().beyond(0), 0);
        assert!(unused.get(1).is_none());
    }

    #[test]
    fn sequence_numbers_may_wrap() {
        let mut trackers = Trackers::new(1, WINDOW_MIN);
        trackers.flows[0].next = (1 << 32) - 2;
        for sequence in [u32::MAX - 1, u32::MAX, 0, 2, 1, 1] {
            trackers.record(0, sequence);
        }
        let flow = trackers.get(0).unwrap();
        assert_eq!(
            (flow.received(), flow.reordered(), flow.duplicates()),
            (5, 1, 1)
        );
    }
}
