// SPDX-License-Identifier: Apache-2.0
//! Long lists of settings. Each change of a running switch copies all settings: the copies share these lists until one of them changes.

use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;

/// A list that copies share until one of them changes.
#[derive(Clone, Debug)]
pub struct SharedList<T>(Arc<Vec<T>>);

impl<T> SharedList<T> {
    /// Returns true if both share one list. Lists that are equal and do not share one are different here.
    #[must_use]
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Returns true if both settings share one list, or neither is set.
pub(super) fn are_shared<T>(one: Option<&SharedList<T>>, other: Option<&SharedList<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_shared_with(other),
        (None, None) => true,
        _ => false,
    }
}

/// Numbers of elements that two lists have in common at their fronts and at their backs. The parts between them differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommonEnds {
    front: usize,
    back: usize,
}

impl CommonEnds {
    /// Compares a list with a former one.
    pub(crate) fn of<A, B>(former: &[A], now: &[B], is_same: impl Fn(&A, &B) -> bool) -> Self {
        let pairs = former.iter().zip(now);
        let front = pairs.take_while(|pair| is_same(pair.0, pair.1)).count();
        let left = former.len().min(now.len()).saturating_sub(front);
        let pairs = former.iter().rev().zip(now.iter().rev()).take(left);
        let back = pairs.take_while(|pair| is_same(pair.0, pair.1)).count();
        Self { front, back }
    }

    /// Returns the common elements at the front.
    pub(crate) fn front<'list, T>(&self, list: &'list [T]) -> &'list [T] {
        list.get(..self.front).unwrap_or_default()
    }

    /// Returns the part of either list that differs.
    pub(crate) fn middle<'list, T>(&self, list: &'list [T]) -> &'list [T] {
        let end = list.len().saturating_sub(self.back);
        list.get(self.front..end).unwrap_or_default()
    }

    /// Returns the common elements at the back.
    pub(crate) fn back<'list, T>(&self, list: &'list [T]) -> &'list [T] {
        let start = list.len().saturating_sub(self.back);
        list.get(start..).unwrap_or_default()
    }
}

impl<T> Default for SharedList<T> {
    fn default() -> Self {
        Self(Arc::new(Vec::new()))
    }
}

impl<T> From<Vec<T>> for SharedList<T> {
    fn from(list: Vec<T>) -> Self {
        Self(Arc::new(list))
    }
}

impl<T> FromIterator<T> for SharedList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self(Arc::new(elements.into_iter().collect()))
    }
}

impl<T: PartialEq> PartialEq for SharedList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_shared_with(other) || *self.0 == *other.0
    }
}

impl<T: Eq> Eq for SharedList<T> {}

impl<T> Deref for SharedList<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

/// Copies the list first if others share it.
impl<T: Clone> DerefMut for SharedList<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.0)
    }
}

impl<'list, T> IntoIterator for &'list SharedList<T> {
    type Item = &'list T;
    type IntoIter = slice::Iter<'list, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Copies the list first if others share it.
impl<'list, T: Clone> IntoIterator for &'list mut SharedList<T> {
    type Item = &'list mut T;
    type IntoIter = slice::IterMut<'list, T>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::make_mut(&mut self.0).iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_a_list_until_one_of_them_changes() {
        let first: SharedList<u32> = (0..3).collect();
        let mut second = first.clone();
        assert!(first.is_shared_with(&second));
        second.push(3);
        assert!(!first.is_shared_with(&second));
        assert_eq!(
            (&first[..], &second[..]),
            (&[0, 1, 2][..], &[0, 1, 2, 3][..])
        );
        second.pop();
        assert_eq!(first, second);
        assert!(!first.is_shared_with(&second));
        for element in &mut second {
            *element += 1;
        }
        assert_eq!(second, SharedList::from(vec![1, 2, 3]));
        assert_eq!(first.iter().sum::<u32>(), 3);
    }

    #[test]
    fn lists_differ_between_their_common_ends() {
        let former = [1, 2, 3, 4];
        for (now, gone, new) in [
            (vec![1, 2, 3, 4], vec![], vec![]),
            (vec![1, 2, 4], vec![3], vec![]),
            (vec![1, 2, 9, 3, 4], vec![], vec![9]),
            (vec![1, 7, 8, 4], vec![2, 3], vec![7, 8]),
            (vec![1, 2, 3, 4, 5], vec![], vec![5]),
            (vec![], vec![1, 2, 3, 4], vec![]),
            // An equal element is at one end only.
            (vec![1, 2, 3, 4, 4], vec![], vec![4]),
            (vec![1, 1, 2, 3, 4], vec![], vec![1]),
        ] {
            let ends = CommonEnds::of(&former, &now, |one, other| one == other);
            assert_eq!(ends.middle(&former), gone, "{now:?}");
            assert_eq!(ends.middle(&now), new, "{now:?}");
            let joined = [ends.front(&former), &new[..], ends.back(&former)].concat();
            assert_eq!(joined, now);
        }
    }
}
