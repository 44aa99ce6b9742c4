// SPDX-License-Identifier: Apache-2.0
//! Values drawn with a random number.

/// Table to draw from a Zipf distribution with one look-up (Vose's alias method, 1991). Every column holds two values and the threshold
/// between them.
#[derive(Clone, Debug)]
pub(crate) struct ZipfTable {
    places: Box<[FieldOffset]>,
}

#[derive(Clone, Copy, Debug)]
struct FieldOffset {
    /// Threshold below which the value is the column's own number.
    line: u32,
    other: u32,
}

/// Returns the upper and the lower 32 bits.
#[inline(always)]
pub(crate) const fn halves(number: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    (
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    )
}

/// Returns a number below `count`, in proportion to a random number of 64 bits.
pub(crate) const fn scaled(random: u64, count: u32) -> u32 {
    let product = (random as u128).wrapping_mul(count as u128);
    let [_, _, _, _, a, b, c, d, ..] = product.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

const WHOLE: f64 = 4_294_967_296.0;

impl ZipfTable {
    /// Creates the table of `count` values. The n-th value, from 1, has a probability proportional to `1 / n^exponent`.
    #[expect(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "all indices are below `count`, and a value below 1 times 2^32 has 32 bits"
    )]
    pub(crate) fn new(count: u32, exponent: f64) -> Self {
        let weights: Vec<f64> = (1..=count).map(|n| f64::from(n).powf(-exponent)).collect();
        let sum: f64 = weights.iter().sum();
        let mut scaled: Vec<f64> = weights
            .iter()
            .map(|weight| weight / sum * f64::from(count))
            .collect();
        let mut places: Vec<FieldOffset> = (0..count)
            .map(|own| FieldOffset {
                line: u32::MAX,
                other: own,
            })
            .collect();
        // Weights decrease, so the first ones are above the mean.
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..scaled.len()).partition(|index| scaled[*index] < 1.0);
        while let (Some(little), Some(much)) = (small.pop(), large.pop()) {
            places[little] = FieldOffset {
                line: (scaled[little] * WHOLE) as u32,
                other: much as u32,
            };
            scaled[much] -= 1.0 - scaled[little];
            if scaled[much] < 1.0 {
                small.push(much);
            } else {
                large.push(much);
            }
        }
        Self {
            places: places.into_boxed_slice(),
        }
    }

    /// Returns the value, from 0, for a random number.
    #[inline(always)]
    pub(crate) fn draw(&self, random: u64) -> u32 {
        let count = self.places.len() as u64;
        let (high, low) = halves(random);
        let (own, _) = halves(u64::from(high).wrapping_mul(count));
        match self.places.get(own as usize) {
            Some(place) if low >= place.line => place.other,
            _ => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use quietwire_base::random::mix;

    use super::*;

    #[test]
    fn zipf_has_its_probabilities() {
        for (count, exponent) in [(1, 1.0), (2, 0.0), (10, 1.0), (1000, 1.2), (5, 10.0)] {
            let table = ZipfTable::new(count, exponent);
            let draws = 400_000u64;
            let mut observed = vec![0u64; count as usize];
            for index in 0..draws {
                observed[table.draw(mix(index)) as usize] += 1;
            }
            let sum: f64 = (1..=count).map(|n| f64::from(n).powf(-exponent)).sum();
            for (index, observed) in observed.iter().enumerate().take(20) {
                let expected = (index as f64 + 1.0).powf(-exponent) / sum * draws as f64;
                // Tolerance of six standard deviations: the numbers are always the same, and a wrong table deviates by far more.
                assert!(
                    (*observed as f64 - expected).abs() <= 6.0 * expected.sqrt() + 1.0,
                    "{count} {exponent} {index}: {observed} of {expected}"
                );
            }
        }
    }
}
