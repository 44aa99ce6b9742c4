// SPDX-License-Identifier: Apache-2.0
//! Cases that a machine cannot have are not run, stored with the reason, and left out of what counts.

use super::*;

/// Who is told.
#[derive(Default)]
struct Told(Vec<(String, String)>);

impl Progress for Told {
    fn unavailable(&mut self, case: &CaseSpec, reason: &str) {
        self.0.push((case.case.name.clone(), reason.to_owned()));
    }
}

#[test]
fn a_case_that_cannot_be_had_is_stored_with_the_reason_and_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sqlite");
    let reason = "there is no such CPU";
    let mut bench = SimulatedBench::new(SEED, 0);
    bench.unavailable = Some(("noisy".to_owned(), reason.to_owned()));
    let mut told = Told::default();
    let stop = AtomicBool::new(false);
    let mut store = open(&path, OpenMode::New);
    let end = run_study(&small(), &mut store, &mut bench, &mut told, &stop).unwrap();
    assert_eq!(end, StudyEnd::Finished);
    assert_eq!(told.0, [("noisy".to_owned(), reason.to_owned())]);
    let results = store.results().unwrap();
    assert_eq!(results.unavailable("noisy"), Some(reason));
    assert_eq!(results.unavailable("quiet"), None);
    assert!(results.steps.iter().all(|step| step.case_name == "quiet"));
    assert_eq!(bench.entered_and_left, (2, 2));
    drop(store);

    // Gone on with where it can be had, it is made, and nothing says that it was missing.
    bench.unavailable = None;
    let mut store = open(&path, OpenMode::Resume);
    run_study(&small(), &mut store, &mut bench, &mut Silent, &stop).unwrap();
    let results = store.results().unwrap();
    assert_eq!(results.unavailable("noisy"), None);
    assert_eq!(results.steps.len(), 2 * 2 * 4);
}
