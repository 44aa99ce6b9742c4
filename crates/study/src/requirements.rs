// SPDX-License-Identifier: Apache-2.0
//! Placement of a case on one machine: the partition that its isolation requires, and the CPUs of its neighbours.

use quietwire_host::CpuList;
use quietwire_host::inventory::Inventory;
use quietwire_host::partition::Plan;
use quietwire_lab::topology::{Assignment, Graph, SWITCH, TESTER, TopologyError, assign};
use quietwire_lab::{Placement, Setup};

use crate::file::{Case, Device, NeighboursIn, StudyFile};

/// Placement of a case on a machine that can run it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CaseRequirements {
    /// Partition that is applied while the case is set up; none if its isolation changes nothing outside the device.
    pub(crate) partition: Option<Plan>,
    /// CPUs available to its neighbours; none without neighbours.
    pub(crate) neighbours: Option<CpuList>,
}

impl CaseRequirements {
    /// Returns the placement of a case on a machine.
    ///
    /// # Errors
    /// Why the machine cannot run the case, as a clause.
    pub(crate) fn of(file: &StudyFile, case: &Case, machine: &Inventory) -> Result<Self, String> {
        let online = machine.cpus_online.clone().unwrap_or_default();
        let setup = setup(file, case, &online).map_err(|error| error.to_string())?;
        let isolates = case.isolation().is_some_and(|it| !it.parts.is_empty());
        let is_relative = !matches!(
            case.neighbours,
            NeighboursIn::None | NeighboursIn::Everywhere
        );
        if file.is_external() && setup.forwarding.is_empty() && (isolates || is_relative) {
            return Err(
                "the CPUs of the device are unknown (name them in forwarding-cpus of [device])"
                    .to_owned(),
            );
        }
        Self::of_setup(case, machine, &setup)
    }

    /// Returns the placement of a case on a machine whose CPUs have these roles.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(crate) fn of_setup(
        case: &Case,
        machine: &Inventory,
        setup: &Setup,
    ) -> Result<Self, String> {
        let partition = match case.isolation() {
            Some(isolation) => isolation.plan(machine, setup)?,
            None => None,
        };
        if case.neighbours == NeighboursIn::ForwardingCpus {
            return match &partition {
                None => Ok(Self {
                    partition: None,
                    neighbours: Some(setup.forwarding.clone()),
                }),
                Some(_) => Err(
                    "its isolation keeps the forwarding CPUs free of neighbours, but the case places its neighbours there"
                        .to_owned(),
                ),
            };
        }
        let neighbours = placement(case.neighbours)
            .map(|placement| neighbours(placement, machine, setup, partition.as_ref()))
            .transpose()?;
        Ok(Self {
            partition,
            neighbours,
        })
    }
}

/// Assigns CPUs: the tester has its CPU of the file, and the standalone quietwire switch all forwarding CPUs. Elements of other topologies
/// have those of `[device] cpus`, or one each of the forwarding CPUs.
pub(crate) fn assignment(
    file: &StudyFile,
    device: &Device,
    graph: &Graph,
    online: &CpuList,
) -> Result<Assignment, TopologyError> {
    let mut asked = device.cpus.clone();
    asked.insert(TESTER.to_owned(), file.tester.cpu.clone());
    if !file.runs_in_topologies() {
        asked.insert(SWITCH.to_owned(), device.forwarding_cpus.clone());
    }
    let named = asked
        .values()
        .fold(CpuList::new(), |all, cpus| all.union(cpus));
    let usable = if device.forwarding_cpus.is_empty() {
        online.clone()
    } else {
        named.union(&device.forwarding_cpus)
    };
    let mut assignment = assign(graph, &usable, &asked)?;
    let others = device.service_cpus.union(&device.control_cpus);
    let taken = assignment
        .elements
        .iter()
        .fold(CpuList::new(), |all, cpus| all.union(cpus));
    let left = online.difference(&taken);
    if !others.is_empty() {
        assignment.rest = others;
    } else if !left.is_empty() {
        assignment.rest = left;
    }
    Ok(assignment)
}

/// Returns the CPUs of each part in a case, for isolation and neighbours.
pub(crate) fn setup(
    file: &StudyFile,
    case: &Case,
    online: &CpuList,
) -> Result<Setup, TopologyError> {
    let device = file.device_of(case);
    if file.is_external() {
        return Ok(external_setup(file, device, online));
    }
    let given = assignment(file, &device, &device.graph()?, online)?;
    // The tester is the first.
    let forwarding = given.elements.iter().skip(1);
    let forwarding = forwarding.fold(CpuList::new(), |all, cpus| all.union(cpus));
    Ok(Setup {
        apparatus: given.rest.union(&file.tester.cpu).difference(&forwarding),
        forwarding,
        ports: device.ports,
    })
}

/// Returns who has which CPUs around a device that the lab does not start: the device those of its roles, if it is on this machine.
fn external_setup(file: &StudyFile, device: Device, online: &CpuList) -> Setup {
    let forwarding = device.forwarding_cpus;
    let others = device.service_cpus.union(&device.control_cpus);
    let rest = match others.is_empty() {
        true => online.difference(&file.tester.cpu),
        false => others,
    };
    Setup {
        apparatus: rest.union(&file.tester.cpu).difference(&forwarding),
        forwarding,
        ports: device.ports,
    }
}

fn placement(neighbours: NeighboursIn) -> Option<Placement> {
    match neighbours {
        NeighboursIn::None | NeighboursIn::ForwardingCpus => None,
        NeighboursIn::Everywhere => Some(Placement::Everywhere),
        NeighboursIn::OffForwardingCpus => Some(Placement::OffForwardingCpus),
        NeighboursIn::Siblings => Some(Placement::Siblings),
        NeighboursIn::SameLlc => Some(Placement::SameLlc),
        NeighboursIn::OtherNode => Some(Placement::OtherNode),
    }
}

