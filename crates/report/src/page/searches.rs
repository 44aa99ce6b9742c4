// SPDX-License-Identifier: Apache-2.0
//! Rate and loss of each trial of the searches.

use maud::{Markup, html};
use quietwire_study::{Goal, StudyResults};

use crate::chart::{SearchTrial, search};
use crate::format;
use crate::summary::SizeSummary;

/// Most trials of a chart.
const TRIALS_MAX: usize = 400;

/// Renders a chart for each goal of each case. Returns nothing without searches.
pub(super) fn searches(results: &StudyResults, size: &SizeSummary) -> Markup {
    let Some(plan) = &results.file.search else {
        return html! {};
    };
    html! {
        details {
            summary { "Rate and loss by trial of each search" }
            p.note {
                "Filled marks held for the goal, empty ones lost too much, and × marks invalid trials. Below: the loss. At most "
                (format::grouped(TRIALS_MAX as u64)) " trials of each are shown."
            }
            @for (index, case) in size.cases.iter().enumerate() {
                @for goal in &plan.goals {
                    @let trials = trials(results, size, &case.name, goal);
                    @if !trials.is_empty() {
                        @let title = format!("{} of {}: rate and loss by trial", goal.name, case.name);
                        h3 { (goal.name) " of " (case.name) ", " (format::allows(goal.loss_ratio)) }
                        figure { (search(&title, index, &trials, goal.loss_ratio)) }
                    }
                }
            }
        }
    }
}

/// Returns the first trials of the searches for a goal.
fn trials(results: &StudyResults, size: &SizeSummary, case: &str, goal: &Goal) -> Vec<SearchTrial> {
    let steps = results.steps.iter().filter(|step| {
        step.case_name == case
            && step.frame_size.to_string() == size.frame_size
            && step.kind.searches_for(&goal.name)
    });
    let all = steps.flat_map(|step| step.trials.iter().map(move |trial| (step, trial)));
    all.take(TRIALS_MAX)
        .map(|(step, trial)| SearchTrial {
            round: step.round,
            rate_pps: trial.result.achieved_rate_pps,
            loss_ratio: Some(trial.result.loss_ratio).filter(|_| trial.result.is_valid()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use quietwire_study::simulated::SimulatedBench;

    use super::*;
    use crate::Summary;
    use crate::tests::results_of;

    const STUDY: &str = "name = \"s\"\ntitle = \"T\"\nrounds = 2\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
         [tester]\ncpu = \"0\"\n[trials]\nduration-s = 1\nmax-rate-pps = 9_000_000\n\
         [search]\nstart-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\n\
         goal = [{ name = \"NDR\", loss-ratio = 0.0 }]\n\
         [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n";

    #[test]
    fn charts_have_the_trials_of_the_store() {
        let results = results_of(STUDY, SimulatedBench::new(11, 0), usize::MAX);
        let summary = Summary::of(&results).unwrap();
        let plan = results.file.search.as_ref().unwrap();
        let found = trials(&results, &summary.sizes[0], "c", &plan.goals[0]);
        let stored: Vec<SearchTrial> = results
            .trials()
            .map(|(step, trial)| SearchTrial {
                round: step.round,
                rate_pps: trial.result.achieved_rate_pps,
                loss_ratio: trial.result.is_valid().then_some(trial.result.loss_ratio),
            })
            .collect();
        assert!(!found.is_empty());
        assert_eq!(found, stored);
        assert!(trials(&results, &summary.sizes[0], "d", &plan.goals[0]).is_empty());
        let page = searches(&results, &summary.sizes[0]).into_string();
        assert!(page.contains("aria-label=\"NDR of c: rate and loss by trial\""));
    }
}
