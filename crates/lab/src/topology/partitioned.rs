// SPDX-License-Identifier: Apache-2.0
//! CPU assignment from a partition plan: elements that forward on the host get forwarding CPUs, guests get the CPUs of the
//! plan's guests, and the tester gets one of the host's.

use std::collections::BTreeMap;

use quietwire_host::CpuList;
use quietwire_host::partition::{Group, Plan, Role as PlanRole};

use super::TopologyError;
use super::cpus::{Assignment, assign};
use super::graph::{Element, Graph};
use super::kinds::{ElementPlace, Role};

/// Name of the plan's guest or neighbour whose CPUs the tester gets.
const TESTER_GROUP: &str = "tester";

/// Assigns CPUs to elements by a plan. Elements in `asked`, and those with CPUs in the graph, get these CPUs instead.
///
/// # Errors
/// A plan without forwarding CPUs or with too few guests, CPUs that are not in `online`, and the errors of [`assign`].
pub fn assign_by_plan(
    graph: &Graph,
    online: &CpuList,
    plan: &Plan,
    asked: &BTreeMap<String, CpuList>,
) -> Result<Assignment, TopologyError> {
    let is_open = |element: &&Element| element.cpus.is_none() && !asked.contains_key(&element.name);
    let elements = || graph.elements.iter().filter(is_open);
    let mut given = asked.clone();
    let in_guests = elements().filter(|element| element.place == ElementPlace::Guest);
    give_guests(&in_guests.collect::<Vec<_>>(), plan, &mut given)?;
    let on_host = elements()
        .filter(|element| element.place != ElementPlace::Guest && element.role != Role::Tester);
    give_forwarding(&on_host.collect::<Vec<_>>(), plan, &mut given)?;
    for element in elements().filter(|element| element.role == Role::Tester) {
        given.insert(element.name.clone(), tester(element, plan)?);
    }
    let mut assignment = assign(graph, online, &given)?;
    let taken = assignment.elements.first().cloned().unwrap_or_default();
    assignment.rest = rest(plan, &taken);
    let absent = assignment.rest.difference(online);
    if assignment.rest.is_empty() || !absent.is_empty() {
        return Err(TopologyError::Wrong(format!(
            "the plan has CPUs '{}' for threads that do not forward, but only CPUs {online} are available (make the plan for this machine)",
            assignment.rest
        )));
    }
    Ok(assignment)
}

/// Returns the CPUs of guests: by name first, the others in order.
fn give_guests(
    elements: &[&Element],
    plan: &Plan,
    given: &mut BTreeMap<String, CpuList>,
) -> Result<(), TopologyError> {
    let mut groups: Vec<&Group> = plan
        .groups
        .iter()
        .filter(|group| group.role == PlanRole::Guest && group.name != TESTER_GROUP)
        .collect();
    let count = groups.len();
    let mut unnamed = Vec::new();
    for element in elements {
        match groups.iter().position(|group| group.name == element.name) {
            Some(at) => {
                given.insert(element.name.clone(), groups.remove(at).cpus.clone());
            }
            None => unnamed.push(element),
        }
    }
    if unnamed.len() > groups.len() {
        return Err(TopologyError::Wrong(format!(
            "the topology has {} elements in guests, but the plan has CPUs for {count} (add a [[guest]] for each to partition.toml, or name CPUs with --cpus)",
            elements.len()
        )));
    }
    for (element, group) in unnamed.iter().zip(groups) {
        given.insert(element.name.clone(), group.cpus.clone());
    }
    Ok(())
}

/// Divides the forwarding CPUs equally. The first elements get one more if they do not divide evenly. If there are fewer CPUs than
/// elements, each element gets one in turn.
fn give_forwarding(
    elements: &[&Element],
    plan: &Plan,
    given: &mut BTreeMap<String, CpuList>,
) -> Result<(), TopologyError> {
    let cpus: Vec<_> = plan.cpus(PlanRole::Forwarding).iter().collect();
    let count = elements.len();
    let (Some(each), Some(more)) = (cpus.len().checked_div(count), cpus.len().checked_rem(count))
    else {
        return Ok(());
    };
    if cpus.is_empty() {
        return Err(TopologyError::Wrong(
            "the plan has no forwarding CPU (make a plan with `quietwire partition plan`)"
                .to_owned(),
        ));
    }
    let mut left = cpus.iter().copied();
    let mut turns = cpus.iter().copied().cycle();
    for (index, element) in elements.iter().enumerate() {
        let own: CpuList = if each == 0 {
            turns.next().into_iter().collect()
        } else {
            let count = each.saturating_add(usize::from(index < more));
            left.by_ref().take(count).collect()
        };
        given.insert(element.name.clone(), own);
    }
    Ok(())
}

/// Returns the CPUs of the tester's group, or the host's last CPU.
fn tester(element: &Element, plan: &Plan) -> Result<CpuList, TopologyError> {
    let named = plan
        .groups
        .iter()
        .find(|group| group.name == TESTER_GROUP || group.name == element.name);
    let cpus = named.map(|group| group.cpus.clone()).or_else(|| {
        let last = plan.housekeeping.iter().next_back()?;
        Some([last].into_iter().collect())
    });
    cpus.ok_or_else(|| {
        TopologyError::Wrong(format!(
            "the plan leaves no CPU to the host, but the tester requires one (add a [[neighbour]] named {TESTER_GROUP} to partition.toml)"
        ))
    })
}

