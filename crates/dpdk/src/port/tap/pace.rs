// SPDX-License-Identifier: Apache-2.0
//! Time between two reads of an idle queue.

use crate::cycles;

/// Shortest and longest pause after a read without a frame, µs.
const PAUSE_MIN_US: u64 = 1;
const PAUSE_MAX_US: u64 = 50;
/// A pause is longer than the one before by the inverse of this.
const GROWTH: u64 = 4;

/// Pauses of one queue. A read without a frame costs a system call, so each makes the next pause longer by a quarter, until a frame comes:
/// a frame waits for at most about a fifth of the time that the queue was idle, and an idle queue costs little.
#[derive(Debug)]
pub(super) struct Pace {
    /// Time of the last read without a frame, and the pause after it, in ticks. A pause of 0 ends at once.
    since: u64,
    pause: u64,
    shortest: u64,
    longest: u64,
}

impl Pace {
    /// Returns the pace of a clock with a frequency, ticks per second.
    pub(super) const fn new(hz: u64) -> Self {
        let ticks_per_us = hz / 1_000_000;
        Self {
            since: 0,
            pause: 0,
            shortest: ticks_per_us.saturating_mul(PAUSE_MIN_US),
            longest: ticks_per_us.saturating_mul(PAUSE_MAX_US),
        }
    }

    /// Returns true if the queue must be read now.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        self.pause == 0 || self.is_over(cycles::now())
    }

    #[inline(always)]
    const fn is_over(&self, now: u64) -> bool {
        now.wrapping_sub(self.since) >= self.pause
    }

    /// Notes a read without a frame.
    #[inline(always)]
    pub(super) fn pause(&mut self) {
        self.pause_from(cycles::now());
    }

    #[inline(always)]
    fn pause_from(&mut self, now: u64) {
        self.since = now;
        let longer = self.pause.saturating_add(self.pause / GROWTH);
        self.pause = longer.min(self.longest).max(self.shortest);
    }

    /// Ends the pause: a frame came, or the next read must not wait.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        self.pause = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_a_queue_is_idle_and_end_with_a_frame() {
        const HZ: u64 = 2_000_000_000;
        let mut pace = Pace::new(HZ);
        assert!(pace.is_over(0));
        let (mut now, mut pauses) = (u64::MAX - 5, Vec::new());
        for _ in 0..30 {
            pace.pause_from(now);
            assert!(!pace.is_over(now));
            assert!(!pace.is_over(now.wrapping_add(pace.pause - 1)));
            now = now.wrapping_add(pace.pause);
            assert!(pace.is_over(now));
            pauses.push(pace.pause);
        }
        assert_eq!(pauses.first(), Some(&2000));
        assert_eq!(pauses.last(), Some(&100_000));
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
        // Until the pause is the longest, it is about a fifth of the time since the first read.
        let longest = pauses.iter().position(|pause| *pause == 100_000).unwrap();
        let idle: u64 = pauses[..=longest].iter().sum();
        assert!(idle / 6 < 100_000 && idle / 4 > 100_000, "{idle}");
        pace.end();
        assert!(pace.is_over(now));
        pace.pause_from(now);
        assert_eq!(pace.pause, 2000);
    }

    #[test]
    fn a_clock_of_unknown_frequency_gives_no_pauses() {
        let mut pace = Pace::new(0);
        pace.pause();
        assert!(pace.is_due());
    }
}
