// SPDX-License-Identifier: Apache-2.0
//! Interruptions of forwarding threads: context switches, migrations and system calls.

use super::super::check::{Check, some_of};
use super::interval::Interval;
use super::sample::{ForwardingSample, ThreadSample};
use crate::partition::Idle;

/// Maximum context switches of a forwarding thread per second: migration threads and residual ticks cause a few.
const SWITCHES_PER_S: f64 = 1.0;
/// Maximum share of kernel time of a poll loop. Interrupts count as kernel time.
const KERNEL_SHARE: f64 = 0.01;
/// Clock ticks per second in `/proc`.
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
        return vec![Check::unknown(
            "forwarding-switches",
            "/proc/*/task/*/status",
            "forwarding threads without interruptions",
            "no forwarding thread ran during the whole interval",
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
                "{} {forced:.1} involuntary and {wanted:.1} voluntary",
                pair.label()
            ));
        }
    }
    let actual = if wrong.is_empty() {
        format!("{} threads, none with more", pairs.len())
    } else {
        some_of(&wrong)
    };
    Check::new(
        "forwarding-switches",
        "/proc/*/task/*/status",
        format!("at most {SWITCHES_PER_S:.0} context switch per second for each forwarding thread"),
        actual,
        wrong.is_empty(),
        "involuntary switches come from other threads on the CPU (see who-ran), voluntary switches from system calls that wait",
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
        let why = "the kernel does not count migrations (CONFIG_SCHED_DEBUG); at both ends of the interval the threads were on the same CPU";
        return Check::unknown(name, files, expected, why);
    }
    let actual = if wrong.is_empty() {
        "none".to_owned()
    } else {
        some_of(&wrong)
    };
    let remedy = "give each forwarding thread one CPU";
    Check::new(name, files, expected, actual, wrong.is_empty(), remedy)
}

/// Checks for system calls: a poll loop makes none. Samples show calls that wait. The time in the kernel shows short calls.
fn system_calls(interval: &Interval<'_>, pairs: &[Pair<'_>]) -> Check {
    let (name, files) = ("system-calls", "/proc/*/task/*/syscall, stat");
    let expected = "none in a poll loop";
    if interval.machine.plan.idle != Idle::Poll {
        let actual = "the plan lets idle forwarding threads sleep or yield";
        return Check::new(name, files, "any", actual, true, "");
    }
    let (mut wrong, mut denied, mut looks) = (Vec::new(), 0_u32, 0_u32);
    for pair in pairs {
        if let Some(calls) = interval.after.calls.get(&pair.tid) {
            denied = denied.saturating_add(calls.denied);
            looks = looks.saturating_add(calls.looks);
            let waiting: u32 = calls.waiting.values().sum();
            if waiting > 0 {
                let numbers: Vec<String> = calls.waiting.keys().map(i64::to_string).collect();
                let (label, looks) = (pair.label(), calls.looks);
                let numbers = numbers.join(", ");
                wrong.push(format!(
                    "{label} in system call {numbers} in {waiting} of {looks} samples"
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
            "no permission to sample forwarding threads (requires CAP_SYS_PTRACE)"
        } else {
            "the kernel does not report system calls (CONFIG_HAVE_ARCH_TRACEHOOK); the threads spent little time in the kernel"
        };
        return Check::unknown(name, files, expected, why);
    }
    let actual = if wrong.is_empty() {
        format!("none in {looks} samples")
    } else {
        some_of(&wrong)
    };
    let remedy = "disable yielding in idle loops (vRouter: --yield_option 0); `perf trace -t THREAD` shows the system calls";
    Check::new(name, files, expected, actual, wrong.is_empty(), remedy)
}
