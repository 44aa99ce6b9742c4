// SPDX-License-Identifier: Apache-2.0
//! Findings: what the data of the monitors says about the causes of a result. Each rule is a function from the data of a case to an
//! optional finding, in a file of its own, and has a section in `docs/findings.md`.

mod data;
mod device_idle;
mod finding;
mod interrupts;
mod migrated;
mod neighbours_starved;
mod preempted;
mod remote_memory;
mod ring_full;
mod sibling_busy;
mod softirqs;
mod steal;
mod system_calls;
mod tester_limit;
#[cfg(test)]
mod tests;
mod throttled;

use quietwire_host::inventory::Inventory;
use quietwire_study::{PortMemory, StudyResults, TrialRecord};
use quietwire_tester::InvalidCause;

use super::activity::neighbours;
use super::case::CaseSummary;
use super::cycles::element_of;
use super::limit::Limit;
use super::steps::{Steps, measured};

use data::CaseData;

pub use finding::MachineFinding;

/// A rule.
type Rule = fn(&CaseData<'_>) -> Option<MachineFinding>;

/// All rules, in the order in which a case's findings are reported: causes first, then what was not the cause.
const RULES: [Rule; 13] = [
    preempted::preempted,
    sibling_busy::sibling_busy,
    remote_memory::remote_memory,
    steal::steal,
    throttled::throttled,
    migrated::migrated,
    interrupts::interrupts,
    softirqs::softirqs,
    system_calls::system_calls,
    ring_full::ring_full,
    tester_limit::tester_limit,
    device_idle::device_idle,
    neighbours_starved::neighbours_starved,
];

/// Returns the findings of all cases, in the order of the file. `summaries` are the summaries of each frame size.
pub(super) fn findings<'a>(
    results: &'a StudyResults,
    summaries: impl Iterator<Item = &'a [CaseSummary]> + Clone,
) -> Vec<MachineFinding> {
    // A run with a generator stores no inventory. Its machine is unknown.
    let machine = results.runs.last().map(|run| Inventory {
        cpu_model: run.facts.cpu_model.clone(),
        cpus: run.facts.cpus.clone(),
        ..Inventory::default()
    });
    let mut all = Vec::new();
    for case in measured(results) {
        let steps = results.steps.iter();
        let steps: Steps<'_> = steps.filter(|step| step.case_name == case.name).collect();
        let trials: Vec<&TrialRecord> = steps.iter().flat_map(|step| &step.trials).collect();
        let valid = trials.iter().filter(|trial| trial.result.is_valid());
        let of_sizes = summaries
            .clone()
            .flatten()
            .filter(|one| one.name == case.name);
        let load = neighbours(&trials, steps.iter().flat_map(|step| &step.actions));
        let data = CaseData {
            case: &case.name,
            port_memory: valid.clone().flat_map(|trial| port_memory(trial)).collect(),
            activities: valid
                .filter_map(|trial| trial.activity.machine.as_ref())
                .collect(),
            machine: machine.as_ref(),
            idle: results.file.device.idle,
            losses: of_sizes
                .clone()
                .filter_map(|one| Some(&one.losses.as_ref()?.account))
                .collect(),
            limits: of_sizes.flat_map(limits).collect(),
            frames_per_burst: frames_per_burst(&trials),
            neighbour_share: load.map(|load| load.share.median),
            trials: trials.len(),
            rate_missed: trials.iter().filter(|trial| is_rate_missed(trial)).count(),
        };
        all.extend(RULES.iter().filter_map(|rule| rule(&data)));
    }
    all
}

/// Returns the memory of the ports of the elements in a trial.
fn port_memory(trial: &TrialRecord) -> impl Iterator<Item = &PortMemory> {
    let elements = trial.activity.elements.iter();
    let views = elements.filter_map(|element| element.own_view.as_ref());
    views.flat_map(|view| &view.memory)
}

fn limits(case: &CaseSummary) -> Vec<(&str, &Limit)> {
    let goals = case.goals.iter().zip(&case.limits);
    goals
        .filter_map(|(goal, limit)| Some((goal.name.as_str(), limit.as_ref()?)))
        .collect()
}

fn is_rate_missed(trial: &TrialRecord) -> bool {
    matches!(
        trial.result.validity.cause(),
        Some(InvalidCause::RateMissed | InvalidCause::RateOutsideWidth)
    )
}

/// Loads of less than this part of the highest do not show how full bursts become.
const NEAR_HIGHEST: f64 = 0.9;

/// Returns the mean number of frames of a burst that the device received in the valid trials near the highest load; none if the device does
/// not count bursts.
fn frames_per_burst(trials: &[&TrialRecord]) -> Option<f64> {
    let valid = || trials.iter().filter(|trial| trial.result.is_valid());
    let rate = |trial: &TrialRecord| trial.request.offered_rate_pps;
    let highest = valid().map(|trial| rate(trial)).reduce(f64::max)?;
    let near = valid().filter(|trial| rate(trial) >= NEAR_HIGHEST * highest);
    let counts = near.filter_map(|trial| element_of(trial)?.counted);
    let (frames, bursts) = counts.fold((0.0, 0.0), |(frames, bursts), count| {
        (frames + count.frames as f64, bursts + count.bursts as f64)
    });
    (bursts > 0.0).then(|| frames / bursts)
}
