// SPDX-License-Identifier: Apache-2.0
//! Markdown, CSV and pictures of simulated studies.

use super::{checked_whole, whole};
use crate::{Baselines, Report, markdown, series_csv};

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
    let (summary, _) = checked_whole();
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
    let (_, page) = checked_whole();
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
fn the_page_shows_two_courses_of_each_case_and_csv_and_json_have_the_intervals_of_the_store() {
    let results = whole();
    let (summary, page) = checked_whole();
    let report = Report::new(&results, &Baselines::new()).unwrap();
    let document = report.json();
    let courses = document["courses"].as_array().unwrap();
    assert_eq!(courses.len(), 2 * summary.sizes[0].cases.len());
    for course in courses {
        let (name, reason) = (
            course["case"].as_str().unwrap(),
            course["reason"].as_str().unwrap(),
        );
        let title = format!("aria-label=\"{name}: loss, latency and cycles in {reason}\"");
        assert!(page.contains(&title), "{title}");
        let (_, trial) = results
            .trials()
            .find(|(step, trial)| {
                step.case_name == name
                    && course["round"] == step.round
                    && course["step"] == step.kind.to_string()
                    && course["sequence"] == trial.sequence
            })
            .unwrap();
        let stored = serde_json::to_value(&trial.result.series).unwrap();
        assert_eq!(course["series"], stored);
        // No valid trial of the case has more loss.
        let of_case = results
            .trials()
            .filter(|(step, other)| step.case_name == name && other.result.is_valid());
        let most = of_case.map(|(_, other)| other.result.loss_ratio);
        if reason == "the trial with the most loss" {
            assert_eq!(trial.result.loss_ratio, most.fold(0.0, f64::max));
        }
    }
    let text = series_csv(&results);
    let mut lines = text.split_terminator("\r\n");
    let columns = lines.next().unwrap().split(',').count();
    for (index, (_, trial)) in results.trials().enumerate() {
        for point in &trial.result.series.frames {
            let cells: Vec<&str> = lines.next().unwrap().split(',').collect();
            assert_eq!(cells.len(), columns);
            assert_eq!(cells[0], (index + 1).to_string());
            assert_eq!(
                (cells[5], cells[6]),
                ("frames", point.end_s.to_string().as_str())
            );
            assert_eq!(cells[7].parse::<u64>().unwrap(), point.offered_frames);
            assert_eq!(cells[8].parse::<u64>().unwrap(), point.received_frames);
        }
        for point in &trial.result.series.device {
            let cells: Vec<&str> = lines.next().unwrap().split(',').collect();
            assert_eq!(cells[5], "device");
            assert_eq!(cells[12].parse::<u64>().unwrap(), point.cycles);
            assert_eq!(cells[13].parse::<u64>().unwrap(), point.frames);
        }
    }
    assert!(lines.next().is_none());
}
