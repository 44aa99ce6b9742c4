// SPDX-License-Identifier: Apache-2.0
//! Rate limits.

use std::time::{Duration, Instant};

/// A token bucket: `burst` events at once, then one every `interval`.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    interval: Duration,
    burst: u32,
    tokens: u32,
    /// Time when the last token was added.
    filled: Instant,
}

impl RateLimit {
    /// Returns a full bucket. `burst` is at least 1; an interval of zero limits nothing.
    #[must_use]
    pub fn new(interval: Duration, burst: u32, now: Instant) -> Self {
        let burst = burst.max(1);
        Self {
            interval,
            burst,
            tokens: burst,
            filled: now,
        }
    }

    /// Takes a token. Without a token, returns the time until the next one.
    ///
    /// # Errors
    /// The time until the next token.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        self.fill(now);
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                Ok(())
            }
            None => {
                let elapsed = now.saturating_duration_since(self.filled);
                Err(self.interval.saturating_sub(elapsed))
            }
        }
    }

    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled);
        // An interval of zero limits nothing.
        let Some(earned) = elapsed.as_nanos().checked_div(self.interval.as_nanos()) else {
            self.tokens = self.burst;
            return;
        };
        let missing = self.burst.saturating_sub(self.tokens);
        if earned >= u128::from(missing) {
            self.tokens = self.burst;
            if earned > 0 {
                // A full bucket gains no token, so the next interval begins with the next event.
                self.filled = now;
            }
            return;
        }
        // Less than `missing`, so it fits.
        let earned = u32::try_from(earned).unwrap_or(missing);
        self.tokens = self.tokens.saturating_add(earned);
        // The sum is at most `now`.
        let passed = self.interval.saturating_mul(earned);
        self.filled = self.filled.checked_add(passed).unwrap_or(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    #[test]
    fn a_burst_passes_and_then_one_event_an_interval() {
        let start = Instant::now();
        let mut limit = RateLimit::new(INTERVAL, 3, start);
        for _ in 0..3 {
            assert_eq!(limit.take(start), Ok(()));
        }
        assert_eq!(limit.take(start), Err(INTERVAL));
        assert_eq!(limit.take(start + INTERVAL / 2), Err(INTERVAL / 2));
        assert_eq!(limit.take(start + INTERVAL), Ok(()));
        assert!(limit.take(start + INTERVAL).is_err());
    }

    #[test]
    fn no_more_than_the_burst_is_saved_up() {
        let start = Instant::now();
        let mut limit = RateLimit::new(INTERVAL, 3, start);
        let later = start + INTERVAL * 1000;
        let passed = (0..10).filter(|_| limit.take(later).is_ok()).count();
        assert_eq!(passed, 3);
    }

    #[test]
    fn an_interval_of_zero_limits_nothing() {
        let start = Instant::now();
        let mut limit = RateLimit::new(Duration::ZERO, 1, start);
        assert!((0..10).all(|_| limit.take(start).is_ok()));
    }
}
