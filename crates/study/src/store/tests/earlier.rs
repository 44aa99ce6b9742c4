// SPDX-License-Identifier: Apache-2.0
//! Stores of earlier versions: read unchanged, migrated when a study continues, refused if too old.

use super::*;
use crate::StudyResults;

/// Store with schema 2.
const SCHEMA_2: &str = include_str!("../schema-2.sql");

fn stored() -> (tempfile::TempDir, PathBuf) {
    let (directory, path) = scratch();
    pragma(&path, SCHEMA_2);
    (directory, path)
}

fn read(path: &Path) -> StudyResults {
    Store::open_to_read(path).unwrap().results().unwrap()
}

/// Checks the content, which was verified by hand.
fn check(results: &StudyResults) {
    assert_eq!(results.file.name, "old");
    let trials: Vec<_> = results.trials().map(|(_, trial)| trial).collect();
    assert_eq!(trials.len(), 4);
    let first = &trials[0];
    assert_eq!(first.request.offered_rate_pps, 6e6);
    assert_eq!(first.result.lost_frames, 3023);
    assert_eq!(first.result.latency.samples, 5_996_977);
    assert_eq!(first.activity.machine.as_ref().unwrap().elapsed_s, 1.3);
    for trial in trials {
        let (every, low_rate) = (&trial.result.variation, &trial.result.low_rate);
        for histogram in [
            &trial.result.latency.histogram_v2_base64,
            &every.pdv.histogram_v2_base64,
            &every.ipdv.histogram_v2_base64,
            &every.ipdv.negative_histogram_v2_base64,
            &low_rate.latency.histogram_v2_base64,
            &low_rate.variation.pdv.histogram_v2_base64,
            &low_rate.variation.ipdv.histogram_v2_base64,
            &low_rate.variation.ipdv.negative_histogram_v2_base64,
        ] {
            assert!(!histogram.is_empty());
            assert!(
                SCHEMA_2.contains(&format!("\"{histogram}\"")),
                "{histogram}"
            );
        }
    }
    let actions: Vec<_> = results
        .steps
        .iter()
        .flat_map(|step| &step.actions)
        .collect();
    assert_eq!(actions.len(), 2);
}

