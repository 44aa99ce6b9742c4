// SPDX-License-Identifier: Apache-2.0
//! Load at which a tiny share of the frames is lost.

use quietwire_search::{CriticalLoad, SoakFindings};

use super::table::{LABELS, MethodTable, by_round, or_none};
use crate::format;
use crate::summary::{MethodFigures, soak_end};

pub(super) const TABLE: MethodTable = MethodTable {
    title: "Soak",
    lead: "Estimate of the load with the stated loss ratio, and its deviation. It is not a rate that held in a trial.",
    labels: LABELS,
    head: &[
        "loss ratio",
        "critical load, Mpps",
        "deviation, Mpps",
        "stretch, Mpps",
        "erf, Mpps",
        "trials",
        "time",
        "note",
    ],
    rows: |case| {
        by_round(case, |figures| match figures {
            MethodFigures::Soak(found) => vec![soak(found)],
            _ => Vec::new(),
        })
    },
};

fn soak(found: &SoakFindings) -> Vec<String> {
    let mean = |load: Option<CriticalLoad>| or_none(load.map(|it| it.mean_pps), format::mpps);
    vec![
        format!("{:e}", found.config.loss_ratio.get()),
        mean(found.critical_load),
        or_none(found.critical_load.map(|it| it.deviation_pps), format::mpps),
        mean(found.stretch),
        mean(found.erf),
        found.trials.to_string(),
        format::duration_s(found.trials_s),
        soak_end(found).to_owned(),
    ]
}
