// SPDX-License-Identifier: Apache-2.0
//! State of a study without its trials, and queries that do not read all of them.

use super::super::overview::QUERIES;
use super::super::read::{LAST_IDENTITY, trials_query};
use super::*;

#[test]
fn an_overview_agrees_with_the_results() {
    let (_directory, path) = scratch();
    let mut store = open(&path, OpenMode::New).unwrap();
    let empty = store.overview().unwrap();
    assert_eq!((empty.trials, empty.finished_steps), (0, 0));
    assert!(empty.latest.is_none() && empty.planned_steps > 0);
    let mut bench = SimulatedBench::new(1, 0);
    let stop = AtomicBool::new(false);
    run_study(&small(), &mut store, &mut bench, &mut Silent, &stop).unwrap();
    let (overview, results) = (store.overview().unwrap(), store.results().unwrap());
    assert_eq!(overview.file, results.file);
    assert_eq!(overview.started_unix_ns, results.started_unix_ns);
    assert_eq!(overview.end, Some(crate::RunEnd::Finished));
    assert_eq!(overview.trials, results.trials().count());
    let invalid = results.trials();
    let invalid = invalid.filter(|(_, trial)| !trial.result.is_valid());
    let invalid = invalid.count();
    assert!(invalid > 0);
    assert_eq!(overview.invalid_trials, invalid);
    let finished = results.steps.iter().filter(|step| step.is_finished);
    assert_eq!(overview.finished_steps, finished.count());
    assert_eq!(overview.planned_steps, results.steps.len());
    let (step, trial) = results.trials().last().unwrap();
    let latest = overview.latest.unwrap();
    assert_eq!(latest.case_name, step.case_name);
    assert_eq!(
        (latest.frame_size, &latest.kind),
        (step.frame_size, &step.kind)
    );
    assert_eq!(latest.request, trial.request);
    assert_eq!(latest.result.loss_ratio, trial.result.loss_ratio);
    assert_eq!(latest.stored_unix_ns, trial.stored_unix_ns);
}

#[test]
fn no_query_reads_all_trials() {
    let (_directory, path) = scratch();
    let store = open(&path, OpenMode::New).unwrap();
    let of_step = trials_query(store.schema).replace('?', "1");
    for query in QUERIES
        .iter()
        .copied()
        .chain([LAST_IDENTITY, of_step.as_str()])
    {
        let plan = store.rows(&format!("EXPLAIN QUERY PLAN {query}"), [], |row| {
            row.get::<_, String>(3)
        });
        let plan = plan.unwrap();
        let reads = |line: &&String| line.contains("trial") || line.contains(" t ");
        assert!(plan.iter().any(|line| reads(&line)), "{query}: {plan:?}");
        for line in plan.iter().filter(reads) {
            let is_bounded = line.starts_with("SEARCH") || line.contains("COVERING INDEX");
            assert!(is_bounded, "{query}: {line}");
        }
    }
}
