// SPDX-License-Identifier: Apache-2.0
//! Rates of searches with several trials at each rate, side by side.

use super::table::{MethodTable, NONE};
use crate::format;
use crate::summary::{CaseSummary, GoalSummary, Spread};

pub(super) const TABLE: MethodTable = MethodTable {
    title: "Single, best and worst of N",
    lead: "Rates at which the first trial, one of up to N trials, or all of N trials met the goal, Mpps. Medians over the rounds.",
    labels: &["case"],
    head: &["search for", "single", "best of N", "worst of N"],
    rows: |case| {
        let goals = case.goals.iter();
        goals.filter_map(|goal| row(case, goal)).collect()
    },
};

/// Returns the row of a goal; none unless the search had both sides.
fn row(case: &CaseSummary, goal: &GoalSummary) -> Option<Vec<String>> {
    let best = goal.best_pps.as_ref()?;
    let worst = goal.rate_pps.as_ref();
    let at_least = if goal.is_lower_limit_only {
        "≥\u{202f}"
    } else {
        ""
    };
    Some(vec![
        case.name.clone(),
        goal.name.clone(),
        median(goal.single_pps.as_ref()),
        median(Some(best)),
        match worst.filter(|rate| rate.median > 0.0) {
            Some(rate) => format!("{at_least}{}", format::mpps(rate.median)),
            None => median(worst),
        },
    ])
}

fn median(rate: Option<&Spread>) -> String {
    match rate {
        Some(rate) if rate.median > 0.0 => format::mpps(rate.median),
        Some(_) => "none held".to_owned(),
        None => NONE.to_owned(),
    }
}
