// SPDX-License-Identifier: Apache-2.0
//! Lossless compression of the large parts of a trial.
//!
//! Neighbouring buckets of a histogram have similar counts, apart from noise. Each count is therefore stored as the difference from the
//! previous one, and the octets of all differences are stored plane by plane: first the lowest octets, then the next ones, most of which
//! are zero. zstd compresses that to little more than the entropy of the noise. HdrHistogram's own encoding (deflated counts) is larger
//! by half, and by another third as base64 text.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use quietwire_tester::{DelayVariation, HISTOGRAM_DIGITS_MAX, TrialResult, read_histogram};

/// zstd level: its default. The highest level makes histograms only 2 % smaller.
const LEVEL: i32 = 3;
/// Size up to which encoded histograms have few buckets and are not converted, octets.
const SHORT: usize = 1024;
/// Maximum unpacked size of one trial. It limits the memory that a damaged file can request.
const UNPACKED_MAX: usize = 64 << 20;

/// Encodings of a histogram: absent; text, if it is short or from another program; counts.
const NONE: u8 = 0;
const AS_TEXT: u8 = 1;
const AS_COUNTS: u8 = 2;

/// Returns the encoded histograms of a result, always in this order.
fn encoded(result: &mut TrialResult) -> [&mut String; 9] {
    fn of(variation: &mut DelayVariation) -> [&mut String; 3] {
        [
            &mut variation.ipdv.histogram_v2_base64,
            &mut variation.ipdv.negative_histogram_v2_base64,
            &mut variation.pdv.histogram_v2_base64,
        ]
    }
    let [a, b, c] = of(&mut result.variation);
    let [d, e, f] = of(&mut result.low_rate.variation);
    let low_rate = &mut result.low_rate.latency.histogram_v2_base64;
    let every = &mut result.latency.histogram_v2_base64;
    let gaps = &mut result.health.burst_gaps.histogram_v2_base64;
    [every, a, b, c, low_rate, d, e, f, gaps]
}

/// Removes the histograms from a result. Returns the data from which [`put_back`] restores them; for each that was converted, this is
/// checked.
///
/// # Errors
/// A sentence.
pub(super) fn take_out(result: &mut TrialResult) -> Result<Vec<u8>, String> {
    let mut packed = Vec::new();
    for text in encoded(result) {
        let text = std::mem::take(text);
        if text.is_empty() {
            packed.push(NONE);
            continue;
        }
        let counts = if text.len() > SHORT {
            packed_counts(&text)?
        } else {
            None
        };
        let (way, octets) = match counts {
            Some(counts) => (AS_COUNTS, counts),
            None => (AS_TEXT, text.into_bytes()),
        };
        packed.push(way);
        packed.extend(length(octets.len())?);
        packed.extend(octets);
    }
    Ok(packed)
}

/// Restores the removed histograms of a result.
///
/// # Errors
/// A sentence, if they are damaged.
pub(super) fn put_back(mut packed: &[u8], result: &mut TrialResult) -> Result<(), String> {
    let from = &mut packed;
    for text in encoded(result) {
        let [way] = octets(from)?;
        if way == NONE {
            continue;
        }
        let length = u32::from_le_bytes(octets(from)?) as usize;
        let (histogram, rest) = from.split_at_checked(length).ok_or(CUT)?;
        *from = rest;
        *text = match way {
            AS_TEXT => String::from_utf8(histogram.to_vec()).map_err(|error| error.to_string())?,
            AS_COUNTS => text_of(&decompressed(histogram)?)?,
            other => return Err(format!("unknown encoding of a histogram: {other}")),
        };
    }
    if from.is_empty() {
        Ok(())
    } else {
        Err("unexpected data after the histograms of a trial".to_owned())
    }
}

/// Compresses a text.
///
/// # Errors
/// A sentence.
pub(super) fn compressed(plain: &[u8]) -> Result<Vec<u8>, String> {
    zstd::bulk::compress(plain, LEVEL).map_err(|error| format!("zstd: {error}"))
}

