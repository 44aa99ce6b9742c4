// SPDX-License-Identifier: Apache-2.0
//! Every trial as a line of a table in CSV (RFC 4180), for spreadsheets and scripts.

use quietwire_study::{StepRecord, StudyResults, TrialRecord};

/// Names of the columns.
const HEADER: [&str; 25] = [
    "trial",
    "round",
    "case",
    "frame_size",
    "step",
    "is_valid",
    "invalid_because",
    "intended_rate_pps",
    "achieved_rate_pps",
    "forwarding_rate_pps",
    "duration_s",
    "offered_frames",
    "received_frames",
    "lost_frames",
    "loss_ratio",
    "latency_min_ns",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p99_9_ns",
    "latency_p99_99_ns",
    "latency_max_ns",
    "tester_latency_mean_ns",
    "pdv_p99_ns",
];

/// Returns all trials, in the order of the store. The first line names the columns. A value that is unknown is empty.
#[must_use]
pub fn csv(results: &StudyResults) -> String {
    let mut text = line(HEADER.iter().map(|name| (*name).to_owned()));
    for (index, (step, trial)) in results.trials().enumerate() {
        text.push_str(&line(row(index, step, trial).into_iter()));
    }
    text
}

fn row(index: usize, step: &StepRecord, trial: &TrialRecord) -> [String; HEADER.len()] {
    let result = &trial.result;
    let latency = &result.latency;
    let known = |value: String| {
        if latency.samples > 0 {
            value
        } else {
            String::new()
        }
    };
    let some = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let own = result
        .calibration
        .as_ref()
        .and_then(|cited| cited.own.as_ref());
    [
        (index + 1).to_string(),
        (step.round + 1).to_string(),
        step.case_name.clone(),
        step.frame_size.to_string(),
        step.kind.to_string(),
        result.is_valid().to_string(),
        result.validity.text().unwrap_or_default(),
        trial.request.offered_rate_pps.to_string(),
        result.achieved_rate_pps.to_string(),
        result.forwarding_rate_pps.to_string(),
        result.elapsed_s.to_string(),
        result.offered_frames.to_string(),
        result.received_frames.to_string(),
        result.lost_frames.to_string(),
        result.loss_ratio.to_string(),
        known(latency.min_ns.to_string()),
        known(latency.mean_ns.to_string()),
        some(latency.p50_ns),
        some(latency.p90_ns),
        some(latency.p99_ns),
        some(latency.p99_9_ns),
        some(latency.p99_99_ns),
        known(latency.max_ns.to_string()),
        own.map_or_else(String::new, |own| own.mean_ns.to_string()),
        some(result.variation.pdv.p99_ns),
    ]
}

/// Returns a line with its end.
fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|cell| quoted(&cell)).collect();
    format!("{}\r\n", cells.join(","))
}

/// Quotes a cell that contains a separator, a quotation mark or an end of line.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_separators_are_quoted() {
        assert_eq!(quoted("a b"), "a b");
        assert_eq!(quoted("a, \"b\"\nc"), "\"a, \"\"b\"\"\nc\"");
        let cells = ["x", "1,5", ""].map(str::to_owned);
        assert_eq!(line(cells.into_iter()), "x,\"1,5\",\r\n");
    }
}
