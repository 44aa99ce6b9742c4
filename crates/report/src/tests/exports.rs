// SPDX-License-Identifier: Apache-2.0
//! Markdown, CSV and pictures of simulated studies.

use quietwire_tester::read_histogram;

use super::{checked, whole};
use crate::{Baselines, Report, SearchOutcome, markdown};

#[test]
fn every_trial_is_a_line_of_csv() {
    let results = whole();
    let report = Report::new(&results, &Baselines::new()).unwrap();
    let text = report.csv();
    let mut lines = text.split_terminator("\r\n");
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|one| *one == name).unwrap();
    let (loss, case) = (column("loss_ratio"), column("case"));
    let mut trials = results.trials();
    let mut count = 0;
    for line in lines {
        let (step, trial) = trials.next().unwrap();
        count += 1;
        // The reasons of invalid trials contain commas, and are quoted.
        if trial.result.is_valid() {
            let cells: Vec<&str> = line.split(',').collect();
            assert_eq!(cells.len(), header.len(), "{line}");
            assert_eq!(cells[loss].parse::<f64>().unwrap(), trial.result.loss_ratio);
            assert_eq!(cells[case], step.case_name);
        }
    }
    assert!(trials.next().is_none() && count > 100);
}

#[test]
fn markdown_has_the_figures_of_the_table() {
    let results = whole();
    let (summary, _) = checked(&results);
    let text = markdown(&summary);
    for part in [
        "## Verdicts",
        "## Results with frames of 64 octets",
        "| case |",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let (_, rows) = crate::table::size_table(&summary.sizes[0]);
    assert_eq!(rows.len(), summary.sizes[0].cases.len());
    for cell in rows.iter().flatten() {
        let cell = cell.replace(crate::format::THIN, " ").replace('<', "\\<");
        assert!(
            text.contains(&format!("| {cell} |")),
            "no '{cell}' in {text}"
        );
    }
}

#[test]
fn every_chart_of_the_page_is_a_picture() {
    let results = whole();
    let (_, page) = checked(&results);
    let report = Report::new(&results, &Baselines::new()).unwrap();
    let figures = report.figures();
    assert_eq!(figures.len(), page.matches("<svg class=\"chart").count());
    assert!(figures.len() >= 4, "{}", figures.len());
    for figure in &figures {
        let svg = &figure.svg;
        assert!(svg.contains("xmlns=\"http://www.w3.org/2000/svg\"") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<svg").count(), 1, "{}", figure.file_name);
        assert_eq!(
            svg.matches('<').count(),
            svg.matches("</").count() * 2 + 1,
            "{}",
            figure.file_name
        );
    }
}

#[test]
fn every_search_is_a_test_of_csit() {
    let results = whole();
    let report = Report::new(&results, &Baselines::new()).unwrap();
    let tests = report.csit().unwrap();
    let cases = &report.summary().sizes[0].cases;
    let searches: usize = cases.iter().map(|case| case.goals[0].outcomes.len()).sum();
    assert_eq!(tests.len(), searches);
    let mut names: Vec<&str> = tests.iter().map(|test| test.file_name.as_str()).collect();
    names.dedup();
    assert_eq!(names.len(), searches, "{names:?}");
    let mut tests = tests.iter();
    for case in cases {
        for search in 0..case.goals[0].outcomes.len() {
            let document = &tests.next().unwrap().document;
            let result = &document["result"];
            let ndr = case.goals.iter().find(|goal| goal.loss_ratio == 0.0);
            let held = match ndr.unwrap().outcomes[search] {
                SearchOutcome::Held { rate_pps, .. } | SearchOutcome::AtLeast { rate_pps } => {
                    Some(rate_pps)
                }
                _ => None,
            };
            let lower = &result["ndr"]["lower"];
            assert_eq!(lower["rate"]["value"].as_f64(), held, "{document}");
            if let Some(rate_pps) = held {
                // 64 octets and 20 octets around them.
                let bandwidth = lower["bandwidth"]["value"].as_f64().unwrap();
                assert!((bandwidth - rate_pps * 84.0 * 8.0).abs() < 1.0);
                let upper = &result["ndr"]["upper"]["rate"]["value"];
                assert!(upper.as_f64().is_none_or(|upper| upper > rate_pps));
            }
            let latency = &result["latency_forward"]["pdr_0"];
            assert_eq!(latency["unit"], "us");
            let histogram = read_histogram(latency["hdrh"].as_str().unwrap()).unwrap();
            let max = latency["max"].as_f64().unwrap();
            assert!((histogram.max() as f64 - max).abs() <= max / 500.0 + 1.0);
            let allowed = document["message"].as_str().unwrap();
            assert!(allowed.contains("NDR: ") && allowed.contains("allowed loss ratio 0"));
            assert_eq!(document["tags"][2], "P2P", "{document}");
        }
    }
}
