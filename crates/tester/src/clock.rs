// SPDX-License-Identifier: Apache-2.0
//! Clock of the tester: the time stamp counter, with its frequency measured against the kernel's clock.
//!
//! Rates and latencies are only as accurate as that frequency. DPDK rounds its own measurement to 10 MHz (`estimate_tsc_freq` of
//! lib/eal/linux/eal_timer.c), an error of up to one part in 500, so the tester measures the frequency itself.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use quietwire_dpdk::cycles;

use crate::narrow::whole;

/// Readings of both clocks at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockCheck {
    ticks: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC_RAW`; `None` if the clock cannot be read.
    raw_ns: Option<u64>,
    /// Largest possible distance between the two readings, ticks.
    apart: u64,
}

/// Number of readings, of which the one with the smallest distance counts. A preemption between the two clocks spoils a reading.
const ATTEMPTS: u32 = 5;

/// Shortest duration of the frequency measurement. Readings are accurate to 0.1 us, so the frequency is accurate to one part in a million.
const MEASURED: Duration = Duration::from_millis(200);

/// First readings of the frequency measurement, and their time.
static BEGUN: OnceLock<(ClockCheck, Instant)> = OnceLock::new();

fn begun() -> (ClockCheck, Instant) {
    *BEGUN.get_or_init(|| (ClockCheck::begin(), Instant::now()))
}

/// Begins to measure the frequency of the time stamp counter, which takes 0.2 s. Memory and ports can be set up in the meantime:
/// [`Tester::open`](crate::Tester::open) waits for the rest of that time only.
pub fn begin_clock() {
    begun();
}

/// Returns the ticks of the time stamp counter per second of `CLOCK_MONOTONIC_RAW`. The first call ends their measurement, at least 0.2 s
/// after its begin ([`begin_clock`]). If that clock cannot be read, the result is DPDK's frequency.
pub(crate) fn ticks_per_second() -> u64 {
    static MEASURED_ONCE: OnceLock<u64> = OnceLock::new();
    *MEASURED_ONCE.get_or_init(|| {
        let (begin, began) = begun();
        std::thread::sleep(MEASURED.saturating_sub(began.elapsed()));
        let end = ClockCheck::begin();
        let measured = begin.raw_ns.zip(end.raw_ns).and_then(|(begin_ns, end_ns)| {
            let ns = u128::from(end_ns.checked_sub(begin_ns)?);
            let ticks = u128::from(end.ticks.checked_sub(begin.ticks)?);
            let per_second = ticks.checked_mul(1_000_000_000)?.checked_div(ns)?;
            u64::try_from(per_second).ok()
        });
        measured
            .filter(|ticks| *ticks > 0)
            .unwrap_or_else(cycles::hz)
    })
}

/// Returns a time of `seconds` in ticks, rounded down: `u64::MAX` if it has 2^64 ticks or more, 0 if it is negative.
pub(crate) fn ticks_of_s(seconds: f64, ticks_per_second: u64) -> u64 {
    whole(seconds * ticks_per_second as f64)
}

/// Returns a time of `us` microseconds in ticks, with the ticks of a microsecond rounded down; at most `u64::MAX`.
pub(crate) fn ticks_of_us(us: u64, ticks_per_second: u64) -> u64 {
    (ticks_per_second / 1_000_000).saturating_mul(us)
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
        // NTP does not adjust this clock (clock_gettime(2)).
        let raw = clock_gettime(ClockId::CLOCK_MONOTONIC_RAW).ok();
        let apart = cycles::now().saturating_sub(before);
        let raw_ns = raw.and_then(|time| {
            let seconds = u64::try_from(time.tv_sec()).ok()?;
            let rest = u64::try_from(time.tv_nsec()).ok()?;
            seconds.checked_mul(1_000_000_000)?.checked_add(rest)
        });
        Self {
            ticks: before.saturating_add(apart / 2),
            raw_ns,
            apart,
        }
    }

    /// Returns the excess of the time by the time stamp counter since `self` over the kernel's time, as a ratio of the latter.
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
        begin_clock();
        assert_eq!(ticks_per_second(), ticks_per_second());
        // The test asserts no time, only that the rates of both clocks agree.
        assert!(check.error_ratio().abs() < 0.01);
    }

    #[test]
    fn times_have_their_ticks_up_to_the_end_of_the_counter() {
        assert_eq!(ticks_of_s(1.5, 2_600_000_001), 3_900_000_001);
        assert_eq!(ticks_of_s(1e10, 2_600_000_000), u64::MAX);
        assert_eq!(ticks_of_us(100, 2_600_999_999), 260_000);
        assert_eq!(ticks_of_us(u64::MAX, 2_600_000_000), u64::MAX);
    }

    #[test]
    fn a_counter_that_runs_fast_is_reported() {
        assert!((error_ratio(2_600_260_000, 2_600_000_000, 1_000_000_000) - 1e-4).abs() < 1e-12);
        assert!((error_ratio(1_300_000_000, 2_600_000_000, 1_000_000_000) + 0.5).abs() < 1e-12);
        assert_eq!(error_ratio(1, 1, 0), 0.0);
    }
}
