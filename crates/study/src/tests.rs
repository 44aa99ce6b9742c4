// SPDX-License-Identifier: Apache-2.0
//! Complete studies on the simulated bench: run, interrupted, killed, resumed.

use std::io::Read as _;
mod calibrated;
mod connections;
mod faults;
mod methods;
mod procedures;
mod tenants;
mod unavailable;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quietwire_search::Findings;
use quietwire_search::procedure::Action;
use quietwire_tester::{Trial, TrialResult};

use crate::simulated::{MAX_RATE_PPS, SimulatedBench};
use crate::store::WriteFaults;
use crate::*;

const SEED: u64 = 7;

pub(crate) const SMALL: &str = concat!(
    r#"
name = "small"
title = "A small study"
rounds = 2
"#,
    include_str!("tests/device.toml"),
    r#"
[trials]
duration-s = 1
invalid-repeats = 2
[search]
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 5
goal = [{ name = "NDR", loss-ratio = 0.0 }, { name = "PDR", loss-ratio = 0.005 }]
[sweep]
loads-percent = [10, 50, 100]
[latency]
rate-percent = 1
duration-s = 1
repeats = 2
[neighbours]
stressors = ["--cpu 4"]
[[case]]
name = "quiet"
neighbours = "none"
isolation = "none"
[[case]]
name = "noisy"
neighbours = "everywhere"
isolation = "none"
"#
);

pub(crate) fn small() -> StudyFile {
    StudyFile::parse(SMALL, Path::new("small.toml")).unwrap()
}

fn open(path: &Path, mode: OpenMode) -> Store {
    Store::open(path, &small(), SMALL, mode).unwrap()
}

fn go(store: &mut Store, bench: &mut dyn Bench) -> Result<StudyEnd, RunError> {
    run_study(&small(), store, bench, &mut Silent, &AtomicBool::new(false))
}

/// Results that must not depend on interruptions: everything but times, runs and case setups.
#[derive(Debug, PartialEq)]
struct Essence {
    place: (u32, String, StepKind),
    findings: Option<Findings>,
    trials: Vec<(Trial, TrialResult)>,
}

fn essence(results: &StudyResults) -> Vec<Essence> {
    let of_step = |step: &StepRecord| {
        assert!(step.is_finished);
        let trials = step.trials.iter();
        Essence {
            place: (step.round, step.case_name.clone(), step.kind.clone()),
            findings: step.findings.clone(),
            trials: trials
                .map(|trial| (trial.request.clone(), trial.result.clone()))
                .collect(),
        }
    };
    results.steps.iter().map(of_step).collect()
}

/// Returns a whole study, run once for all tests.
fn uninterrupted() -> &'static StudyResults {
    static WHOLE: LazyLock<StudyResults> = LazyLock::new(|| {
        let directory = tempfile::tempdir().unwrap();
        let mut store = open(&directory.path().join("a.sqlite"), OpenMode::New);
        assert_eq!(
            go(&mut store, &mut SimulatedBench::new(SEED, 0)).unwrap(),
            StudyEnd::Finished
        );
        store.results().unwrap()
    });
    &WHOLE
}

#[test]
fn a_whole_study_does_every_step_and_sets_each_case_up_once_a_round() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory.path().join("a.sqlite"), OpenMode::New);
    let mut bench = SimulatedBench::new(SEED, 0);
    go(&mut store, &mut bench).unwrap();
    let results = store.results().unwrap();

    assert_eq!(bench.entered_and_left, (4, 4));
    let entered: Vec<_> = results
        .entries
        .iter()
        .map(|entry| (entry.round, entry.case_name.as_str()))
        .collect();
    assert_eq!(
        entered,
        [(0, "quiet"), (0, "noisy"), (1, "quiet"), (1, "noisy")]
    );
    let for_all = MaxRateRecord {
        case_name: None,
        frame_size: FrameSize::default(),
        rate_pps: MAX_RATE_PPS,
    };
    assert_eq!(results.max_rates, [for_all]);
    assert_eq!(results.steps.len(), 2 * 2 * 4);
    assert_eq!(results.runs.len(), 1);
    assert_eq!(results.runs[0].end.as_ref().unwrap().0, RunEnd::Finished);
    for step in &results.steps {
        let valid = step.trials.iter().filter(|trial| trial.result.is_valid());
        match &step.kind {
            StepKind::Latency => assert!(valid.count() <= 2),
            StepKind::Sweep => assert!(valid.count() <= 3),
            StepKind::Search(goal) => {
                let Some(Findings::SingleRun(found)) = &step.findings else {
                    panic!("{goal}: {:?}", step.findings)
                };
                let best = step
                    .trials
                    .iter()
                    .filter(|trial| {
                        trial.result.is_valid()
                            && found.config.loss_tolerance.allows(trial.result.loss_ratio)
                    })
                    .map(|trial| trial.request.offered_rate_pps)
                    .reduce(f64::max);
                assert_eq!(found.highest_held_pps, best, "{goal}");
            }
            _ => panic!("a step that was not asked for"),
        }
    }
    let invalid = results
        .trials()
        .filter(|(_, trial)| !trial.result.is_valid());
    assert!(invalid.count() > 0, "no trial is invalid");
}

