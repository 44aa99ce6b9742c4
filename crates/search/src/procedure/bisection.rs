// SPDX-License-Identifier: Apache-2.0
//! Search for the largest integer that passes.

/// Bisection that tries the largest number first. If it fails, the gap between the largest number that passed and the smallest that
/// failed is halved until it is no wider than the resolution.
#[derive(Clone, Debug)]
pub(super) struct Bisection {
    /// Largest number that passed; 0 if none has.
    passed: u64,
    /// Smallest number that failed.
    failed: Option<u64>,
    /// Failures in a row after which a number counts as failed, and the failures of the current number.
    failures_needed: u32,
    failures: u32,
    max: u64,
    resolution: u64,
}

impl Bisection {
    pub(super) fn new(max: u64, resolution: u64) -> Self {
        Self {
            passed: 0,
            failed: None,
            failures_needed: 1,
            failures: 0,
            max,
            resolution: resolution.max(1),
        }
    }

    /// Returns a search in which a number must fail twice in a row, so that a single frame delayed by the host does not end the search
    /// below the device's capability.
    pub(super) fn with_second_look(self) -> Self {
        Self {
            failures_needed: 2,
            ..self
        }
    }

    /// Returns the next number to try; `None` if the search has ended.
    pub(super) fn next(&self) -> Option<u64> {
        match self.failed {
            None if self.passed < self.max => Some(self.max),
            Some(failed) if failed.saturating_sub(self.passed) > self.resolution => {
                Some(self.passed.midpoint(failed))
            }
            _ => None,
        }
    }

    /// Records whether the number of [`Bisection::next`] passed.
    pub(super) fn record(&mut self, passed: bool) {
        self.failures = self.failures.saturating_add(u32::from(!passed));
        if !passed && self.failures < self.failures_needed {
            return;
        }
        self.failures = 0;
        match (self.next(), passed) {
            (Some(tried), true) => self.passed = tried,
            (Some(tried), false) => self.failed = Some(tried),
            (None, _) => {}
        }
    }

    /// Returns the largest number that passed, and whether it is the largest allowed; `None` if none passed.
    pub(super) fn found(&self) -> Option<(u64, bool)> {
        (self.passed > 0).then_some((self.passed, self.passed == self.max))
    }
}
