// SPDX-License-Identifier: Apache-2.0
//! State of a node in its report.

use std::collections::{BTreeMap, BTreeSet};

use quietwire_host::partition::Plan;
use quietwire_host::verify::{Check, KERNEL_THREADS};

use crate::beside::Refusal;
use crate::resources::{FailedCheck, PartitionReport, Phase, RejectedChange, now};

/// Most failing checks of a state. These are the bounds of the schema.
const CHECKS_MAX: usize = 16;
/// Most groups of a state.
const GROUPS_MAX: usize = 256;
/// Most kernel command line parameters of a state.
const PENDING_MAX: usize = 64;
/// Most settings of kubelet of a state.
const SETTINGS_MAX: usize = 16;
/// Longest text of a state, characters.
const TEXT_MAX: usize = 1024;

/// Returns a text of at most 1024 characters.
fn bounded(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned(),
        None => text.to_owned(),
    }
}

/// Returns the texts of a list, as far as a state has space for them.
fn texts(all: impl IntoIterator<Item = String>, most: usize) -> Vec<String> {
    let all = all.into_iter().take(most);
    all.map(|text| bounded(&text)).collect()
}

/// Returns refused changes with texts for which a report has space.
pub(super) fn rejections(rejected: &[RejectedChange]) -> Vec<RejectedChange> {
    let rejected = rejected.iter();
    rejected
        .map(|change| RejectedChange {
            object: bounded(&change.object),
            message: bounded(&change.message),
        })
        .collect()
}

/// Returns the state of a node without a plan.
pub(super) fn plain(phase: Phase, message: impl AsRef<str>) -> PartitionReport {
    PartitionReport {
        phase,
        message: bounded(message.as_ref()),
        ..PartitionReport::default()
    }
}

/// Returns the state of a node whose plan is refused.
pub(super) fn refused(refusal: &Refusal) -> PartitionReport {
    let settings = match refusal {
        Refusal::Settings(settings) => {
            texts(settings.iter().map(ToString::to_string), SETTINGS_MAX)
        }
        Refusal::Infeasible(_) | Refusal::Overlap(_) => Vec::new(),
    };
    PartitionReport {
        kubelet_settings: settings,
        ..plain(Phase::Refused, refusal.to_string())
    }
}

/// Returns the CPUs of each group of a plan.
pub(super) fn groups(plan: &Plan) -> BTreeMap<String, String> {
    let groups = plan.groups.iter().take(GROUPS_MAX);
    groups
        .map(|group| (group.name.clone(), bounded(&group.cpus.to_string())))
        .collect()
}

/// Returns the state of a node whose plan is applied. `baseline` are the checks that failed right after the changes: these make the node
/// *applied*, others make it *drifted*.
pub(super) fn verified(
    plan: &Plan,
    failing: &[Check],
    baseline: &[String],
    pending: Vec<String>,
) -> PartitionReport {
    let drifted: Vec<&Check> = failing
        .iter()
        .filter(|check| baseline.iter().all(|name| name != check.name))
        .collect();
    let phase = match (drifted.is_empty(), pending.is_empty(), failing.is_empty()) {
        (false, ..) => Phase::Drifted,
        (true, false, _) => Phase::PendingReboot,
        (true, true, false) => Phase::Applied,
        (true, true, true) => Phase::Verified,
    };
    let message = match phase {
        Phase::Drifted => {
            let named = drifted
                .iter()
                .map(|check| format!("{}: {}", check.name, check.actual));
            named.collect::<Vec<_>>().join("; ")
        }
        Phase::PendingReboot => "reboot the node with the pending kernel parameters".to_owned(),
        Phase::Applied => "checks failed from the beginning".to_owned(),
        _ => String::new(),
    };
    // Those that are new first.
    let mut ordered: Vec<&Check> = failing.iter().collect();
    ordered.sort_by_key(|check| baseline.iter().any(|name| name == check.name));
    PartitionReport {
        groups: groups(plan),
        pending: texts(pending, PENDING_MAX),
        failed_checks: ordered
            .into_iter()
            .take(CHECKS_MAX)
            .map(failed_check)
            .collect(),
        ..plain(phase, message)
    }
}

fn failed_check(check: &Check) -> FailedCheck {
    FailedCheck {
        name: check.name.to_owned(),
        file: bounded(&check.file),
        expected: bounded(&check.expected),
        actual: bounded(&check.actual),
        remedy: check.remedy.as_deref().map(bounded),
    }
}

/// Completes a state of a resource with the domain of the node and its time: the time of the reported state if only the time would change.
pub(super) fn complete(
    status: PartitionReport,
    domain: &str,
    generation: i64,
    reported: Option<&PartitionReport>,
) -> PartitionReport {
    let status = PartitionReport {
        domain: domain.to_owned(),
        observed_generation: generation,
        ..status
    };
    let time = match reported {
        Some(reported) if reported.phase == status.phase => reported.last_transition_time.clone(),
        _ => now(),
    };
    PartitionReport {
        last_transition_time: time,
        ..status
    }
}

/// Returns the failing checks of a state, and the words of what they observed. Figures are left out: they differ at every look, as do the
/// numbers of threads that start and end. So are kernel threads: the kernel runs work in whichever worker (`kworker/…`) is free.
fn named(status: &PartitionReport) -> Vec<(&str, BTreeSet<&str>)> {
    let mut all = Vec::new();
    for check in &status.failed_checks {
        let observed = match check.name.as_str() {
            KERNEL_THREADS => "",
            _ => check.actual.as_str(),
        };
        let words = observed.split_whitespace();
        let words = words.map(|word| word.trim_matches([',', '(', ')']));
        let is_figure = |word: &str| word.chars().all(|c| c.is_ascii_digit() || c == '.');
        let names: BTreeSet<&str> = words.filter(|word| !is_figure(word)).collect();
        all.push((check.name.as_str(), names));
    }
    all
}

