// SPDX-License-Identifier: Apache-2.0
mod earlier;
mod fuzz;
mod large;
mod limits;
mod overview;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::Silent;
use crate::bench::Bench as _;
use crate::case_settings::Environment;
use crate::run::{RunError, run_study};
use crate::simulated::SimulatedBench;
use crate::tests::{SMALL, small};

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    (directory, path)
}

fn environment() -> Environment {
    SimulatedBench::new(1, 0).environment()
}

fn open(path: &Path, mode: OpenMode) -> Result<Store, StoreError> {
    Store::open(path, &small(), SMALL, mode)
}

fn pragma(path: &Path, statement: &str) {
    Connection::open(path)
        .unwrap()
        .execute_batch(statement)
        .unwrap();
}

pub(super) fn trial() -> quietwire_tester::Trial {
    quietwire_tester::Trial {
        low_rate_pps: quietwire_tester::LOW_RATE_PPS,
        ..quietwire_tester::Trial::new(1e5, 1.0, quietwire_tester::FrameSizes::Fixed(64))
    }
}

#[test]
fn a_new_store_is_its_owners_alone_and_never_made_over_another() {
    let (_directory, path) = scratch();
    let store = open(&path, OpenMode::New).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let file = PathBuf::from(format!("{}{suffix}", path.display()));
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    drop(store);
    let error = open(&path, OpenMode::New).unwrap_err();
    assert!(matches!(error, StoreError::Exists(_)));
    assert!(error.to_string().contains("--resume"), "{error}");
}

#[test]
fn resuming_without_a_store_begins_one() {
    let (_directory, path) = scratch();
    open(&path, OpenMode::Resume).unwrap();
    assert_eq!(
        Store::open_to_read(&path)
            .unwrap()
            .results()
            .unwrap()
            .steps
            .len(),
        0
    );
}

#[test]
fn an_empty_file_that_a_killed_run_left_is_begun_again() {
    let (_directory, path) = scratch();
    std::fs::write(&path, "").unwrap();
    assert!(open(&path, OpenMode::New).is_err());
    let store = open(&path, OpenMode::Resume).unwrap();
    assert!(store.results().unwrap().trials().next().is_none());
}

#[test]
fn only_one_run_writes_and_others_may_read() {
    let (_directory, path) = scratch();
    let first = open(&path, OpenMode::New).unwrap();
    let second = open(&path, OpenMode::Resume).unwrap_err();
    assert!(matches!(second, StoreError::Locked { .. }), "{second}");
    Store::open_to_read(&path).unwrap().results().unwrap();
    drop(first);
    open(&path, OpenMode::Resume).unwrap();
}

#[test]
fn another_study_file_is_refused() {
    let (_directory, path) = scratch();
    drop(open(&path, OpenMode::New).unwrap());
    let other = format!("{SMALL}\n# changed\n");
    let error = Store::open(&path, &small(), &other, OpenMode::Resume).unwrap_err();
    assert!(matches!(error, StoreError::OtherStudy { .. }), "{error}");
    assert!(error.to_string().contains(&sha256(&other)[..12]), "{error}");
}

