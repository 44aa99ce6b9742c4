// SPDX-License-Identifier: Apache-2.0
//! Fuzz target of stores: any values in any columns.

use quietwire_base::fuzz::{check, planted};

use super::*;

/// Columns that the target changes, by the name of their table.
const COLUMNS: [(&str, &[&str]); 5] = [
    ("study", &["file_text"]),
    (
        "run",
        &["how_ended", "message", "machine_json", "versions_json"],
    ),
    ("case_entry", &["settings_json", "case_name"]),
    (
        "step",
        &[
            "frame_size",
            "kind_json",
            "findings_json",
            "procedure_json",
            "application_json",
        ],
    ),
    ("trial", &["request_json", "result_json"]),
];

/// Returns a store with one trial of each method.
fn store() -> (tempfile::TempDir, Store) {
    let (directory, path) = scratch();
    let mut store = open(&path, OpenMode::New).unwrap();
    let mut bench = SimulatedBench::new(1, 0);
    let stop = AtomicBool::new(false);
    run_study(&small(), &mut store, &mut bench, &mut Silent, &stop).unwrap();
    // Few rows are read in a moment.
    store
        .connection
        .execute_batch(
            "DELETE FROM trial WHERE id NOT IN (SELECT min(id) FROM trial GROUP BY step_id); \
             DELETE FROM action; DELETE FROM trial WHERE step_id > 4; DELETE FROM step WHERE id > 4;",
        )
        .unwrap();
    (directory, store)
}

/// Sets columns from lines `TABLE.COLUMN VALUE` in the first rows, and reads the store. It is read, or the error is about the store.
fn fuzz_store(store: &Store, octets: &[u8]) -> bool {
    let text = String::from_utf8_lossy(octets);
    store.connection.execute_batch("SAVEPOINT fuzz").unwrap();
    let mut changed = 0;
    for line in text.lines().take(8) {
        let Some((name, value)) = line.split_once(' ') else {
            continue;
        };
        let Some((table, column)) = name.split_once('.') else {
            continue;
        };
        let is_known =
            |(known, columns): &(&str, &[&str])| *known == table && columns.contains(&column);
        if COLUMNS.iter().any(is_known) {
            let update = format!("UPDATE {table} SET {column} = ?1 WHERE id = 1");
            // Two rows cannot have the same key.
            changed += store.connection.execute(&update, [value]).unwrap_or(0);
        }
    }
    let read = store.results();
    store
        .connection
        .execute_batch("ROLLBACK TO fuzz; RELEASE fuzz")
        .unwrap();
    match read {
        Ok(results) => {
            planted("study-store", || {
                let is_deep = |trial: &crate::TrialRecord| {
                    let result = &trial.result;
                    result.offered_frames.max(result.received_frames) > 1 << 40
                };
                changed > 1 && results.trials().any(|(_, trial)| is_deep(trial))
            });
            changed > 0
        }
        Err(error) => {
            assert!(changed > 0, "{error}");
            assert!(error.to_string().contains("store.sqlite"), "{error}");
            false
        }
    }
}

fn target() -> impl Fn(&[u8]) -> bool {
    let (directory, store) = store();
    move |octets| {
        assert!(directory.path().exists());
        fuzz_store(&store, octets)
    }
}

#[test]
fn stores() {
    check(env!("CARGO_MANIFEST_DIR"), "study-store", target());
}
