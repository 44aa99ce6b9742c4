// SPDX-License-Identifier: Apache-2.0
//! Mutations of inputs: of octets, and of words and lines if the input is text.

use std::collections::BTreeSet;

use crate::random::Random;

/// Octets of the longest input, unless one of the corpus is longer.
const LENGTH_MAX: usize = 4096;
/// Accepted mutants that are kept.
const KEPT_MAX: usize = 128;
/// Words and lines of the dictionary.
const DICTIONARY_MAX: usize = 1024;
const EDGES: [u64; 8] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, u64::MAX];

fn choose<'a>(random: &mut Random, list: &'a [Vec<u8>]) -> &'a [u8] {
    let at = random.index(list.len());
    list.get(at).map_or(&[][..], Vec::as_slice)
}

/// Makes inputs from a corpus and from the mutants that a target accepted.
pub(super) struct Mutator {
    random: Random,
    corpus: Vec<Vec<u8>>,
    kept: Vec<Vec<u8>>,
    /// Words and quoted texts of the corpus.
    words: Vec<Vec<u8>>,
    lines: Vec<Vec<u8>>,
    is_text: bool,
    length_max: usize,
}

impl Mutator {
    pub(super) fn new(random: Random, mut corpus: Vec<Vec<u8>>) -> Self {
        let is_text = !corpus.is_empty()
            && corpus
                .iter()
                .all(|input| !input.contains(&0) && std::str::from_utf8(input).is_ok());
        let longest = corpus.iter().map(Vec::len).max().unwrap_or(0);
        let (mut words, mut lines) = (BTreeSet::new(), BTreeSet::new());
        for input in corpus.iter().filter(|_| is_text) {
            words.extend(words_of(input).map(|(from, to)| copy(input, from, to)));
            lines.extend(
                input
                    .split_inclusive(|octet| *octet == b'\n')
                    .map(<[u8]>::to_vec),
            );
        }
        corpus.push(Vec::new());
        Self {
            random,
            corpus,
            kept: Vec::new(),
            words: words.into_iter().take(DICTIONARY_MAX).collect(),
            lines: lines.into_iter().take(DICTIONARY_MAX).collect(),
            is_text,
            length_max: LENGTH_MAX.max(longest + longest / 2),
        }
    }

    /// Keeps an accepted mutant, in place of another if there are many.
    pub(super) fn keep(&mut self, input: Vec<u8>) {
        if self.kept.len() < KEPT_MAX {
            return self.kept.push(input);
        }
        let at = self.random.index(KEPT_MAX);
        if let Some(place) = self.kept.get_mut(at) {
            *place = input;
        }
    }

    /// Returns an input with a few changes.
    pub(super) fn mutant(&mut self) -> Vec<u8> {
        let from = if self.random.index(2) == 0 && !self.kept.is_empty() {
            &self.kept
        } else {
            &self.corpus
        };
        let mut input = choose(&mut self.random, from).to_vec();
        // Most often one or two changes: more of them rarely leave a text that a parser accepts.
        let changes = match self.random.index(4) {
            0 => self.random.index(8),
            few => few - 1,
        };
        for _ in 0..=changes {
            if self.is_text && self.random.index(4) != 0 {
                self.change_text(&mut input);
            } else {
                self.change_octets(&mut input);
            }
        }
        input.truncate(self.length_max);
        input
    }

    fn change_octets(&mut self, input: &mut Vec<u8>) {
        let random = &mut self.random;
        let at = random.index(input.len());
        match random.index(8) {
            0 => {
                if let Some(octet) = input.get_mut(at) {
                    *octet ^= 1 << random.index(8);
                }
            }
            1 => {
                if let Some(octet) = input.get_mut(at) {
                    *octet = random.word() as u8;
                }
            }
            2 => {
                let count = 1 << random.index(4);
                let edge = EDGES.get(random.index(EDGES.len())).copied().unwrap_or(0);
                let octets = edge.to_le_bytes();
                for (place, octet) in input.iter_mut().skip(at).zip(octets).take(count) {
                    *place = octet;
                }
            }
            3 => {
                let more: Vec<u8> = (0..random.index(64)).map(|_| random.word() as u8).collect();
                input.splice(at..at, more);
            }
            4 => {
                let end = (at + random.index(32)).min(input.len());
                input.drain(at.min(end)..end);
            }
            5 => {
                let other = choose(random, &self.corpus);
                let skip = random.index(other.len());
                input.truncate(at);
                input.extend(other.iter().skip(skip));
            }
            6 => {
                // A number that is a little larger or smaller.
                if let Some(octet) = input.get_mut(at) {
                    *octet = octet.wrapping_add(random.index(9) as u8).wrapping_sub(4);
                }
            }
            _ => {
                // Some octets once more, elsewhere.
                let end = (at + random.index(128)).min(input.len());
                let again = copy(input, at, end);
                let to = random.index(input.len() + 1);
                input.splice(to..to, again);
            }
        }
    }

