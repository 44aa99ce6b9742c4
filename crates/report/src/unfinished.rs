// SPDX-License-Identifier: Apache-2.0
//! Trials of steps that did not finish, because the run was interrupted or failed. No figure is computed from them.

use quietwire_study::{StepRecord, StudyResults, TrialRecord};
use serde_json::json;

use crate::format;
use crate::terminal_table::TerminalTable;

fn steps(results: &StudyResults) -> impl Iterator<Item = &StepRecord> {
    let mut steps = results.steps.iter();
    std::iter::from_fn(move || steps.find(|step| !step.is_finished && !step.trials.is_empty()))
}

/// Returns the trials of each unfinished step as a table, `width` columns wide if given. Empty if all steps finished.
#[must_use]
pub fn unfinished_text(results: &StudyResults, width: Option<u16>) -> String {
    let mut text = String::new();
    for step in steps(results) {
        let (case, kind, round) = (&step.case_name, &step.kind, step.round.saturating_add(1));
        text.push_str(&format!("\n{case}, round {round}, {kind}: not finished\n"));
        let header = [
            "trial",
            "offered, Mpps",
            "forwarded, Mpps",
            "lost",
            "validity",
        ];
        let mut table = TerminalTable::new(header.map(str::to_owned).to_vec(), width)
            .ruled()
            .numbers_from(0);
        for trial in &step.trials {
            let mpps = |rate_pps: f64| format!("{:.4}", rate_pps / 1e6);
            let reason = trial.result.validity.text();
            table.add_row(vec![
                trial.sequence.saturating_add(1).to_string(),
                mpps(trial.request.offered_rate_pps),
                mpps(trial.result.forwarding_rate_pps),
                format::loss(trial.result.loss_ratio),
                reason.unwrap_or_else(|| "valid".to_owned()),
            ]);
        }
        text.push_str(&table.to_string());
        text.push('\n');
    }
    // Fonts of terminals may lack the narrow no-break space.
    text.replace(format::THIN, " ")
}

/// Returns the trials of each unfinished step as a document.
pub(crate) fn unfinished_json(results: &StudyResults) -> Vec<serde_json::Value> {
    let of_trial = |trial: &TrialRecord| {
        json!({
            "sequence": trial.sequence,
            "offered_rate_pps": trial.request.offered_rate_pps,
            "forwarding_rate_pps": trial.result.forwarding_rate_pps,
            "loss_ratio": trial.result.loss_ratio,
            "is_valid": trial.result.is_valid(),
        })
    };
    let of_step = |step: &StepRecord| {
        json!({
            "case": step.case_name,
            "round": step.round,
            "frame_size": step.frame_size,
            "step": step.kind.to_string(),
            "trials": step.trials.iter().map(of_trial).collect::<Vec<_>>(),
        })
    };
    steps(results).map(of_step).collect()
}
