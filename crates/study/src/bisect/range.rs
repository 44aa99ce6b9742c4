// SPDX-License-Identifier: Apache-2.0
//! Search of the first bad commit in a row of commits, some of which cannot be judged.

use std::collections::BTreeSet;
use std::ops;

use super::commit::CommitFinding;

/// Commits in which the first bad one is. The last of them is bad, and the one before the first of them is good.
#[derive(Clone, Debug)]
pub(super) struct Range {
    /// Index of the first commit that may be the first bad one.
    first: usize,
    /// Index of a bad commit.
    bad: usize,
    /// Commits that could not be judged.
    skipped: BTreeSet<usize>,
}

impl Range {
    /// Creates the range of all `commits` commits, at least one, of which the last is bad.
    pub(super) fn new(commits: usize) -> Self {
        Self {
            first: 0,
            bad: commits.saturating_sub(1),
            skipped: BTreeSet::new(),
        }
    }

    /// Returns the index of the commit to judge next: the one nearest to the middle that was not skipped. None at the end.
    pub(super) fn next(&self) -> Option<usize> {
        let middle = self.first.midpoint(self.bad);
        (self.first..self.bad)
            .filter(|index| !self.skipped.contains(index))
            .min_by_key(|index| index.abs_diff(middle))
    }

    /// Records whether a commit is good or bad.
    pub(super) fn record(&mut self, index: usize, finding: CommitFinding) {
        match finding {
            CommitFinding::Good => self.first = self.first.max(index.saturating_add(1)),
            CommitFinding::Bad => self.bad = self.bad.min(index),
            CommitFinding::Unknown | CommitFinding::Broken => {
                self.skipped.insert(index);
            }
        }
    }

    /// Returns the indices of the commits of which one is the first bad one.
    pub(super) fn suspects(&self) -> ops::Range<usize> {
        self.first..self.bad.saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_bad_commit_is_among_the_suspects_and_alone_if_its_neighbours_are_judged(
            commits in 1usize..200,
            at in any::<prop::sample::Index>(),
            skips in prop::collection::btree_set(0usize..200, 0..40),
        ) {
            let first_bad = at.index(commits);
            let is_skipped = |index: usize| skips.contains(&index) && index + 1 < commits;
            let mut range = Range::new(commits);
            let mut judged = BTreeSet::new();
            while let Some(index) = range.next() {
                // No commit is judged twice, so the search ends.
                prop_assert!(index < commits && judged.insert(index));
                range.record(index, match index {
                    _ if is_skipped(index) => CommitFinding::Broken,
                    _ if index < first_bad => CommitFinding::Good,
                    _ => CommitFinding::Bad,
                });
            }
            let suspects = range.suspects();
            prop_assert!(suspects.contains(&first_bad), "{suspects:?} without {first_bad}");
            let is_judged = |index: usize| !is_skipped(index);
            if is_judged(first_bad) && first_bad.checked_sub(1).is_none_or(is_judged) {
                prop_assert_eq!(suspects, first_bad..first_bad + 1);
            }
            if skips.is_empty() {
                prop_assert!(judged.len() <= commits.ilog2() as usize + 1);
            }
        }
    }
}
