// SPDX-License-Identifier: Apache-2.0
//! Unix time: the time since 1970-01-01 00:00 UTC (clock_gettime(2), CLOCK_REALTIME).

use std::time::{Duration, SystemTime};

/// Returns the Unix time; 0 if the clock shows an earlier one.
#[must_use]
pub fn unix_time() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Returns the Unix time, nanoseconds, at most what 64 bits hold (until the year 2554).
#[must_use]
pub fn unix_time_ns() -> u64 {
    u64::try_from(unix_time().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_times_are_those_of_the_same_clock() {
        let before = unix_time();
        let between = Duration::from_nanos(unix_time_ns());
        assert!(before > Duration::ZERO && before <= between && between <= unix_time());
    }
}