#[test]
fn the_maximum_rate_is_measured_only_if_a_method_uses_it() {
    let (head, methods) = SMALL.split_once("[search]").unwrap();
    let (_, latency) = methods.split_once("[latency]").unwrap();
    let of_latency = format!("{head}[latency]{latency}");
    let max_rates = |text: &str| {
        let file = StudyFile::parse(text, Path::new("latency.toml")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sqlite");
        let mut store = Store::open(&path, &file, text, OpenMode::New).unwrap();
        let mut bench = SimulatedBench::new(SEED, 0);
        let stop = AtomicBool::new(false);
        let end = run_study(&file, &mut store, &mut bench, &mut Silent, &stop).unwrap();
        assert_eq!(end, StudyEnd::Finished);
        let results = store.results().unwrap();
        assert!(results.trials().count() > 0);
        let rates = results.max_rates.iter();
        rates.map(|known| known.rate_pps).collect::<Vec<_>>()
    };
    assert_eq!(max_rates(&of_latency), [MAX_RATE_PPS]);
    let fixed = of_latency.replace("rate-percent = 1", "rate-pps = 1000");
    assert_eq!(max_rates(&fixed), [0.0; 0]);
    let given = fixed.replace("[trials]", "[trials]\nmax-rate-pps = 5000");
    assert_eq!(max_rates(&given), [5000.0]);
}

/// Sets the stop flag after this number of trials that were really run.
struct StopAfter<'a>(u32, &'a AtomicBool);

