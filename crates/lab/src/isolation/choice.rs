// SPDX-License-Identifier: Apache-2.0
//! Choice of isolation for a tester and a device that run on one machine. Pure: reads and changes nothing.

use quietwire_host::CpuList;
use quietwire_host::inventory::Inventory;
use quietwire_host::partition::Plan;
use serde::{Deserialize, Serialize};

use super::cases::{IsolationCase, IsolationPart};
use super::plan::Setup;
use crate::neighbours::siblings;

/// Isolation level around a device that runs already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationLevel {
    /// Nothing.
    None,
    /// Everything else is excluded from the CPUs of tester and device.
    Isolated,
    /// As [`Self::Isolated`], with all other parts that the machine supports.
    #[default]
    Full,
}

impl IsolationLevel {
    /// Returns the names of possible cases, the best first.
    fn case_names(self) -> &'static [&'static str] {
        match self {
            Self::None => &[],
            Self::Isolated => &["isolated"],
            Self::Full => &["full", "isolated"],
        }
    }
}

/// The chosen isolation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) case: &'static IsolationCase,
    pub(crate) parts: Vec<IsolationPart>,
    pub(crate) plan: Plan,
    /// CPUs of the tester that the rest of the machine uses as well; empty if other CPUs are left.
    pub(crate) shared: CpuList,
}

/// Chooses the isolation for a tester and a device with these CPUs: of both if that leaves the rest of the machine a CPU, otherwise of the
/// device only.
///
/// # Errors
/// The reason, as a clause, why no isolation is possible.
pub(crate) fn choose(
    machine: &Inventory,
    level: IsolationLevel,
    tester: &CpuList,
    device: &CpuList,
) -> Result<Choice, String> {
    let online = machine.cpus_online.clone().unwrap_or_default();
    let both = tester.union(device);
    let forwarding = [&both, device]
        .into_iter()
        .find(|cpus| !cpus.is_empty() && !online.difference(cpus).is_empty());
    let Some(forwarding) = forwarding else {
        return Err(format!(
            "the CPUs {both} are all CPUs of this machine, so no CPU would be left for other work"
        ));
    };
    let shared = both.difference(forwarding);
    let setup = Setup {
        forwarding: forwarding.clone(),
        apparatus: if shared.is_empty() {
            housekeeping_cpu(machine, forwarding)
        } else {
            shared.clone()
        },
        ports: Vec::new(),
    };
    let mut last_reason = None;
    for name in level.case_names() {
        let Some(case) = IsolationCase::named(name) else {
            continue;
        };
        let planned = case.plan(machine, &setup).and_then(|plan| {
            let parts = case.parts_on(machine, Some(&setup))?;
            Ok((plan, parts))
        });
        match planned {
            Ok((Some(plan), parts)) => {
                return Ok(Choice {
                    case,
                    parts,
                    plan,
                    shared,
                });
            }
            Ok((None, _)) => {}
            Err(reason) => last_reason = Some(reason),
        }
    }
    Err(last_reason.unwrap_or_else(|| "no isolation was requested".to_owned()))
}

/// Returns one CPU for the kernel and for unpinned work, if possible on a core that forwards nothing.
fn housekeeping_cpu(machine: &Inventory, forwarding: &CpuList) -> CpuList {
    let online = machine.cpus_online.clone().unwrap_or_default();
    let rest = online.difference(forwarding);
    let beside = rest.difference(&siblings(machine, forwarding));
    let first = beside.iter().next().or_else(|| rest.iter().next());
    first.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use quietwire_host::machines::{
        Machine, priority_cores, two_packages_with_clusters, virtual_machine,
    };

    use super::*;

    fn read(machine: &Machine) -> Inventory {
        let root = tempfile::tempdir().unwrap();
        machine.write(root.path()).unwrap();
        Inventory::read(root.path())
    }

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn chosen(machine: &Inventory, tester: &str, device: &str) -> Choice {
        choose(machine, IsolationLevel::Full, &list(tester), &list(device)).unwrap()
    }

    #[test]
    fn two_cpus_leave_the_rest_that_of_the_tester() {
        let machine = read(&virtual_machine());
        let choice = chosen(&machine, "0", "1");
        assert_eq!(choice.case.name, "isolated");
        assert_eq!(choice.plan.isolated(), list("1"));
        assert_eq!(choice.plan.housekeeping, list("0"));
        assert_eq!(choice.shared, list("0"));
        // An unknown device leaves a CPU for the rest.
        let choice = chosen(&machine, "0", "");
        assert_eq!(choice.plan.isolated(), list("0"));
        assert_eq!(choice.plan.housekeeping, list("1"));
        assert!(choice.shared.is_empty());
    }

    #[test]
    fn larger_machines_isolate_both_with_all_that_they_have() {
        let machine = read(&two_packages_with_clusters());
        let choice = chosen(&machine, "2", "4-5");
        assert_eq!(choice.case.name, "full");
        assert!(choice.parts.contains(&IsolationPart::IdleSiblings));
        assert!(choice.shared.is_empty());
        let kept = list("2,4-5,34,36-37");
        assert_eq!(
            choice.plan.housekeeping.intersection(&kept),
            CpuList::new(),
            "{:?}",
            choice.plan.housekeeping
        );
        // Tester and device are threads of one core: neither can be idle.
        let choice = chosen(&machine, "2", "34");
        assert_eq!(choice.plan.isolated(), list("2,34"));
        assert!(!choice.parts.contains(&IsolationPart::IdleSiblings));
        let least = IsolationLevel::Isolated;
        let choice = choose(&machine, least, &list("2"), &list("4")).unwrap();
        assert_eq!(choice.case.name, "isolated");
        assert_eq!(choice.plan.isolated(), list("2,4"));
        let choice = chosen(&read(&priority_cores()), "1", "4");
        assert!(choice.parts.contains(&IsolationPart::BaseFrequency));
    }

    #[test]
    fn isolation_that_leaves_no_cpu_is_refused_with_the_reason() {
        let machine = read(&virtual_machine());
        let level = IsolationLevel::Full;
        let last_reason = choose(&machine, level, &list("0-1"), &CpuList::new()).unwrap_err();
        assert!(last_reason.contains("CPUs 0-1 are all"), "{last_reason}");
        let alone = Inventory {
            cpus_online: Some(list("0")),
            ..machine
        };
        let last_reason = choose(&alone, level, &list("0"), &CpuList::new()).unwrap_err();
        assert!(
            last_reason.contains("no CPU would be left"),
            "{last_reason}"
        );
        let machine = read(&virtual_machine());
        assert!(choose(&machine, IsolationLevel::None, &list("0"), &list("1")).is_err());
    }
}
