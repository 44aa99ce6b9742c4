// SPDX-License-Identifier: Apache-2.0
//! Loss at each load of the sweep.

use super::table::{MethodTable, NONE};
use crate::format;
use crate::summary::{CaseSummary, SweepPoint};

pub(super) const TABLE: MethodTable = MethodTable {
    title: "Loss at each load",
    lead: "Loss ratio over the valid trials at each load: the median over the rounds. Frames are sums over the rounds.",
    labels: &["case"],
    head: &[
        "load",
        "offered, frames/s",
        "loss ratio",
        "lost frames",
        "offered frames",
        "validity",
    ],
    rows: |case| case.sweep.iter().map(|point| row(case, point)).collect(),
};

fn row(case: &CaseSummary, point: &SweepPoint) -> Vec<String> {
    let percent = case.max_rate_pps.filter(|max| *max > 0.0);
    let percent = percent.map(|max| point.load_pps / max * 100.0);
    let if_valid = |text: String| match point.valid_trials {
        0 => NONE.to_owned(),
        _ => text,
    };
    vec![
        case.name.clone(),
        percent.map_or_else(|| NONE.to_owned(), format::percent),
        format::rounded(point.offered_pps),
        point
            .loss_ratio
            .as_ref()
            .map_or_else(|| NONE.to_owned(), |loss| format::loss(loss.median)),
        if_valid(format::grouped(point.lost_frames)),
        if_valid(format::grouped(point.offered_frames)),
        validity(point),
    ]
}

fn validity(point: &SweepPoint) -> String {
    match (point.valid_trials, point.trials) {
        (valid, trials) if valid == trials => "valid".to_owned(),
        (0, _) => "invalid".to_owned(),
        (valid, trials) => format!("{valid} of {trials} valid"),
    }
}
