// SPDX-License-Identifier: Apache-2.0
//! Trends of simulated studies.

use quietwire_study::simulated::SimulatedBench;

use super::*;
use crate::tests::results_of;

const CONFIG: TrendConfig = TrendConfig {
    error_rate: 0.05,
    margin: 0.02,
};

fn study(neighbours: &str) -> String {
    let stressors = match neighbours {
        "none" => "",
        _ => "[neighbours]\nstressors = [\"--cpu 4\"]",
    };
    format!(
        r#"
name = "nightly"
title = "A nightly study"
rounds = 1
{}
[trials]
duration-s = 1
invalid-repeats = 5
[search]
start-rate-percent = 1
start-step-percent = 10
resolution-percent = 0.5
goal = [{{ name = "PDR", loss-ratio = 0.005 }}]
{stressors}
[[case]]
name = "a"
neighbours = "{neighbours}"
isolation = "none"
"#,
        include_str!("../../../study/src/tests/device.toml")
    )
}

fn store(number: u64, neighbours: &str) -> StudyResults {
    let mut bench = SimulatedBench::new(number, 0);
    bench.invalid_ratio = 0.0;
    let mut results = results_of(&study(neighbours), bench, usize::MAX);
    results.started_unix_ns = 1_000_000_000 * number;
    results
}

/// Returns the trend of fourteen stores. The device is slower in the last seven. They are added in another order.
fn trend() -> Trend {
    let mut stores = TrendStores::default();
    for number in (1..=14).rev() {
        let neighbours = if number <= 7 { "none" } else { "everywhere" };
        let name = format!("{number:02}.sqlite");
        stores.add(&name, &store(number, neighbours)).unwrap();
    }
    stores.skip("x.sqlite: not a store".to_owned());
    stores.trend(CONFIG)
}

#[test]
fn a_regression_is_found_at_its_store_with_what_differs_there() {
    let trend = trend();
    let names: Vec<&str> = trend
        .stores
        .iter()
        .map(|store| store.name.as_str())
        .collect();
    assert_eq!((names[0], names[13]), ("01.sqlite", "14.sqlite"));
    assert_eq!(trend.series.len(), 1);
    let series = &trend.series[0];
    assert_eq!((series.quantity.as_str(), series.points.len()), ("PDR", 14));
    let change = series.regression().unwrap();
    assert_eq!(change.store, 7);
    assert!(change.after < 0.2 * change.before, "{change:?}");
    let settings: Vec<&str> = change
        .differences
        .iter()
        .map(|one| one.setting.as_str())
        .collect();
    assert!(
        settings.contains(&"study.case[0].neighbours"),
        "{settings:?}"
    );
    let text = trend.text(None);
    assert!(
        text.contains("REGRESSION: PDR of a (nightly, 64) changes from"),
        "{text}"
    );
    assert!(
        text.contains("at 08.sqlite") && text.contains("skipped: x.sqlite"),
        "{text}"
    );
    let page = trend.html();
    assert!(
        page.contains("at 08.sqlite") && page.contains("<svg class=\"chart"),
        "{page}"
    );
    assert!(!page.contains("http://"));
    assert_eq!(page.matches("<script").count(), 1);
}

#[test]
fn rates_with_another_allowed_loss_are_another_quantity() {
    let mut stores = TrendStores::default();
    for number in 1..=4 {
        let mut results = store(number, "none");
        if number > 2 {
            results.file.search.as_mut().unwrap().goals[0].loss_ratio = 0.01;
        }
        stores.add(&format!("{number}.sqlite"), &results).unwrap();
    }
    let trend = stores.trend(CONFIG);
    let series = trend.series.iter();
    let series: Vec<(&str, usize)> = series
        .map(|one| (one.quantity.as_str(), one.points.len()))
        .collect();
    assert_eq!(series.len(), 2);
    assert_eq!(series[0], ("PDR (loss ratio 0.005)", 2));
    assert_eq!(series[1], ("PDR (loss ratio 0.01)", 2));
}

#[test]
fn few_stores_and_quick_studies_show_no_change() {
    let mut stores = TrendStores::default();
    assert!(stores.is_empty());
    let mut quick = store(3, "none");
    quick.file.quick = true;
    stores.add("quick.sqlite", &quick).unwrap();
    assert!(stores.is_empty());
    for number in 1..=2 {
        stores.add("s.sqlite", &store(number, "none")).unwrap();
    }
    let trend = stores.trend(CONFIG);
    assert_eq!(trend.skipped, ["quick.sqlite: --quick shortened the study"]);
    let series = &trend.series[0];
    assert!(series.changes.is_empty() && series.regression().is_none());
    assert!(
        series
            .reason
            .as_ref()
            .unwrap()
            .starts_with("2 known values")
    );
    assert!(trend.html().contains("No quantity changes."));
    assert!(trend.text(None).contains("too few values"));
}
