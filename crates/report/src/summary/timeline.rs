// SPDX-License-Identifier: Apache-2.0
//! Use of the CPUs over the time of a study. If there are many trials, a column has several.

use std::collections::{BTreeMap, BTreeSet};

use quietwire_monitor::CpuActivity;
use quietwire_study::StudyResults;

use super::activity::states;

/// Most columns.
const COLUMNS_MAX: usize = 96;

/// Use of the CPUs over time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CpuTimeline {
    /// CPUs, in order.
    pub(crate) cpus: Vec<u32>,
    /// Columns in the order of time.
    pub(crate) columns: Vec<CpuColumn>,
    /// Trials of a column. The last one may have fewer.
    pub(crate) trials_a_column: usize,
}

/// Consecutive trials.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CpuColumn {
    /// Cases of its trials, in the order of time.
    pub(crate) cases: Vec<String>,
    /// Share of the time in which each CPU was not idle, 0 to 1. None if it was not online.
    pub(crate) busy: Vec<Option<f64>>,
}

/// A trial, valid or not.
struct Observed<'a> {
    case: &'a str,
    stored_unix_ns: u64,
    cpus: &'a [CpuActivity],
}

/// Returns the timeline of the trials with a frame size; none without data about CPUs.
pub(crate) fn timeline(results: &StudyResults, frame_size: &str) -> Option<CpuTimeline> {
    let trials = results
        .trials()
        .filter(|(step, _)| step.frame_size.to_string() == frame_size)
        .filter_map(|(step, trial)| {
            Some(Observed {
                case: &step.case_name,
                stored_unix_ns: trial.stored_unix_ns,
                cpus: &trial.activity.machine.as_ref()?.cpus,
            })
        });
    of_trials(trials.collect())
}

fn of_trials(mut trials: Vec<Observed<'_>>) -> Option<CpuTimeline> {
    // Rounds take turns with cases.
    trials.sort_by_key(|trial| trial.stored_unix_ns);
    let all = trials.iter().flat_map(|trial| trial.cpus);
    let cpus: BTreeSet<u32> = all.map(|cpu| cpu.cpu).collect();
    if cpus.is_empty() {
        return None;
    }
    let cpus: Vec<u32> = cpus.into_iter().collect();
    let trials_a_column = trials.len().div_ceil(COLUMNS_MAX);
    let columns = trials.chunks(trials_a_column);
    Some(CpuTimeline {
        columns: columns.map(|trials| column(trials, &cpus)).collect(),
        cpus,
        trials_a_column,
    })
}

fn column(trials: &[Observed<'_>], cpus: &[u32]) -> CpuColumn {
    let mut cases: Vec<String> = Vec::new();
    for trial in trials {
        if cases.iter().all(|case| case != trial.case) {
            cases.push(trial.case.to_owned());
        }
    }
    // Time in which each CPU was not idle, and the whole time, seconds.
    let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for cpu in trials.iter().flat_map(|trial| trial.cpus) {
        let (busy_s, whole_s) = sums.entry(cpu.cpu).or_default();
        for (state, seconds) in states(cpu) {
            *whole_s += seconds;
            if !matches!(state, "idle" | "iowait") {
                *busy_s += seconds;
            }
        }
    }
    let busy = cpus.iter().map(|cpu| {
        let (busy_s, whole_s) = sums.get(cpu)?;
        (*whole_s > 0.0).then(|| busy_s / whole_s)
    });
    CpuColumn {
        busy: busy.collect(),
        cases,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(cpu: u32, user_s: f64, softirq_s: f64, idle_s: f64) -> CpuActivity {
        CpuActivity {
            cpu,
            user_s,
            softirq_s,
            idle_s,
            ..CpuActivity::default()
        }
    }

    #[test]
    fn columns_are_in_the_order_of_time_and_sum_up_their_trials() {
        let first = [cpu(0, 0.5, 0.25, 0.25), cpu(3, 0.0, 0.0, 1.0)];
        let second = [cpu(3, 1.0, 0.0, 3.0)];
        let trial = |case, stored_unix_ns, cpus| Observed {
            case,
            stored_unix_ns,
            cpus,
        };
        let trials = vec![trial("b", 9, &second[..]), trial("a", 5, &first[..])];
        let timeline = of_trials(trials).unwrap();
        assert_eq!(
            (timeline.cpus.as_slice(), timeline.trials_a_column),
            (&[0, 3][..], 1)
        );
        let cases: Vec<&str> = timeline.columns.iter().map(|one| &*one.cases[0]).collect();
        assert_eq!(cases, ["a", "b"]);
        assert_eq!(timeline.columns[0].busy, [Some(0.75), Some(0.0)]);
        assert_eq!(timeline.columns[1].busy, [None, Some(0.25)]);
        // Three trials a column, and two in the last one.
        let many = (0..2 * COLUMNS_MAX as u64 + 2).map(|at| match at % 2 {
            0 => trial("a", at, &first[..]),
            _ => trial("b", at, &second[..]),
        });
        let timeline = of_trials(many.collect()).unwrap();
        assert_eq!(timeline.trials_a_column, 3);
        assert_eq!(timeline.columns.len(), (2 * COLUMNS_MAX + 2).div_ceil(3));
        assert_eq!(timeline.columns[0].cases, ["a", "b"]);
        // Idle for 1 + 3 + 1 of 1 + 4 + 1 seconds.
        assert_eq!(timeline.columns[0].busy[1], Some(1.0 / 6.0));
        assert_eq!(of_trials(Vec::new()), None);
    }
}
