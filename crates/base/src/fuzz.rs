// SPDX-License-Identifier: Apache-2.0
//! A fuzzer for tests, on the stable toolchain: replays a corpus, then mutates it for a while.
//!
//! It is not guided by coverage; `make fuzz` is. Settings are in the environment: `QUIETWIRE_FUZZ_SECONDS` (default: 2) and
//! `QUIETWIRE_SEED` (default: from the clock). A panic of the target names the seed and the file with the input.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Octets of the longest input.
const LENGTH_MAX: usize = 4096;
const SECONDS: u64 = 2;

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number below `end`, 0 if `end` is 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % (end.max(1) as u64)) as usize
    }
}

/// Calls `target` with each file of a directory, then with mutations of them. Returns the number of calls.
///
/// # Panics
/// If the target panics; the input stays in the temporary directory.
pub fn run(name: &str, corpus: &Path, target: impl Fn(&[u8])) -> u64 {
    let number = |key: &str| std::env::var(key).ok()?.parse::<u64>().ok();
    let seconds = number("QUIETWIRE_FUZZ_SECONDS").unwrap_or(SECONDS);
    let seed = number("QUIETWIRE_SEED").unwrap_or_else(|| RandomState::new().hash_one(name));
    let mut inputs = read(corpus);
    for input in &inputs {
        try_input(name, seed, input, &target);
    }
    inputs.push(Vec::new());
    let mut random = Random(seed);
    let (began, mut calls) = (Instant::now(), inputs.len() as u64);
    while began.elapsed() < Duration::from_secs(seconds) {
        let input = mutate(&mut random, &inputs);
        try_input(name, seed, &input, &target);
        calls += 1;
    }
    calls
}

/// Returns the corpus, in the order of file names.
fn read(corpus: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(corpus)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| fs::read(path).ok())
        .collect()
}

fn try_input(name: &str, seed: u64, input: &[u8], target: &impl Fn(&[u8])) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) else {
        return;
    };
    let path = std::env::temp_dir().join(format!("quietwire-fuzz-{name}-{seed}"));
    match fs::write(&path, input) {
        Ok(()) => eprintln!("{name}: QUIETWIRE_SEED={seed}, input in {}", path.display()),
        Err(error) => {
            eprintln!("{name}: QUIETWIRE_SEED={seed}, input not kept ({error}): {input:?}")
        }
    }
    resume_unwind(panic);
}

/// A few changes to one of the inputs, or octets at random.
fn mutate(random: &mut Random, inputs: &[Vec<u8>]) -> Vec<u8> {
    const EDGES: [u64; 8] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, u64::MAX];
    let at = random.below(inputs.len());
    let mut input = inputs.get(at).cloned().unwrap_or_default();
    for _ in 0..=random.below(8) {
        let at = random.below(input.len());
        match random.below(7) {
            0 => {
                if let Some(octet) = input.get_mut(at) {
                    *octet ^= 1 << random.below(8);
                }
            }
            1 => {
                if let Some(octet) = input.get_mut(at) {
                    *octet = random.next() as u8;
                }
            }
            2 => {
                let count = 1 << random.below(4);
                let edge = EDGES.get(random.below(EDGES.len())).copied().unwrap_or(0);
                let octets = edge.to_le_bytes();
                for (place, octet) in input.iter_mut().skip(at).zip(octets).take(count) {
                    *place = octet;
                }
            }
            3 => {
                let more: Vec<u8> = (0..random.below(64)).map(|_| random.next() as u8).collect();
                input.splice(at..at, more);
            }
            4 => {
                let end = (at + random.below(32)).min(input.len());
                input.drain(at.min(end)..end);
            }
            5 => {
                let from = random.below(inputs.len());
                let other = inputs.get(from).map_or(&[][..], Vec::as_slice);
                let skip = random.below(other.len());
                input.truncate(at);
                input.extend(other.iter().skip(skip));
            }
            _ => {
                let end = (at + random.below(64)).min(input.len());
                let again = input.get(at..end).map(<[u8]>::to_vec).unwrap_or_default();
                input.extend(again);
            }
        }
    }
    input.truncate(LENGTH_MAX);
    input
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_planted_fault_behind_three_octets_is_found() {
        let mut random = Random(7);
        let inputs = [b"quiet".to_vec(), b"wire".to_vec()];
        let found = (0..2_000_000).any(|_| mutate(&mut random, &inputs).starts_with(b"wirequ"));
        assert!(found);
    }

    #[test]
    fn a_target_that_panics_is_reported() {
        let calls = Cell::new(0);
        let name = format!("planted-{}", std::process::id());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            run(&name, Path::new("/nonexistent"), |_| {
                calls.set(calls.get() + 1);
                assert!(calls.get() < 3, "planted");
            })
        }));
        assert!(outcome.is_err());
        assert_eq!(calls.get(), 3);
        // The input that the fuzzer stored.
        let prefix = format!("quietwire-fuzz-{name}-");
        let kept: Vec<_> = fs::read_dir(std::env::temp_dir())
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .collect();
        assert_eq!(kept.len(), 1);
        fs::remove_file(kept[0].path()).unwrap();
    }
}
