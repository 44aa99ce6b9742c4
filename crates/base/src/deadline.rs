// SPDX-License-Identifier: Apache-2.0
//! Deadlines.

use std::time::{Duration, Instant};

/// A moment after which a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

/// Longest wait, a year. Longer ones would overflow the clock.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

impl Deadline {
    /// Returns the moment `wait` from now.
    #[must_use]
    pub fn after(wait: Duration) -> Self {
        Self::at(Instant::now(), wait)
    }

    /// Returns the moment `wait` after `start`.
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the clock has space for a year after each of its moments"
    )]
    pub fn at(start: Instant, wait: Duration) -> Self {
        Self(start + wait.min(WAIT_MAX))
    }

    /// Returns the time left, zero when the deadline has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.remaining_at(Instant::now())
    }

    /// Returns the time left at `now`, zero when the deadline has passed by then.
    #[must_use]
    pub fn remaining_at(&self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    /// Returns true when the deadline has passed.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Calls `check` every `pause` until it returns a value; `None` if the deadline passes first. `check` is called at least once.
    pub fn poll<T>(&self, pause: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            if let Some(found) = check() {
                return Some(found);
            }
            let remaining = self.remaining();
            if remaining.is_zero() {
                return None;
            }
            std::thread::sleep(pause.min(remaining));
        }
    }
}

/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Checks `condition` repeatedly until it holds; returns false if it does not hold within `deadline`.
pub fn wait_until(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let check = || condition().then_some(());
    Deadline::after(deadline).poll(PAUSE, check).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_until_something_is_found_or_the_deadline_passes() {
        let mut calls = 0;
        let deadline = Deadline::after(Duration::from_secs(60));
        let found = deadline.poll(Duration::ZERO, || {
            calls += 1;
            (calls == 3).then_some(calls)
        });
        assert_eq!(found, Some(3));
        assert!(!deadline.has_passed());

        let passed = Deadline::after(Duration::ZERO);
        let mut calls = 0;
        let found = passed.poll(Duration::from_secs(60), || {
            calls += 1;
            None::<()>
        });
        assert_eq!((found, calls), (None, 1));
        assert!(passed.has_passed());
    }

    #[test]
    fn a_condition_is_checked_at_least_once() {
        assert!(wait_until(Duration::ZERO, || true));
        assert!(!wait_until(Duration::ZERO, || false));
        let mut calls = 0;
        assert!(wait_until(Duration::from_secs(60), || {
            calls += 1;
            calls == 2
        }));
    }

    #[test]
    fn an_endless_wait_does_not_overflow() {
        assert!(!Deadline::after(Duration::MAX).has_passed());
    }
}
