// SPDX-License-Identifier: Apache-2.0
//! Where everything that systemd starts runs unless its unit says otherwise (systemd-system.conf(5), `CPUAffinity`).

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
