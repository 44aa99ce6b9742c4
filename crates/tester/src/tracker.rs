// SPDX-License-Identifier: Apache-2.0
//! Sequence numbers of one flow: received, duplicate, reordered.

/// Frames back from the newest for which a duplicate is told from a late frame.
pub(crate) const WINDOW: u64 = 512;

const WORD_BITS: u64 = 64;
const WORDS: usize = (WINDOW / WORD_BITS) as usize;

/// What a frame was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next one, or one after a gap.
    InOrder,
    /// One that came after a later one (RFC 4737, section 3.3).
    Reordered,
    /// One that had come before.
    Duplicate,
}

/// What came of one flow. Sequence numbers begin at zero and are read modulo 2^32.
///
/// A frame more than [`WINDOW`] behind the newest counts as reordered: whether it is a duplicate can no
/// longer be told.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowTracker {
    seen: [u64; WORDS],
    next: u64,
    received: u64,
    duplicates: u64,
    reordered: u64,
}

impl FlowTracker {
    /// Takes note of one frame.
    #[inline(always)]
    pub(crate) fn record(&mut self, sequence: u32) -> Arrival {
        let ahead = sequence.wrapping_sub(self.next as u32).cast_signed();
        if ahead >= 0 {
            if ahead > 0 {
                self.skip(u64::from(ahead.unsigned_abs()));
            }
            self.mark(self.next);
            self.next += 1;
            self.received += 1;
            return Arrival::InOrder;
        }
        self.record_old(u64::from(ahead.unsigned_abs()))
    }

    #[cold]
    fn record_old(&mut self, back: u64) -> Arrival {
        if back <= WINDOW && back <= self.next {
            let sequence = self.next - back;
            if self.is_marked(sequence) {
                self.duplicates += 1;
                return Arrival::Duplicate;
            }
            self.mark(sequence);
        }
        self.received += 1;
        self.reordered += 1;
        Arrival::Reordered
    }

    /// Moves on over `count` frames that did not come (yet).
    fn skip(&mut self, count: u64) {
        if count >= WINDOW {
            self.seen = [0; WORDS];
        } else {
            let mut at = self.next;
            let end = self.next + count;
            while at < end {
                let bit = at % WORD_BITS;
                let bits = (WORD_BITS - bit).min(end - at);
                let mask = if bits == WORD_BITS {
                    u64::MAX
                } else {
                    ((1 << bits) - 1) << bit
                };
                self.seen[Self::word(at)] &= !mask;
                at += bits;
            }
        }
        self.next += count;
    }

    #[inline(always)]
    fn word(sequence: u64) -> usize {
        (sequence / WORD_BITS) as usize % WORDS
    }

    #[inline(always)]
    fn mark(&mut self, sequence: u64) {
        self.seen[Self::word(sequence)] |= 1 << (sequence % WORD_BITS);
    }

    fn is_marked(&self, sequence: u64) -> bool {
        self.seen[Self::word(sequence)] & (1 << (sequence % WORD_BITS)) != 0
    }

    /// The highest sequence number received, where any frame was.
    #[inline(always)]
    #[must_use]
    pub(crate) fn newest(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// The whole of a sequence number of which a frame carries 32 bits: the one nearest to the newest.
    #[must_use]
    pub(crate) fn full(&self, sequence: u32) -> u64 {
        let ahead = sequence.wrapping_sub(self.next as u32).cast_signed();
        self.next.saturating_add_signed(i64::from(ahead))
    }

    /// True when the frame was received and is at most [`WINDOW`] behind the newest.
    #[inline(always)]
    #[must_use]
    pub(crate) fn holds(&self, sequence: u64) -> bool {
        sequence < self.next && self.next - sequence <= WINDOW && self.is_marked(sequence)
    }

    /// Frames received of sequence numbers from `offered` on: at least those that the window still knows.
    #[must_use]
    pub(crate) fn beyond(&self, offered: u64) -> u64 {
        if self.received == 0 {
            return 0;
        }
        let first = offered.max(self.next.saturating_sub(WINDOW));
        (first..self.next)
            .filter(|sequence| self.is_marked(*sequence))
            .count() as u64
    }

    /// Distinct frames received.
    #[must_use]
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Frames received again.
    #[must_use]
    pub(crate) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Frames received after a later one.
    #[must_use]
    pub(crate) fn reordered(&self) -> u64 {
        self.reordered
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// The slow, obvious way: a set of all that came.
    #[derive(Default)]
    struct Naive {
        seen: HashSet<u64>,
        next: u64,
    }

    impl Naive {
        fn record(&mut self, sequence: u64) -> Arrival {
            if sequence >= self.next {
                self.next = sequence + 1;
                self.seen.insert(sequence);
                Arrival::InOrder
            } else if self.next - sequence > WINDOW || self.seen.insert(sequence) {
                Arrival::Reordered
            } else {
                Arrival::Duplicate
            }
        }
    }

    proptest! {
        #[test]
        fn tells_the_same_as_a_set(moves in prop::collection::vec((0u64..8, -700i64..700), 1..600)) {
            let (mut fast, mut slow) = (FlowTracker::default(), Naive::default());
            for (kind, jump) in moves {
                let jump = match kind { 0..5 => 0, 5 => jump % 4, 6 => jump % 70, _ => jump };
                let sequence = slow.next.saturating_add_signed(jump);
                prop_assert_eq!(fast.record(sequence as u32), slow.record(sequence));
            }
        }
    }

    #[test]
    fn numbers_that_were_never_sent_are_counted() {
        let mut tracker = FlowTracker::default();
        for sequence in [0, 1, 5, 7, 3000] {
            tracker.record(sequence);
        }
        assert_eq!((tracker.beyond(3001), tracker.beyond(3000)), (0, 1));
        // 5 and 7 are out of the window by now.
        assert_eq!(tracker.beyond(2), 1);
        assert_eq!(FlowTracker::default().beyond(0), 0);
    }

    #[test]
    fn sequence_numbers_may_wrap() {
        let mut tracker = FlowTracker {
            next: (1 << 32) - 2,
            ..FlowTracker::default()
        };
        for sequence in [u32::MAX - 1, u32::MAX, 0, 2, 1, 1] {
            tracker.record(sequence);
        }
        assert_eq!(
            (
                tracker.received(),
                tracker.reordered(),
                tracker.duplicates()
            ),
            (5, 1, 1)
        );
    }
}
