// SPDX-License-Identifier: Apache-2.0
//! Varying frame sizes: IMIX presets, lists with shares, and the genome notation of RFC 6985.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

/// Largest number of frames in one sequence, including repeats. A longer one shows no more about a device.
pub const SEQUENCE_MAX: usize = 65_536;

/// Smallest and largest frame, octets with FCS.
pub(crate) const SIZES: std::ops::RangeInclusive<u16> = 64..=9000;

/// Sizes of RFC 6985, section 4, by their letters. 16000 octets (`j`) exceed the largest frame of the ports here and are refused.
const LETTERS: [(char, u16); 10] = [
    ('a', 64),
    ('b', 128),
    ('c', 256),
    ('d', 512),
    ('e', 1024),
    ('f', 1280),
    ('g', 1518),
    ('h', 2112),
    ('i', 9000),
    ('j', 16_000),
];

/// Named mixtures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Imix {
    /// 64, 594 and 1518 octets in the ratio 7:4:1: IP packets of 40, 576 and 1500 octets.
    Imix,
    /// 64, 570 and 1518 octets in the ratio 7:4:1, like `IMIX_v4_1` of FD.io.
    #[serde(rename = "imix-570")]
    Imix570,
    /// 84, 594 and 1518 octets in the ratio 7:4:1: `Imix` with the smallest IPv6 frame that holds the signature.
    #[serde(rename = "imix-ipv6")]
    ImixIpv6,
}

impl Imix {
    /// Returns the sizes with their shares.
    #[must_use]
    pub fn shares(self) -> [(u16, u32); 3] {
        match self {
            Self::Imix => [(64, 7), (594, 4), (1518, 1)],
            Self::Imix570 => [(64, 7), (570, 4), (1518, 1)],
            Self::ImixIpv6 => [(84, 7), (594, 4), (1518, 1)],
        }
    }

    fn of(name: &str) -> Option<Self> {
        match name {
            "imix" => Some(Self::Imix),
            "imix-570" => Some(Self::Imix570),
            "imix-ipv6" => Some(Self::ImixIpv6),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Imix => "imix",
            Self::Imix570 => "imix-570",
            Self::ImixIpv6 => "imix-ipv6",
        }
    }
}

/// Sequence of sizes in the notation of RFC 6985. Lower-case letters are the standard sizes (section 4), `z` is the MTU, upper-case
/// letters are custom sizes (section 5), and a number before letters repeats them (section 6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genome {
    text: String,
    mtu: Option<u16>,
    custom: BTreeMap<char, u16>,
    sizes: Vec<u16>,
}

impl Genome {
    /// Parses a genome, such as `aaafg`, `IMIX - aaafg`, `20abcd,5ggga` or, with `custom`, `AAAGG`. `mtu` is the size of `z`.
    ///
    /// # Errors
    /// One sentence: the invalid letter or number, its place, and the valid values.
    pub fn new(text: &str, mtu: Option<u16>, custom: BTreeMap<char, u16>) -> Result<Self, String> {
        if let Some((letter, size)) = custom
            .iter()
            .find(|(letter, size)| !letter.is_ascii_uppercase() || !SIZES.contains(size))
        {
            return Err(format!(
                "'{letter}' = {size}: custom sizes must have a letter from A to Z and be 64 to 9000 octets"
            ));
        }
        let mut genome = Self {
            text: text.to_owned(),
            mtu,
            custom,
            sizes: Vec::new(),
        };
        genome.sizes = genome.read()?;
        Ok(genome)
    }

    /// Returns the sizes in their order.
    #[must_use]
    pub fn sizes(&self) -> &[u16] {
        &self.sizes
    }

