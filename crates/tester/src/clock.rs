// SPDX-License-Identifier: Apache-2.0
//! The tester's clock beside the kernel's: rates and latencies are no better than what is known of the time stamp counter's
//! frequency. DPDK rounds what it measures to 10 MHz (`estimate_tsc_freq` of lib/eal/linux/eal_timer.c), which is off by up to
//! one part in 500; so the tester measures for itself.

use std::sync::OnceLock;
use std::time::Duration;

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

/// How long the frequency is measured. Readings are good to a tenth of a microsecond, so it is right to a part in a million.
const MEASURED: Duration = Duration::from_millis(200);

/// Ticks of the time stamp counter in a second of `CLOCK_MONOTONIC_RAW`. Measured once, when it is first asked for, which
/// takes a fifth of a second; where that clock cannot be read, as DPDK says.
pub(crate) fn ticks_per_second() -> u64 {
    static MEASURED_ONCE: OnceLock<u64> = OnceLock::new();
    *MEASURED_ONCE.get_or_init(|| {
        let begin = ClockCheck::begin();
        std::thread::sleep(MEASURED);
        let end = ClockCheck::begin();
        let measured = begin.raw_ns.zip(end.raw_ns).and_then(|(begin_ns, end_ns)| {
            let ns = u128::from(end_ns.checked_sub(begin_ns).filter(|ns| *ns > 0)?);
            let ticks = u128::from(end.ticks.checked_sub(begin.ticks)?);
            u64::try_from(ticks * 1_000_000_000 / ns).ok()
        });
        measured
            .filter(|ticks| *ticks > 0)
            .unwrap_or_else(cycles::hz)
    })
}

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
        error_ratio(
            ticks,
            ticks_per_second(),
            raw_now.saturating_sub(raw_before),
        )
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
    fn the_frequency_is_measured_once_and_fits_the_clock() {
        let check = ClockCheck::begin();
        assert_eq!(ticks_per_second(), ticks_per_second());
        // No time is asserted: that both clocks go on at a rate that fits is.
        assert!(check.error_ratio().abs() < 0.01);
    }

    #[test]
    fn a_counter_that_runs_fast_is_told() {
        assert!((error_ratio(2_600_260_000, 2_600_000_000, 1_000_000_000) - 1e-4).abs() < 1e-12);
        assert!((error_ratio(1_300_000_000, 2_600_000_000, 1_000_000_000) + 0.5).abs() < 1e-12);
        assert_eq!(error_ratio(1, 1, 0), 0.0);
    }
}