#[test]
fn a_later_schema_is_refused_and_left_alone() {
    let (_directory, path) = scratch();
    drop(open(&path, OpenMode::New).unwrap());
    pragma(&path, "PRAGMA user_version = 9");
    for error in [
        open(&path, OpenMode::Resume).unwrap_err(),
        Store::open_to_read(&path).unwrap_err(),
    ] {
        assert!(
            matches!(
                error,
                StoreError::Newer {
                    found: 9,
                    known: 8,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn files_that_are_not_stores_are_refused_and_left_unchanged() {
    let (_directory, path) = scratch();
    let notes =
        "these are notes, and long enough not to be taken for an empty database ".repeat(20);
    std::fs::write(&path, &notes).unwrap();
    let error = open(&path, OpenMode::Resume).unwrap_err();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), notes);

    std::fs::remove_file(&path).unwrap();
    pragma(&path, "CREATE TABLE someone_elses (x)");
    let before = std::fs::read(&path).unwrap();
    let error = open(&path, OpenMode::Resume).unwrap_err();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn views_and_computed_columns_in_place_of_tables_are_refused() {
    const ENDLESS: &str = "DROP TABLE case_entry; CREATE VIEW case_entry AS \
         WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) \
         SELECT i AS id, 0 AS round, '' AS case_name, i AS entered_unix_ns, '{}' AS settings_json FROM n";
    const LONG: &str = "ALTER TABLE console ADD COLUMN more TEXT AS (hex(zeroblob(4e8)))";
    const VIRTUAL: &str = "DROP TABLE console; CREATE VIRTUAL TABLE console USING fts5(output)";
    for (hostile, name) in [
        (ENDLESS, "case_entry"),
        (LONG, "console"),
        (VIRTUAL, "console"),
    ] {
        let (_directory, path) = scratch();
        drop(open(&path, OpenMode::New).unwrap());
        // A view of the user.
        pragma(&path, "CREATE VIEW own AS SELECT name FROM study");
        drop(open(&path, OpenMode::Resume).unwrap());
        pragma(&path, hostile);
        for error in [
            Store::open_to_read(&path).unwrap_err(),
            open(&path, OpenMode::Resume).unwrap_err(),
        ] {
            let text = format!("'{name}' is not an ordinary table");
            assert!(error.to_string().contains(&text), "{error}");
        }
    }
}

#[test]
fn absent_stores_and_directories_are_reported() {
    let (directory, path) = scratch();
    let error = Store::open_to_read(&path).unwrap_err();
    assert!(matches!(error, StoreError::Missing(_)), "{error}");
    let error = open(&directory.path().join("no/such.sqlite"), OpenMode::New).unwrap_err();
    assert!(matches!(error, StoreError::CannotOpen { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("check that the directory exists"),
        "{error}"
    );
}

#[test]
fn a_full_disk_is_reported_and_stored_results_stay() {
    let (_directory, path) = scratch();
    let mut store = open(&path, OpenMode::New).unwrap();
    let pages: i64 = store
        .connection
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .unwrap();
    // SQLite reports a file size limit with the same error as a full disk.
    store
        .connection
        .pragma_update(None, "max_page_count", pages + 12)
        .unwrap();
    let mut bench = SimulatedBench::new(1, 0);
    let stop = AtomicBool::new(false);
    let error = run_study(&small(), &mut store, &mut bench, &mut Silent, &stop).unwrap_err();
    let full = |error: &RunError| matches!(error, RunError::Store(StoreError::Full(_)));
    let is_full = match &error {
        RunError::Twice { first, .. } => full(first),
        error => full(error),
    };
    assert!(is_full, "{error}");
    assert!(error.to_string().contains("free space"), "{error}");
    assert_eq!(bench.entered_and_left.0, bench.entered_and_left.1);
    let kept = store.results().unwrap().trials().count();
    assert!(kept > 0);
    drop(store);

    let mut store = open(&path, OpenMode::Resume).unwrap();
    assert_eq!(store.results().unwrap().trials().count(), kept);
    let mut bench = SimulatedBench::new(1, kept as u64);
    run_study(&small(), &mut store, &mut bench, &mut Silent, &stop).unwrap();
}

#[test]
fn a_store_that_cannot_be_written_is_reported() {
    let (_directory, path) = scratch();
    let mut store = open(&path, OpenMode::New).unwrap();
    store
        .connection
        .pragma_update(None, "query_only", true)
        .unwrap();
    let error = store.begin_run(&environment()).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly(_)), "{error}");
}

#[test]
fn a_result_that_could_not_be_read_back_is_refused() {
    let (_directory, path) = scratch();
    let mut store = open(&path, OpenMode::New).unwrap();
    store.begin_run(&environment()).unwrap();
    let step = store
        .step_id(0, "quiet", Default::default(), &crate::StepKind::Sweep)
        .unwrap();
    let mut bench = SimulatedBench::new(1, 0);
    let spec = crate::CaseSpec {
        case: small().cases[0].clone(),
        position: 0,
        round: 0,
    };
    bench.enter_case(&spec).unwrap();
    let trial = trial();
    let mut measured = bench.run(&trial).unwrap();
    store.add_trial(step, 0, &trial, &measured).unwrap();
    measured.result.loss_ratio = f64::NAN;
    let error = store.add_trial(step, 1, &trial, &measured).unwrap_err();
    assert!(matches!(error, StoreError::CannotStore { .. }), "{error}");
    assert_eq!(store.trials_of(step).unwrap().len(), 1);
}

#[test]
fn a_path_with_marks_of_uris_is_read_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("what? 100%#1.sqlite");
    drop(open(&path, OpenMode::New).unwrap());
    Store::open_to_read(&path).unwrap().results().unwrap();
    assert_eq!(uri_path(Path::new("/a?b%c#d")), "/a%3fb%25c%23d");
}

fn identity(details: &str) -> RunIdentity {
    RunIdentity::of_generator(&quietwire_tester::GeneratorIdentity {
        name: "sim".to_owned(),
        version: "1".to_owned(),
        details: details.to_owned(),
        is_simulated: true,
    })
    .unwrap()
}

#[test]
fn a_study_is_not_resumed_under_other_conditions_unless_it_is_to_be() {
    let (_directory, path) = scratch();
    let run = |details: &str, despite: bool| -> Result<(), StoreError> {
        let mut store = open(&path, OpenMode::Resume)?;
        store.set_conditions(identity(details), despite)?;
        let stop = AtomicBool::new(false);
        let mut bench = SimulatedBench::new(1, 0);
        run_study(&small(), &mut store, &mut bench, &mut Silent, &stop).unwrap();
        Ok(())
    };
    // A run without a trial decides nothing.
    let mut store = open(&path, OpenMode::New).unwrap();
    store.set_conditions(identity("none"), false).unwrap();
    drop(store);
    run("first", false).unwrap();
    run("first", false).unwrap();
    let difference = "traffic generator was 'sim 1 first' and is 'sim 1 second'";
    for refused in [
        run("second", false),
        Store::check_conditions(&path, &identity("second")),
    ] {
        let error = refused.unwrap_err();
        assert!(
            matches!(&error, StoreError::OtherConditions { differences, .. } if differences == &[difference]),
            "{error}"
        );
        assert!(error.to_string().contains("--anyway"), "{error}");
    }
    Store::check_conditions(&path, &identity("first")).unwrap();
    run("second", true).unwrap();
    let runs = Store::open_to_read(&path).unwrap().results().unwrap().runs;
    let despite: Vec<Vec<String>> = runs.into_iter().map(|run| run.resumed_despite).collect();
    assert_eq!(despite, [vec![], vec![], vec![difference.to_owned()]]);
}

#[test]
fn a_store_is_set_aside_with_its_log_unless_a_run_has_it() {
    let (directory, path) = scratch();
    assert_eq!(Store::set_aside(&path).unwrap(), None);
    let store = open(&path, OpenMode::New).unwrap();
    let error = Store::set_aside(&path).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(path.exists(), "a store in use was renamed");
    drop(store);
    let wal = directory.path().join("store.sqlite-wal");
    std::fs::write(&wal, "").unwrap();
    for number in 1..3 {
        let name = directory.path().join(format!("store.sqlite.{number}"));
        assert_eq!(Store::set_aside(&path).unwrap(), Some(name.clone()));
        assert!(name.exists() && !path.exists() && !wal.exists());
        drop(open(&path, OpenMode::New).unwrap());
    }
    assert!(directory.path().join("store.sqlite.1-wal").exists());
}
