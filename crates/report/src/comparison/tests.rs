// SPDX-License-Identifier: Apache-2.0
//! Comparisons of simulated studies, and their error rate.

use quietwire_base::random::fraction;
use quietwire_study::simulated::SimulatedBench;

use super::*;
use crate::tests::results_of;

const CONFIG: ComparisonConfig = ComparisonConfig {
    confidence: 0.95,
    margin: 0.02,
};

fn study(rounds: u32, more: &str) -> String {
    format!(
        r#"
name = "compared"
title = "A compared study"
rounds = {rounds}
{}
[trials]
duration-s = 1
invalid-repeats = 5
[search]
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 5
best-of = 2
goal = [{{ name = "NDR", loss-ratio = 0.0 }}, {{ name = "PDR", loss-ratio = 0.005 }}]
[latency]
rate-percent = 1
duration-s = 1
repeats = 2
{more}
"#,
        include_str!("../../../study/src/tests/device.toml")
    )
}

const QUIET: &str = "[[case]]\nname = \"a\"\nneighbours = \"none\"\nisolation = \"none\"\n";
const NOISY: &str = "[neighbours]\nstressors = [\"--cpu 4\"]\n\
     [[case]]\nname = \"a\"\nneighbours = \"everywhere\"\nisolation = \"none\"\n";

fn run(rounds: u32, cases: &str, seed: u64) -> StudyResults {
    let mut bench = SimulatedBench::new(seed, 0);
    bench.invalid_ratio = 0.0;
    results_of(&study(rounds, cases), bench, usize::MAX)
}

fn compare(first: &StudyResults, second: &StudyResults) -> Comparison {
    Comparison::of(first, second, CONFIG).unwrap()
}

#[test]
fn a_slower_device_is_a_regression_of_rates_and_latencies_and_a_faster_one_is_not() {
    let (quiet, noisy) = (run(7, QUIET, 1), run(7, NOISY, 2));
    let worse = compare(&quiet, &noisy);
    let names: Vec<&str> = worse
        .regressions()
        .map(|one| one.quantity.as_str())
        .collect();
    assert!(
        names.contains(&"PDR") && names.contains(&"mean latency"),
        "{names:?}"
    );
    assert!(
        worse
            .quantities
            .iter()
            .all(|one| one.finding == Finding::Different)
    );
    let better = compare(&noisy, &quiet);
    assert_eq!(better.regressions().count(), 0);
    let differing = better.differences.iter();
    let names: Vec<&str> = differing.map(|one| one.setting.as_str()).collect();
    assert!(names.contains(&"study.case[0].neighbours"), "{names:?}");
    let text = worse.text(None);
    assert!(
        text.contains("REGRESSION") && text.contains("study.case[0].neighbours"),
        "{text}"
    );
}

#[test]
fn the_same_store_is_the_same_and_few_rounds_decide_nothing() {
    let results = run(9, QUIET, 1);
    let same = compare(&results, &results);
    assert!(same.differences.is_empty(), "{:?}", same.differences);
    assert_eq!(same.quantities.len(), 6);
    for one in &same.quantities {
        assert_ne!(one.finding, Finding::Different, "{one:?}");
        assert_eq!(one.effect.ratio, Some(1.0));
    }
    let few = run(3, QUIET, 1);
    let undecided = compare(&results, &few);
    assert!(
        undecided
            .quantities
            .iter()
            .all(|one| one.finding == Finding::Unknown)
    );
    let reason = undecided.quantities[0].reason.clone().unwrap();
    assert!(reason.contains("9 and 3 values are too few"), "{reason}");
}

#[test]
fn cases_of_one_store_alone_are_listed() {
    let renamed = QUIET.replace("\"a\"", "\"b\"");
    let found = compare(&run(1, QUIET, 1), &run(1, &renamed, 1));
    assert!(found.quantities.is_empty());
    assert_eq!(found.unmatched_cases, [["a"], ["b"]]);
    assert!(found.text(None).contains("only in the second: b"));
}

