// SPDX-License-Identifier: Apache-2.0
//! The tester's clock beside the kernel's: rates and latencies are no better than the time stamp counter's frequency, as the
//! EAL measured it, is right.

use nix::time::{ClockId, clock_gettime};
use quietwire_dpdk::cycles;

/// Readings of both clocks at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockCheck {
    ticks: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC_RAW`; none where it cannot be read.
    raw_ns: Option<u64>,
    /// How far apart the two readings may be, ticks.
    apart: u64,
}

/// Readings of which the closest counts: one in between which the thread was held up tells nothing.
const ATTEMPTS: u32 = 5;

impl ClockCheck {
    /// Reads both clocks.
    pub(crate) fn begin() -> Self {
        (0..ATTEMPTS)
            .map(|_| Self::read())
            .min_by_key(|reading| reading.apart)
            .unwrap_or_else(Self::read)
    }

    fn read() -> Self {
        let before = cycles::now();
        // The raw one: nobody steers it (clock_gettime(2)).
        let raw = clock_gettime(ClockId::CLOCK_MONOTONIC_RAW).ok();
        let apart = cycles::now().saturating_sub(before);
        let raw_ns = raw.and_then(|time| {
            let seconds = u64::try_from(time.tv_sec()).ok()?;
            let rest = u64::try_from(time.tv_nsec()).ok()?;
            Some(seconds * 1_000_000_000 + rest)
        });
        Self {
            ticks: before + apart / 2,
            raw_ns,
            apart,
        }
    }

    /// How much more time passed by the time stamp counter since then than by the kernel's clock, as a ratio of the latter.
    pub(crate) fn error_ratio(self) -> f64 {
        let now = Self::begin();
        let (Some(raw_now), Some(raw_before)) = (now.raw_ns, self.raw_ns) else {
            return 0.0;
        };
        let ticks = now.ticks.saturating_sub(self.ticks);
        error_ratio(ticks, cycles::hz(), raw_now.saturating_sub(raw_before))
    }
}

fn error_ratio(ticks: u64, ticks_per_second: u64, raw_ns: u64) -> f64 {
    if raw_ns == 0 || ticks_per_second == 0 {
        return 0.0;
    }
    ticks as f64 / ticks_per_second as f64 / (raw_ns as f64 / 1e9) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_runs_fast_is_told() {
        assert!((error_ratio(2_600_260_000, 2_600_000_000, 1_000_000_000) - 1e-4).abs() < 1e-12);
        assert!((error_ratio(1_300_000_000, 2_600_000_000, 1_000_000_000) + 0.5).abs() < 1e-12);
        assert_eq!(error_ratio(1, 1, 0), 0.0);
    }
}
