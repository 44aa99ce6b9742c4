// SPDX-License-Identifier: Apache-2.0
//! Interrupts and softirqs of isolated CPUs.

use super::super::check::{APPLY, Check, UNREADABLE, some_of};
use super::super::machine::Machine;
use super::super::remedy;
use super::interval::{Interval, TICKS_PER_S};
use crate::proc::PerCpu;

/// The tick's line of `/proc/interrupts`: `LOC` on x86.
const TICK: [&str; 2] = ["LOC", "arch_timer"];
/// Maximum inter-processor interrupts of one kind per second: the kernel's own bookkeeping causes a few.
const BETWEEN_CPUS_PER_S: f64 = 1.0;
/// Softirqs that the tick raises.
const OF_THE_TICK: [&str; 4] = ["TIMER", "SCHED", "RCU", "HRTIMER"];

pub(super) fn checks(interval: &Interval<'_>) -> Vec<Check> {
    let mut checks = interrupts(interval);
    checks.push(softirqs(interval));
    checks
}

fn since(before: Option<&PerCpu>, after: Option<&PerCpu>) -> Option<PerCpu> {
    Some(after?.since(before?))
}

/// Interrupts of the isolated CPUs by kind. Those that are as frequent as expected are left out.
#[derive(Default)]
struct Interrupts<'a> {
    devices: Vec<String>,
    /// Numbers of the device interrupts, each once.
    numbers: Vec<&'a str>,
    ticks: Vec<String>,
    /// Inter-processor interrupts.
    between: Vec<String>,
}

impl<'a> Interrupts<'a> {
    /// Sorts the interrupts of an interval of this length, seconds.
    fn of(came: &'a PerCpu, seconds: f64) -> Self {
        let mut found = Self::default();
        for (name, line) in &came.lines {
            let is_tick = TICK
                .iter()
                .any(|tick| name == tick || line.what.contains(tick));
            let is_device = name.bytes().all(|octet| octet.is_ascii_digit());
            let what = &line.what;
            for (cpu, count) in &line.counts {
                let rate = *count as f64 / seconds;
                if is_tick {
                    if rate > TICKS_PER_S {
                        let text = format!("CPU {cpu} {rate:.0} per second");
                        found.ticks.push(text);
                    }
                } else if is_device {
                    let text = format!("{name} ({what}) {count} times on CPU {cpu}");
                    found.devices.push(text);
                    if !found.numbers.contains(&name.as_str()) {
                        found.numbers.push(name);
                    }
                } else if rate > BETWEEN_CPUS_PER_S {
                    let text = format!("{name} ({what}) {rate:.1} per second on CPU {cpu}");
                    found.between.push(text);
                }
            }
        }
        found
    }
}

fn interrupts(interval: &Interval<'_>) -> Vec<Check> {
    let file = "/proc/interrupts";
    let isolated = &interval.machine.isolated;
    let devices_expected = format!("no device interrupts on the isolated CPUs {isolated}");
    let came = since(
        interval.before.interrupts.as_ref(),
        interval.after.interrupts.as_ref(),
    );
    let Some(came) = came else {
        let name = "interrupts-that-came";
        return vec![Check::unknown(name, file, devices_expected, UNREADABLE)];
    };
    let found = Interrupts::of(&came, interval.seconds);
    let actual = |found: &[String]| {
        if found.is_empty() {
            "none".to_owned()
        } else {
            some_of(found)
        }
    };
    let (text, commands) = devices_remedy(interval.machine, &found.numbers);
    let mut checks = vec![
        Check::new(
            "interrupts-that-came",
            file,
            devices_expected,
            actual(&found.devices),
            found.devices.is_empty(),
            text,
        )
        .with_commands(commands),
    ];
    let is_fine = found.ticks.is_empty() || !interval.is_tickless;
    let expected = if interval.is_tickless {
        format!("at most {TICKS_PER_S:.0} per second on the isolated CPUs {isolated}")
    } else {
        "any (the plan does not disable the tick)".to_owned()
    };
    let remedy = "nohz_full= requires exactly one runnable thread and no timer on each CPU (see who-ran for other threads)";
    checks.push(Check::new(
        "tick",
        file,
        expected,
        actual(&found.ticks),
        is_fine,
        remedy,
    ));
    checks.push(Check::new(
        "interrupts-between-cpus",
        file,
        format!("at most {BETWEEN_CPUS_PER_S:.0} of each kind per second on the isolated CPUs {isolated}"),
        actual(&found.between),
        found.between.is_empty(),
        "RES: a thread was woken on the CPU; TLB: a process with threads on this and other CPUs released memory; CAL: kernel function calls. rcu_nocbs= and locked memory reduce them",
    ));
    checks
}

/// Returns the remedy for device interrupts: a command for each movable interrupt, a boot parameter for those that only the
/// kernel can move.
fn devices_remedy(machine: &Machine<'_>, numbers: &[&str]) -> (String, Vec<String>) {
    let (fixed, movable): (Vec<&str>, Vec<&str>) = numbers
        .iter()
        .partition(|number| machine.is_fixed_interrupt(number));
    let commands = movable
        .iter()
        .map(|number| remedy::interrupt(machine, number))
        .collect();
    let mut texts = Vec::new();
    if !movable.is_empty() {
        texts.push(format!(
            "{APPLY}, or move interrupts {} one by one",
            movable.join(", ")
        ));
    }
    if !fixed.is_empty() {
        texts.push(format!(
            "only the kernel can move interrupts {}: add isolcpus=managed_irq,domain,{} to the kernel command line and reboot",
            fixed.join(", "),
            machine.isolated
        ));
    }
    (texts.join("; "), commands)
}

fn softirqs(interval: &Interval<'_>) -> Check {
    let (name, file) = ("softirqs", "/proc/softirqs");
    let isolated = &interval.machine.isolated;
    let expected =
        format!("at most {TICKS_PER_S:.0} of each kind per second on the isolated CPUs {isolated}");
    let came = since(
        interval.before.softirqs.as_ref(),
        interval.after.softirqs.as_ref(),
    );
    let Some(came) = came else {
        return Check::unknown(name, file, expected, UNREADABLE);
    };
    let mut wrong = Vec::new();
    for (kind, line) in &came.lines {
        if !interval.is_tickless && OF_THE_TICK.contains(&kind.as_str()) {
            continue;
        }
        for (cpu, count) in &line.counts {
            let rate = *count as f64 / interval.seconds;
            if rate > TICKS_PER_S {
                wrong.push(format!("{kind} {rate:.0} per second on CPU {cpu}"));
            }
        }
    }
    let actual = if wrong.is_empty() {
        "none above the limit".to_owned()
    } else {
        some_of(&wrong)
    };
    let remedy = "NET_RX and NET_TX come from interrupts and receive steering, the others from threads on these CPUs";
    Check::new(name, file, expected, actual, wrong.is_empty(), remedy)
}
