// SPDX-License-Identifier: Apache-2.0
//! A forwarding thread slept.

use std::collections::BTreeMap;

use quietwire_base::Idle;
use quietwire_monitor::SystemCallCounts;

use super::data::CaseData;
use super::finding::MachineFinding;
use crate::format;

/// Voluntary switches per second of a thread that sleeps between frames.
const PER_SECOND_MIN: f64 = 100.0;

/// Reports the forwarding thread that slept most often, with the system call that it made most often, or in which it was observed most.
pub(super) fn system_calls(data: &CaseData<'_>) -> Option<MachineFinding> {
    let thread = data
        .forwarding()
        .into_iter()
        .max_by_key(|thread| thread.voluntary)?;
    let per_second = thread.per_second(thread.voluntary);
    if per_second < PER_SECOND_MIN {
        return None;
    }
    let slept = format!(
        "gave up its CPU {} times per second in system calls",
        format::number(per_second)
    );
    let found = match (
        most_called(data, &thread.name),
        most_observed(data, &thread.name),
    ) {
        (Some((call, calls_per_s)), _) => format!(
            "called {call} {} times per second and {slept}",
            format::number(calls_per_s)
        ),
        (None, Some((call, share))) => format!(
            "{slept} (in {call} in {} of the samples)",
            format::percent(share * 100.0)
        ),
        (None, None) => slept,
    };
    let text = format!("Forwarding thread {} {found}.", thread.name);
    let cure = match data.idle {
        Idle::Poll => {
            "use ports that are polled without system calls, such as memif and vhost-user"
                .to_owned()
        }
        idle => format!(
            "set `idle = \"poll\"` in [device]; it is \"{}\"",
            idle.name()
        ),
    };
    Some(MachineFinding::new("system-calls", data.case, text, &cure))
}

/// Returns the system call that threads of this name made most often, by count, and its number per second. Calls that the monitor does not
/// count by name are left out.
fn most_called(data: &CaseData<'_>, name: &str) -> Option<(String, f64)> {
    let mut elapsed_s = 0.0;
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for activity in &data.activities {
        let named = activity.threads.iter().filter(|thread| thread.name == name);
        let ids: Vec<(u32, i32)> = named.map(|thread| (thread.pid, thread.tid)).collect();
        let all = activity.system_call_counts.iter();
        let own: Vec<_> = all
            .filter(|one| ids.contains(&(one.pid, one.tid)))
            .collect();
        if !own.is_empty() {
            elapsed_s += activity.elapsed_s;
        }
        for (call, count) in own.into_iter().flat_map(|one| &one.calls) {
            let sum = calls.entry(call).or_default();
            *sum = sum.saturating_add(*count);
        }
    }
    calls.remove(SystemCallCounts::OTHERS);
    let (call, count) = calls.into_iter().max_by_key(|(_, count)| *count)?;
    (elapsed_s > 0.0).then(|| (call.to_owned(), count as f64 / elapsed_s))
}

/// Returns the system call in which threads of this name were observed most, and its share of the samples.
fn most_observed(data: &CaseData<'_>, name: &str) -> Option<(String, f64)> {
    let mut samples = 0_u64;
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for activity in &data.activities {
        let named = activity.threads.iter().filter(|thread| thread.name == name);
        let ids: Vec<(u32, i32)> = named.map(|thread| (thread.pid, thread.tid)).collect();
        let own = activity.system_calls.iter();
        for one in own.filter(|one| ids.contains(&(one.pid, one.tid))) {
            samples = samples.saturating_add(one.samples);
            for (call, count) in &one.waiting {
                let sum = calls.entry(call).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
    }
    let (call, count) = calls.into_iter().max_by_key(|(_, count)| *count)?;
    (samples > 0).then(|| (call.to_owned(), count as f64 / samples as f64))
}

#[cfg(test)]
mod tests {
    use quietwire_monitor::SystemCallSamples;

    use super::super::tests::{activity, data, forwarding};
    use super::*;

    #[test]
    fn a_thread_that_sleeps_is_reported_with_the_call_and_the_setting() {
        let mut thread = forwarding("qw-fwd-1", 1);
        thread.voluntary_switches = 9_000;
        let mut found = activity(10.0, vec![thread.clone()]);
        found.system_calls = vec![SystemCallSamples {
            pid: thread.pid,
            tid: thread.tid,
            samples: 200,
            waiting: BTreeMap::from([("clock_nanosleep".to_owned(), 150), ("read".to_owned(), 2)]),
        }];
        let mut data = data(&[&found]);
        data.idle = Idle::Sleep;
        let finding = system_calls(&data).unwrap();
        let text = finding.text.replace(format::THIN, " ");
        let wanted = "Forwarding thread qw-fwd-1 gave up its CPU 900 times per second in system calls \
                      (in clock_nanosleep in 75 % of the samples).";
        assert_eq!(text, wanted);
        assert_eq!(
            finding.cure,
            "set `idle = \"poll\"` in [device]; it is \"sleep\""
        );
        // Counts are exact, and those of other threads do not matter.
        let counts = |tid, name: &str, count| SystemCallCounts {
            pid: thread.pid,
            tid,
            calls: BTreeMap::from([
                (name.to_owned(), count),
                ("read".to_owned(), 5),
                (SystemCallCounts::OTHERS.to_owned(), 9_000),
            ]),
        };
        let mut counted = found.clone();
        counted.system_call_counts = vec![
            counts(thread.tid, "nanosleep", 8_000),
            counts(thread.tid + 1, "futex", 90_000),
        ];
        let mut of_counts = super::super::tests::data(&[&counted]);
        of_counts.idle = Idle::Sleep;
        let text = system_calls(&of_counts)
            .unwrap()
            .text
            .replace(format::THIN, " ");
        let wanted = "Forwarding thread qw-fwd-1 called nanosleep 800 times per second and gave up its CPU 900 times per second in \
                      system calls.";
        assert_eq!(text, wanted);
        data.idle = Idle::Poll;
        assert!(system_calls(&data).unwrap().cure.contains("polled"));
    }

    #[test]
    fn a_thread_that_polls_is_no_finding() {
        let mut thread = forwarding("qw-fwd-1", 1);
        thread.voluntary_switches = 90;
        let found = activity(10.0, vec![thread]);
        assert_eq!(system_calls(&data(&[&found])), None);
    }
}
