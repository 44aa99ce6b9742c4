// SPDX-License-Identifier: Apache-2.0
//! Renders the default CPU affinity of systemd's units (systemd-system.conf(5), `CPUAffinity`).

use crate::partition::Plan;

pub(super) fn render(plan: &Plan) -> String {
    format!("[Manager]\nCPUAffinity={}\n", plan.housekeeping)
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{cpus, value};
    assert!(text.starts_with("[Manager]\n"));
    assert_eq!(cpus(&value(text, "CPUAffinity=")), plan.housekeeping);
}
