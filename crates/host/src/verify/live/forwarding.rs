// SPDX-License-Identifier: Apache-2.0
//! What forwarding threads were kept from their work by: switches, migrations, system calls.

use super::super::check::{Check, some_of};
use super::interval::Interval;
use super::sample::{ForwardingSample, ThreadSample};
use crate::partition::Idle;

/// Switches of a forwarding thread, a second, that pass: a migration thread's stop, a residual tick.
const SWITCHES_PER_S: f64 = 1.0;
/// Share of its time that a poll loop may be in the kernel, which counts what interrupts it.
const KERNEL_SHARE: f64 = 0.01;
/// Clock ticks in a second as `/proc` counts them.
const TICKS_PER_S: f64 = 100.0;

/// One forwarding thread at both ends of the interval.
struct Pair<'a> {
    tid: i32,
    before: (&'a ThreadSample, &'a ForwardingSample),
    after: (&'a ThreadSample, &'a ForwardingSample),
}

impl Pair<'_> {
    fn label(&self) -> String {
        let (thread, forwarding) = self.after;
        format!(
            "{} ({}, {})",
            thread.name,
            self.tid,
            forwarding.data_plane.name()
        )
    }
}

pub(super) fn checks(interval: &Interval<'_>) -> Vec<Check> {
    let after = interval.after.threads.iter();
    let pairs: Vec<Pair<'_>> = after
        .filter_map(|(tid, thread)| {
            let before = interval.before.threads.get(tid)?;
            Some(Pair {
                tid: *tid,
                before: (before, before.forwarding.as_ref()?),
                after: (thread, thread.forwarding.as_ref()?),
            })
        })
        .collect();
    if pairs.is_empty() {
        return vec![Check::cannot_tell(
            "forwarding-switches",
            "/proc/*/task/*/status",
            "forwarding threads that are not disturbed",
            "no forwarding thread ran through the interval",
        )];
    }
    vec![
        switches(interval, &pairs),
        migrations(&pairs),
        system_calls(interval, &pairs),
    ]
}

fn switches(interval: &Interval<'_>, pairs: &[Pair<'_>]) -> Check {
    let mut wrong = Vec::new();
    for pair in pairs {
        let (before, after) = (pair.before.1, pair.after.1);
        let wanted = after.voluntary.saturating_sub(before.voluntary) as f64 / interval.seconds;
        let forced = after.involuntary.saturating_sub(before.involuntary) as f64 / interval.seconds;
        let may_sleep = interval.machine.plan.idle != Idle::Poll;
        if forced > SWITCHES_PER_S || (wanted > SWITCHES_PER_S && !may_sleep) {
            wrong.push(format!(
                "{} {forced:.1} forced and {wanted:.1} wanted",
                pair.label()
            ));
        }
    }
    let seen = if wrong.is_empty() {
        format!("{} threads, none more", pairs.len())
    } else {
        some_of(&wrong)
    };
    Check::new(
        "forwarding-switches",
        "/proc/*/task/*/status",
        format!("at most {SWITCHES_PER_S:.0} context switch a second of a forwarding thread"),
        seen,
        wrong.is_empty(),
        "forced ones are others on its CPU: see who ran; wanted ones are system calls that wait",
    )
}

fn migrations(pairs: &[Pair<'_>]) -> Check {
    let (name, files) = ("forwarding-migrations", "/proc/*/task/*/sched, stat");
    let expected = "no forwarding thread changes its CPU";
    let mut wrong = Vec::new();
    let mut is_known = true;
    for pair in pairs {
        let changed = match (pair.before.1.migrations, pair.after.1.migrations) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => {
                is_known = false;
                u64::from(pair.before.0.cpu != pair.after.0.cpu)
            }
        };
        if changed > 0 {
            wrong.push(format!("{} {changed} times", pair.label()));
        }
    }
    if wrong.is_empty() && !is_known {
        let why = "the kernel does not count migrations (CONFIG_SCHED_DEBUG); at both ends of the interval they were on the same CPU";
        return Check::cannot_tell(name, files, expected, why);
    }
    let seen = if wrong.is_empty() {
        "none".to_owned()
    } else {
        some_of(&wrong)
    };
    let remedy = "give each forwarding thread one CPU";
    Check::new(name, files, expected, seen, wrong.is_empty(), remedy)
}

/// A poll loop makes no system call. One that waits in a call is seen there; one that makes short ones is seen by the time
/// that it spends in the kernel.
fn system_calls(interval: &Interval<'_>, pairs: &[Pair<'_>]) -> Check {
    let (name, files) = ("system-calls", "/proc/*/task/*/syscall, stat");
    let expected = "none in a poll loop";
    if interval.machine.plan.idle != Idle::Poll {
        let seen = "the plan lets idle forwarding threads sleep or yield";
        return Check::new(name, files, "any", seen, true, "");
    }
    let (mut wrong, mut denied, mut looks) = (Vec::new(), 0, 0);
    for pair in pairs {
        if let Some(calls) = interval.after.calls.get(&pair.tid) {
            denied += calls.denied;
            looks += calls.looks;
            let waiting: u32 = calls.waiting.values().sum();
            if waiting > 0 {
                let numbers: Vec<String> = calls.waiting.keys().map(i64::to_string).collect();
                let (label, looks) = (pair.label(), calls.looks);
                let numbers = numbers.join(", ");
                wrong.push(format!(
                    "{label} in {waiting} of {looks} looks in call {numbers}"
                ));
                continue;
            }
        }
        let in_kernel = pair.after.0.ticks.1.saturating_sub(pair.before.0.ticks.1) as f64;
        let share = in_kernel / TICKS_PER_S / interval.seconds;
        if share > KERNEL_SHARE {
            wrong.push(format!(
                "{} {:.0} % of its time in the kernel",
                pair.label(),
                share * 100.0
            ));
        }
    }
    if wrong.is_empty() && (denied > 0 || looks == 0) {
        let why = if denied > 0 {
            "looking into forwarding threads is not permitted: it takes CAP_SYS_PTRACE"
        } else {
            "the kernel does not tell (CONFIG_HAVE_ARCH_TRACEHOOK); little time was spent in it"
        };
        return Check::cannot_tell(name, files, expected, why);
    }
    let seen = if wrong.is_empty() {
        format!("none in {looks} looks")
    } else {
        some_of(&wrong)
    };
    let remedy = "turn the yield of idle loops off (vRouter: --yield_option 0), and see by `perf trace -t THREAD` what is called";
    Check::new(name, files, expected, seen, wrong.is_empty(), remedy)
}
