// SPDX-License-Identifier: Apache-2.0
//! Removal of frames from a burst: to their pools, or to another owner.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::{Burst, Mbuf};
use crate::BURST_MAX;
use crate::sys;

/// Returns the places of the first `count` frames of a burst, one bit each.
const fn places_of(count: usize) -> u64 {
    match count {
        0 => 0,
        _ => u64::MAX >> (u64::BITS as usize).saturating_sub(count),
    }
}

// Each frame of a burst has a bit.
const _: () = assert!(BURST_MAX <= u64::BITS as usize);

impl Burst {
    /// Removes all frames, one by one. The iterator's drop frees the remaining frames.
    #[inline(always)]
    pub fn drain(&mut self) -> Drain<'_> {
        let end = self.len;
        // Even if the iterator is leaked, no frame has two owners.
        self.len = 0;
        Drain {
            burst: self,
            next: 0,
            end,
        }
    }

    /// Gives all frames back to their pools.
    #[expect(clippy::cast_possible_truncation, reason = "at most BURST_MAX frames")]
    #[inline]
    pub fn free(&mut self) {
        if self.len > 0 {
            // SAFETY: `len` buffers are owned, and forgotten afterwards.
            unsafe { sys::qw_free_bulk(self.mbufs.as_mut_ptr(), self.len as u32) };
            self.len = 0;
        }
    }

    /// Frees all buffers but the first `count`.
    #[expect(clippy::cast_possible_truncation, reason = "at most BURST_MAX frames")]
    #[inline(always)]
    pub(crate) fn shorten(&mut self, count: usize) {
        if count >= self.len {
            return;
        }
        let spare = self.len.wrapping_sub(count);
        if let Some(first) = self.mbufs.get_mut(count) {
            // SAFETY: `spare` buffers from here on are owned, and forgotten afterwards.
            unsafe { sys::qw_free_bulk(std::ptr::from_mut(first), spare as u32) };
            self.len = count;
        }
    }

    /// Frees the frames for which `keep` returns false. Returns their number and octets. The others keep their order.
    #[inline(always)]
    pub(crate) fn retain(&mut self, keep: impl Fn(&Mbuf<'_>) -> bool) -> (usize, u64) {
        let mut refused = 0;
        for (place, mbuf) in self.held().iter().enumerate() {
            let passes = keep(&ManuallyDrop::new(Mbuf::of_buffer(*mbuf)));
            refused |= u64::from(!passes) << place;
        }
        match refused {
            0 => (0, 0),
            _ => self.free_at(refused),
        }
    }

    /// Frees the frames at these places, one bit each, from the lowest bit on. Returns their number and octets. The others keep their order.
    ///
    /// There is no branch per frame: which frames go is as arbitrary as the traffic, and no processor foresees it.
    #[inline]
    pub fn free_at(&mut self, places: u64) -> (usize, u64) {
        let (count, mut kept) = (self.len, 0_usize);
        let mut left = !places & places_of(count);
        while left != 0 {
            self.mbufs.swap(kept, left.trailing_zeros() as usize);
            kept = kept.wrapping_add(1);
            left &= left.wrapping_sub(1);
        }
        let octets = self.lengths().skip(kept).map(u64::from).sum();
        self.shorten(kept);
        (count.wrapping_sub(kept), octets)
    }

    /// Frees the first `count` frames. The others move up.
    #[expect(clippy::cast_possible_truncation, reason = "at most BURST_MAX frames")]
    #[inline(always)]
    pub(crate) fn free_front(&mut self, count: usize) {
        let count = count.min(self.len);
        // SAFETY: `count` buffers are owned, and forgotten afterwards.
        unsafe { sys::qw_free_bulk(self.mbufs.as_mut_ptr(), count as u32) };
        if count < self.len {
            self.mbufs.copy_within(count..self.len, 0);
        }
        self.len = self.len.wrapping_sub(count);
    }

    /// Removes the first `count` frames, which the caller then owns. The others move up.
    pub(crate) fn drain_front(&mut self, count: usize) -> DrainFront<'_> {
        DrainFront {
            end: count.min(self.len),
            burst: self,
            next: 0,
        }
    }
}

/// Iterator that removes the first frames of a [`Burst`]. Frames that are not taken stay.
pub(crate) struct DrainFront<'burst> {
    burst: &'burst mut Burst,
    next: usize,
    end: usize,
}

impl Iterator for DrainFront<'_> {
    type Item = *mut sys::rte_mbuf;

    #[inline]
    fn next(&mut self) -> Option<*mut sys::rte_mbuf> {
        if self.next == self.end {
            return None;
        }
        let mbuf = *self.burst.mbufs.get(self.next)?;
        self.next = self.next.wrapping_add(1);
        Some(mbuf)
    }
}

impl Drop for DrainFront<'_> {
    fn drop(&mut self) {
        let (next, len) = (self.next, self.burst.len);
        self.burst.mbufs.copy_within(next..len, 0);
        self.burst.len = len.saturating_sub(next);
    }
}

/// Iterator that removes all frames of a [`Burst`].
#[derive(Debug)]
pub struct Drain<'burst> {
    burst: &'burst mut Burst,
    next: usize,
    end: usize,
}

impl<'burst> Iterator for Drain<'burst> {
    type Item = Mbuf<'burst>;

    #[inline(always)]
    fn next(&mut self) -> Option<Mbuf<'burst>> {
        if self.next == self.end {
            return None;
        }
        let mbuf = *self.burst.mbufs.get(self.next)?;
        self.next = self.next.wrapping_add(1);
        Some(Mbuf {
            mbuf,
            _eal: PhantomData,
        })
    }
}

impl Drop for Drain<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        for frame in self.by_ref() {
            drop(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mempool::Mempool;
    use crate::testing;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn frames_at_places_go_and_the_others_keep_their_order(
            count in 0..=BURST_MAX,
            places in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
        ) {
            let eal = testing::eal();
            let pool = Mempool::new(&eal, "removal", 511, 2048).unwrap();
            let mut burst = Burst::new(&eal);
            for number in 0..count {
                let octets = vec![number as u8; 60 + number];
                burst.push(Mbuf::new(&eal, &pool, &octets).unwrap()).unwrap();
            }
            let (gone, kept): (Vec<_>, Vec<_>) =
                (0..count).partition(|number| places >> number & 1 == 1);
            let octets: usize = gone.iter().map(|number| 60 + number).sum();
            prop_assert_eq!(burst.free_at(places), (gone.len(), octets as u64));
            let left: Vec<_> = burst.frames().map(|octets| usize::from(octets[0])).collect();
            prop_assert_eq!(left, kept);
            drop(burst);
            prop_assert_eq!(pool.available(), 511);
        }
    }
}
