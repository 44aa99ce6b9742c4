// SPDX-License-Identifier: Apache-2.0
//! Reading of stored histograms, which another program may have damaged or made to harm.
//!
//! The library's reader trusts a header: it allocates the length and the buckets that the header claims, gigabytes for a text of a few
//! octets, and inflates without a limit. Therefore this module inflates by itself, and calls the library only with a whole histogram of
//! few digits, as this program writes them.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

/// Largest number of significant digits of a stored histogram. With three, no histogram has more than 56,320 buckets, 450 KiB.
pub const HISTOGRAM_DIGITS_MAX: u8 = 3;

/// Cookies of HdrHistogram's formats V2 and V2 compressed ("HdrHistogram", EncodableHistogram.java and AbstractHistogram.java).
pub(super) const PLAIN: u32 = 0x1c84_9313;
pub(super) const COMPRESSED: u32 = 0x1c84_9314;
/// Octets before the counts: cookie, length, offset, digits, lowest and highest value, ratio.
pub(super) const HEADER: usize = 40;
/// Largest size of a plain histogram, octets: a count has at most nine.
const PLAIN_MAX: usize = HEADER + 56_320 * COUNT_MAX;
/// Largest size of a count, octets (ZigZag LEB128 of up to nine octets).
pub(super) const COUNT_MAX: usize = 9;
/// Place of the bits of the last of these octets.
const LAST_SHIFT: u32 = 56;
const _: () = assert!(LAST_SHIFT as usize == 7 * (COUNT_MAX - 1));
/// Largest size of a compressed histogram, octets: deflate makes no text longer than by a hundredth.
const PACKED_MAX: usize = PLAIN_MAX + PLAIN_MAX / 100;
/// Largest size of the text of a histogram, characters.
const TEXT_MAX: usize = PACKED_MAX.div_ceil(3) * 4;

/// Reads a histogram in the format of `histogram_v2_base64`: HdrHistogram V2, plain or compressed, in base64. Uses at most some 2 MiB,
/// whatever the text is.
///
/// # Errors
/// A sentence: the text is no histogram, is longer than its header says or shorter, or has more than [`HISTOGRAM_DIGITS_MAX`] digits.
pub fn read_histogram(text: &str) -> Result<Histogram<u64>, String> {
    if text.len() > TEXT_MAX {
        return Err(format!(
            "{} characters are too many (maximum: {TEXT_MAX})",
            text.len()
        ));
    }
    let octets = STANDARD.decode(text).map_err(|error| error.to_string())?;
    of_octets(&octets)
}

/// Reads a histogram of octets.
fn of_octets(octets: &[u8]) -> Result<Histogram<u64>, String> {
    let Some(packed) = packed_of(octets)? else {
        return of_plain(octets);
    };
    let mut plain = Vec::new();
    let limit = (PLAIN_MAX as u64).saturating_add(1);
    ZlibDecoder::new(packed)
        .take(limit)
        .read_to_end(&mut plain)
        .map_err(|error| error.to_string())?;
    if plain.len() > PLAIN_MAX {
        return Err(format!("it inflates to more than {PLAIN_MAX} octets"));
    }
    of_plain(&plain)
}

/// Returns what follows the header of a compressed histogram; `None` if the octets are not compressed.
fn packed_of(octets: &[u8]) -> Result<Option<&[u8]>, String> {
    if number(octets, 0)? != COMPRESSED {
        return Ok(None);
    }
    let packed = octets.get(8..).unwrap_or_default();
    let length = number(octets, 4)?;
    if usize::try_from(length).ok() != Some(packed.len()) {
        return Err(format!(
            "{} octets follow its header, which says {length}",
            packed.len()
        ));
    }
    Ok(Some(packed))
}

/// Returns the counts after the header of a plain histogram.
fn counts_of(plain: &[u8]) -> Result<&[u8], String> {
    if number(plain, 0)? != PLAIN {
        return Err("it does not begin like a histogram".to_owned());
    }
    let counts = plain.get(HEADER..).ok_or(CUT)?;
    let length = number(plain, 4)?;
    if usize::try_from(length).ok() != Some(counts.len()) || plain.len() > PLAIN_MAX {
        return Err(format!(
            "{} octets follow its header, which says {length} (maximum: {})",
            counts.len(),
            PLAIN_MAX - HEADER
        ));
    }
    Ok(counts)
}