/// Returns whether a state has been reported already. Figures of failing checks differ at every look, so that of a drifted node is the same if
/// the same checks fail and name the same threads of programs, interrupts or settings.
pub(super) fn is_same(reported: &PartitionReport, status: &PartitionReport) -> bool {
    let is_drifted = |status: &PartitionReport| status.phase == Phase::Drifted;
    let has_same_checks = is_drifted(reported)
        && is_drifted(status)
        && !status.failed_checks.is_empty()
        && named(reported) == named(status)
        && reported.observed_generation == status.observed_generation;
    has_same_checks || reported == status
}

#[cfg(test)]
mod tests {
    use quietwire_host::verify::Verdict;

    use super::*;

    fn check(name: &'static str, actual: &str) -> Check {
        Check {
            name,
            verdict: Verdict::Fail,
            file: "/proc/1/status".to_owned(),
            expected: "none".to_owned(),
            actual: actual.to_owned(),
            remedy: None,
            commands: Vec::new(),
        }
    }

    #[test]
    fn a_check_that_fails_later_means_drift_and_names_the_thread() {
        let plan = Plan::default();
        let baseline = vec!["governor".to_owned()];
        let governor = check("governor", "powersave");
        let moved = check("who-ran", "stress (4711) 900 µs per second on CPU 3");
        let phase = |failing: &[Check], pending: &[&str]| {
            let pending = pending.iter().map(|it| (*it).to_owned()).collect();
            verified(&plan, failing, &baseline, pending).phase
        };
        assert_eq!(phase(&[], &[]), Phase::Verified);
        assert_eq!(phase(std::slice::from_ref(&governor), &[]), Phase::Applied);
        assert_eq!(
            phase(std::slice::from_ref(&governor), &["nohz_full=2"]),
            Phase::PendingReboot
        );
        let drifted = verified(&plan, &[governor, moved], &baseline, Vec::new());
        assert_eq!(drifted.phase, Phase::Drifted);
        assert_eq!(
            drifted.message,
            "who-ran: stress (4711) 900 µs per second on CPU 3"
        );
        assert_eq!(drifted.failed_checks[0].name, "who-ran");
        assert_eq!(drifted.failed_checks.len(), 2);
        let governor = check("governor", "powersave");
        let more = check("who-ran", "stress (4711) 950 µs per second on CPU 3");
        let later = verified(&plan, &[governor.clone(), more], &baseline, Vec::new());
        assert!(is_same(&drifted, &later) && drifted != later);
        // A second thread is news, also if the check failed before.
        let both = check(
            "who-ran",
            "cron (99) 990 µs per second on CPU 3, stress (4711) 950 µs per second on CPU 3",
        );
        let both = verified(&plan, &[governor.clone(), both], &baseline, Vec::new());
        assert!(!is_same(&drifted, &both));
        let other = verified(
            &plan,
            &[governor, check("timers", "2")],
            &baseline,
            Vec::new(),
        );
        assert!(!is_same(&drifted, &other));
    }

    #[test]
    fn other_kernel_threads_are_no_news() {
        let state = |checks: &[Check]| verified(&Plan::default(), checks, &[], Vec::new());
        let kernel = |actual: &str| check(KERNEL_THREADS, actual);
        let one = "kworker/3:1-events (45) 1200 µs per second on CPU 3";
        let many = "kworker/2:0H+kblockd (81) 2100 µs per second on CPU 2, ksoftirqd/3 (30) 1900 µs per second on CPU 3 and 4 more";
        let reported = state(&[kernel(one)]);
        assert!(is_same(&reported, &state(&[kernel(many)])));
        // A program on these CPUs is news, and so is the end of the check of kernel threads.
        let program = check("who-ran", "stress (4711) 900 µs per second on CPU 3");
        let beside = state(&[kernel(one), program.clone()]);
        assert!(!is_same(&reported, &beside));
        assert!(is_same(&beside, &state(&[kernel(many), program.clone()])));
        assert!(!is_same(&beside, &state(&[program])));
    }

    #[test]
    fn the_time_is_that_of_the_last_change_of_the_phase() {
        let first = complete(plain(Phase::Planned, "a"), "z", 3, None);
        assert!(first.last_transition_time.ends_with('Z'), "{first:?}");
        let old = PartitionReport {
            last_transition_time: "2026-01-01T00:00:00Z".to_owned(),
            ..first
        };
        let same = complete(plain(Phase::Planned, "b"), "z", 3, Some(&old));
        assert_eq!(same.last_transition_time, old.last_transition_time);
        let other = complete(plain(Phase::Failed, "b"), "z", 3, Some(&old));
        assert_ne!(other.last_transition_time, old.last_transition_time);
        assert_eq!((other.domain.as_str(), other.observed_generation), ("z", 3));
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(bounded(&"µ".repeat(5000)).chars().count(), TEXT_MAX);
        assert_eq!(bounded("short"), "short");
        let all = texts((0..100).map(|_| "x".repeat(2000)), PENDING_MAX);
        assert_eq!((all.len(), all[0].len()), (PENDING_MAX, TEXT_MAX));
        let long = RejectedChange {
            object: "port a".to_owned(),
            message: "m".repeat(2000),
        };
        let cut = rejections(&[long]);
        assert_eq!(cut[0].object, "port a");
        assert_eq!(cut[0].message.len(), TEXT_MAX);
    }
}
