// SPDX-License-Identifier: Apache-2.0
//! Activity on isolated CPUs during an interval: threads that ran there, interrupts, and interruptions of forwarding
//! threads.

mod activity;
mod counts;
mod forwarding;
mod interval;
mod noise;
mod sample;

use std::path::Path;
use std::time::Duration;

use super::check::Check;
use super::machine::Machine;
use crate::partition::Plan;
use crate::pci_driver::STEP_MAX;
use interval::Interval;

pub use activity::KERNEL_THREADS;
pub use sample::{Sample, ThreadSample};

/// Checks the activity between two samples of the machine whose files are below `root`.
#[must_use]
pub fn live_checks(root: &Path, plan: &Plan, before: &Sample, after: &Sample) -> Vec<Check> {
    let machine = Machine {
        root,
        plan,
        isolated: plan.isolated(),
        forwarding: plan.cpus(crate::partition::Role::Forwarding),
        tasks: Vec::new(),
        timeout: STEP_MAX,
    };
    let seconds = after
        .at
        .saturating_duration_since(before.at)
        .max(Duration::from_millis(1))
        .as_secs_f64();
    let interval = Interval {
        machine: &machine,
        before,
        after,
        seconds,
        is_tickless: plan
            .boot
            .iter()
            .any(|parameter| parameter.name == "nohz_full"),
    };
    let mut checks = activity::checks(&interval);
    checks.extend(counts::checks(&interval));
    checks.extend(forwarding::checks(&interval));
    checks.extend(noise::checks(&interval));
    checks
}