    fn read(&self) -> Result<Vec<u16>, String> {
        let sequence = without_name(&self.text);
        let mut sizes = Vec::new();
        for run in runs(sequence) {
            let letters = run.trim_start_matches(|c: char| c.is_ascii_digit());
            let count = run.strip_suffix(letters).unwrap_or_default();
            let repeats = self.repeats(count, letters)?;
            let mut once = Vec::with_capacity(letters.len().min(SEQUENCE_MAX));
            for letter in letters.chars() {
                once.push(self.size(letter)?);
            }
            let space = SEQUENCE_MAX.saturating_sub(sizes.len());
            if once.len().saturating_mul(repeats) > space {
                return Err(format!(
                    "the genome has more than {SEQUENCE_MAX} frames (use fewer repeats)"
                ));
            }
            for _ in 0..repeats {
                sizes.extend_from_slice(&once);
            }
        }
        if sizes.is_empty() {
            return Err(
                "the genome is empty (use letters such as aaafg: RFC 6985, section 4)".to_owned(),
            );
        }
        Ok(sizes)
    }

    fn repeats(&self, count: &str, letters: &str) -> Result<usize, String> {
        if letters.is_empty() {
            return Err(format!(
                "the genome '{}': no letters follow the number {count} (use a form such as 20abcd)",
                self.shown()
            ));
        }
        match count.parse::<usize>() {
            _ if count.is_empty() => Ok(1),
            Ok(repeats @ 1..=SEQUENCE_MAX) => Ok(repeats),
            _ => Err(format!(
                "the genome '{}': cannot repeat a part {count} times (the range is 1 to {SEQUENCE_MAX})",
                self.shown()
            )),
        }
    }

    fn size(&self, letter: char) -> Result<u16, String> {
        let failed = |what: &str| format!("the genome '{}': {what}", self.shown());
        if letter == 'z' {
            return self.mtu.filter(|size| SIZES.contains(size)).ok_or_else(|| {
                failed("z requires the MTU (add z = 1518, or another size from 64 to 9000)")
            });
        }
        if letter.is_ascii_uppercase() {
            return self.custom.get(&letter).copied().ok_or_else(|| {
                failed(&format!(
                    "'{letter}' has no size (add custom = {{ {letter} = 100 }})"
                ))
            });
        }
        match LETTERS.iter().find(|(known, _)| *known == letter) {
            Some((_, size)) if SIZES.contains(size) => Ok(*size),
            Some((_, size)) => Err(failed(&format!(
                "'{letter}' is {size} octets (frames have at most 9000)"
            ))),
            None => Err(failed(&format!(
                "'{letter}' is not a letter of RFC 6985 (a to i are 64, 128, 256, 512, 1024, 1280, 1518, 2112 and 9000 octets, z is the MTU)"
            ))),
        }
    }

    /// Returns the text, or the start of a long one.
    fn shown(&self) -> String {
        const SHOWN: usize = 40;
        match self.text.char_indices().nth(SHOWN) {
            Some((at, _)) => format!("{}...", self.text.get(..at).unwrap_or_default()),
            None => self.text.clone(),
        }
    }
}

/// Returns the sequence after `IMIX - ` or `CUSTOM IMIX - `.
fn without_name(text: &str) -> &str {
    let text = text.trim();
    let named = text
        .strip_prefix("CUSTOM ")
        .unwrap_or(text)
        .trim_start()
        .strip_prefix("IMIX");
    named
        .and_then(|rest| rest.trim_start().strip_prefix(['-', '\u{2013}']))
        .map_or(text, str::trim)
}

/// Splits a sequence into repeatable parts: at commas, semicolons and blanks, and before each number.
fn runs(sequence: &str) -> impl Iterator<Item = &str> {
    let parts = sequence.split(|c: char| c == ',' || c == ';' || c.is_whitespace());
    parts.flat_map(|part| {
        let mut starts = vec![0];
        let mut before = '0';
        for (at, letter) in part.char_indices() {
            if at > 0 && letter.is_ascii_digit() && !before.is_ascii_digit() {
                starts.push(at);
            }
            before = letter;
        }
        starts.push(part.len());
        let ends = starts.clone().into_iter().skip(1);
        let cuts: Vec<_> = starts.into_iter().zip(ends).collect();
        cuts.into_iter()
            .filter_map(move |(from, to)| part.get(from..to))
            .filter(|run| !run.is_empty())
    })
}

