// SPDX-License-Identifier: Apache-2.0
//! A fuzzer for tests, on the stable toolchain: replays a corpus, then mutates it for a while.
//!
//! It is not guided by coverage; `make fuzz` is. It keeps mutants that the target accepts, and mutates them further. Tokens and lines of
//! the corpus are its dictionary. Settings are in the environment: `QUIETWIRE_FUZZ_SECONDS` (0 replays the corpus only) and
//! `QUIETWIRE_SEED` (default: from the clock). A panic of the target names the seed and the file with the input.
//!
//! `QUIETWIRE_FUZZ_PLANTED` names a target whose planted fault is active ([`planted`]); `make test-fuzz` uses it.

mod mutation;

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::random::Random;
use mutation::Mutator;

/// Default duration of a target, after its corpus. There are many, and `make test` runs all of them; `make fuzz` runs each for longer.
const DURATION: Duration = Duration::from_millis(250);

/// Result of a target: none, or whether it accepted the input.
pub trait Outcome {
    /// Returns whether the input was accepted; `None` if the target does not report it.
    fn accepted(self) -> Option<bool>;
}

impl Outcome for () {
    fn accepted(self) -> Option<bool> {
        None
    }
}

impl Outcome for bool {
    fn accepted(self) -> Option<bool> {
        Some(self)
    }
}

/// Runs a target named `CRATE-NAME` for a quarter of a second, with the corpus `tests/corpus/NAME` of its crate.
///
/// # Panics
/// If the target panics (the input stays in the temporary directory), if there is no corpus, or if the target accepts none of it.
pub fn check<O: Outcome>(manifest_dir: &str, target_name: &str, target: impl Fn(&[u8]) -> O) {
    check_for(DURATION, manifest_dir, target_name, target);
}

/// As [`check`], with another default duration.
///
/// # Panics
/// Those of [`check`].
pub fn check_for<O: Outcome>(
    duration: Duration,
    manifest_dir: &str,
    target_name: &str,
    target: impl Fn(&[u8]) -> O,
) {
    let (_, name) = target_name.split_once('-').unwrap_or(("", target_name));
    let corpus = Path::new(manifest_dir).join("tests/corpus").join(name);
    let duration = number("QUIETWIRE_FUZZ_SECONDS").map_or(duration, Duration::from_secs);
    let report = run(target_name, &corpus, duration, target);
    assert!(report.inputs > 0, "no corpus in {}", corpus.display());
    assert_ne!(
        report.accepted,
        Some(0),
        "{target_name} accepts no input of {}",
        corpus.display()
    );
    assert!(
        report.mutants > 0 || duration.is_zero(),
        "{target_name}: the corpus takes all of {duration:?}"
    );
}

/// Panics if this target's planted fault is active and the input leads to it. The condition is about the parsed result: a fuzzer that
/// finds it explores the parser in depth.
///
/// # Panics
/// See above.
pub fn planted(target_name: &str, is_reached: impl FnOnce() -> bool) {
    static ACTIVE: OnceLock<Option<String>> = OnceLock::new();
    let active = ACTIVE.get_or_init(|| std::env::var("QUIETWIRE_FUZZ_PLANTED").ok());
    if active.as_deref() == Some(target_name) {
        assert!(!is_reached(), "the planted fault of {target_name}");
    }
}

fn number(key: &str) -> Option<u64> {
    std::env::var(key).ok()?.parse().ok()
}

/// Counts of a run.
struct Report {
    /// Files of the corpus.
    inputs: usize,
    /// Accepted files of the corpus, if the target reports it.
    accepted: Option<usize>,
    mutants: u64,
}

/// Calls `target` with each file of a directory, then with mutations of them.
fn run<O: Outcome>(
    name: &str,
    corpus: &Path,
    duration: Duration,
    target: impl Fn(&[u8]) -> O,
) -> Report {
    let seed = number("QUIETWIRE_SEED").unwrap_or_else(|| RandomState::new().hash_one(name));
    let inputs = read(corpus);
    let mut report = Report {
        inputs: inputs.len(),
        accepted: None,
        mutants: 0,
    };
    for input in &inputs {
        if let Some(is_accepted) = try_input(name, seed, input, &target) {
            *report.accepted.get_or_insert(0) += usize::from(is_accepted);
        }
    }
    let mut mutator = Mutator::new(Random::new(seed), inputs);
    let began = Instant::now();
    while began.elapsed() < duration {
        let input = mutator.mutant();
        if try_input(name, seed, &input, &target) == Some(true) {
            mutator.keep(input);
        }
        report.mutants += 1;
    }
    report
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

fn try_input<O: Outcome>(
    name: &str,
    seed: u64,
    input: &[u8],
    target: &impl Fn(&[u8]) -> O,
) -> Option<bool> {
    let panic = match catch_unwind(AssertUnwindSafe(|| target(input))) {
        Ok(outcome) => return outcome.accepted(),
        Err(panic) => panic,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_target_that_panics_is_reported() {
        let calls = Cell::new(0);
        let name = format!("planted-{}", std::process::id());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            run(
                &name,
                Path::new("/nonexistent"),
                Duration::from_secs(10),
                |_| {
                    calls.set(calls.get() + 1);
                    assert!(calls.get() < 3, "planted");
                },
            );
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

    #[test]
    fn a_check_without_a_corpus_or_with_a_useless_one_fails() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_str().unwrap();
        let checked = |accepts: bool| {
            catch_unwind(|| {
                check_for(Duration::from_millis(1), root, "base-planted", |_| accepts);
            })
        };
        assert!(checked(true).is_err(), "no corpus");
        let corpus = directory.path().join("tests/corpus/planted");
        fs::create_dir_all(&corpus).unwrap();
        fs::write(corpus.join("a"), "a").unwrap();
        assert!(checked(false).is_err(), "nothing accepted");
        assert!(checked(true).is_ok());
    }
}
