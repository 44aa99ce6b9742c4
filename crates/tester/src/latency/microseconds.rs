// SPDX-License-Identifier: Apache-2.0
//! Histograms in microseconds, for programs that count latency in them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};

use super::stored::read_histogram;

const NS_PER_US: u64 = 1000;
/// Largest value of a histogram, microseconds: one hour.
const VALUE_MAX_US: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// Returns a histogram of nanoseconds (`histogram_v2_base64`) as one of whole microseconds, rounded, in the same format.
///
/// # Errors
/// A sentence: the text is no histogram of this format.
pub fn histogram_in_us(text: &str) -> Result<String, String> {
    let nanoseconds = read_histogram(text)?;
    let of_library = |error: &dyn std::fmt::Display| error.to_string();
    let mut microseconds = Histogram::<u64>::new_with_bounds(1, VALUE_MAX_US, DIGITS)
        .map_err(|error| of_library(&error))?;
    for step in nanoseconds.iter_recorded() {
        let middle = nanoseconds.median_equivalent(step.value_iterated_to());
        let value = middle.saturating_add(NS_PER_US / 2) / NS_PER_US;
        microseconds.saturating_record_n(value, step.count_at_value());
    }
    let mut octets = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&microseconds, &mut octets)
        .map_err(|error| of_library(&error))?;
    Ok(STANDARD.encode(octets))
}

#[cfg(test)]
mod tests {
    use super::super::recorder::Recorder;
    use super::*;

    #[test]
    fn counts_stay_and_values_are_rounded() {
        let mut recorder = Recorder::default();
        for (ns, count) in [(400, 5), (1_400, 3), (1_600, 2), (2_000_000, 1)] {
            recorder.record(ns, count);
        }
        let text = recorder.summary().unwrap().histogram_v2_base64;
        let read = read_histogram(&histogram_in_us(&text).unwrap()).unwrap();
        assert_eq!(read.len(), 11);
        let counts = [0, 1, 2].map(|us| read.count_at(us));
        assert_eq!(counts, [5, 3, 2]);
        assert!(read.max().abs_diff(2000) <= 2, "{}", read.max());
        assert!(histogram_in_us("AAAA").is_err());
    }
}
