// SPDX-License-Identifier: Apache-2.0
//! Comparison of kernel command line parameters with a plan (kernel documentation: admin-guide/kernel-parameters.rst).

use crate::CpuList;
use crate::partition::BootParameter;

/// Parameters with CPU lists, which may contain more CPUs than the plan.
const OF_CPUS: [&str; 3] = ["isolcpus", "nohz_full", "rcu_nocbs"];

/// Returns the last value of a parameter, which is the effective one.
pub(crate) fn value<'a>(given: &'a str, name: &str) -> Option<&'a str> {
    given
        .split_whitespace()
        .rev()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Returns the CPUs of a value such as `managed_irq,domain,2-5`. All other words are flags.
pub(crate) fn cpus(value: &str) -> CpuList {
    value
        .split(',')
        .filter_map(|part| part.parse::<CpuList>().ok())
        .fold(CpuList::new(), |cpus, part| cpus.union(&part))
}

/// Returns whether a command line has a parameter of the plan: literally, or with at least the planned CPUs for parameters
/// with CPU lists.
pub(crate) fn is_given(parameter: &BootParameter, given: &str) -> bool {
    let wanted = parameter.to_string();
    if given.split_whitespace().any(|word| word == wanted) {
        return true;
    }
    let given = value(given, &parameter.name);
    OF_CPUS.contains(&parameter.name.as_str())
        && given
            .zip(parameter.value.as_deref())
            .is_some_and(|(given, wanted)| cpus(wanted).difference(&cpus(given)).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cpus_than_planned_are_enough() {
        let parameter = |name: &str, value: Option<&str>| BootParameter {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            reason: String::new(),
        };
        let given = "quiet isolcpus=managed_irq,domain,1-5 nohz_full=2 skew_tick=1 nosoftlockup";
        for (name, value, is_there) in [
            ("isolcpus", Some("managed_irq,domain,2-3"), true),
            ("isolcpus", Some("2-6"), false),
            ("nohz_full", Some("2-3"), false),
            ("rcu_nocbs", Some("2"), false),
            ("nosoftlockup", None, true),
            ("skew_tick", Some("1"), true),
            ("skew_tick", Some("0"), false),
        ] {
            let wanted = parameter(name, value);
            assert_eq!(is_given(&wanted, given), is_there, "{wanted}");
        }
    }
}