/// Decompresses a text of [`compressed`].
///
/// # Errors
/// A sentence, if it is damaged.
pub(super) fn decompressed(packed: &[u8]) -> Result<Vec<u8>, String> {
    let damaged = |error: std::io::Error| format!("zstd: {error}");
    let mut plain = Vec::new();
    zstd::Decoder::new(packed)
        .map_err(damaged)?
        .take((UNPACKED_MAX as u64).saturating_add(1))
        .read_to_end(&mut plain)
        .map_err(damaged)?;
    if plain.len() > UNPACKED_MAX {
        return Err(format!("larger than {UNPACKED_MAX} octets"));
    }
    Ok(plain)
}

const CUT: &str = "the stored histograms are truncated";

fn octets<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], String> {
    let (octets, rest) = from.split_first_chunk().ok_or(CUT)?;
    *from = rest;
    Ok(*octets)
}

fn length(octets: usize) -> Result<[u8; 4], String> {
    let length = u32::try_from(octets).map_err(|error| error.to_string())?;
    Ok(length.to_le_bytes())
}

/// Returns the compressed counts of an encoded histogram, from which the same text is restored; none if there are no such counts, or if
/// they are longer.
fn packed_counts(text: &str) -> Result<Option<Vec<u8>>, String> {
    // Its text is restored from these counts.
    let Some(counts) = counts_of(text) else {
        return Ok(None);
    };
    let packed = compressed(&counts)?;
    if packed.len() >= text.len() {
        return Ok(None);
    }
    if decompressed(&packed)? != counts {
        return Err("zstd: a histogram would be read back as a different one".to_owned());
    }
    Ok(Some(packed))
}

/// The lowest values of a histogram's buckets, in ascending order.
struct Buckets {
    value: u64,
    /// Width of the bucket that begins at `value`, if it is the same as that of the bucket before.
    width: u64,
}

impl Buckets {
    /// Returns the buckets from that of `value` on.
    fn starting_at(histogram: &Histogram<u64>, value: u64) -> Self {
        Self {
            value: histogram.lowest_equivalent(value),
            width: histogram.equivalent_range(value),
        }
    }

    /// Returns the lowest value of the next bucket. Beyond all 64-bit values, it is the largest one.
    fn next(&mut self, histogram: &Histogram<u64>) -> u64 {
        let value = self.value;
        // Buckets of an HdrHistogram become wider only at powers of two. There are thousands in each histogram.
        if value.is_power_of_two() {
            self.width = histogram.equivalent_range(value);
        }
        self.value = value.saturating_add(self.width);
        value
    }
}

/// Returns the counts of an encoded histogram; none if it is not a histogram, or one that [`text_of`] would encode differently.
fn counts_of(text: &str) -> Option<Vec<u8>> {
    let histogram = read_histogram(text).ok()?;
    let (first, last) = (histogram.min(), histogram.max());
    let mut buckets = Buckets::starting_at(&histogram, first);
    let mut before = 0;
    let differences: Vec<u64> = std::iter::repeat_with(|| buckets.next(&histogram))
        .take(histogram.distinct_values())
        .take_while(|value| *value <= last)
        .map(|value| {
            let count = histogram.count_at(value);
            let difference = count.wrapping_sub(before).cast_signed();
            before = count;
            // Zigzag encoding: small positive and negative numbers become small numbers.
            ((difference << 1) ^ (difference >> 63)).cast_unsigned()
        })
        .collect();
    let largest = differences.iter().max().copied().unwrap_or(0);
    let planes = u64::BITS
        .saturating_sub(largest.leading_zeros())
        .div_ceil(8);
    let mut packed = vec![histogram.sigfig(), u8::try_from(planes).ok()?];
    for bound in [histogram.low(), histogram.high(), first] {
        packed.extend(bound.to_le_bytes());
    }
    packed.extend(length(differences.len()).ok()?);
    for plane in 0..planes {
        packed.extend(
            differences
                .iter()
                .map(|value| ((value >> plane.saturating_mul(8)) & 0xff) as u8),
        );
    }
    (text_of(&packed).ok()? == text).then_some(packed)
}