/// Returns the CPUs of a placement that an isolation leaves to neighbours. They include those of tester and device only if there are no
/// others, or if neighbours run everywhere.
fn neighbours(
    placement: Placement,
    machine: &Inventory,
    setup: &Setup,
    partition: Option<&Plan>,
) -> Result<CpuList, String> {
    let wanted = placement.cpus(machine, &setup.forwarding)?;
    let kept = partition.map(Plan::isolated).unwrap_or_default();
    let left = wanted.difference(&kept);
    if left.is_empty() {
        return Err(format!(
            "its isolation keeps the CPUs {wanted} free of neighbours, but the case places its neighbours there"
        ));
    }
    let apart = left.difference(&setup.apparatus);
    let is_place = !matches!(
        placement,
        Placement::Everywhere | Placement::OffForwardingCpus
    );
    Ok(if is_place && !apart.is_empty() {
        apart
    } else {
        left
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quietwire_host::machines::{Machine, two_packages_with_clusters, virtual_machine};

    use super::*;
    use crate::tests::SMALL;

    /// Returns the inventory that is read from a machine's files. Only files on a disk contain CPU sets.
    fn read(machine: &Machine) -> Inventory {
        let root = tempfile::tempdir().unwrap();
        machine.write(root.path()).unwrap();
        Inventory::read(root.path())
    }

    fn arranged(
        machine: &Inventory,
        isolation: &str,
        neighbours: &str,
    ) -> Result<CaseRequirements, String> {
        let text = SMALL.replace(
            "neighbours = \"everywhere\"\nisolation = \"none\"",
            &format!("neighbours = \"{neighbours}\"\nisolation = \"{isolation}\""),
        );
        let file = StudyFile::parse(&text, Path::new("small.toml")).unwrap();
        CaseRequirements::of(&file, &file.cases[1], machine)
    }

    fn neighbours_of(machine: &Inventory, isolation: &str, neighbours: &str) -> String {
        match arranged(machine, isolation, neighbours) {
            Ok(arranged) => arranged
                .neighbours
                .map_or("none".to_owned(), |cpus| cpus.to_string()),
            Err(why) => why,
        }
    }

    #[test]
    fn neighbours_run_on_cpus_that_an_isolation_does_not_isolate() {
        // CPU 1 forwards, CPU 0 is for everything else; 32 and 33 are their siblings.
        let machine = read(&two_packages_with_clusters());
        for (isolation, neighbours, wanted) in [
            ("none", "none", "none"),
            ("none", "everywhere", "0-63"),
            ("pinned", "everywhere", "0-63"),
            ("isolated", "everywhere", "0,2-63"),
            ("sibling-idle", "everywhere", "0,2-32,34-63"),
            ("isolated", "siblings", "33"),
            ("isolated", "same-llc", "2-15,32,34-47"),
            ("rdt-cat-mba", "other-node", "8-31,40-63"),
        ] {
            let observed = neighbours_of(&machine, isolation, neighbours);
            assert_eq!(observed, wanted, "{isolation}, {neighbours}");
        }
        // If an isolation keeps siblings idle, no CPU there is left for neighbours.
        let why = neighbours_of(&machine, "full", "siblings");
        assert!(why.contains("keeps the CPUs 33 free"), "{why}");
    }

    #[test]
    fn a_device_outside_the_lab_is_isolated_if_its_cpus_are_known() {
        let machine = read(&two_packages_with_clusters());
        let text = SMALL
            .replace("switch = \"quietwire\"", "switch = \"other\"")
            .replace("link = \"memif\"", "link = \"other\"")
            .replace(
                "neighbours = \"everywhere\"\nisolation = \"none\"",
                "neighbours = \"everywhere\"\nisolation = \"isolated\"",
            );
        let of = |text: &str| {
            let file = StudyFile::parse(text, Path::new("small.toml")).unwrap();
            CaseRequirements::of(&file, &file.cases[1], &machine)
        };
        let arranged = of(&text).unwrap();
        assert_eq!(arranged.partition.unwrap().isolated().to_string(), "1");
        assert_eq!(arranged.neighbours.unwrap().to_string(), "0,2-63");
        let elsewhere = text.replace("forwarding-cpus = \"1\"\n", "");
        let beside = elsewhere
            .replace("\"everywhere\"", "\"off-forwarding-cpus\"")
            .replace("\"isolated\"", "\"none\"");
        for text in [&elsewhere, &beside] {
            let why = of(text).unwrap_err();
            assert!(why.contains("forwarding-cpus of [device]"), "{why}");
        }
        let noisy = elsewhere.replace("\"isolated\"", "\"none\"");
        assert!(of(&noisy).unwrap().neighbours.is_some());
    }

    #[test]
    fn on_a_machine_of_two_cpus_the_others_share_one() {
        let machine = read(&virtual_machine());
        assert_eq!(neighbours_of(&machine, "isolated", "everywhere"), "0");
        assert_eq!(neighbours_of(&machine, "isolated", "same-llc"), "0");
        assert_eq!(neighbours_of(&machine, "none", "everywhere"), "0-1");
        let isolated = arranged(&machine, "isolated", "everywhere").unwrap();
        let plan = isolated.partition.unwrap();
        assert_eq!(plan.isolated().to_string(), "1");
        assert_eq!(plan.housekeeping.to_string(), "0");
        assert_eq!(
            arranged(&machine, "pinned", "none").unwrap().partition,
            None
        );
    }
}
