// SPDX-License-Identifier: Apache-2.0
//! CPUs of neighbours, relative to the forwarding CPUs.

use quietwire_host::CpuList;
use quietwire_host::inventory::Inventory;

/// Placement of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On every CPU.
    Everywhere,
    /// On every CPU except the forwarding ones.
    OffForwardingCpus,
    /// On the other threads of the forwarding cores.
    Siblings,
    /// On other cores that share a last-level cache with a forwarding core.
    SameLlc,
    /// On NUMA nodes without a forwarding CPU.
    OtherNode,
}

impl Placement {
    /// Returns the CPUs of a machine in this placement.
    ///
    /// # Errors
    /// The reason, as a clause, why the machine has none.
    pub fn cpus(self, machine: &Inventory, forwarding: &CpuList) -> Result<CpuList, String> {
        let online = machine.cpus_online.clone().unwrap_or_default();
        let (found, reason) = match self {
            Self::Everywhere => (online, "the kernel reports no online CPUs"),
            Self::OffForwardingCpus => (
                online.difference(forwarding),
                "every CPU forwards, so no CPU is left for neighbours",
            ),
            Self::Siblings => (
                siblings(machine, forwarding).intersection(&online),
                "the forwarding cores run one thread each, so no forwarding CPU has a sibling",
            ),
            Self::SameLlc => {
                let cores = forwarding.union(&siblings(machine, forwarding));
                let near = sharing_cache(machine, forwarding)?;
                (
                    near.difference(&cores).intersection(&online),
                    "no other core shares a last-level cache with a forwarding core",
                )
            }
            Self::OtherNode => (
                other_nodes(machine, forwarding).intersection(&online),
                "every NUMA node with CPUs has a forwarding CPU",
            ),
        };
        if found.is_empty() {
            Err(reason.to_owned())
        } else {
            Ok(found)
        }
    }
}

/// Returns the other threads of the cores of these CPUs.
pub(crate) fn siblings(machine: &Inventory, of: &CpuList) -> CpuList {
    let places = of.iter().filter_map(|cpu| machine.cpu(cpu));
    let threads = places.filter_map(|place| place.siblings.as_ref());
    threads
        .fold(CpuList::new(), |all, threads| all.union(threads))
        .difference(of)
}

fn sharing_cache(machine: &Inventory, forwarding: &CpuList) -> Result<CpuList, String> {
    let caches = machine.caches.iter();
    let last = caches.clone().map(|cache| cache.level).max();
    // The first level belongs to each core; a placement requires a further level, which some machines do not report.
    let last = last
        .filter(|level| *level > 1)
        .ok_or("the machine does not report which CPUs share a last-level cache")?;
    let shared = caches
        .filter(|cache| cache.level == last)
        .map(|cache| cache.cpus.clone())
        .filter(|cpus| !cpus.intersection(forwarding).is_empty());
    Ok(shared.fold(CpuList::new(), |all, cpus| all.union(&cpus)))
}

fn other_nodes(machine: &Inventory, forwarding: &CpuList) -> CpuList {
    let lists = machine.nodes.iter().filter_map(|node| node.cpus.as_ref());
    lists
        .filter(|cpus| cpus.intersection(forwarding).is_empty())
        .fold(CpuList::new(), |all, cpus| all.union(cpus))
}

#[cfg(test)]
mod tests {
    use quietwire_host::machines::{arm, many_caches, offline, two_packages_with_clusters};

    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn on(machine: &Inventory, placement: Placement, forwarding: &str) -> String {
        match placement.cpus(machine, &list(forwarding)) {
            Ok(cpus) => cpus.to_string(),
            Err(reason) => reason,
        }
    }

    #[test]
    fn placements_follow_the_topology_of_the_machine() {
        // Cores 0 to 15 and 16 to 31, second threads from 32 on; a cache for each package, two nodes in each.
        let machine = two_packages_with_clusters().inventory();
        let at = |placement| on(&machine, placement, "2-3");
        assert_eq!(at(Placement::Everywhere), "0-63");
        assert_eq!(at(Placement::OffForwardingCpus), "0-1,4-63");
        assert_eq!(at(Placement::Siblings), "34-35");
        assert_eq!(at(Placement::SameLlc), "0-1,4-15,32-33,36-47");
        assert_eq!(at(Placement::OtherNode), "8-31,40-63");
        // A sibling that forwards as well is not for neighbours.
        let refused = on(&machine, Placement::Siblings, "2,34");
        assert!(
            refused.contains("no forwarding CPU has a sibling"),
            "{refused}"
        );
        // Eight caches in a package: the forwarding core's has seven others.
        let machine = many_caches().inventory();
        assert_eq!(on(&machine, Placement::SameLlc, "9"), "8,10-15,136,138-143");
    }

    #[test]
    fn placements_that_a_machine_lacks_are_reported() {
        let machine = arm().inventory();
        for (placement, says) in [
            (Placement::Siblings, "one thread each"),
            (Placement::OtherNode, "every NUMA node"),
        ] {
            let reason = on(&machine, placement, "4");
            assert!(reason.contains(says), "{reason}");
        }
        let all = machine.cpus_online.clone().unwrap().to_string();
        let reason = on(&machine, Placement::OffForwardingCpus, &all);
        assert!(reason.contains("every CPU forwards"), "{reason}");
        // CPUs 3, 11 and 14 are offline: 11 is 3's other thread, 14 is 6's.
        let machine = offline().inventory();
        assert!(on(&machine, Placement::Siblings, "6").contains("one thread each"));
        assert_eq!(on(&machine, Placement::Siblings, "5"), "13");
        let unknown = Inventory {
            cpus_online: Some(list("0-1")),
            ..Inventory::default()
        };
        let reason = on(&unknown, Placement::SameLlc, "1");
        assert!(reason.contains("does not report"), "{reason}");
    }
}
