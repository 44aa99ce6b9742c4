// SPDX-License-Identifier: Apache-2.0
//! The largest number at which something holds, found by doubling and then by halving the stretch between.

/// The search. What holds at a number is taken to hold at all below it.
///
/// ```
/// let mut search = quietwire_search::Most::up_to(32);
/// while let Some(number) = search.next() {
///     search.record(number, number <= 11);
/// }
/// assert_eq!((search.held(), search.broke()), (11, Some(12)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    most: u32,
    held: u32,
    broke: Option<u32>,
}

impl Most {
    /// Over the numbers from 1 to `most`.
    #[must_use]
    pub fn up_to(most: u32) -> Self {
        Self {
            most,
            held: 0,
            broke: None,
        }
    }

    /// The number to try next; none when it is found.
    // No iterator: what comes next hangs on what was recorded.
    #[allow(clippy::should_implement_trait)]
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        match self.broke {
            None if self.held >= self.most => None,
            None => Some(self.held.saturating_mul(2).clamp(1, self.most)),
            Some(broke) if broke - self.held <= 1 => None,
            Some(broke) => Some(self.held + (broke - self.held) / 2),
        }
    }

    /// Whether it holds at a number that was asked for. Others change nothing.
    pub fn record(&mut self, number: u32, holds: bool) {
        if self.next() != Some(number) {
            return;
        }
        if holds {
            self.held = number;
        } else {
            self.broke = Some(number);
        }
    }

    /// The largest number at which it was seen to hold; 0 where there was none.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// The smallest number at which it was seen not to; none where it held at all that were tried.
    #[must_use]
    pub fn broke(&self) -> Option<u32> {
        self.broke
    }

    /// Numbers that are tried at most.
    #[must_use]
    pub fn bound(most: u32) -> u32 {
        2 * most.next_power_of_two().ilog2() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_number_is_it_is_found_in_few_tries() {
        for most in 1..=70 {
            for limit in 0..=most + 1 {
                let mut search = Most::up_to(most);
                let mut tried = Vec::new();
                while let Some(number) = search.next() {
                    assert!((1..=most).contains(&number) && !tried.contains(&number));
                    tried.push(number);
                    search.record(number, number <= limit);
                }
                assert_eq!(search.held(), limit.min(most), "{tried:?}");
                assert_eq!(search.broke(), (limit < most).then_some(limit + 1));
                assert!(tried.len() <= Most::bound(most) as usize, "{tried:?}");
            }
        }
    }

    #[test]
    fn a_number_that_was_not_asked_for_changes_nothing() {
        let mut search = Most::up_to(8);
        let before = search;
        search.record(5, true);
        assert_eq!(search, before);
    }
}
