// SPDX-License-Identifier: Apache-2.0
//! Search for the largest number at which a condition holds, by doubling and bisection.

/// Search for the largest number at which a condition holds. The condition is assumed to hold at all lower numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxCount {
    most: u32,
    held: u32,
    failed_at: Option<u32>,
}

impl MaxCount {
    /// Creates a search over the numbers from 1 to `most`.
    #[must_use]
    pub fn up_to(most: u32) -> Self {
        Self {
            most,
            held: 0,
            failed_at: None,
        }
    }

    /// Returns the next number to try; `None` if the search has ended.
    // Not an iterator: the next number depends on the recorded results.
    #[allow(clippy::should_implement_trait)]
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        match self.failed_at {
            None if self.held >= self.most => None,
            None => Some(self.held.saturating_mul(2).clamp(1, self.most)),
            Some(failed_at) if failed_at.saturating_sub(self.held) <= 1 => None,
            Some(failed_at) => Some(self.held.midpoint(failed_at)),
        }
    }

    /// Records whether the condition holds at a requested number. Other numbers have no effect.
    pub fn record(&mut self, number: u32, holds: bool) {
        if self.next() != Some(number) {
            return;
        }
        if holds {
            self.held = number;
        } else {
            self.failed_at = Some(number);
        }
    }

    /// Returns the largest number at which the condition held; 0 if there was none.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Returns the smallest number at which the condition did not hold; `None` if it held at all numbers tried.
    #[must_use]
    pub fn failed_at(&self) -> Option<u32> {
        self.failed_at
    }

    /// Returns the largest possible number of tries.
    #[must_use]
    pub fn bound(most: u32) -> u32 {
        let halvings = most.next_power_of_two().ilog2();
        halvings.saturating_mul(2).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_maximum_is_found_in_few_tries() {
        for most in 1..=70 {
            for limit in 0..=most + 1 {
                let mut search = MaxCount::up_to(most);
                let mut tried = Vec::new();
                while let Some(number) = search.next() {
                    assert!((1..=most).contains(&number) && !tried.contains(&number));
                    tried.push(number);
                    search.record(number, number <= limit);
                }
                assert_eq!(search.held(), limit.min(most), "{tried:?}");
                assert_eq!(search.failed_at(), (limit < most).then_some(limit + 1));
                assert!(tried.len() <= MaxCount::bound(most) as usize, "{tried:?}");
            }
        }
    }

    #[test]
    fn a_number_that_was_not_asked_for_changes_nothing() {
        let mut search = MaxCount::up_to(8);
        let before = search;
        search.record(5, true);
        assert_eq!(search, before);
    }
}
