// SPDX-License-Identifier: Apache-2.0
//! Cases that are unavailable on a machine: not run, stored with the reason, and excluded from the results.

use super::*;

/// Records the reported unavailable cases.
#[derive(Default)]
struct Recorder(Vec<(String, String)>);

impl Progress for Recorder {
    fn unavailable(&mut self, case: &CaseSpec, reason: &str) {
        self.0.push((case.case.name.clone(), reason.to_owned()));
    }
}

#[test]
fn an_unavailable_case_is_stored_with_the_reason_and_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sqlite");
    let reason = "there is no such CPU";
    let mut bench = SimulatedBench::new(SEED, 0);
    bench.unavailable = Some(("noisy".to_owned(), reason.to_owned()));
    let mut reported = Recorder::default();
    let stop = AtomicBool::new(false);
    let mut store = open(&path, OpenMode::New);
    let end = run_study(&small(), &mut store, &mut bench, &mut reported, &stop).unwrap();
    assert_eq!(end, StudyEnd::Finished);
    assert_eq!(reported.0, [("noisy".to_owned(), reason.to_owned())]);
    let results = store.results().unwrap();
    assert_eq!(results.unavailable("noisy"), Some(reason));
    assert_eq!(results.unavailable("quiet"), None);
    assert!(results.steps.iter().all(|step| step.case_name == "quiet"));
    assert_eq!(bench.entered_and_left, (2, 2));
    drop(store);

    // Resumed on a machine that can run it, the case runs, and its reason is gone.
    bench.unavailable = None;
    let mut store = open(&path, OpenMode::Resume);
    run_study(&small(), &mut store, &mut bench, &mut Silent, &stop).unwrap();
    let results = store.results().unwrap();
    assert_eq!(results.unavailable("noisy"), None);
    assert_eq!(results.steps.len(), 2 * 2 * 4);
}

#[test]
fn a_case_that_does_not_come_up_is_stored_as_failed_and_the_others_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sqlite");
    let stop = AtomicBool::new(false);
    for (why, has_failed) in [
        (CaseSkipped::Failed("it ended at once".to_owned()), true),
        (
            CaseSkipped::Unavailable("it is not installed".to_owned()),
            false,
        ),
    ] {
        let path = directory.path().join(format!("{has_failed}.sqlite"));
        let mut bench = SimulatedBench::new(SEED, 0);
        bench.left_out = Some(("quiet".to_owned(), why.clone()));
        let mut reported = Recorder::default();
        let mut store = open(&path, OpenMode::New);
        let end = run_study(&small(), &mut store, &mut bench, &mut reported, &stop).unwrap();
        assert_eq!(end, StudyEnd::Finished);
        assert_eq!(reported.0, [("quiet".to_owned(), why.to_string())]);
        let results = store.results().unwrap();
        assert_eq!(results.unavailable("quiet"), Some(&*why.to_string()));
        assert_eq!(results.has_failed("quiet"), has_failed);
        assert!(!results.has_failed("noisy"));
        // Its steps did not start. It was tried once, and not again in the second round.
        assert!(results.trials().all(|(step, _)| step.case_name == "noisy"));
        assert_eq!(bench.entered_and_left, (2, 2));
    }

    // Any other error ends the study.
    let mut bench = SimulatedBench::new(SEED, 0);
    bench.fails_at = Some(3);
    let mut store = open(&path, OpenMode::New);
    assert!(go(&mut store, &mut bench).is_err());
}

#[test]
fn a_case_that_is_given_up_for_the_end_is_interrupted_and_made_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sqlite");
    let mut bench = SimulatedBench::new(SEED, 0);
    bench.given_up = Some("noisy".to_owned());
    let mut reported = Recorder::default();
    let stop = AtomicBool::new(false);
    let mut store = open(&path, OpenMode::New);
    let end = run_study(&small(), &mut store, &mut bench, &mut reported, &stop).unwrap();
    assert_eq!(end, StudyEnd::Interrupted);
    assert!(reported.0.is_empty());
    let results = store.results().unwrap();
    assert_eq!(results.unavailable("noisy"), None);
    assert_eq!(bench.entered_and_left, (1, 1));
    drop(store);

    bench.given_up = None;
    let mut store = open(&path, OpenMode::Resume);
    let end = go(&mut store, &mut bench).unwrap();
    assert_eq!(end, StudyEnd::Finished);
    assert_eq!(store.results().unwrap().steps.len(), 2 * 2 * 4);
}

#[test]
fn console_output_is_stored_each_time_a_case_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sqlite");
    let mut bench = SimulatedBench::new(SEED, 0);
    bench.console = Some("Linux version 6.1\nagent: ready\n".to_owned());
    let mut store = open(&path, OpenMode::New);
    go(&mut store, &mut bench).unwrap();
    drop(store);
    let results = Store::open_to_read(&path).unwrap().results().unwrap();
    let consoles = &results.consoles;
    let of: Vec<_> = consoles
        .iter()
        .map(|one| (one.round, &*one.case_name, &*one.element))
        .collect();
    let both = |round| [(round, "quiet", "V"), (round, "noisy", "V")];
    assert_eq!(of, [both(0), both(1)].concat());
    assert!(
        consoles
            .iter()
            .all(|one| one.output.ends_with("agent: ready\n"))
    );
}
