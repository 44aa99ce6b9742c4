// SPDX-License-Identifier: Apache-2.0
//! Renders the kernel command line parameters (kernel documentation: admin-guide/kernel-parameters.rst).

use crate::partition::Plan;

pub(super) fn render(plan: &Plan) -> String {
    format!("{}\n", plan.command_line())
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::cpus;
    let value = |name: &str| {
        let mut words = text.split_whitespace();
        words.find_map(|word| {
            word.strip_prefix(name)?
                .strip_prefix('=')
                .map(str::to_owned)
        })
    };
    let list =
        |name: &str| value(name).map(|list| cpus(list.trim_start_matches("managed_irq,domain,")));
    assert_eq!(list("isolcpus").unwrap(), plan.isolated());
    assert_eq!(list("nohz_full").unwrap(), plan.isolated());
    assert_eq!(list("rcu_nocbs").unwrap(), plan.isolated());
    assert_eq!(list("irqaffinity").unwrap(), plan.housekeeping);
    let planned: Vec<String> = plan.boot.iter().map(ToString::to_string).collect();
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), planned);
}