impl Progress for StopAfter<'_> {
    fn trial(&mut self, event: &TrialEvent<'_>) {
        if !event.is_replayed {
            self.0 -= 1;
            if self.0 == 0 {
                self.1.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn stopped_after_every_single_trial_and_resumed_it_is_the_same_study() {
    let whole = uninterrupted();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b.sqlite");
    drop(open(&path, OpenMode::New));
    let mut made = 0;
    loop {
        let mut store = open(&path, OpenMode::Resume);
        let mut bench = SimulatedBench::new(SEED, made);
        let stop = AtomicBool::new(false);
        let mut progress = StopAfter(1, &stop);
        let end = run_study(&small(), &mut store, &mut bench, &mut progress, &stop).unwrap();
        assert_eq!(bench.entered_and_left.0, bench.entered_and_left.1);
        if end == StudyEnd::Finished {
            break;
        }
        made += 1;
        assert!(made < 10_000);
    }
    let cut = open(&path, OpenMode::Resume).results().unwrap();
    assert_eq!(essence(&cut), essence(whole));
    assert_eq!(cut.runs[0].end.as_ref().unwrap().0, RunEnd::Interrupted);
}

#[test]
fn a_failing_bench_is_left_reported_and_can_be_resumed() {
    let whole = uninterrupted();
    let total = whole.trials().count() as u64;
    for fails_at in (0..total).step_by(5) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = open(&directory.path().join("c.sqlite"), OpenMode::New);
        let mut bench = SimulatedBench::new(SEED, 0);
        bench.fails_at = Some(fails_at);
        let error = go(&mut store, &mut bench).unwrap_err().to_string();
        assert!(error.contains("the simulated device died"), "{error}");
        assert_eq!(bench.entered_and_left.0, bench.entered_and_left.1);
        let overview = store.overview().unwrap();
        assert_eq!(overview.trials as u64, fails_at);
        assert_eq!(overview.end, Some(RunEnd::Failed(error)));
        go(&mut store, &mut SimulatedBench::new(SEED, fails_at)).unwrap();
        assert_eq!(essence(&store.results().unwrap()), essence(whole));
    }
}

#[test]
fn after_any_write_that_fails_a_study_is_left_reported_and_can_be_resumed() {
    let whole = uninterrupted();
    let mut failed = 0;
    loop {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.sqlite");
        let mut store = open(&path, OpenMode::New);
        store.write_faults = WriteFaults {
            after: Some(failed),
            is_passing: failed % 2 == 0,
        };
        let mut bench = SimulatedBench::new(SEED, 0);
        let outcome = go(&mut store, &mut bench);
        assert_eq!(bench.entered_and_left.0, bench.entered_and_left.1);
        let Err(error) = outcome else {
            break;
        };
        let error = error.to_string();
        assert!(error.contains("free space"), "write {failed}: {error}");
        drop(store);
        let mut store = open(&path, OpenMode::Resume);
        let kept = store.overview().unwrap().trials as u64;
        go(&mut store, &mut SimulatedBench::new(SEED, kept)).unwrap();
        assert_eq!(
            essence(&store.results().unwrap()),
            essence(whole),
            "write {failed}"
        );
        // Every fifth write: each takes a study and a half.
        failed += 5;
    }
    // One transaction a trial at the least.
    assert!(failed as usize > whole.trials().count(), "{failed} writes");
}

#[test]
fn a_finished_study_that_is_resumed_sets_nothing_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.sqlite");
    go(
        &mut open(&path, OpenMode::New),
        &mut SimulatedBench::new(SEED, 0),
    )
    .unwrap();
    let mut bench = SimulatedBench::new(SEED, 0);
    assert_eq!(
        go(&mut open(&path, OpenMode::Resume), &mut bench).unwrap(),
        StudyEnd::Finished
    );
    assert_eq!(bench.entered_and_left, (0, 0));
}

#[test]
fn stored_trials_of_another_search_are_not_mixed_in() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("e.sqlite");
    let mut store = open(&path, OpenMode::New);
    let mut bench = SimulatedBench::new(SEED, 0);
    bench.fails_at = Some(5);
    go(&mut store, &mut bench).unwrap_err();
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let changed = connection
        .execute("UPDATE max_rate SET max_rate_pps = max_rate_pps * 1.01", ())
        .unwrap();
    assert_eq!(changed, 1);
    drop(connection);
    let error = go(
        &mut open(&path, OpenMode::Resume),
        &mut SimulatedBench::new(SEED, 5),
    );
    assert!(
        matches!(error, Err(RunError::NotReplayable { sequence: 0, .. })),
        "{error:?}"
    );
}

const CHILD_TRIALS: &str = "QUIETWIRE_TEST_CHILD_TRIALS";
const CHILD_STORE: &str = "QUIETWIRE_TEST_CHILD_STORE";

/// A bench that waits at one trial until the parent process closes its standard input or kills it.
struct Waiting {
    bench: SimulatedBench,
    left: u32,
}

impl Bench for Waiting {
    fn environment(&mut self) -> Environment {
        self.bench.environment()
    }
    fn enter_case(&mut self, case: &CaseSpec) -> Result<CaseSettings, BenchError> {
        self.bench.enter_case(case)
    }
    fn leave_case(&mut self) -> Result<(), BenchError> {
        self.bench.leave_case()
    }
    fn calibrate(&mut self, frame_size: FrameSize) -> Result<f64, BenchError> {
        self.bench.calibrate(frame_size)
    }
    fn pause_after_invalid(&self, in_a_row: u32) -> Duration {
        self.bench.pause_after_invalid(in_a_row)
    }
    fn run(&mut self, trial: &Trial) -> Result<Measured, BenchError> {
        if self.left == 0 {
            std::io::stdin().read_to_end(&mut Vec::new())?;
            return Err("nobody killed this process".into());
        }
        self.left -= 1;
        self.bench.run(trial)
    }
    fn act(&mut self, action: &Action, frames: &Trial) -> Result<ActionOutcome, BenchError> {
        self.bench.act(action, frames)
    }
}

/// The part of the next test that runs in a separate process, which is killed.
fn child_that_runs_a_study(path: &Path) {
    let mut store = open(path, OpenMode::New);
    let mut bench = Waiting {
        bench: SimulatedBench::new(SEED, 0),
        left: std::env::var(CHILD_TRIALS).unwrap().parse().unwrap(),
    };
    go(&mut store, &mut bench).unwrap();
}