/// Frame sizes of a traffic description, octets with FCS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Every frame has this size.
    Fixed(u16),
    /// A named mixture.
    Imix(Imix),
    /// Sizes with their shares.
    Shares(Vec<(u16, u32)>),
    /// A genome (RFC 6985).
    Genome(Genome),
}

impl Sizes {
    /// Returns the sizes in transmit order. Mixtures are interleaved, not sent in runs; a genome is sent as written.
    #[must_use]
    pub fn sequence(&self) -> Vec<u16> {
        match self {
            Self::Fixed(size) => vec![*size],
            Self::Imix(imix) => spread(&imix.shares()),
            Self::Shares(shares) => spread(shares),
            Self::Genome(genome) => genome.sizes.clone(),
        }
    }

    fn of_shares(shares: Vec<(u16, u32)>) -> Result<Self, String> {
        if let Some((size, _)) = shares.iter().find(|(size, _)| !SIZES.contains(size)) {
            return Err(format!(
                "frame size {size} is out of range (64 to 9000 octets with FCS)"
            ));
        }
        let frames: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
        if frames == 0
            || frames > SEQUENCE_MAX as u64
            || shares.iter().any(|(_, share)| *share == 0)
        {
            return Err(format!(
                "each share must be at least 1, and their sum at most {SEQUENCE_MAX}"
            ));
        }
        Ok(Self::Shares(shares))
    }
}

/// Returns each size as often as its share requires, interleaved evenly.
fn spread(shares: &[(u16, u32)]) -> Vec<u16> {
    let frames: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
    let mut sequence = Vec::new();
    let mut given = vec![0u64; shares.len()];
    for at in 1..=frames {
        // The size furthest behind its share comes next.
        let behind =
            shares
                .iter()
                .zip(&given)
                .enumerate()
                .max_by_key(|(index, ((_, share), given))| {
                    let due = at.saturating_mul(u64::from(*share)).cast_signed();
                    let sent = given.saturating_mul(frames).cast_signed();
                    (due.saturating_sub(sent), std::cmp::Reverse(*index))
                });
        if let Some((index, ((size, _), _))) = behind {
            sequence.push(*size);
            if let Some(given) = given.get_mut(index) {
                *given = given.saturating_add(1);
            }
        }
    }
    sequence
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GenomeTable {
    genome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    z: Option<u16>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    custom: BTreeMap<char, u16>,
}

impl Serialize for Sizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(size) => serializer.serialize_u16(*size),
            Self::Imix(imix) => serializer.serialize_str(imix.name()),
            Self::Shares(shares) => shares.serialize(serializer),
            Self::Genome(genome) => GenomeTable {
                genome: genome.text.clone(),
                z: genome.mtu,
                custom: genome.custom.clone(),
            }
            .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizesVisitor)
    }
}

struct SizesVisitor;