#[test]
fn a_store_of_schema_2_is_read_as_it_is() {
    let (_directory, path) = stored();
    let before = std::fs::read(&path).unwrap();
    check(&read(&path));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_store_of_schema_2_is_rewritten_when_its_study_goes_on() {
    let (_directory, path) = stored();
    let before = read(&path);
    let text = before.file_text.clone();
    let size = std::fs::metadata(&path).unwrap().len();
    let mut store = Store::open(&path, &before.file, &text, OpenMode::Resume).unwrap();
    assert_eq!(store.results().unwrap(), before);
    // It accepts everything that a new store accepts.
    let mut bench = SimulatedBench::new(1, 0);
    let stop = AtomicBool::new(false);
    run_study(&before.file, &mut store, &mut bench, &mut Silent, &stop).unwrap();
    drop(store);
    check(&read(&path));

    let (_directory, fresh) = scratch();
    drop(Store::open(&fresh, &before.file, &text, OpenMode::New).unwrap());
    let version = |path: &Path| -> (i64, i64, Vec<String>) {
        let connection = Connection::open(path).unwrap();
        let number = |name| connection.pragma_query_value(None, name, |row| row.get(0));
        let columns = connection
            .prepare(
                "SELECT m.name || '.' || c.name || ' ' || c.type || ' ' || c.[notnull] FROM sqlite_schema m, \
                 pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid",
            )
            .unwrap()
            .query_map((), |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        (
            number("application_id").unwrap(),
            number("user_version").unwrap(),
            columns,
        )
    };
    assert_eq!(version(&path), version(&fresh));
    pragma(
        &path,
        "PRAGMA foreign_key_check; PRAGMA integrity_check; VACUUM",
    );
    let now = std::fs::metadata(&path).unwrap().len();
    // The table of courses, which is new, takes a page of the database.
    const PAGE: u64 = 4096;
    assert!(now <= size + PAGE, "{now} octets instead of {size}");
}

#[test]
fn a_store_of_schema_5_is_read_and_rewritten() {
    let (_directory, path) = stored();
    let before = read(&path);
    let text = before.file_text.clone();
    drop(Store::open(&path, &before.file, &text, OpenMode::Resume).unwrap());
    pragma(
        &path,
        "ALTER TABLE action RENAME TO deed; ALTER TABLE console RENAME COLUMN output_zstd TO said_zstd; \
         DROP TABLE run_identity; DROP TABLE trial_series; PRAGMA user_version = 5",
    );
    assert_eq!(read(&path), before);
    let store = Store::open(&path, &before.file, &text, OpenMode::Resume).unwrap();
    assert_eq!(store.results().unwrap(), before);
    drop(store);
    assert_eq!(read(&path), before);
}

#[test]
fn a_store_of_schema_6_is_read_and_rewritten() {
    let (_directory, path) = stored();
    let before = read(&path);
    let text = before.file_text.clone();
    drop(Store::open(&path, &before.file, &text, OpenMode::Resume).unwrap());
    pragma(
        &path,
        "DROP TABLE run_identity; DROP TABLE trial_series; PRAGMA user_version = 6",
    );
    assert_eq!(read(&path), before);
    // Its conditions are unknown, so they do not differ.
    let identity = RunIdentity::of_lab().unwrap();
    Store::check_conditions(&path, &identity).unwrap();
    let mut store = Store::open(&path, &before.file, &text, OpenMode::Resume).unwrap();
    store.set_conditions(identity, false).unwrap();
    drop(store);
    assert_eq!(read(&path), before);
}

#[test]
fn a_store_of_schema_7_is_read_and_its_next_trials_have_their_courses() {
    let (_directory, path) = scratch();
    let mut store = open(&path, OpenMode::New).unwrap();
    let mut bench = SimulatedBench::new(1, 0);
    let stop = AtomicBool::new(false);
    run_study(&small(), &mut store, &mut bench, &mut Silent, &stop).unwrap();
    drop(store);
    let whole = read(&path);
    let mut without = whole.clone();
    for step in &mut without.steps {
        for trial in &mut step.trials {
            assert!(!trial.result.series.frames.is_empty());
            trial.result.series = Default::default();
        }
    }
    let store = Store::open_to_read(&path).unwrap();
    assert_eq!(store.results_without_series().unwrap(), without);
    drop(store);
    pragma(&path, "DROP TABLE trial_series; PRAGMA user_version = 7");
    assert_eq!(read(&path), without);
    let mut store = open(&path, OpenMode::Resume).unwrap();
    assert_eq!(store.results().unwrap(), without);
    store.begin_run(&environment()).unwrap();
    let step = without.steps[0].id;
    let first = &whole.steps[0].trials[0];
    let measured = crate::bench::Measured {
        result: first.result.clone(),
        activity: first.activity.clone(),
    };
    let next = without.steps[0].trials.len() as u32;
    store.add_trial(step, next, &trial(), &measured).unwrap();
    let stored = store.trials_of(step).unwrap();
    assert_eq!(stored.last().unwrap().result, first.result);
}

#[test]
fn a_damaged_store_of_schema_2_stays_as_it_was() {
    let (_directory, path) = stored();
    pragma(&path, "UPDATE trial SET result_json = '{}' WHERE id = 3");
    let text: String = Connection::open(&path)
        .unwrap()
        .query_row("SELECT file_text FROM study", (), |row| row.get(0))
        .unwrap();
    let file = StudyFile::parse_stored(&text, &path).unwrap();
    let error = Store::open(&path, &file, &text, OpenMode::Resume).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let connection = Connection::open(&path).unwrap();
    let (version, rows): (i64, i64) = connection
        .query_row(
            "SELECT user_version, (SELECT count(*) FROM trial WHERE length(activity_json) > 0) FROM pragma_user_version",
            (),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!((version, rows), (2, 4));
}

#[test]
fn a_schema_that_is_too_old_is_refused_and_left_alone() {
    let (_directory, path) = stored();
    pragma(&path, "PRAGMA user_version = 1");
    let before = std::fs::read(&path).unwrap();
    for error in [
        open(&path, OpenMode::Resume).unwrap_err(),
        Store::open_to_read(&path).unwrap_err(),
    ] {
        assert!(
            matches!(
                error,
                StoreError::Older {
                    found: 1,
                    oldest: 2,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("older quietwire"), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
