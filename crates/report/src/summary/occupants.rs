// SPDX-License-Identifier: Apache-2.0
//! Threads by the CPU that they ran on, in the valid trials of a case.

use std::collections::BTreeMap;

use quietwire_monitor::Owner;
use quietwire_study::StudyResults;

/// Threads that ran for less than this share of the time are left out.
const SHARE_MIN: f64 = 0.01;

/// A thread, or several with the same name, on a CPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Occupant {
    /// Owner and name: `device qw-fwd-1`.
    pub(crate) name: String,
    /// Share of the time that it ran there.
    pub(crate) share: f64,
}

fn owner(owner: Option<Owner>) -> &'static str {
    match owner {
        Some(Owner::Device) => "device ",
        Some(Owner::Tester) => "tester ",
        Some(Owner::Neighbour) => "neighbour ",
        None => "",
    }
}

/// Returns the threads of each CPU, the busiest first, over all valid trials. The time of a trial belongs to the CPU on which the thread
/// was at its end.
pub(crate) fn occupants(
    results: &StudyResults,
    case: &str,
    frame_size: &str,
) -> BTreeMap<u32, Vec<Occupant>> {
    let steps = results
        .steps
        .iter()
        .filter(|step| step.case_name == case && step.frame_size.to_string() == frame_size);
    let trials = steps.flat_map(|step| &step.trials);
    let activities = trials
        .filter(|trial| trial.result.is_valid())
        .filter_map(|trial| trial.activity.machine.as_ref())
        .filter(|activity| activity.elapsed_s > 0.0);
    let mut elapsed_s = 0.0;
    let mut times: BTreeMap<(u32, &str, &str), f64> = BTreeMap::new();
    for activity in activities {
        elapsed_s += activity.elapsed_s;
        for thread in &activity.threads {
            let key = (thread.cpu, owner(thread.owner), thread.name.as_str());
            *times.entry(key).or_default() += thread.cpu_time_s;
        }
    }
    let mut found: BTreeMap<u32, Vec<Occupant>> = BTreeMap::new();
    for ((cpu, owner, name), time_s) in times {
        let share = time_s / elapsed_s;
        if share >= SHARE_MIN {
            let name = format!("{owner}{name}");
            found.entry(cpu).or_default().push(Occupant { name, share });
        }
    }
    for occupants in found.values_mut() {
        occupants.sort_by(|one, other| other.share.total_cmp(&one.share));
    }
    found
}
