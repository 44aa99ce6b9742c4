// SPDX-License-Identifier: Apache-2.0
//! Whether the machine is as its plan has it: what is set up, and what really ran where. Never writes. Each check passes,
//! fails, or cannot tell, with the file, what was expected there, what was seen, and what to do.

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
pub use live::{Sample, ThreadSample, live_checks};
pub(crate) use machine::Machine;
pub use metrics::exposition;

/// Everything that can be told at once, of the machine whose files are below `root`.
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