/// Returns the encoded histogram from which [`counts_of`] returned the counts.
fn text_of(mut packed: &[u8]) -> Result<String, String> {
    let from = &mut packed;
    let [digits, planes] = octets(from)?;
    let low = u64::from_le_bytes(octets(from)?);
    let high = u64::from_le_bytes(octets(from)?);
    let first = u64::from_le_bytes(octets(from)?);
    let number = u32::from_le_bytes(octets(from)?) as usize;
    // Each digit multiplies the number of buckets by ten.
    if digits > HISTOGRAM_DIGITS_MAX {
        return Err(format!("a stored histogram has {digits} digits"));
    }
    let mut histogram =
        Histogram::<u64>::new_with_bounds(low, high, digits).map_err(|error| error.to_string())?;
    if planes > 8 || number > histogram.distinct_values() {
        return Err("a stored histogram has too many counts".to_owned());
    }
    let mut differences = vec![0u64; number];
    for plane in 0..planes {
        let (octets, rest) = from.split_at_checked(number).ok_or(CUT)?;
        for (value, octet) in differences.iter_mut().zip(octets) {
            *value |= u64::from(*octet) << plane.saturating_mul(8);
        }
        *from = rest;
    }
    let mut buckets = Buckets::starting_at(&histogram, first);
    let mut count = 0u64;
    for difference in differences {
        let bucket = buckets.next(&histogram);
        let sign = (difference & 1).cast_signed().wrapping_neg();
        let difference = (difference >> 1).cast_signed() ^ sign;
        count = count.wrapping_add(difference.cast_unsigned());
        if count > 0 {
            histogram
                .record_n(bucket, count)
                .map_err(|error| error.to_string())?;
        }
    }
    let mut encoded = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&histogram, &mut encoded)
        .map_err(|error| error.to_string())?;
    Ok(STANDARD.encode(encoded))
}

#[cfg(test)]
mod tests {
    use quietwire_base::fuzz::{check, planted};
    use quietwire_tester::LatencySummary;

    use super::super::tests::trial;
    use super::*;

    /// Parses any octets as the histograms of a trial, and as the counts of one. What is accepted is the same after it was packed.
    fn fuzz_histograms(octets: &[u8]) -> bool {
        let mut result = TrialResult::of_counts(&trial(), 1.0, 1, 1, LatencySummary::default());
        let is_whole = put_back(octets, &mut result).is_ok();
        if is_whole {
            let mut again = result.clone();
            let packed = take_out(&mut again).unwrap();
            put_back(&packed, &mut again).unwrap();
            assert_eq!(encoded(&mut again), encoded(&mut result));
        }
        let Ok(text) = text_of(octets) else {
            return is_whole;
        };
        let counts = read_histogram(&text).unwrap();
        if let Some(packed) = counts_of(&text) {
            assert_eq!(text_of(&packed), Ok(text));
        }
        planted("study-histograms", || {
            counts.len() > 1_000_000 && counts.sigfig() == 2
        });
        true
    }

    #[test]
    fn buckets_are_those_that_the_histogram_names_one_by_one() {
        for (low, high, digits) in [
            (1, 2, 3),
            (1, (1 << 40) - 1, 3),
            (1000, 9000, 2),
            (1, u64::MAX, 1),
        ] {
            let histogram = Histogram::<u64>::new_with_bounds(low, high, digits).unwrap();
            for first in [0, 1, 2047, 2048, 300_001, (1 << 40) + 1, u64::MAX] {
                let mut buckets = Buckets::starting_at(&histogram, first);
                let mut value = histogram.lowest_equivalent(first);
                for _ in 0..5_000 {
                    assert_eq!(
                        buckets.next(&histogram),
                        value,
                        "{low}, {high}, {digits}: {first}"
                    );
                    value = histogram.next_non_equivalent(value);
                }
            }
        }
    }

    #[test]
    fn fuzz_stored_histograms() {
        check(
            env!("CARGO_MANIFEST_DIR"),
            "study-histograms",
            fuzz_histograms,
        );
    }
}
