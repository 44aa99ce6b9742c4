// SPDX-License-Identifier: Apache-2.0
//! Studies that fail, are stopped and are killed. Each seed is one study, of a few runs with a fault each: a write or the bench fails, or the
//! run is stopped or killed. After each run the store has all trials that were finished, and the error names the fault. A last run without
//! faults has the results of a study without interruption.

use std::panic::resume_unwind;

use quietwire_base::faults::{Killed, Random, run_process, run_seeds};

use super::*;

/// Seeds of `make test`: each takes as long as a few studies.
const SEEDS: u64 = 20;
/// Most runs with a fault.
const RUNS_MAX: u64 = 4;
/// Trials or writes before a fault, at most.
const AHEAD: u64 = 60;

/// Fault of a run.
#[derive(Clone, Copy, Debug)]
enum StudyFault {
    /// The write after this number of writes fails, and all later ones unless the fault passes.
    Write { after: u32, is_passing: bool },
    /// The bench fails after this number of trials.
    Bench { after: u64 },
    /// The run is stopped by its flag at the end of the trial with this number, from 1.
    Stop { at: u32 },
    /// The process is killed at the end of the trial with this number, from 1.
    Kill { at: u32 },
}

impl StudyFault {
    fn any(random: &mut Random) -> Self {
        let after = random.below(AHEAD);
        let count = after as u32;
        match random.below(5) {
            0 => Self::Bench { after },
            1 => Self::Stop { at: count + 1 },
            2 => Self::Kill { at: count + 1 },
            other => Self::Write {
                after: count,
                is_passing: other == 3,
            },
        }
    }
}

/// Kills the process after this number of trials that were really run.
struct KillAfter(u32);

impl Progress for KillAfter {
    fn trial(&mut self, event: &TrialEvent<'_>) {
        if event.is_replayed {
            return;
        }
        self.0 -= 1;
        if self.0 == 0 {
            resume_unwind(Box::new(Killed));
        }
    }
}

/// Runs the study with a fault, after `before` stored trials. Returns whether it ended by itself.
fn run_once(path: &Path, fault: StudyFault, before: u64) -> bool {
    let process = || {
        let mut store = open(path, OpenMode::Resume);
        let mut bench = SimulatedBench::new(SEED, before);
        let stop = AtomicBool::new(false);
        let mut progress: Box<dyn Progress + '_> = match fault {
            StudyFault::Write { after, is_passing } => {
                store.write_faults = WriteFaults {
                    after: Some(after),
                    is_passing,
                };
                Box::new(Silent)
            }
            StudyFault::Bench { after } => {
                bench.fails_at = Some(before + after);
                Box::new(Silent)
            }
            StudyFault::Stop { at } => Box::new(StopAfter(at, &stop)),
            StudyFault::Kill { at } => Box::new(KillAfter(at)),
        };
        let outcome = run_study(&small(), &mut store, &mut bench, &mut *progress, &stop);
        assert_eq!(bench.entered_and_left.0, bench.entered_and_left.1);
        let end = store.overview().unwrap().end;
        match (outcome.map_err(|error| error.to_string()), fault) {
            (Ok(StudyEnd::Finished), _) => assert_eq!(end, Some(RunEnd::Finished)),
            (Ok(StudyEnd::Interrupted), StudyFault::Stop { .. }) => {
                assert_eq!(end, Some(RunEnd::Interrupted));
            }
            (Err(error), StudyFault::Bench { .. }) => {
                assert!(error.contains("the simulated device died"), "{error}");
                assert_eq!(end, Some(RunEnd::Failed(error)));
            }
            // The end of the run may be what could not be written.
            (Err(error), StudyFault::Write { .. }) => {
                assert!(error.contains("free space"), "{error}");
            }
            (outcome, _) => panic!("{outcome:?}"),
        }
    };
    run_process(process).is_some()
}

fn stored(path: &Path) -> u64 {
    let overview = Store::open_to_read(path).and_then(|store| store.overview());
    overview.unwrap().trials as u64
}

fn run_with_faults(seed: u64) {
    let whole = uninterrupted();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("g.sqlite");
    drop(open(&path, OpenMode::New));
    let mut random = Random::new(seed);
    let mut before = 0;
    for _ in 0..=random.below(RUNS_MAX) {
        let fault = StudyFault::any(&mut random);
        let has_ended = run_once(&path, fault, before);
        let after = stored(&path);
        match fault {
            StudyFault::Kill { at } if !has_ended => {
                assert_eq!(after, before + u64::from(at), "{fault:?}");
            }
            _ => assert!(has_ended && after >= before, "{fault:?}"),
        }
        before = after;
    }
    let mut store = open(&path, OpenMode::Resume);
    let end = go(&mut store, &mut SimulatedBench::new(SEED, before)).unwrap();
    assert_eq!(end, StudyEnd::Finished);
    assert_eq!(essence(&store.results().unwrap()), essence(whole));
}

#[test]
fn after_any_fault_a_study_keeps_its_trials_and_can_be_resumed() {
    let seeds = run_seeds(SEEDS, "quietwire-study", "tests::faults", run_with_faults);
    println!("{seeds} seeds");
}
