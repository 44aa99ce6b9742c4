// SPDX-License-Identifier: Apache-2.0
//! When frames were lost, and when none came: what procedures ask beside the counts of a trial.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Slices of time at most, so that counts of a long time stay small.
const SLICES_MAX: u64 = 100_000;
/// Shortest slice, microseconds.
const SLICE_US_MIN: u64 = 100;

/// Counts of frames by when they were sent. Those sent before the first slice are not counted.
#[derive(Clone, Debug)]
pub(crate) struct Slices {
    /// When the first slice begins, ticks.
    origin: u64,
    /// Length of a slice, ticks.
    width: u64,
    counts: Box<[u32]>,
}

impl Slices {
    /// Slices over `length` ticks from `origin` on: a tenth of a millisecond each, or a hundred-thousandth of all where
    /// that is longer.
    pub(crate) fn new(origin: u64, length: u64, ticks_per_second: u64) -> Self {
        let shortest = ticks_per_second / 1_000_000 * SLICE_US_MIN;
        let width = length.div_ceil(SLICES_MAX).max(shortest).max(1);
        Self {
            origin,
            width,
            // One more, for what a late tester sends behind the end.
            counts: vec![0; length.div_ceil(width) as usize + 1].into_boxed_slice(),
        }
    }

    /// Takes note of frames that were sent at `tick`.
    #[inline(always)]
    pub(crate) fn add(&mut self, tick: u64, frames: u64) {
        let Some(since) = tick.checked_sub(self.origin) else {
            return;
        };
        let last = self.counts.len() - 1;
        let slice = ((since / self.width) as usize).min(last);
        if let Some(count) = self.counts.get_mut(slice) {
            *count = count.saturating_add(frames as u32);
        }
    }

    /// Takes back frames that were never handed over, the last of those added.
    pub(crate) fn take_back(&mut self, frames: u64) {
        let last = self.counts.iter_mut().rev().find(|count| **count > 0);
        if let Some(count) = last {
            *count = count.saturating_sub(frames as u32);
        }
    }

    /// Adds the counts of another lane.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
    }
}

/// How long after the first slice began the last frame was sent that did not come, ticks: to the end of its slice. 0 when
/// none was lost, none when frames were lost in the last slice in which any was sent.
pub(crate) fn last_loss(sent: &Slices, came: &Slices) -> Option<u64> {
    let lost = |slice: usize| {
        let came = came.counts.get(slice).copied().unwrap_or(0);
        sent.counts
            .get(slice)
            .is_some_and(|sent| sent.saturating_sub(came) > 0)
    };
    let end = sent.counts.iter().rposition(|count| *count > 0)?;
    match (0..=end).rev().find(|slice| lost(*slice)) {
        None => Some(0),
        Some(slice) if slice == end => None,
        Some(slice) => Some((slice as u64 + 1) * sent.width),
    }
}

/// When frames came to one lane, as others may see it while it runs.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Tick of the last arrival; 0 before the first.
    pub(crate) last: AtomicU64,
}

/// When frames came to one lane.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    last: u64,
    /// The longest time without a frame that ended while it was armed: from the last one before to the first after.
    silence: Option<(u64, u64)>,
    armed: Arc<AtomicBool>,
    pulse: Arc<Pulse>,
}

impl Arrivals {
    /// Times without frames are taken note of from when `armed` is set.
    pub(crate) fn new(armed: Arc<AtomicBool>, pulse: Arc<Pulse>) -> Self {
        Self {
            last: 0,
            silence: None,
            armed,
            pulse,
        }
    }

    /// Takes note of frames that came together.
    #[inline(always)]
    pub(crate) fn came(&mut self, now: u64) {
        if self.last > 0 && self.armed.load(Ordering::Relaxed) {
            let longest = self.silence.map_or(0, |(from, to)| to - from);
            if now.saturating_sub(self.last) > longest {
                self.silence = Some((self.last, now));
            }
        }
        self.last = now;
        self.pulse.last.store(now, Ordering::Relaxed);
    }

    /// The longest time without a frame, ticks.
    pub(crate) fn silence(&self) -> Option<u64> {
        self.silence.map(|(from, to)| to - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 1_000_000_000;
    const SLICE: u64 = 100_000;

    #[test]
    fn the_last_loss_is_told_to_its_slice() {
        let slices = || Slices::new(HZ, HZ / 100, HZ);
        let (mut sent, mut came) = (slices(), slices());
        assert_eq!(last_loss(&sent, &came), None);
        // Before the first slice: nobody's business.
        sent.add(HZ - 1, 1000);
        for slice in 0..50 {
            sent.add(HZ + slice * SLICE + 7, 32);
            came.add(HZ + slice * SLICE + 7, 32);
        }
        assert_eq!(last_loss(&sent, &came), Some(0));
        sent.add(HZ + 3 * SLICE, 1);
        sent.add(HZ + 20 * SLICE, 2);
        came.add(HZ + 20 * SLICE, 1);
        assert_eq!(last_loss(&sent, &came), Some(21 * SLICE));
        let mut rest = slices();
        rest.add(HZ + 20 * SLICE, 1);
        came.merge(&rest);
        assert_eq!(last_loss(&sent, &came), Some(4 * SLICE));
        // Lost to the very end, unless it was never sent.
        sent.add(HZ + 49 * SLICE, 3);
        assert_eq!(last_loss(&sent, &came), None);
        sent.take_back(3);
        assert_eq!(last_loss(&sent, &came), Some(4 * SLICE));
        // What is far behind the end is of the last slice.
        sent.add(3 * HZ, 1);
        assert_eq!(last_loss(&sent, &came), None);
    }

    #[test]
    fn slices_of_a_long_time_are_longer() {
        let slices = Slices::new(0, 3600 * HZ, HZ);
        assert_eq!(slices.width, 36_000_000);
        assert_eq!(slices.counts.len(), 100_001);
        assert_eq!(Slices::new(0, HZ, HZ).width, SLICE);
    }

    #[test]
    fn the_longest_silence_counts_once_it_is_armed() {
        let (armed, pulse) = (Arc::new(AtomicBool::new(false)), Arc::<Pulse>::default());
        let mut arrivals = Arrivals::new(Arc::clone(&armed), Arc::clone(&pulse));
        for now in [1000, 9000, 9100] {
            arrivals.came(now);
        }
        assert_eq!(arrivals.silence(), None);
        armed.store(true, Ordering::Relaxed);
        for now in [9150, 9950, 12_000, 12_100] {
            arrivals.came(now);
        }
        assert_eq!(arrivals.silence(), Some(2050));
        assert_eq!(pulse.last.load(Ordering::Relaxed), 12_100);
    }
}
