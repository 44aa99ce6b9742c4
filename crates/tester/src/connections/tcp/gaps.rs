// SPDX-License-Identifier: Apache-2.0
//! Pool of what only connections with losses or reordering require.

use super::ranges::Ranges;

/// Number that stands for no element of a pool.
const NONE: u32 = u32::MAX;

/// Index of the gaps of a connection in the pool, or of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GapIndex(u32);

impl GapIndex {
    /// No gaps.
    pub(crate) const NONE: Self = Self(NONE);
}

/// Gaps in both streams of a connection. All positions are relative to the initial sequence number of the stream's sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gaps {
    /// Received beyond the first gap.
    pub(crate) received: Ranges,
    /// A position within the range that was received last, which is reported first (RFC 2018, section 4).
    pub(crate) recent: u32,
    /// Sent, and reported by the peer beyond the first gap.
    pub(crate) sacked: Ranges,
}

impl Gaps {
    fn is_empty(&self) -> bool {
        self.received.is_empty() && self.sacked.is_empty()
    }
}

/// Bounded pool of gaps. It allocates when it is created, and never afterwards.
#[derive(Debug)]
pub(crate) struct GapPool {
    gaps: Vec<Gaps>,
    free: Vec<u32>,
    capacity: usize,
}

impl GapPool {
    /// Creates a pool for so many connections.
    pub(crate) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Self {
            gaps: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            capacity,
        }
    }

    /// Returns the gaps of a connection.
    pub(crate) fn get(&self, index: GapIndex) -> Option<&Gaps> {
        self.gaps.get(index.0 as usize)
    }

    /// Returns the gaps of a connection, to change them.
    pub(crate) fn get_mut(&mut self, index: GapIndex) -> Option<&mut Gaps> {
        self.gaps.get_mut(index.0 as usize)
    }

    /// Returns the gaps of a connection, taken from the pool if it has none; `None` if the pool has no space.
    pub(crate) fn take(&mut self, index: &mut GapIndex) -> Option<&mut Gaps> {
        if *index == GapIndex::NONE {
            *index = GapIndex(self.take_free()?);
        }
        self.gaps.get_mut(index.0 as usize)
    }

    fn take_free(&mut self) -> Option<u32> {
        if let Some(free) = self.free.pop() {
            return Some(free);
        }
        let index = u32::try_from(self.gaps.len()).ok()?;
        if self.gaps.len() >= self.capacity {
            return None;
        }
        self.gaps.push(Gaps::default());
        Some(index)
    }

    /// Returns empty gaps to the pool.
    pub(crate) fn give_if_empty(&mut self, index: &mut GapIndex) {
        if self.get(*index).is_some_and(Gaps::is_empty) {
            self.give(index);
        }
    }

    /// Returns the gaps of a connection to the pool.
    pub(crate) fn give(&mut self, index: &mut GapIndex) {
        let taken = std::mem::replace(index, GapIndex::NONE);
        if let Some(gaps) = self.get_mut(taken) {
            *gaps = Gaps::default();
            self.free.push(taken.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ranges::Range;
    use super::*;

    #[test]
    fn a_pool_is_bounded_and_clean() {
        let mut pool = GapPool::new(2);
        let (mut one, mut two, mut three) = (GapIndex::NONE, GapIndex::NONE, GapIndex::NONE);
        let range = Range { start: 1, end: 2 };
        assert!(pool.take(&mut one).unwrap().received.insert(range));
        assert!(pool.take(&mut two).is_some());
        assert!(pool.take(&mut three).is_none());
        assert_eq!(three, GapIndex::NONE);
        pool.give_if_empty(&mut one);
        assert_ne!(one, GapIndex::NONE);
        pool.give(&mut one);
        assert_eq!(one, GapIndex::NONE);
        pool.give(&mut one);
        assert!(pool.take(&mut three).unwrap().is_empty());
        pool.give_if_empty(&mut two);
        assert_eq!(two, GapIndex::NONE);
    }
}
