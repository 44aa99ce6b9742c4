// SPDX-License-Identifier: Apache-2.0
//! Loss, latency and cycles over the time of trials: the trials that a report shows, and all of them as CSV (RFC 4180).

use quietwire_study::{StepKind, StepRecord, StudyResults, TrialRecord};
use quietwire_tester::{DevicePoint, FramePoint};
use serde_json::{Value, json};

use crate::csv::line;

/// Why a report shows a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It has the most loss of the valid trials of its case.
    MostLoss,
    /// It has the largest latency of the valid trials at a low load.
    LargestLatency,
}

impl Reason {
    /// Returns the words for a title.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::MostLoss => "the trial with the most loss",
            Self::LargestLatency => "the trial at a low load with the largest latency",
        }
    }
}

/// A trial that a report shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CourseRecord<'a> {
    pub(crate) reason: Reason,
    pub(crate) step: &'a StepRecord,
    pub(crate) trial: &'a TrialRecord,
}

/// Returns at most two valid trials with a course, of a case at a frame size.
pub(crate) fn shown<'a>(
    results: &'a StudyResults,
    case: &str,
    frame_size: &str,
) -> Vec<CourseRecord<'a>> {
    let steps = || {
        let all = results.steps.iter();
        all.filter(|step| step.case_name == case && step.frame_size.to_string() == frame_size)
    };
    let trials = || {
        let all = steps().flat_map(|step| step.trials.iter().map(move |trial| (step, trial)));
        all.filter(|(_, trial)| trial.result.is_valid() && !trial.result.series.frames.is_empty())
    };
    let most_loss = trials().max_by(|(_, a), (_, b)| {
        let loss = a.result.loss_ratio.total_cmp(&b.result.loss_ratio);
        let (offered, other) = (a.request.offered_rate_pps, b.request.offered_rate_pps);
        loss.then(offered.total_cmp(&other))
    });
    let at_low_load = trials().filter(|(step, _)| step.kind == StepKind::Latency);
    let largest_latency = at_low_load.max_by_key(|(_, trial)| trial.result.latency.max_ns);
    [
        (Reason::MostLoss, most_loss),
        (Reason::LargestLatency, largest_latency),
    ]
    .into_iter()
    .filter_map(|(reason, found)| {
        let (step, trial) = found?;
        Some(CourseRecord {
            reason,
            step,
            trial,
        })
    })
    .collect()
}

/// Returns the courses that the page shows, as documents.
pub(crate) fn documents(results: &StudyResults) -> Vec<Value> {
    let mut documents = Vec::new();
    for size in &results.file.traffic.frame_sizes {
        for case in &results.file.cases {
            let shown = shown(results, &case.name, &size.to_string());
            documents.extend(shown.iter().map(document));
        }
    }
    documents
}

fn document(shown: &CourseRecord<'_>) -> Value {
    json!({
        "case": shown.step.case_name,
        "round": shown.step.round,
        "frame_size": shown.step.frame_size,
        "step": shown.step.kind.to_string(),
        "sequence": shown.trial.sequence,
        "reason": shown.reason.words(),
        "series": shown.trial.result.series,
    })
}

/// Names of the columns.
const HEADER: [&str; 14] = [
    "trial",
    "round",
    "case",
    "frame_size",
    "step",
    "part",
    "end_s",
    "offered_frames",
    "received_frames",
    "loss_ratio",
    "latency_mean_ns",
    "latency_max_ns",
    "cycles",
    "device_frames",
];

/// Returns the courses of all trials, a line for each interval: those of the frames (`part` is `frames`), then those of the device
/// (`device`). The number of a trial is that of the CSV of trials. A value that is unknown, or that an interval does not have, is empty.
#[must_use]
pub fn series_csv(results: &StudyResults) -> String {
    let mut text = line(HEADER.map(str::to_owned).into_iter());
    for (index, (step, trial)) in results.trials().enumerate() {
        let own = [
            index.saturating_add(1).to_string(),
            step.round.saturating_add(1).to_string(),
            step.case_name.clone(),
            step.frame_size.to_string(),
            step.kind.to_string(),
        ];
        let series = &trial.result.series;
        let frames = series.frames.iter().map(frame_cells);
        for cells in frames.chain(series.device.iter().map(device_cells)) {
            text.push_str(&line(own.clone().into_iter().chain(cells)));
        }
    }
    text
}

fn frame_cells(point: &FramePoint) -> [String; 9] {
    fn some(value: Option<impl ToString>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    [
        "frames".to_owned(),
        point.end_s.to_string(),
        point.offered_frames.to_string(),
        point.received_frames.to_string(),
        some(point.loss_ratio()),
        some(point.latency_mean_ns),
        some(point.latency_max_ns),
        String::new(),
        String::new(),
    ]
}

fn device_cells(point: &DevicePoint) -> [String; 9] {
    let mut cells = [const { String::new() }; 9];
    cells[0] = "device".to_owned();
    cells[1] = point.end_s.to_string();
    cells[7] = point.cycles.to_string();
    cells[8] = point.frames.to_string();
    cells
}