#[test]
fn two_cases_of_a_store_are_compared_with_the_settings_that_differ() {
    let two = NOISY.replace("name = \"a\"", "name = \"b\"");
    let (stressors, noisy) = two.split_once("[[case]]").unwrap();
    let both = format!("{stressors}{QUIET}[[case]]{noisy}");
    let results = run(7, &both, 3);
    let of = |names| Comparison::of_cases([&results, &results], names, CONFIG).unwrap();
    let worse = of(["a", "b"]);
    let pdr = worse.regressions().find(|one| one.quantity == "PDR");
    let pdr = pdr.unwrap();
    assert_eq!(
        (pdr.case.as_str(), pdr.other_case.as_deref()),
        ("a", Some("b"))
    );
    let names: Vec<&str> = worse
        .differences
        .iter()
        .map(|one| one.setting.as_str())
        .collect();
    assert_eq!(names, ["case.neighbours"]);
    assert!(worse.text(None).contains("a → b"));
    assert_eq!(of(["b", "a"]).regressions().count(), 0);
    assert_eq!(of(["a", "a"]), {
        let mut same = compare(&results, &results);
        same.quantities.retain(|one| one.case == "a");
        same
    });
    assert!(of(["a", "c"]).quantities.is_empty());
}

/// Returns values of a simulated device that collapses in some rounds, or has two values, or varies evenly. Their median is `median`.
fn values(kind: u64, seed: u64, rounds: u32, median: f64) -> Vec<Sample> {
    let factor = |quantile: f64| match kind {
        0 => 0.97 + 0.06 * quantile,
        1 if quantile < 0.25 => 0.1,
        1 => 1.0 + 0.04 * (quantile - 0.5),
        _ if quantile < 0.5 => 0.3 + 0.1 * quantile,
        _ => 1.0 + 1e-4 * (quantile - 0.5),
    };
    let numbered = 0..rounds;
    numbered
        .map(|round| {
            let value = median * factor(fraction(seed, u64::from(round)));
            Sample::exact(round, 0, value)
        })
        .collect()
}

#[test]
fn false_findings_on_simulated_devices_are_rarer_than_stated() {
    const REPEATS: u64 = 1_000;
    let measure = Measure {
        quantity: Quantity::Rate("NDR".to_owned()),
        load_percent: None,
        load: None,
        point: Point::Mean,
    };
    let place = || ["a".to_owned(), "64".to_owned()];
    for kinds in (0..9).map(|pair| [pair / 3, pair % 3]) {
        for rounds in [[7, 7], [6, 9], [12, 12]] {
            let find = |number: u64, ratio: f64| {
                let [first, second] = [0, 1].map(|side| {
                    let median = if side == 0 { 1e6 } else { 1e6 * ratio };
                    values(kinds[side], 2 * number + side as u64, rounds[side], median)
                });
                compared(place(), &measure, [&first, &second], CONFIG)
            };
            let share = |is_false: &dyn Fn(u64) -> bool| {
                (0..REPEATS).filter(|number| is_false(*number)).count() as f64 / REPEATS as f64
            };
            let false_rates = [
                // Equal devices are not different.
                share(&|number| find(number, 1.0).finding == Finding::Different),
                // Devices that differ by more than the margin are not the same.
                share(&|number| find(number, 0.979).finding == Finding::Same),
                share(&|number| find(number, 1.021).finding == Finding::Same),
                // A device at the margin is no regression.
                share(&|number| find(number, 0.98).is_regression),
            ];
            assert!(
                false_rates.iter().all(|ratio| *ratio <= 0.05),
                "{kinds:?}, {rounds:?}: {false_rates:?}"
            );
        }
    }
}

#[test]
fn clear_regressions_are_found() {
    let measure = Measure {
        quantity: Quantity::Rate("NDR".to_owned()),
        load_percent: None,
        load: None,
        point: Point::Mean,
    };
    for number in 0..100 {
        let [first, second] = [values(0, number, 7, 1e6), values(0, number + 500, 7, 0.9e6)];
        let place = ["a".to_owned(), "64".to_owned()];
        let found = compared(place, &measure, [&first, &second], CONFIG);
        assert!(found.is_regression, "{found:?}");
    }
}
