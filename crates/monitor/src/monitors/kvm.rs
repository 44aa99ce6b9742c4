// SPDX-License-Identifier: Apache-2.0
//! Exits of virtual machines, from KVM's statistics in debugfs (Documentation/virt/kvm/api.rst, virt/kvm/kvm_main.c): a directory
//! `PID-FD` for each virtual machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::files::{names, value};
use crate::monitor::{Monitor, Target, Unavailable};
use crate::ticks::difference;

const DIRECTORY: &str = "sys/kernel/debug/kvm";

/// Exits of one kind of the virtual machines of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestExits {
    /// Process ID of the hypervisor.
    pub pid: u32,
    /// KVM's name of the counter: `exits`, `io_exits`, `mmio_exits`, `halt_exits`.
    pub kind: String,
    /// Number of exits, of all virtual CPUs of all virtual machines.
    pub count: u64,
}

pub(crate) struct Kvm;

impl Monitor for Kvm {
    const NAME: &'static str = "kvm";
    /// Exits by process and kind, of all virtual machines of the process.
    type Counters = BTreeMap<(u32, String), u64>;
    type Activity = Vec<GuestExits>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let directory = target.root.join(DIRECTORY);
        let listed = names(&directory);
        if listed.is_empty() {
            return Err(Unavailable::missing("/sys/kernel/debug/kvm"));
        }
        let mut found: Self::Counters = BTreeMap::new();
        for name in listed {
            let pid = name.split_once('-').and_then(|(pid, _)| pid.parse().ok());
            let Some(pid) = pid.filter(|pid| target.watched.iter().any(|it| it.pid == *pid)) else {
                continue;
            };
            let machine = directory.join(&name);
            let kinds = names(&machine).into_iter();
            for kind in kinds.filter(|kind| kind.ends_with("exits")) {
                if let Some(count) = value::<u64>(&machine.join(&kind)) {
                    let sum = found.entry((pid, kind)).or_default();
                    *sum = sum.saturating_add(count);
                }
            }
        }
        Ok(found)
    }

    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let mut found = Vec::new();
        for ((pid, kind), now) in now {
            let Some(then) = then.get(&(*pid, kind.clone())) else {
                continue;
            };
            let what = format!("{kind} of guest {pid}");
            let count = difference(&what, *then, *now, anomalies);
            if count > 0 {
                found.push(GuestExits {
                    pid: *pid,
                    kind: kind.clone(),
                    count,
                });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::{Owner, Watched};
    use crate::tests::{Machine, between};

    #[test]
    fn virtual_machines_of_one_process_are_added() {
        let at = |first: &str, second: &str| {
            Machine::default()
                .with("sys/kernel/debug/kvm/7-11/exits", first)
                .with("sys/kernel/debug/kvm/7-12/exits", second)
                .watching(Watched::of(7, Owner::Device))
        };
        let activity = between::<Kvm>(&at("10", "100"), &at("15", "107"));
        assert_eq!(activity.len(), 1);
        assert_eq!((activity[0].pid, activity[0].count), (7, 12));
    }

    #[test]
    fn exits_of_watched_guests_are_counted_by_kind() {
        let at = |exits: &str| {
            Machine::default()
                .with("sys/kernel/debug/kvm/7-11/exits", exits)
                .with("sys/kernel/debug/kvm/7-11/io_exits", "5")
                .with("sys/kernel/debug/kvm/7-12/exits", "1000")
                .with("sys/kernel/debug/kvm/7-11/vcpu0/guest_mode", "0")
                .with("sys/kernel/debug/kvm/8-11/exits", exits)
                .with("sys/kernel/debug/kvm/exits", exits)
                .watching(Watched::of(7, Owner::Device))
        };
        let activity = between::<Kvm>(&at("10"), &at("25"));
        let wanted = GuestExits {
            pid: 7,
            kind: "exits".to_owned(),
            count: 15,
        };
        assert_eq!(activity, [wanted]);
        assert!(
            Machine::default()
                .unavailable::<Kvm>()
                .contains("debug/kvm")
        );
    }
}
