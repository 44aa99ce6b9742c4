// SPDX-License-Identifier: Apache-2.0
//! Renders the CPUs that irqbalance does not use (irqbalance(1); supported since version 1.8).

use crate::partition::Plan;

pub(super) fn render(plan: &Plan) -> String {
    let banned = super::cpus::all(plan).difference(&plan.housekeeping);
    format!("IRQBALANCE_BANNED_CPULIST={banned}\n")
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{cpus, value};
    let banned = cpus(&value(text, "IRQBALANCE_BANNED_CPULIST="));
    assert_eq!(
        super::cpus::all(plan).difference(&banned),
        plan.housekeeping
    );
}
