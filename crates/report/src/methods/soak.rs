// SPDX-License-Identifier: Apache-2.0
//! The load at which a tiny part is lost.

use quietwire_search::{CriticalLoad, SoakFindings};

use super::table::{LABELS, MethodTable, by_round, or_none};
use crate::format;
use crate::summary::{MethodFigures, soak_end};

pub(super) const TABLE: MethodTable = MethodTable {
    title: "Soak",
    lead: "An estimate of the load at which the stated part is lost, and its deviation; not a rate that was seen to hold.",
    labels: LABELS,
    head: &[
        "part lost",
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
