// SPDX-License-Identifier: Apache-2.0
//! Renders the variables of tuned's profile cpu-partitioning. The profile adds `isolcpus` to the command line only if
//! `no_balance_cores` is set, so both variables are set.

use crate::partition::Plan;

pub(super) fn render(plan: &Plan) -> String {
    let isolated = plan.isolated();
    format!(
        "# Variables of tuned's profile cpu-partitioning: tuned-adm profile cpu-partitioning\nisolated_cores={isolated}\nno_balance_cores={isolated}\nisolate_managed_irq=Y\n"
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{cpus, value};
    assert_eq!(cpus(&value(text, "isolated_cores=")), plan.isolated());
    assert_eq!(cpus(&value(text, "no_balance_cores=")), plan.isolated());
}