/// Returns the CPUs of service and control, or those of the host that the tester does not use.
fn rest(plan: &Plan, tester: &CpuList) -> CpuList {
    let own = plan
        .cpus(PlanRole::Service)
        .union(&plan.cpus(PlanRole::Control));
    if !own.is_empty() {
        return own;
    }
    let left = plan.housekeeping.difference(tester);
    if left.is_empty() {
        plan.housekeeping.clone()
    } else {
        left
    }
}

#[cfg(test)]
mod tests {
    use quietwire_host::inventory::Inventory;
    use quietwire_host::machines::{two_packages_with_clusters, virtual_machine};
    use quietwire_host::partition::{PartitionRequest, plan};

    use super::super::{Parameters, named};
    use super::*;

    fn graph(name: &str, inside: ElementPlace) -> Graph {
        let parameters = Parameters {
            inside,
            ..Parameters::default()
        };
        named(name).unwrap().graph(&parameters).unwrap()
    }

    fn planned(machine: &Inventory, request: &str) -> Plan {
        plan(machine, &PartitionRequest::parse(request).unwrap()).unwrap()
    }

    fn assigned(graph: &Graph, machine: &Inventory, request: &str) -> Result<Assignment, String> {
        let online = machine.cpus_online.clone().unwrap();
        let plan = planned(machine, request);
        assign_by_plan(graph, &online, &plan, &BTreeMap::new()).map_err(|error| error.to_string())
    }

    fn of(graph: &Graph, assignment: &Assignment, name: &str) -> String {
        let at = graph
            .elements
            .iter()
            .position(|element| element.name == name);
        assignment.elements[at.unwrap()].to_string()
    }

    const WITH_GUESTS: &str = "[forwarding]\ncpus = \"2-3\"\n[service]\ncpus = \"4\"\n\
        [[guest]]\nname = \"db\"\ncpus = \"8-9\"\n[[guest]]\nname = \"V1\"\ncpus = \"10\"\n\
        [[neighbour]]\nname = \"tester\"\ncpus = \"6\"\n";

    #[test]
    fn roles_of_a_plan_are_elements_cpus() {
        let machine = two_packages_with_clusters().inventory();
        let graph = graph("vNet6-1VNFch", ElementPlace::Guest);
        let assignment = assigned(&graph, &machine, WITH_GUESTS).unwrap();
        assert_eq!(of(&graph, &assignment, "S"), "2-3");
        // One guest by its name, the other in order.
        assert_eq!(of(&graph, &assignment, "V1"), "10");
        assert_eq!(of(&graph, &assignment, "V2"), "8-9");
        assert_eq!(of(&graph, &assignment, "T"), "6");
        assert_eq!(assignment.rest.to_string(), "4");
        assert!(assignment.shared.is_empty());
    }

    #[test]
    fn elements_on_the_host_divide_the_forwarding_cpus() {
        let machine = two_packages_with_clusters().inventory();
        let graph = graph("vNet6-1VNFch", ElementPlace::Container);
        let request = "[forwarding]\ncpus = \"2-5\"\n";
        let assignment = assigned(&graph, &machine, request).unwrap();
        let all = ["S", "V1", "V2"].map(|name| of(&graph, &assignment, name));
        assert_eq!(all, ["2-3", "4", "5"]);
        let few = assigned(&graph, &machine, "[forwarding]\ncpus = \"2-3\"\n").unwrap();
        let all = ["S", "V1", "V2"].map(|name| of(&graph, &few, name));
        assert_eq!(all, ["2", "3", "2"]);
        assert_eq!(few.shared.len(), 1);
        // CPUs that are requested by name override the plan's.
        let online = machine.cpus_online.clone().unwrap();
        let asked = BTreeMap::from([("V2".to_owned(), "9".parse().unwrap())]);
        let plan = planned(&machine, request);
        let mixed = assign_by_plan(&graph, &online, &plan, &asked).unwrap();
        let all = ["S", "V1", "V2"].map(|name| of(&graph, &mixed, name));
        assert_eq!(all, ["2-3", "4-5", "9"]);
    }

    #[test]
    fn on_two_cpus_the_tester_shares_the_hosts() {
        let machine = virtual_machine().inventory();
        let graph = graph("vNet1", ElementPlace::Host);
        let assignment = assigned(&graph, &machine, "[forwarding]\ncpus = \"1\"\n").unwrap();
        assert_eq!(of(&graph, &assignment, "S"), "1");
        assert_eq!(of(&graph, &assignment, "T"), "0");
        assert_eq!(assignment.rest.to_string(), "0");
    }

    #[test]
    fn a_plan_that_does_not_fit_is_reported() {
        let machine = two_packages_with_clusters().inventory();
        let graph = graph("vNet6-1VNFch", ElementPlace::Guest);
        let reason = assigned(&graph, &machine, "[[guest]]\nname = \"a\"\n").unwrap_err();
        assert!(
            reason.contains("CPUs for 1") && reason.contains("[[guest]]"),
            "{reason}"
        );
        // A plan of another machine.
        let plan = planned(&machine, WITH_GUESTS);
        let online = "0-1".parse().unwrap();
        let error = assign_by_plan(&graph, &online, &plan, &BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains("0-1 are available"), "{error}");
        let empty = Plan::default();
        let error = assign_by_plan(
            &super::super::named("vNet1")
                .unwrap()
                .graph(&Parameters::default())
                .unwrap(),
            &online,
            &empty,
            &BTreeMap::new(),
        )
        .unwrap_err();
        assert!(error.to_string().contains("no forwarding CPU"), "{error}");
    }
}
