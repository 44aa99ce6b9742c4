// SPDX-License-Identifier: Apache-2.0
//! Bounded sets of ranges of a stream: what arrived beyond a gap (RFC 2018).

/// Ranges that a set holds at most.
pub(crate) const RANGES_MAX: usize = 8;

/// Positions from `start` to before `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Range {
    /// Returns the number of positions.
    pub(crate) fn length(self) -> u32 {
        self.end.saturating_sub(self.start)
    }
}

/// A set of positions, as at most [`RANGES_MAX`] ranges in ascending order that neither overlap nor touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    count: u8,
    ranges: [Range; RANGES_MAX],
}

impl Ranges {
    /// Returns the ranges in ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        let held = self.ranges.get(..usize::from(self.count));
        held.unwrap_or_default().iter().copied()
    }

    /// Returns true if the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a range. Returns false and changes nothing if there is no space for it.
    #[must_use]
    pub(crate) fn insert(&mut self, added: Range) -> bool {
        let Some(with) = self.with(added) else {
            return false;
        };
        *self = with;
        true
    }

    /// Returns the set with an additional range; `None` if there is no space for it.
    pub(crate) fn with(&self, added: Range) -> Option<Self> {
        if added.start >= added.end {
            return Some(*self);
        }
        let (mut with, mut merged) = (Self::default(), added);
        let mut is_pending = true;
        for range in self.iter() {
            if range.end < merged.start {
                with.push(range)?;
            } else if range.start > merged.end {
                if std::mem::take(&mut is_pending) {
                    with.push(merged)?;
                }
                with.push(range)?;
            } else {
                merged.start = merged.start.min(range.start);
                merged.end = merged.end.max(range.end);
            }
        }
        if is_pending {
            with.push(merged)?;
        }
        Some(with)
    }

    fn push(&mut self, range: Range) -> Option<()> {
        *self.ranges.get_mut(usize::from(self.count))? = range;
        self.count = self.count.saturating_add(1);
        Some(())
    }

    /// Removes the positions before `from`.
    pub(crate) fn remove_before(&mut self, from: u32) {
        let mut rest = Self::default();
        for range in self.iter().filter(|range| range.end > from) {
            let start = range.start.max(from);
            // The rest has at most as many ranges.
            let _ = rest.push(Range { start, ..range });
        }
        *self = rest;
    }

    /// Removes the positions up to the end of the range that contains or touches `position`, and all before. Returns that end, or
    /// `position` if there is no such range.
    pub(crate) fn absorb(&mut self, position: u32) -> u32 {
        let touching = self
            .iter()
            .find(|range| range.start <= position && position <= range.end);
        let end = touching.map_or(position, |range| range.end);
        self.remove_before(end);
        end
    }

    /// Removes the range with the highest positions.
    pub(crate) fn remove_last(&mut self) {
        self.count = self.count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn positions(ranges: &Ranges) -> BTreeSet<u32> {
        ranges
            .iter()
            .flat_map(|range| range.start..range.end)
            .collect()
    }

    fn is_normal(ranges: &Ranges) -> bool {
        let all: Vec<Range> = ranges.iter().collect();
        all.iter().all(|range| range.start < range.end)
            && all.windows(2).all(|pair| pair[0].end < pair[1].start)
    }

    proptest! {
        #[test]
        fn the_set_is_a_set_of_positions(steps in prop::collection::vec((0u32..100, 0u32..12, 0u8..4), 1..60)) {
            let (mut ranges, mut plain) = (Ranges::default(), BTreeSet::new());
            for (start, length, step) in steps {
                match step {
                    0 => {
                        ranges.remove_before(start);
                        plain.retain(|position| *position >= start);
                    }
                    1 => {
                        let end = ranges.absorb(start);
                        let mut expected = start;
                        while plain.contains(&expected) {
                            expected += 1;
                        }
                        // A range that ends at the position touches it.
                        prop_assert_eq!(end, expected);
                        plain.retain(|position| *position >= end);
                    }
                    _ => {
                        let added = Range { start, end: start + length };
                        let before = ranges;
                        if ranges.insert(added) {
                            plain.extend(start..start + length);
                        } else {
                            prop_assert_eq!(ranges, before);
                            prop_assert_eq!(ranges.iter().count(), RANGES_MAX);
                        }
                    }
                }
                prop_assert!(is_normal(&ranges));
                prop_assert_eq!(positions(&ranges), plain.clone());
            }
        }
    }

    #[test]
    fn a_full_set_still_takes_what_merges() {
        let mut ranges = Ranges::default();
        for index in 0..RANGES_MAX as u32 {
            let start = index * 10;
            assert!(ranges.insert(Range {
                start,
                end: start + 5
            }));
        }
        assert!(!ranges.insert(Range {
            start: 200,
            end: 201
        }));
        assert!(ranges.insert(Range { start: 5, end: 10 }));
        assert_eq!(ranges.iter().count(), RANGES_MAX - 1);
        ranges.remove_last();
        assert_eq!(ranges.iter().count(), RANGES_MAX - 2);
    }
}