#[test]
fn a_killed_run_keeps_every_finished_trial() {
    if let Some(path) = std::env::var_os(CHILD_STORE) {
        return child_that_runs_a_study(Path::new(&path));
    }
    let whole = uninterrupted();
    for kill_after in [1, 9, 40] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.sqlite");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::a_killed_run_keeps_every_finished_trial"])
            .env(CHILD_STORE, &path)
            // More trials than the test waits for, so the kill may happen anywhere, also while a trial is stored.
            .env(CHILD_TRIALS, (kill_after + 12).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let observed = loop {
            assert!(
                Instant::now() < deadline,
                "the child stores too few trials in time"
            );
            assert!(
                child.try_wait().unwrap().is_none(),
                "the child ended by itself"
            );
            let stored = Store::open_to_read(&path).and_then(|store| store.overview());
            let count = stored.map_or(0, |overview| overview.trials);
            if count >= kill_after {
                break count;
            }
            std::thread::yield_now();
        };
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));

        let mut store = open(&path, OpenMode::Resume);
        let results = store.results().unwrap();
        let kept = results.trials().count();
        assert!(kept >= observed, "{kept} of {observed} trials were kept");
        assert!(
            kept < whole.trials().count(),
            "the child finished before it was killed"
        );
        assert_eq!(results.runs[0].end, None);
        go(&mut store, &mut SimulatedBench::new(SEED, kept as u64)).unwrap();
        assert_eq!(essence(&store.results().unwrap()), essence(whole));
    }
}

/// Returns the small study with another method instead of the single run.
fn with_method(keys: &str) -> String {
    let steps = "start-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5";
    assert!(SMALL.contains(steps));
    SMALL
        .replace(steps, keys)
        .replace("rounds = 2", "rounds = 1")
}

/// Returns the results of a study with this text, stopped after every `at_a_time` trials and resumed.
fn in_pieces(text: &str, at_a_time: u32) -> StudyResults {
    let file = StudyFile::parse(text, Path::new("method.toml")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.sqlite");
    let mut mode = OpenMode::New;
    for _ in 0..10_000 {
        let mut store = Store::open(&path, &file, text, mode).unwrap();
        mode = OpenMode::Resume;
        // To read all trials again in each piece would take longer than to run them.
        let made = store.overview().unwrap().trials as u64;
        let mut bench = SimulatedBench::new(SEED, made);
        let stop = AtomicBool::new(false);
        let mut progress = StopAfter(at_a_time, &stop);
        let end = run_study(&file, &mut store, &mut bench, &mut progress, &stop).unwrap();
        if end == StudyEnd::Finished {
            return store.results().unwrap();
        }
    }
    panic!("the study did not end");
}

#[test]
fn an_mlrsearch_in_a_study_is_one_step_for_all_goals_and_can_be_resumed() {
    let text = with_method("method = \"mlrsearch\"");
    let whole = in_pieces(&text, u32::MAX);
    assert_eq!(essence(&in_pieces(&text, 7)), essence(&whole));
    let searches: Vec<&StepRecord> = whole
        .steps
        .iter()
        .filter(|step| step.kind == StepKind::Goals)
        .collect();
    assert_eq!(searches.len(), 2);
    for step in searches {
        let Some(Findings::MlrSearch(found)) = &step.findings else {
            panic!("{:?}", step.findings)
        };
        assert_eq!(found.goals.len(), 2);
        for goal in &found.goals {
            assert_eq!(goal.irregularity, None, "{goal:?}");
            // A trial of 1 s counts with its warm-up of 0.2 s and its drain of 0.1 s.
            let low_s = goal.lower.unwrap().sums.full_low_s;
            assert!(
                (low_s / 1.3 - (low_s / 1.3).round()).abs() < 1e-9,
                "{low_s}"
            );
        }
        assert!(step.trials.len() > 20);
    }
}

#[test]
fn best_and_worst_of_n_in_a_study_can_be_resumed() {
    let steps = "start-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\ntrials-per-rate = 3";
    for (method, sides) in [
        ("best-of-n", (true, false)),
        ("worst-of-n", (false, true)),
        ("best-and-worst-of-n", (true, true)),
    ] {
        let text = with_method(&format!("method = \"{method}\"\n{steps}"));
        let whole = in_pieces(&text, u32::MAX);
        assert_eq!(essence(&in_pieces(&text, 9)), essence(&whole));
        let searches = whole
            .steps
            .iter()
            .filter(|step| matches!(step.kind, StepKind::Search(_)));
        for step in searches {
            let Some(Findings::BestWorst(found)) = &step.findings else {
                panic!("{:?}", step.findings)
            };
            assert_eq!((found.best.is_some(), found.worst.is_some()), sides);
            assert!(found.rates.iter().all(|tally| tally.held + tally.lost <= 3));
        }
    }
}
