// SPDX-License-Identifier: Apache-2.0
//! Writing of histograms, from the non-empty buckets alone. The library's writer visits all 31,744 buckets several times, and most of them
//! are empty.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::recorder::{BUCKETS, VALUE_MAX};
use super::stored::{COMPRESSED, COUNT_MAX, HEADER, PLAIN, own_header};

/// Encodes the non-empty buckets of a recorder, index and count of each in ascending order, in the format of `histogram_v2_base64`: the
/// text that the library writes for a histogram of three digits for values from 1 to [`VALUE_MAX`]. Empty without buckets.
///
/// # Errors
/// A sentence: a bucket is above [`VALUE_MAX`], or a count does not fit the format.
pub(super) fn encoded(buckets: impl IntoIterator<Item = (usize, u64)>) -> Result<String, String> {
    let mut counts = Vec::new();
    let mut next = 0;
    for (index, count) in buckets {
        if index >= BUCKETS {
            return Err(format!("it has values of more than {VALUE_MAX} ns"));
        }
        if i64::try_from(count).is_err() {
            return Err(format!("a count is too large: {count}"));
        }
        // ZigZag: even numbers are counts, odd ones lengths of rows of empty buckets. A single empty bucket is a count of zero.
        match index.saturating_sub(next) as u64 {
            0 => {}
            1 => put(0, &mut counts),
            row => put(row.saturating_mul(2).saturating_sub(1), &mut counts),
        }
        put(count << 1, &mut counts);
        next = index.saturating_add(1);
    }
    if counts.is_empty() {
        return Ok(String::new());
    }
    let mut plain = Vec::with_capacity(HEADER.saturating_add(counts.len()));
    plain.extend(PLAIN.to_be_bytes());
    plain.extend(length(&counts)?);
    plain.extend(own_header(VALUE_MAX));
    plain.extend(counts);
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(&plain);
    let packed = written.and_then(|()| encoder.finish());
    let packed = packed.map_err(|error| error.to_string())?;
    let mut octets = Vec::with_capacity(packed.len().saturating_add(8));
    octets.extend(COMPRESSED.to_be_bytes());
    octets.extend(length(&packed)?);
    octets.extend(packed);
    Ok(STANDARD.encode(octets))
}

fn length(octets: &[u8]) -> Result<[u8; 4], String> {
    let length = u32::try_from(octets.len()).map_err(|error| error.to_string())?;
    Ok(length.to_be_bytes())
}

/// Appends a number in up to nine octets: seven bits in each, and all eight of the ninth.
fn put(number: u64, octets: &mut Vec<u8>) {
    let mut rest = number;
    for _ in 1..COUNT_MAX {
        if rest < 0x80 {
            break;
        }
        octets.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    let [lowest, ..] = rest.to_le_bytes();
    octets.push(lowest);
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
    use proptest::prelude::*;

    use super::super::recorder::Recorder;
    use super::super::stored::StoredCounts;
    use super::*;

    /// Returns the text that the library writes.
    fn of_library(values: &[(u64, u64)]) -> String {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, VALUE_MAX, 3).unwrap();
        for (value, count) in values {
            histogram.record_n(*value, *count).unwrap();
        }
        let mut octets = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&histogram, &mut octets)
            .unwrap();
        STANDARD.encode(octets)
    }

    /// Checks that the text is that of the library, and that it is read without the library.
    fn assert_written(values: &[(u64, u64)]) {
        let mut recorder = Recorder::default();
        for (value, count) in values {
            recorder.record(*value, *count);
        }
        let text = encoded(recorder.occupied()).unwrap();
        assert_eq!(text, of_library(values), "{values:?}");
        let buckets: Vec<(usize, u64)> = recorder.occupied().collect();
        let mut stored = StoredCounts::default();
        let read = stored.read(&text, VALUE_MAX, BUCKETS);
        assert_eq!(read, Some(buckets.as_slice()), "{values:?}");
    }

    proptest! {
        /// Values of all magnitudes: small ones are close together, with single empty buckets between them.
        #[test]
        fn the_text_is_that_of_the_library(parts in prop::collection::vec((24u32..64, any::<u64>(), 1u64..1 << 50), 1..300)) {
            let values: Vec<(u64, u64)> = parts
                .into_iter()
                .map(|(shift, value, count)| (value >> shift, count))
                .collect();
            assert_written(&values);
        }
    }

    #[test]
    fn rows_of_empty_buckets_of_any_length_are_those_of_the_library() {
        let largest = i64::MAX.cast_unsigned();
        for values in [
            &[(0, 1)][..],
            &[(1, 1)],
            &[(2, 1)],
            &[(0, 1), (1, 2), (2, 3)],
            &[(1, 63), (3, 64), (6, largest)],
            &[(0, 1), (VALUE_MAX, 1 << 55)],
        ] {
            assert_written(values);
        }
    }

    #[test]
    fn what_does_not_fit_the_format_is_an_error() {
        assert_eq!(encoded([]), Ok(String::new()));
        let error = encoded([(0, 1 << 63)]).unwrap_err();
        assert!(error.contains("too large"), "{error}");
        let error = encoded([(BUCKETS, 1)]).unwrap_err();
        assert!(error.contains("of more than"), "{error}");
    }
}