    fn change_text(&mut self, input: &mut Vec<u8>) {
        let random = &mut self.random;
        match random.index(8) {
            0..=2 => {
                // Another word in place of one, mostly of the same kind.
                let Some((from, to)) = word_in(random, input) else {
                    return;
                };
                let old = copy(input, from, to);
                let mut new = choose(random, &self.words);
                for _ in 0..8 {
                    if kind_of(new) == kind_of(&old) {
                        break;
                    }
                    new = choose(random, &self.words);
                }
                input.splice(from..to, new.iter().copied());
            }
            3 => {
                // Another number in place of one.
                for _ in 0..8 {
                    let Some((from, to)) = word_in(random, input) else {
                        return;
                    };
                    let old = copy(input, from, to);
                    if old.first().is_some_and(u8::is_ascii_digit) {
                        input.splice(from..to, other_number(random, &old));
                        return;
                    }
                }
            }
            4 => {
                let line = choose(random, &self.lines);
                let (at, _) = line_in(random, input);
                input.splice(at..at, line.iter().copied());
            }
            5 => {
                let (from, to) = line_in(random, input);
                input.drain(from..to);
            }
            6 => {
                // Some lines once more, here or elsewhere.
                let (from, mut to) = line_in(random, input);
                for _ in 0..random.index(6) {
                    let rest = input.get(to..).unwrap_or_default();
                    to += rest
                        .split_inclusive(|octet| *octet == b'\n')
                        .next()
                        .map_or(0, <[u8]>::len);
                }
                let again = copy(input, from, to);
                let (at, _) = line_in(random, input);
                input.splice(at..at, again);
            }
            _ => {
                let word = choose(random, &self.words);
                let at = word_in(random, input).map_or(0, |(from, _)| from);
                input.splice(at..at, word.iter().copied());
            }
        }
    }
}

fn copy(input: &[u8], from: usize, to: usize) -> Vec<u8> {
    input.get(from..to).map(<[u8]>::to_vec).unwrap_or_default()
}

const fn is_of_word(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'_' | b'-') || octet >= 0x80
}

/// Returns where the words of a text begin and end.
fn words_of(input: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = at
            + input
                .get(at..)?
                .iter()
                .position(|octet| is_of_word(*octet))?;
        let rest = input.get(from..)?;
        let length = rest.iter().position(|octet| !is_of_word(*octet));
        at = from + length.unwrap_or(rest.len());
        Some((from, at))
    })
}

/// Returns the next word after a random place.
fn word_in(random: &mut Random, input: &[u8]) -> Option<(usize, usize)> {
    let skip = random.index(input.len());
    // The place may be within a word: that word begins before it.
    let before = input
        .get(..skip)?
        .iter()
        .rev()
        .take_while(|octet| is_of_word(**octet));
    let begin = skip - before.count();
    let (from, to) = words_of(input.get(begin..)?).next()?;
    Some((begin + from, begin + to))
}

/// Returns where the line with a random place begins and ends; the end is behind its newline.
fn line_in(random: &mut Random, input: &[u8]) -> (usize, usize) {
    let place = random.index(input.len());
    let is_newline = |octet: &u8| *octet == b'\n';
    let before = input
        .get(..place)
        .and_then(|before| before.iter().rposition(is_newline));
    let after = input
        .get(place..)
        .and_then(|after| after.iter().position(is_newline));
    (
        before.map_or(0, |newline| newline + 1),
        after.map_or(input.len(), |newline| place + newline + 1),
    )
}

/// Numbers are exchanged for numbers, and other words for others.
fn kind_of(word: &[u8]) -> bool {
    word.first().is_some_and(u8::is_ascii_digit)
}

fn other_number(random: &mut Random, old: &[u8]) -> Vec<u8> {
    let old: u64 = std::str::from_utf8(old)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let new = match random.index(5) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => EDGES.get(random.index(EDGES.len())).copied().unwrap_or(0),
        3 => random.below(100),
        _ => random.word() >> random.below(64),
    };
    new.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(corpus: &[&[u8]], tries: usize, is_found: impl Fn(&[u8]) -> bool) -> bool {
        let corpus = corpus.iter().map(|input| input.to_vec()).collect();
        let mut mutator = Mutator::new(Random::new(7), corpus);
        (0..tries).any(|_| is_found(&mutator.mutant()))
    }

    #[test]
    fn a_planted_fault_behind_octets_of_two_inputs_is_found() {
        let is_found = |input: &[u8]| input.starts_with(b"wire\x00qu");
        assert!(finds(&[b"\x00quiet", b"wire\x00"], 2_000_000, is_found));
    }

    #[test]
    fn a_planted_fault_in_numbers_and_words_of_a_text_is_found() {
        let corpus: [&[u8]; 2] = [b"[port]\nname = \"left\"\nqueues = 4\n", b"id = 7\n"];
        let is_found = |input: &[u8]| {
            let text = String::from_utf8_lossy(input);
            text.contains("queues = 65535") && text.contains("[port]\nid = 7\nname")
        };
        assert!(finds(&corpus, 2_000_000, is_found));
    }

    #[test]
    fn accepted_mutants_are_mutated_further() {
        // Three steps, each of which only follows the one before.
        let depth = |input: &[u8]| input.iter().zip(b"abc").take_while(|(a, b)| a == b).count();
        let mut mutator = Mutator::new(Random::new(7), vec![b"---".to_vec()]);
        let mut deepest = 0;
        for _ in 0..4_000_000 {
            let input = mutator.mutant();
            if depth(&input) > deepest {
                deepest = depth(&input);
                mutator.keep(input);
            }
            if deepest == 3 {
                break;
            }
        }
        assert_eq!(deepest, 3);
    }

    #[test]
    fn words_and_lines_are_found_at_any_place() {
        let text = b"a = \"b-c\"\n[d]\nlast";
        let words: Vec<_> = words_of(text).map(|(from, to)| &text[from..to]).collect();
        assert_eq!(words, [&b"a"[..], b"b-c", b"d", b"last"]);
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let (from, to) = line_in(&mut random, text);
            assert!(
                [(0, 10), (10, 14), (14, 18)].contains(&(from, to)),
                "{from} {to}"
            );
            let (from, to) = word_in(&mut random, text).unwrap();
            assert!(words.contains(&&text[from..to]));
            assert_eq!(line_in(&mut random, b""), (0, 0));
        }
        assert_eq!(word_in(&mut random, b""), None);
    }
}
