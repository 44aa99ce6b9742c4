// SPDX-License-Identifier: Apache-2.0
//! A forwarding thread lost its CPU to another thread.

use std::collections::BTreeMap;

use super::data::{CaseData, ForwardingThread};
use super::finding::MachineFinding;
use crate::format;

/// Preemptions per second that work of the kernel alone does not cause.
const PER_SECOND_MIN: f64 = 20.0;
/// Share of the time without a CPU that costs frames.
const DELAY_MIN: f64 = 0.01;

/// Reports the forwarding thread that was preempted most.
pub(super) fn preempted(data: &CaseData<'_>) -> Option<MachineFinding> {
    let threads = data.forwarding().into_iter();
    let suffering = threads.filter(|thread| {
        thread.per_second(thread.involuntary) >= PER_SECOND_MIN
            || delay_share(thread).is_some_and(|share| share >= DELAY_MIN)
    });
    let worst = suffering.max_by_key(|thread| thread.involuntary)?;
    let cpu = worst.cpu;
    let by = match busiest_other(data, &worst) {
        Some(name) => format!(", mostly by {name}"),
        None => ", by a thread that is not of this study".to_owned(),
    };
    let waited = delay_share(&worst).map_or_else(String::new, |share| {
        format!(
            " It waited for its CPU {} of the time.",
            format::percent(share * 100.0)
        )
    });
    let text = format!(
        "Forwarding thread {} was preempted {} times on CPU {cpu} ({} per second){by}.{waited}",
        worst.name,
        format::grouped(worst.involuntary),
        format::number(worst.per_second(worst.involuntary)),
    );
    let cure = format!(
        "keep other threads off CPU {cpu} (`quietwire partition apply`, or `isolation = \"isolated\"` in the case)"
    );
    Some(MachineFinding::new("preempted", data.case, text, &cure))
}

fn delay_share(thread: &ForwardingThread) -> Option<f64> {
    let delay_s = thread.run_delay_s?;
    (thread.elapsed_s > 0.0).then(|| delay_s / thread.elapsed_s)
}

/// Returns the name of the other threads that used most CPU time on the CPU of a thread; none if no watched thread did.
fn busiest_other(data: &CaseData<'_>, thread: &ForwardingThread) -> Option<String> {
    let mut times: BTreeMap<&str, f64> = BTreeMap::new();
    for other in data
        .activities
        .iter()
        .flat_map(|activity| &activity.threads)
    {
        if other.cpu == thread.cpu && other.name != thread.name {
            *times.entry(&other.name).or_default() += other.cpu_time_s;
        }
    }
    let busiest = times
        .into_iter()
        .max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (busiest.1 > 0.0).then(|| busiest.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{activity, data, forwarding, neighbour};
    use super::*;

    #[test]
    fn a_preempted_thread_is_reported_with_the_thread_that_ran_instead() {
        let mut thread = forwarding("qw-fwd-3", 3);
        thread.nonvoluntary_switches = 1_204;
        thread.run_delay_s = Some(2.5);
        let found = activity(
            10.0,
            vec![
                thread,
                neighbour("stress-ng-cpu", 3, 2.0),
                neighbour("stress-ng-vm", 2, 9.0),
                forwarding("qw-fwd-2", 2),
            ],
        );
        let finding = preempted(&data(&[&found])).unwrap();
        let text = finding.text.replace(format::THIN, " ");
        assert_eq!(
            text,
            "Forwarding thread qw-fwd-3 was preempted 1 204 times on CPU 3 (120 per second), mostly by stress-ng-cpu. \
             It waited for its CPU 25 % of the time."
        );
        assert!(finding.cure.contains("CPU 3"));
        assert_eq!(finding.page, "docs/findings.md#preempted");
    }

    #[test]
    fn a_wait_without_many_preemptions_counts_and_an_unknown_thread_is_named_as_such() {
        let mut thread = forwarding("qw-fwd-3", 3);
        thread.nonvoluntary_switches = 12;
        thread.run_delay_s = Some(0.2);
        let found = activity(10.0, vec![thread]);
        let finding = preempted(&data(&[&found])).unwrap();
        assert!(
            finding.text.contains("not of this study"),
            "{}",
            finding.text
        );
    }

    #[test]
    fn the_kernels_own_work_and_preempted_neighbours_are_no_finding() {
        let mut thread = forwarding("qw-fwd-3", 3);
        thread.nonvoluntary_switches = 30;
        thread.run_delay_s = Some(0.01);
        let mut other = neighbour("qw-fwd-9", 3, 1.0);
        other.is_forwarding = true;
        other.nonvoluntary_switches = 9_000;
        let found = activity(10.0, vec![thread, other]);
        assert_eq!(preempted(&data(&[&found])), None);
        assert_eq!(preempted(&data(&[])), None);
    }
}