fn of_plain(plain: &[u8]) -> Result<Histogram<u64>, String> {
    let counts = counts_of(plain)?;
    let digits = number(plain, 12)?;
    if digits > u32::from(HISTOGRAM_DIGITS_MAX) {
        return Err(format!(
            "it has {digits} significant digits (maximum: {HISTOGRAM_DIGITS_MAX})"
        ));
    }
    // The library negates this number of empty buckets, which has no positive counterpart.
    if runs(counts).any(|run| run == u64::MAX) {
        return Err("it has too many empty buckets".to_owned());
    }
    let mut from = plain;
    let read = Deserializer::new().deserialize(&mut from);
    read.map_err(|error| error.to_string())
}

const CUT: &str = "it is truncated";

/// Returns the big-endian number at this offset.
fn number(octets: &[u8], at: usize) -> Result<u32, String> {
    let octets = octets.get(at..).and_then(|rest| rest.first_chunk());
    Ok(u32::from_be_bytes(*octets.ok_or(CUT)?))
}

/// Returns the numbers of a sequence of counts, each in up to nine octets: seven bits of each, and all eight of the ninth.
fn runs(octets: &[u8]) -> impl Iterator<Item = u64> {
    let mut octets = octets.iter();
    std::iter::from_fn(move || run(&mut octets))
}

