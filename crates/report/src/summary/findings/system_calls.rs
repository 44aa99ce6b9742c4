// SPDX-License-Identifier: Apache-2.0
//! A forwarding thread slept.

use std::collections::BTreeMap;

use quietwire_base::Idle;

use super::data::CaseData;
use super::finding::MachineFinding;
use crate::format;

/// Voluntary switches per second of a thread that sleeps between frames.
const PER_SECOND_MIN: f64 = 100.0;

/// Reports the forwarding thread that slept most often, with the system call in which it was observed most.
pub(super) fn system_calls(data: &CaseData<'_>) -> Option<MachineFinding> {
    let thread = data
        .forwarding()
        .into_iter()
        .max_by_key(|thread| thread.voluntary)?;
    let per_second = thread.per_second(thread.voluntary);
    if per_second < PER_SECOND_MIN {
        return None;
    }
    let observed = match most_observed(data, &thread.name) {
        Some((call, share)) => format!(
            " (in {call} in {} of the samples)",
            format::percent(share * 100.0)
        ),
        None => String::new(),
    };
    let text = format!(
        "Forwarding thread {} gave up its CPU {} times per second in system calls{observed}.",
        thread.name,
        format::number(per_second)
    );
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
