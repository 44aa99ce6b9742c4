// SPDX-License-Identifier: Apache-2.0
//! Retransmission timeout (RFC 6298).

/// Timeout before the first measurement (RFC 6298, section 2.1), microseconds.
const INITIAL_US: u32 = 1_000_000;
/// Granularity of the timers, microseconds: `G` of RFC 6298.
const GRANULARITY_US: u32 = 1_000;
/// Largest number of doublings of the timeout.
const DOUBLINGS_MAX: u8 = 16;

/// Smoothed round-trip time and its variation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    /// SRTT, microseconds; 0 before the first measurement.
    smoothed_us: u32,
    /// RTTVAR, microseconds.
    variation_us: u32,
}

impl RoundTrip {
    /// Estimate after a SYN was retransmitted, whose timeout is 3 s (RFC 6298, section 5.7).
    pub(crate) const AFTER_LOST_SYN: Self = Self {
        smoothed_us: 1_000_000,
        variation_us: 500_000,
    };

    /// Takes a measurement into account (RFC 6298, sections 2.2 and 2.3).
    pub(crate) fn measured(&mut self, round_trip_us: u32) {
        let round_trip_us = round_trip_us.max(1);
        if self.smoothed_us == 0 {
            self.smoothed_us = round_trip_us;
            self.variation_us = round_trip_us / 2;
            return;
        }
        let difference_us = self.smoothed_us.abs_diff(round_trip_us);
        // One part of the measurement for three of the estimate before, and one for seven.
        let kept_us = self.variation_us.saturating_sub(self.variation_us / 4);
        self.variation_us = kept_us.saturating_add(difference_us / 4);
        let kept_us = self.smoothed_us.saturating_sub(self.smoothed_us / 8);
        self.smoothed_us = kept_us.saturating_add(round_trip_us / 8).max(1);
    }

    /// Returns the timeout after `retries` timeouts in a row, nanoseconds, within the limits (RFC 6298, sections 2.4, 2.5 and 5.5).
    pub(crate) fn timeout_ns(self, retries: u8, (min_ns, max_ns): (u64, u64)) -> u64 {
        let us = if self.smoothed_us == 0 {
            INITIAL_US
        } else {
            let spread_us = self.variation_us.saturating_mul(4).max(GRANULARITY_US);
            self.smoothed_us.saturating_add(spread_us)
        };
        let ns = u64::from(us).saturating_mul(1_000).max(min_ns);
        (ns << retries.min(DOUBLINGS_MAX)).min(max_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: (u64, u64) = (0, u64::MAX);

    #[test]
    fn the_timeout_follows_the_measurements() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.timeout_ns(0, LIMITS), 1_000_000_000);
        assert_eq!(round_trip.timeout_ns(3, LIMITS), 8_000_000_000);
        round_trip.measured(100_000);
        // SRTT + 4 * SRTT / 2.
        assert_eq!(round_trip.timeout_ns(0, LIMITS), 300_000_000);
        for _ in 0..100 {
            round_trip.measured(100_000);
        }
        let settled = round_trip.timeout_ns(0, LIMITS);
        assert!((100_000_000..104_000_000).contains(&settled), "{settled}");
        assert_eq!(
            round_trip.timeout_ns(0, (200_000_000, u64::MAX)),
            200_000_000
        );
        assert_eq!(round_trip.timeout_ns(9, (0, 60_000_000_000)), settled << 9);
        assert_eq!(
            round_trip.timeout_ns(250, (0, 60_000_000_000)),
            60_000_000_000
        );
        assert_eq!(
            RoundTrip::AFTER_LOST_SYN.timeout_ns(0, LIMITS),
            3_000_000_000
        );
    }

    proptest! {
        #[test]
        fn the_estimate_stays_within_the_measurements(times in prop::collection::vec(1u32..10_000_000, 1..100)) {
            let mut round_trip = RoundTrip::default();
            for time in &times {
                round_trip.measured(*time);
            }
            let (min, max) = (times.iter().min().unwrap(), times.iter().max().unwrap());
            // Rounding down loses less than a microsecond a step.
            prop_assert!(round_trip.smoothed_us + 100 >= *min && round_trip.smoothed_us <= *max + 1);
            prop_assert!(round_trip.timeout_ns(0, LIMITS) >= u64::from(round_trip.smoothed_us) * 1000);
        }
    }
}
