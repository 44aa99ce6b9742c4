// SPDX-License-Identifier: Apache-2.0
//! Cost of a frame in each part of a service chain.

use super::table::{MethodTable, or_none};
use crate::format;
use crate::summary::FunctionCost;

pub(super) const TABLE: MethodTable = MethodTable {
    title: "Cost of each function",
    lead: "Counted cycles of the time stamp counter at the highest load: per frame that the function received, per frame that the device forwarded from end to end, and per second and chain. Functions have their position in the chain.",
    labels: &["case", "function"],
    head: &[
        "cycles per frame",
        "cycles per forwarded frame",
        "million cycles per second and tenant",
    ],
    rows: |case| {
        let row = |cost: &FunctionCost| -> Vec<String> {
            let names = [case.name.clone(), cost.function.clone()];
            names.into_iter().chain(figures(cost)).collect()
        };
        case.functions.iter().map(row).collect()
    },
};

fn figures(cost: &FunctionCost) -> [String; 3] {
    let million = |hz: f64| format::number(hz / 1e6);
    let median = |spread: &crate::summary::Spread| spread.median;
    [
        format::rounded(cost.cycles.median),
        or_none(
            cost.cycles_per_forwarded.as_ref().map(median),
            format::rounded,
        ),
        or_none(cost.cycles_per_chain_hz.as_ref().map(median), million),
    ]
}
