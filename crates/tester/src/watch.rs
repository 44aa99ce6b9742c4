// SPDX-License-Identifier: Apache-2.0
//! Observations of procedures in addition to the counters: the times of losses, and the times without frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock::ticks_of_us;
use crate::narrow::index;

/// Largest number of slices. It bounds the memory for long times.
const SLICES_MAX: u64 = 100_000;
/// Shortest slice, microseconds.
const SLICE_US_MIN: u64 = 100;

/// Frame counters by transmit time. Frames sent before the first slice are not counted.
#[derive(Clone, Debug)]
pub(crate) struct Slices {
    /// Start of the first slice, ticks.
    origin: u64,
    /// Length of a slice, ticks.
    width: u64,
    counts: Box<[u32]>,
}

impl Slices {
    /// Creates slices over `length` ticks from `origin` on. Each is 0.1 ms long, or a hundred-thousandth of `length` if that is longer.
    pub(crate) fn new(origin: u64, length: u64, ticks_per_second: u64) -> Self {
        let shortest = ticks_of_us(SLICE_US_MIN, ticks_per_second);
        let width = length.div_ceil(SLICES_MAX).max(shortest).max(1);
        // An additional slice counts the frames that a late tester sends after the end.
        let slices = length.div_ceil(width).saturating_add(1);
        Self {
            origin,
            width,
            counts: vec![0; index(slices)].into_boxed_slice(),
        }
    }

    /// Records frames sent at `tick`.
    #[inline(always)]
    pub(crate) fn add(&mut self, tick: u64, frames: u64) {
        let Some(since) = tick.checked_sub(self.origin) else {
            return;
        };
        let last = self.counts.len().saturating_sub(1);
        // The width is at least 1.
        let slice = since.checked_div(self.width).map_or(0, index).min(last);
        if let Some(count) = self.counts.get_mut(slice) {
            let frames = u32::try_from(frames).unwrap_or(u32::MAX);
            *count = count.saturating_add(frames);
        }
    }

    /// Subtracts frames that were never handed over, from the latest slice with frames.
    pub(crate) fn take_back(&mut self, frames: u64) {
        let last = self.counts.iter_mut().rev().find(|count| **count > 0);
        if let Some(count) = last {
            let frames = u32::try_from(frames).unwrap_or(u32::MAX);
            *count = count.saturating_sub(frames);
        }
    }

    /// Adds the counters of another lane.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
    }
}

/// Returns the time from the start of the first slice to the end of the slice with the last lost frame, ticks. Returns 0 if no frame was
/// lost, and `None` if frames were lost in the last slice with transmission.
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
        Some(slice) => Some((slice as u64).saturating_add(1).saturating_mul(sent.width)),
    }
}

/// Time of the latest arrival on a lane, readable by other threads during the run.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Tick of the last arrival; 0 before the first.
    pub(crate) last: AtomicU64,
}

/// Arrival times on one lane.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    last: u64,
    /// Longest time without a frame that ended while the flag was set: from the last frame before to the first after.
    silence: Option<(u64, u64)>,
    armed: Arc<AtomicBool>,
    pulse: Arc<Pulse>,
}

impl Arrivals {
    /// Creates the record. Times without frames are recorded while `armed` is set.
    pub(crate) fn new(armed: Arc<AtomicBool>, pulse: Arc<Pulse>) -> Self {
        Self {
            last: 0,
            silence: None,
            armed,
            pulse,
        }
    }

    /// Records frames received together.
    #[inline(always)]
    pub(crate) fn came(&mut self, now: u64) {
        if self.last > 0 && self.armed.load(Ordering::Relaxed) {
            let longest = self.silence().unwrap_or(0);
            if now.saturating_sub(self.last) > longest {
                self.silence = Some((self.last, now));
            }
        }
        self.last = now;
        self.pulse.last.store(now, Ordering::Relaxed);
    }

    /// Returns the longest time without a frame, ticks.
    pub(crate) fn silence(&self) -> Option<u64> {
        self.silence.map(|(from, to)| to.saturating_sub(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 1_000_000_000;
    const SLICE: u64 = 100_000;

    #[test]
    fn the_last_loss_is_reported_to_its_slice() {
        let slices = || Slices::new(HZ, HZ / 100, HZ);
        let (mut sent, mut came) = (slices(), slices());
        assert_eq!(last_loss(&sent, &came), None);
        // Frames before the first slice are not counted.
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
        // Frames are lost until the end, unless they were never sent.
        sent.add(HZ + 49 * SLICE, 3);
        assert_eq!(last_loss(&sent, &came), None);
        sent.take_back(3);
        assert_eq!(last_loss(&sent, &came), Some(4 * SLICE));
        // Frames sent long after the end count in the last slice.
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