/// Returns the next number of a sequence of counts; `None` at its end, and if the number is truncated.
fn run(octets: &mut std::slice::Iter<'_, u8>) -> Option<u64> {
    let mut value = 0;
    for (shift, octet) in (0..).step_by(7).zip(octets.take(COUNT_MAX)) {
        let is_last = shift == LAST_SHIFT;
        let bits = if is_last { *octet } else { octet & 0x7f };
        value |= u64::from(bits) << shift;
        if is_last || octet & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Header of a plain histogram after its length, as this program writes it: offset 0, three digits, values from 1 to `high`, ratio 1.
pub(super) fn own_header(high: u64) -> [u8; HEADER - 8] {
    let mut header = [0; HEADER - 8];
    // Offset and digits have four octets each.
    let fields = [3, 1, high, 1f64.to_bits()];
    let octets = fields.into_iter().flat_map(u64::to_be_bytes);
    for (to, from) in header.iter_mut().zip(octets) {
        *to = from;
    }
    header
}

/// Reads stored histograms one after the other into the same memory.
pub(super) struct StoredCounts {
    octets: Vec<u8>,
    plain: Vec<u8>,
    inflate: Decompress,
    counts: Vec<(usize, u64)>,
}

impl Default for StoredCounts {
    fn default() -> Self {
        Self {
            octets: Vec::new(),
            plain: Vec::with_capacity(PLAIN_MAX),
            inflate: Decompress::new(true),
            counts: Vec::new(),
        }
    }
}

impl StoredCounts {
    /// Returns the buckets with values of a compressed histogram of three digits for values from 1 to `high`, which has this number of
    /// buckets: index and count of each. `None` for any other text: [`read_histogram`] reads or refuses it.
    pub(super) fn read(
        &mut self,
        text: &str,
        high: u64,
        buckets: usize,
    ) -> Option<&[(usize, u64)]> {
        if text.len() > TEXT_MAX {
            return None;
        }
        self.octets.clear();
        STANDARD.decode_vec(text, &mut self.octets).ok()?;
        let packed = packed_of(&self.octets).ok()??;
        self.plain.clear();
        self.inflate.reset(true);
        let finish = FlushDecompress::Finish;
        let status = self.inflate.decompress_vec(packed, &mut self.plain, finish);
        let is_whole = self.inflate.total_in() == packed.len() as u64;
        if status.ok()? != Status::StreamEnd || !is_whole {
            return None;
        }
        let counts = counts_of(&self.plain).ok()?;
        if self.plain.get(8..HEADER)? != own_header(high) {
            return None;
        }
        self.counts.clear();
        let (mut at, mut samples) = (0usize, 0u64);
        let mut rest = counts.iter();
        while !rest.as_slice().is_empty() {
            let number = run(&mut rest)?;
            // ZigZag: even numbers are counts, odd ones lengths of rows of empty buckets.
            let (half, is_row) = (number >> 1, number & 1 == 1);
            let row = match (is_row, half) {
                (true, _) => usize::try_from(half).ok()?.checked_add(1)?,
                // A single empty bucket is written as a count of zero.
                (false, 0) => 1,
                (false, count) => {
                    samples = samples.checked_add(count)?;
                    self.counts.push((at, count));
                    1
                }
            };
            at = at.checked_add(row).filter(|at| *at <= buckets)?;
        }
        Some(&self.counts)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer, V2Serializer};
    use quietwire_base::fuzz::{check, planted};

    use super::*;

    /// Returns a plain histogram with this header.
    fn plain(length: u32, digits: u32, high: u64, counts: &[u8]) -> Vec<u8> {
        let mut octets = Vec::new();
        for word in [PLAIN, length, 0, digits] {
            octets.extend(word.to_be_bytes());
        }
        octets.extend(1u64.to_be_bytes());
        octets.extend(high.to_be_bytes());
        octets.extend(1f64.to_be_bytes());
        octets.extend(counts);
        octets
    }

    fn deflated(plain: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        let packed = encoder.finish().unwrap();
        let mut octets = COMPRESSED.to_be_bytes().to_vec();
        octets.extend(u32::try_from(packed.len()).unwrap().to_be_bytes());
        octets.extend(packed);
        octets
    }

    /// Returns the buckets that hold values: the library's comparison differs for the largest value.
    fn counts(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
        let recorded = histogram.iter_recorded();
        recorded
            .map(|step| {
                let low = histogram.lowest_equivalent(step.value_iterated_to());
                (low, step.count_at_value())
            })
            .collect()
    }

    #[test]
    fn counts_have_seven_bits_of_each_octet_and_eight_of_the_ninth() {
        let numbers = |octets: &[u8]| runs(octets).collect::<Vec<u64>>();
        assert_eq!(numbers(&[5, 0x85, 1, 0]), [5, 133, 0]);
        assert_eq!(numbers(&[0xff; 9]), [u64::MAX]);
        assert_eq!(numbers(&[0x80; 9]), [1 << 63]);
    }

    #[test]
    fn a_plain_histogram_that_is_too_long_is_refused() {
        let of_length = |octets: usize| {
            let mut plain = vec![0; octets];
            plain[..4].copy_from_slice(&PLAIN.to_be_bytes());
            plain[4..8].copy_from_slice(&((octets - HEADER) as u32).to_be_bytes());
            of_plain(&plain).err().unwrap_or_default()
        };
        let longest = format!("(maximum: {})", PLAIN_MAX - HEADER);
        let inflated = |octets: usize| {
            let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
            packed.write_all(&vec![0; octets]).unwrap();
            let packed = packed.finish().unwrap();
            let mut histogram = COMPRESSED.to_be_bytes().to_vec();
            histogram.extend((packed.len() as u32).to_be_bytes());
            histogram.extend(packed);
            of_octets(&histogram).err().unwrap_or_default()
        };
        assert!(!inflated(PLAIN_MAX).contains("inflates"));
        assert!(inflated(PLAIN_MAX + 1).contains("inflates"));
        assert!(!of_length(PLAIN_MAX).contains(&longest));
        for octets in [PLAIN_MAX + 1, PLAIN_MAX + 2] {
            let error = of_length(octets);
            assert!(error.contains(&longest), "{error}");
        }
    }

    #[test]
    fn histograms_of_the_library_are_read_in_both_formats() {
        for digits in 0..=HISTOGRAM_DIGITS_MAX {
            let mut histogram = Histogram::<u64>::new_with_bounds(1, u64::MAX, digits).unwrap();
            let mut value = 1u64;
            while let Some(next) = value.checked_mul(3) {
                histogram.record_n(value, value % 1000 + 1).unwrap();
                value = next;
            }
            histogram.record_n(u64::MAX, 1).unwrap();
            let mut packed = Vec::new();
            V2DeflateSerializer::new()
                .serialize(&histogram, &mut packed)
                .unwrap();
            let read = read_histogram(&STANDARD.encode(packed)).unwrap();
            assert_eq!(counts(&read), counts(&histogram));
            let mut octets = Vec::new();
            V2Serializer::new()
                .serialize(&histogram, &mut octets)
                .unwrap();
            assert_eq!(counts(&of_octets(&octets).unwrap()), counts(&histogram));
            assert!(histogram.distinct_values() <= 56_320);
        }
    }

    #[test]
    fn a_histogram_that_claims_much_is_refused_before_anything_is_allocated() {
        // 4 GiB of counts, plain and compressed.
        let long = plain(u32::MAX, 3, u64::MAX, &[2]);
        for octets in [long.clone(), deflated(&long)] {
            let error = of_octets(&octets).unwrap_err();
            assert!(error.contains("which says 4294967295"), "{error}");
        }
        // 49 MiB of buckets.
        let error = of_octets(&plain(1, 5, u64::MAX, &[2])).unwrap_err();
        assert!(error.contains("5 significant digits"), "{error}");
        // 64 MiB in 64 KiB.
        let bomb = deflated(&vec![0; 64 << 20]);
        assert!(bomb.len() < 1 << 17);
        let error = of_octets(&bomb).unwrap_err();
        assert!(error.contains("inflates to more than"), "{error}");
        let error = read_histogram(&"A".repeat(TEXT_MAX + 4)).unwrap_err();
        assert!(error.contains("characters are too many"), "{error}");
    }

    #[test]
    fn a_damaged_histogram_is_an_error() {
        let whole = deflated(&plain(2, 3, 1000, &[2, 4]));
        assert_eq!(of_octets(&whole).unwrap().len(), 3);
        for (octets, part) in [
            (&b""[..], "truncated"),
            (b"\x1c\x84\x93\x14", "truncated"),
            (b"\x1c\x84\x93\x13\0\0\0\0", "truncated"),
            (b"what is this", "does not begin like"),
            (&whole[..whole.len() - 1], "follow its header"),
            (&deflated(b"what is this"), "does not begin like"),
            (&plain(2, 3, 1000, &[2]), "follow its header"),
            (&plain(0, 3, 1000, &[2]), "follow its header"),
            (&plain(9, 3, 1000, &[0xff; 9]), "too many empty"),
            (&plain(1, 3, 1000, &[0x80]), "i/o"),
            (&plain(1, 3, 1, &[2]), "parameters"),
        ] {
            let error = of_octets(octets).unwrap_err();
            assert!(error.contains(part), "{octets:x?}: {error}");
        }
        assert!(read_histogram("!").is_err());
    }

    /// Reads any octets as a histogram, and deflated ones. What is accepted is the same after it was written.
    fn fuzz_stored(octets: &[u8]) -> bool {
        let packed = of_octets(&deflated(octets));
        let Ok(histogram) = of_octets(octets) else {
            // A compressed histogram is not compressed twice.
            assert!(packed.is_err());
            return false;
        };
        if octets.starts_with(&PLAIN.to_be_bytes()) {
            assert_eq!(packed.as_ref(), Ok(&histogram));
        }
        planted("tester-stored", || {
            histogram.sigfig() == 2 && histogram.len() > 1000 && histogram.max() > 1 << 40
        });
        let mut written = Vec::new();
        // Counts that do not fit the format are of no recorder.
        if V2Serializer::new()
            .serialize(&histogram, &mut written)
            .is_ok()
        {
            assert_eq!(of_octets(&written).as_ref(), Ok(&histogram));
        }
        !histogram.is_empty()
    }

    #[test]
    fn fuzz_stored_histograms() {
        check(env!("CARGO_MANIFEST_DIR"), "tester-stored", fuzz_stored);
    }
}
