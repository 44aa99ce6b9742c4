// SPDX-License-Identifier: Apache-2.0
//! Inter-packet delay variation of every frame, computed during reception (RFC 5481, section 4.1).
//!
//! A frame is paired with the one sent before it in its flow, whichever arrives first. If one of the two is lost, there is no value: no
//! pair spans a gap. Of duplicates, the first undamaged copy within the window counts.

use std::num::NonZeroU64;

use super::signed::SignedRecorder;
use crate::narrow::index;
use crate::tracker::{Arrival, Tracked, WINDOW_MIN};

/// Delays kept over all flows if there are too many flows for full windows.
const KEPT_MAX: u64 = 1 << 21;
/// Smallest number of delays kept per flow.
const KEPT_MIN: u64 = 16;

/// Latest delays of each flow, and the variation computed from them.
#[derive(Debug)]
pub(crate) struct Delays {
    /// One window per flow, indexed by sequence number modulo its length.
    kept: Box<[u64]>,
    /// Length of a flow's window, a power of two.
    window: u64,
    /// Differences other than zero, and those added by [`Self::record_even`].
    pub(crate) ipdv: SignedRecorder,
}

impl Delays {
    pub(crate) fn new(flows: usize) -> Self {
        let flows = NonZeroU64::new(flows as u64).unwrap_or(NonZeroU64::MIN);
        let share = (KEPT_MAX / flows).clamp(KEPT_MIN, WINDOW_MIN);
        // Rounded down to a power of two.
        Self::with_window(flows.get(), 1 << share.ilog2())
    }

    fn with_window(flows: u64, window: u64) -> Self {
        Self {
            kept: vec![0; index(flows.saturating_mul(window))].into_boxed_slice(),
            window,
            ipdv: SignedRecorder::default(),
        }
    }

    /// Records the delay of a frame that `tracker` has just recorded and that is not a duplicate. Returns the number of zero differences
    /// that it adds, which the caller accumulates for [`Self::record_even`].
    #[inline(always)]
    pub(crate) fn record(
        &mut self,
        flow: usize,
        tracker: Tracked<'_>,
        sequence: u32,
        arrival: Arrival,
        delay_ns: u64,
    ) -> u64 {
        if arrival != Arrival::InOrder {
            self.record_late(flow, tracker, sequence, delay_ns);
            return 0;
        }
        let newest = tracker.newest();
        let mut even = 0;
        if let Some(before) = newest.checked_sub(1)
            && tracker.holds(before)
        {
            let difference = self.at(flow, before).map_or(0, |last| {
                delay_ns.cast_signed().wrapping_sub(last.cast_signed())
            });
            if difference == 0 {
                even = 1;
            } else {
                self.ipdv.record(difference, 1);
            }
        }
        self.keep(flow, newest, delay_ns);
        even
    }

    /// Records the delay of `count` frames from number `first` on, which is also that of the frame before them. The caller accumulates
    /// `count` differences of zero for [`Self::record_even`].
    #[inline(always)]
    pub(crate) fn record_row(&mut self, flow: usize, first: u64, count: u64, delay_ns: u64) {
        let end = first.wrapping_add(count);
        let mut next = end.wrapping_sub(count.min(self.window));
        while next < end {
            let at = self.place(flow, next);
            // To the end of the window, where its places begin again, or of the row.
            let to_end = self.window.wrapping_sub(self.in_window(next));
            let part = to_end.min(end.wrapping_sub(next));
            if let Some(kept) = self.kept.get_mut(at..at.wrapping_add(index(part))) {
                kept.fill(delay_ns);
            }
            next = next.wrapping_add(part);
        }
    }

    /// Records `count` differences of zero.
    #[inline(always)]
    pub(crate) fn record_even(&mut self, count: u64) {
        if count > 0 {
            self.ipdv.record(0, count);
        }
    }

    #[cold]
    fn record_late(&mut self, flow: usize, tracker: Tracked<'_>, sequence: u32, delay_ns: u64) {
        let sequence = tracker.full(sequence);
        let oldest = tracker.newest().saturating_add(1);
        let oldest = oldest.saturating_sub(self.window);
        if sequence < oldest || !tracker.holds(sequence) {
            return;
        }
        self.keep(flow, sequence, delay_ns);
        let before = sequence.checked_sub(1);
        if let Some(before) = before.filter(|it| *it >= oldest && tracker.holds(*it)) {
            self.record_pair(flow, before);
        }
        if tracker.holds(sequence.saturating_add(1)) {
            self.record_pair(flow, sequence);
        }
    }

    fn record_pair(&mut self, flow: usize, first: u64) {
        let second = first.saturating_add(1);
        if let (Some(one), Some(two)) = (self.at(flow, first), self.at(flow, second)) {
            let difference = two.cast_signed().wrapping_sub(one.cast_signed());
            self.ipdv.record(difference, 1);
        }
    }

    /// Returns the place of a sequence number in the window of its flow.
    #[inline(always)]
    fn in_window(&self, sequence: u64) -> u64 {
        sequence & self.window.wrapping_sub(1)
    }

