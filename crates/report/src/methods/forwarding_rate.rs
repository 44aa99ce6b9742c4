// SPDX-License-Identifier: Apache-2.0
//! Forwarding rate at the maximum offered load.

use super::table::{LABELS, MethodTable, by_round};
use crate::format;
use crate::summary::MethodFigures;

pub(super) const TABLE: MethodTable = MethodTable {
    title: "Forwarding rate at maximum load",
    lead: "Forwarding rate at the maximum offered load, and the highest forwarding rate at any load (RFC 2285, RFC 2889).",
    labels: LABELS,
    head: &[
        "maximum offered load, Mpps",
        "forwarded at it, Mpps",
        "highest forwarding rate, Mpps",
        "at load, Mpps",
    ],
    rows: |case| {
        by_round(case, |figures| match figures {
            MethodFigures::ForwardingRate(found) => {
                let or_failed = |rate: Option<f64>| {
                    rate.map_or_else(|| "the tester failed".to_owned(), format::mpps)
                };
                vec![vec![
                    format::mpps(found.config.max_rate_pps),
                    or_failed(found.at_max_load_pps),
                    or_failed(found.maximum.map(|it| it.forwarded_pps)),
                    or_failed(found.maximum.map(|it| it.offered_pps)),
                ]]
            }
            _ => Vec::new(),
        })
    },
};
