// SPDX-License-Identifier: Apache-2.0
//! The largest whole number that passes.

/// The largest number is tried first; when it fails, the gap between what passed and what failed is halved until it is
/// no wider than the resolution.
#[derive(Clone, Debug)]
pub(super) struct Bisection {
    /// Largest number that passed; 0 when none has.
    passed: u64,
    /// Smallest number that failed.
    failed: Option<u64>,
    /// How often in a row a number has to fail until it counts as failed, and how often the present one did.
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

    /// With numbers that have to fail twice in a row: one frame that the machine held up must not end the search below what
    /// the device does.
    pub(super) fn with_second_look(self) -> Self {
        Self {
            failures_needed: 2,
            ..self
        }
    }

    /// The number to try; none when it is over.
    pub(super) fn next(&self) -> Option<u64> {
        match self.failed {
            None if self.passed < self.max => Some(self.max),
            Some(failed) if failed - self.passed > self.resolution => {
                Some(self.passed + (failed - self.passed) / 2)
            }
            _ => None,
        }
    }

    /// Takes whether the number of [`Bisection::next`] passed.
    pub(super) fn record(&mut self, passed: bool) {
        self.failures += u32::from(!passed);
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

    /// The largest number that passed, and whether it is the largest that was allowed. None when none passed.
    pub(super) fn found(&self) -> Option<(u64, bool)> {
        (self.passed > 0).then_some((self.passed, self.passed == self.max))
    }
}
