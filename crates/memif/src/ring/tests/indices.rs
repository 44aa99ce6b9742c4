// SPDX-License-Identifier: Apache-2.0
//! The rule for indices of the peer, for every index and every state of small rings, around each wraparound of 16 bits.

use crate::ring::memory::Window;

const SIZES: [u16; 5] = [1, 2, 4, 8, 16_384];

/// Returns the lowest 16 bits of a number that never wraps around.
fn low(number: u32) -> u16 {
    (number % 0x1_0000).try_into().unwrap()
}

/// Checks all indices of the peer against numbers that never wrap around. `first` is the first slot that this end has not returned, and
/// `known` the number of slots from there on that the peer has handed over.
fn check(first: u32, known: u16, size: u16) {
    let mut window = Window::new(low(first));
    window.end = low(first + u32::from(known));
    let mut expected = vec![false; 0x1_0000];
    for claimed in known..=size {
        expected[usize::from(low(first + u32::from(claimed)))] = true;
    }
    for (index, expected) in (0..=u16::MAX).zip(expected) {
        let accepted = window.may_end_at(index, low(first), size);
        assert_eq!(accepted, expected, "{first} {known} {size} {index}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too slow under Miri")]
fn every_index_of_a_small_ring_is_accepted_if_it_moved_ahead_within_the_ring() {
    for size in SIZES {
        let starts = (0x8000 - 10..0x8000 + 10).chain(0x1_0000 - 20..0x1_0000 + 20);
        for first in starts.step_by(if size > 8 { 7 } else { 1 }) {
            let known: &[u16] = &(0..=size.min(8)).chain([size]).collect::<Vec<_>>();
            for known in known {
                check(first, *known, size);
            }
        }
    }
}

#[test]
#[ignore = "takes minutes; make models runs it"]
fn every_pair_of_indices_of_a_ring_of_two_is_accepted_if_it_moved_ahead_within_the_ring() {
    for first in 0..0x1_0000 {
        check(first, 1, 2);
    }
}
