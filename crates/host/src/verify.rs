// SPDX-License-Identifier: Apache-2.0
//! Verification of a machine against its plan: its settings, and what really ran where. Read-only. Each check passes, fails
//! or is unknown, and states the file, the expected and the observed value, and a remedy.

mod affinity;
mod boot;
mod check;
mod classes;
mod controllers;
mod cpusets;
mod domains;
mod interrupts;
mod live;
mod machine;
mod memory;
mod metrics;
mod others;
mod power;
mod remedy;
mod siblings;
mod steering;
#[cfg(test)]
mod tests;
mod work_queues;

use std::path::Path;

use crate::partition::Plan;

pub use check::{Check, Verdict};
pub use live::{KERNEL_THREADS, Sample, ThreadSample, live_checks};
pub(crate) use machine::Machine;
pub use metrics::exposition;

/// Runs all checks that need no interval on the machine whose files are below `root`.
#[must_use]
pub fn static_checks(root: &Path, plan: &Plan) -> Vec<Check> {
    let machine = Machine::read(root, plan);
    let subjects: [fn(&Machine<'_>) -> Vec<Check>; 13] = [
        boot::checks,
        siblings::checks,
        interrupts::checks,
        work_queues::checks,
        steering::checks,
        domains::checks,
        cpusets::checks,
        affinity::checks,
        memory::checks,
        power::checks,
        classes::checks,
        controllers::checks,
        others::checks,
    ];
    subjects
        .iter()
        .flat_map(|checks| checks(&machine))
        .collect()
}