    #[inline(always)]
    fn place(&self, flow: usize, sequence: u64) -> usize {
        flow.wrapping_mul(index(self.window))
            .wrapping_add(index(self.in_window(sequence)))
    }

    #[inline(always)]
    fn at(&self, flow: usize, sequence: u64) -> Option<u64> {
        self.kept.get(self.place(flow, sequence)).copied()
    }

    #[inline(always)]
    fn keep(&mut self, flow: usize, sequence: u64, delay_ns: u64) {
        if let Some(place) = self.kept.get_mut(self.place(flow, sequence)) {
            *place = delay_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Sample, Samples};
    use super::*;
    use crate::tracker::Trackers;

    /// Returns the variation of one flow, by both algorithms.
    fn both(arrivals: &[(u32, u64)], window: u64) -> (SignedRecorder, SignedRecorder) {
        let (mut fast, mut tracker) =
            (Delays::with_window(3, window), Trackers::new(1, WINDOW_MIN));
        let mut slow = Samples::with_capacity(arrivals.len());
        let mut even = 0;
        for (sequence, delay_ns) in arrivals {
            let arrival = tracker.record(0, *sequence).unwrap();
            if matches!(arrival, Arrival::Duplicate | Arrival::Stale) {
                continue;
            }
            let flow = tracker.get(0).unwrap();
            even += fast.record(1, flow, *sequence, arrival, *delay_ns);
            slow.add(Sample {
                port: 0,
                sequence: *sequence,
                delay_ns: *delay_ns,
            });
        }
        fast.record_even(even);
        (fast.ipdv, slow.of_port(0).ipdv())
    }

    /// Returns a strategy for frames 0 to `count`: some are lost, delayed by up to `back` places, or duplicated.
    fn arrivals(count: usize, back: u32) -> impl Strategy<Value = Vec<(u32, u64)>> {
        let frame = (0u32..10, 0..=back, 0u64..5000);
        prop::collection::vec(frame, 0..count).prop_map(|frames| {
            let mut placed: Vec<(u32, u32, u64)> = Vec::new();
            for (sequence, (outcome, back, delay_ns)) in (0u32..).zip(frames) {
                let late = if outcome < 3 { back } else { 0 };
                if outcome != 9 {
                    placed.push((sequence + late, sequence, delay_ns));
                }
                if outcome == 8 {
                    placed.push((sequence + back, sequence, delay_ns + 77));
                }
            }
            placed.sort_by_key(|(place, ..)| *place);
            let arrived = placed.into_iter();
            arrived
                .map(|(_, sequence, delay_ns)| (sequence, delay_ns))
                .collect()
        })
    }

    #[test]
    fn a_row_is_kept_for_its_own_flow_and_numbers_only() {
        const WINDOW: u64 = 8;
        for (first, count) in [(5, 6), (5, 2), (8, 8), (3, 20), (7, 1)] {
            let mut delays = Delays::with_window(2, WINDOW);
            for flow in 0..2 {
                for sequence in 0..first {
                    delays.keep(flow, sequence, 100 * (flow as u64 + 1) + sequence);
                }
            }
            delays.record_row(0, first, count, 7);
            let end = first + count;
            for sequence in end.saturating_sub(WINDOW)..end {
                let expected = if sequence < first { 100 + sequence } else { 7 };
                assert_eq!(delays.at(0, sequence), Some(expected), "{first} {count}");
            }
            for sequence in first.saturating_sub(WINDOW)..first {
                assert_eq!(
                    delays.at(1, sequence),
                    Some(200 + sequence),
                    "{first} {count}"
                );
            }
        }
    }

    proptest! {
    #[test]
        fn reports_the_same_as_the_list_of_all_samples(arrivals in arrivals(800, 60)) {
            let (fast, slow) = both(&arrivals, WINDOW_MIN);
            prop_assert_eq!(fast.summary(0), slow.summary(0));
        }

        #[test]
        fn a_short_window_misses_pairs_and_makes_none_up(arrivals in arrivals(300, 60)) {
            let (fast, slow) = both(&arrivals, KEPT_MIN);
            prop_assert!(fast.samples() <= slow.samples());
            prop_assert!(slow.holds_all_of(&fast));
        }
    }

    #[test]
    fn nothing_is_paired_across_a_gap() {
        // Frame 2 is lost; frame 4 arrives before frame 3.
        let (fast, slow) = both(&[(0, 10), (1, 14), (3, 50), (5, 60), (4, 90), (4, 1)], 16);
        let summary = fast.summary(0).unwrap();
        // 14 - 10, 90 - 50, 60 - 90.
        assert_eq!(
            (summary.samples, summary.min_ns, summary.max_ns),
            (3, -30, 40)
        );
        assert_eq!(Ok(summary), slow.summary(0));
    }

    #[test]
    fn many_flows_have_short_windows_and_few_have_whole_ones() {
        assert_eq!(Delays::new(1).window, WINDOW_MIN);
        assert_eq!(Delays::new(10_000).window, 128);
        assert_eq!(Delays::new(1 << 20).window, KEPT_MIN);
    }
}