impl<'de> Visitor<'de> for SizesVisitor {
    type Value = Sizes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a frame size of 64 to 9000 octets with FCS, \"imix\", \"imix-570\", \"imix-ipv6\", sizes with shares such as \
             [[64, 7], [594, 4], [1518, 1]], or { genome = \"aaafg\" }",
        )
    }

    fn visit_i64<E: de::Error>(self, size: i64) -> Result<Sizes, E> {
        u16::try_from(size)
            .ok()
            .filter(|size| SIZES.contains(size))
            .map(Sizes::Fixed)
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Signed(size), &self))
    }

    fn visit_u64<E: de::Error>(self, size: u64) -> Result<Sizes, E> {
        self.visit_i64(i64::try_from(size).unwrap_or(i64::MAX))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Sizes, E> {
        Imix::of(text)
            .map(Sizes::Imix)
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Sizes, A::Error> {
        let mut shares = Vec::new();
        while let Some(share) = seq.next_element()? {
            if shares.len() == SEQUENCE_MAX {
                return Err(de::Error::custom("too many sizes"));
            }
            shares.push(share);
        }
        Sizes::of_shares(shares).map_err(de::Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Sizes, A::Error> {
        let table = GenomeTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Genome::new(&table.genome, table.z, table.custom)
            .map(Sizes::Genome)
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(text: &str) -> Result<Vec<u16>, String> {
        let custom = BTreeMap::from([('A', 100), ('G', 1020)]);
        Genome::new(text, Some(1500), custom).map(|genome| genome.sizes)
    }

    #[test]
    fn genomes_of_the_rfc() {
        // Sections 4, 5 and 6.1.
        assert_eq!(sizes("IMIX - aaafg").unwrap(), [64, 64, 64, 1280, 1518]);
        assert_eq!(
            sizes("CUSTOM IMIX - AAAGG").unwrap(),
            [100, 100, 100, 1020, 1020]
        );
        let long = sizes("20abcd, 5ggga; 10dcba").unwrap();
        assert_eq!(long.len(), 20 * 4 + 5 * 4 + 10 * 4);
        assert_eq!(long[..5], [64, 128, 256, 512, 64]);
        assert_eq!(long[80..84], [1518, 1518, 1518, 64]);
        assert_eq!(
            sizes("2a3bz").unwrap(),
            [64, 64, 128, 1500, 128, 1500, 128, 1500]
        );
        // The table of section 4. The last letter before z exceeds the largest frame here.
        assert_eq!(
            sizes("IMIX - abcdefghiz").unwrap(),
            [64, 128, 256, 512, 1024, 1280, 1518, 2112, 9000, 1500]
        );
        assert!(sizes("j").unwrap_err().contains("'j' is 16000 octets"));
    }

    #[test]
    fn invalid_genomes_are_refused_with_the_cure() {
        for (text, reported) in [
            ("", "empty"),
            ("IMIX - ", "empty"),
            ("aak", "'k' is not a letter"),
            ("a4", "no letters follow the number 4"),
            ("0a", "0 times"),
            ("99999999999999999999a", "times"),
            ("j", "16000"),
            ("B", "has no size"),
            ("40000ab", "more than 65536"),
            ("a\u{e9}", "is not a letter"),
            ("IMIX-\u{2013}a", "is not a letter"),
        ] {
            let error = sizes(text).unwrap_err();
            assert!(error.contains(reported), "{text}: {error}");
        }
        assert!(
            Genome::new("z", None, BTreeMap::new())
                .unwrap_err()
                .contains("MTU")
        );
        let small = BTreeMap::from([('A', 63)]);
        assert!(
            Genome::new("A", None, small)
                .unwrap_err()
                .contains("64 to 9000")
        );
    }

    #[test]
    fn mixtures_have_their_shares_and_are_spread() {
        for imix in [Imix::Imix, Imix::Imix570, Imix::ImixIpv6] {
            let sequence = Sizes::Imix(imix).sequence();
            for (size, share) in imix.shares() {
                let found = sequence.iter().filter(|found| **found == size).count();
                assert_eq!(found, share as usize);
            }
            assert_eq!(Imix::of(imix.name()), Some(imix));
            let longest = sequence.chunk_by(|a, b| a == b).map(<[_]>::len).max();
            assert!(longest <= Some(2), "{sequence:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-zA-Z0-9,; -]{0,40}|\\PC{0,30}") {
            if let Ok(sizes) = sizes(&text) {
                prop_assert!(!sizes.is_empty() && sizes.len() <= SEQUENCE_MAX);
                prop_assert!(sizes.iter().all(|size| SIZES.contains(size)));
            }
        }

        #[test]
        fn a_genome_is_the_sizes_of_its_letters(letters in "[a-i]{1,50}", repeats in 1usize..20) {
            let of = |letter| LETTERS.iter().find(|(known, _)| *known == letter).unwrap().1;
            let once: Vec<u16> = letters.chars().map(of).collect();
            prop_assert_eq!(sizes(&format!("{repeats}{letters}")).unwrap(), once.repeat(repeats));
        }
    }
}
