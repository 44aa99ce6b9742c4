// SPDX-License-Identifier: Apache-2.0
//! Tenants are added until the loss goal breaks.

use super::*;

/// The simulated device forwards 6.4 Mpps ± 3 %.
const TENANTS: &str = concat!(
    include_str!("tenants.toml"),
    r#"
# Of which nothing is asked that the others are not asked for as well: it is not even set up.
[[case]]
name = "alone"
topology = "vNet1"
"#
);

fn run(text: &str, bench: &mut SimulatedBench, stop_after: usize) -> StudyResults {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sqlite");
    let file = StudyFile::parse(text, Path::new("tenants.toml")).unwrap();
    let mut mode = OpenMode::New;
    loop {
        let mut store = Store::open(&path, &file, text, mode).unwrap();
        let stop = AtomicBool::new(false);
        let mut progress = StopAfter(stop_after, &stop);
        let end = run_study(&file, &mut store, bench, &mut progress, &stop).unwrap();
        if end == StudyEnd::Finished {
            return store.results().unwrap();
        }
        mode = OpenMode::Resume;
    }
}

struct StopAfter<'a>(usize, &'a AtomicBool);

impl Progress for StopAfter<'_> {
    fn trial(&mut self, event: &TrialEvent<'_>) {
        self.0 -= usize::from(!event.is_replayed);
        self.1.store(self.0 == 0, Ordering::Relaxed);
    }
}

/// Returns the numbers of tenants that were tried, in order.
fn tried(results: &StudyResults) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for entry in &results.entries {
        if names.last() != Some(&&*entry.case_name) {
            names.push(&entry.case_name);
        }
    }
    names
}

fn bench() -> SimulatedBench {
    let mut bench = SimulatedBench::new(SEED, 0);
    bench.invalid_ratio = 0.0;
    bench
}

#[test]
fn tenants_are_added_by_doubling_and_then_halfway_between() {
    let results = run(TENANTS, &mut bench(), usize::MAX);
    let all = [
        "tenants-1",
        "tenants-2",
        "tenants-4",
        "tenants-8",
        "tenants-6",
        "tenants-7",
    ];
    assert_eq!(tried(&results), all);
    let held = |name: &str| {
        let mut cases = results.file.cases.iter();
        results.held(cases.find(|case| case.name == name).unwrap(), 0)
    };
    assert_eq!(
        (held("tenants-6"), held("tenants-7")),
        (Some(true), Some(false))
    );
    assert_eq!((held("tenants-5"), held("alone")), (None, None));
    // After a good trial there is no other; if none is good, all run.
    let trials = |name: &str| {
        let of_case = results.trials().filter(|(step, _)| step.case_name == name);
        of_case
            .map(|(_, trial)| trial.request.offered_rate_pps)
            .collect::<Vec<_>>()
    };
    assert_eq!(trials("tenants-4"), [4e6]);
    assert_eq!(trials("tenants-8"), [8e6; 3]);
    // Their load is no share of a maximum rate, so none is measured.
    assert!(results.max_rates.is_empty(), "{:?}", results.max_rates);

    // Interrupted after every trial, the search is the same.
    let pieces = run(TENANTS, &mut bench(), 1);
    let essence = |results: &StudyResults| super::essence(results);
    assert_eq!(essence(&pieces), essence(&results));
}

#[test]
fn unavailable_numbers_of_tenants_bound_the_search() {
    let mut bench = bench();
    let why = CaseSkipped::Failed("no memory".to_owned());
    bench.left_out = Some(("tenants-4".to_owned(), why));
    let results = run(TENANTS, &mut bench, usize::MAX);
    let all = ["tenants-1", "tenants-2", "tenants-4", "tenants-3"];
    assert_eq!(tried(&results), all);

    // If one tenant is unavailable, no more are tried.
    let mut bench = self::bench();
    bench.unavailable = Some(("tenants-1".to_owned(), "no such switch".to_owned()));
    let results = run(TENANTS, &mut bench, usize::MAX);
    assert_eq!(tried(&results), ["tenants-1"]);
}

#[test]
fn wrong_values_of_tenants_are_refused() {
    for (old, new, says) in [
        ("vNet4-nVNF", "vNet4-1VNF", "has one chain"),
        ("rate-pps = 1_000_000", "rate-pps = 0", "above 0"),
        ("loss-ratio = 0.01", "loss-ratio = 1.0", "not in [0, 1)"),
        ("most = 16", "most = 33", "1 to 32"),
        ("most = 16", "trials = 0", "1 to 100"),
        ("name = \"alone\"", "name = \"tenants-2\"", "two cases"),
    ] {
        let text = TENANTS.replace(old, new);
        let error = StudyFile::parse(&text, Path::new("tenants.toml")).unwrap_err();
        assert!(error.to_string().contains(says), "{new}: {error}");
    }
}
