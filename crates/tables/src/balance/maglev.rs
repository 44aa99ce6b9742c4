// SPDX-License-Identifier: Apache-2.0
//! Consistent hashing with a table of choices, as described for the load balancer Maglev (Eisenbud et al., NSDI 2016, section 3.4).
//!
//! All switches have the same hash, so that they choose the same backends.

use quietwire_base::random::mix;

/// Number of choices: a prime, and far more than backends, so that shares differ little from the weights.
pub const CHOICES: usize = 65_537;

/// A backend that fills its share of the table in the order of its own permutation of the choices.
struct Filler {
    number: u16,
    weight: u32,
    credit: u32,
    offset: usize,
    skip: usize,
    next: usize,
}

impl Filler {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "both are at most CHOICES"
    )]
    fn new(number: u16, identity: u64, weight: u32) -> Self {
        let (first, second) = (mix(identity), mix(!identity));
        Self {
            number,
            weight,
            credit: 0,
            offset: (first % CHOICES as u64) as usize,
            skip: (second % (CHOICES as u64 - 1)) as usize + 1,
            next: 0,
        }
    }

    /// Takes the next free choice of its permutation.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "offset, step and skip are at most CHOICES"
    )]
    fn fill(&mut self, choices: &mut [u16]) {
        while self.next < CHOICES {
            let at = (self.offset + self.next * self.skip) % CHOICES;
            self.next += 1;
            if let Some(choice) = choices.get_mut(at)
                && *choice == u16::MAX
            {
                *choice = self.number;
                return;
            }
        }
    }
}

/// Returns the number of a backend for each hash modulo [`CHOICES`]; `u16::MAX` without backends. A backend has an identity, which
/// determines its choices, and a weight; those of weight 0 are never chosen.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the credit is below twice the heaviest weight"
)]
#[must_use]
pub fn choices(backends: &[(u64, u32)]) -> Box<[u16]> {
    let mut choices = vec![u16::MAX; CHOICES].into_boxed_slice();
    let numbered = (0..u16::MAX).zip(backends);
    let mut fillers: Vec<Filler> = numbered
        .filter(|(_, (_, weight))| *weight > 0)
        .map(|(number, (identity, weight))| Filler::new(number, *identity, *weight))
        .collect();
    let Some(heaviest) = fillers.iter().map(|one| one.weight).max() else {
        return choices;
    };
    let mut left = CHOICES;
    // Each round fills at least the choice of the heaviest backend.
    while left > 0 {
        for filler in &mut fillers {
            filler.credit += filler.weight;
            if filler.credit >= heaviest && left > 0 {
                filler.credit -= heaviest;
                filler.fill(&mut choices);
                left -= 1;
            }
        }
    }
    choices
}
