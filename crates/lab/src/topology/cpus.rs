// SPDX-License-Identifier: Apache-2.0
//! CPU assignment of elements, with shared CPUs if there are too few.

use std::collections::BTreeMap;

use quietwire_host::{CpuId, CpuList};
use serde::{Deserialize, Serialize};

use super::TopologyError;
use super::graph::Graph;

/// CPU assignment of all elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// CPUs of each element, in the graph's order.
    pub elements: Vec<CpuList>,
    /// CPUs for threads that neither send nor forward: control and service threads.
    pub rest: CpuList,
    /// CPUs that several elements share.
    pub shared: Vec<Shared>,
}

/// A CPU that several elements share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The CPU.
    pub cpu: CpuId,
    /// Names of the elements.
    pub elements: Vec<String>,
}

impl Assignment {
    /// Returns the CPUs of an element, by its index from 0. It is empty if the assignment lacks the element.
    pub(crate) fn of(&self, element: usize) -> CpuList {
        self.elements.get(element).cloned().unwrap_or_default()
    }

    /// Returns the warnings that every result must contain, one per shared CPU.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let reported = |shared: &Shared| {
            format!(
                "CPU {} is shared by {}: rates and latencies include the effect of sharing and are not those of each element alone",
                shared.cpu,
                shared.elements.join(", ")
            )
        };
        self.shared.iter().map(reported).collect()
    }

    /// Returns true if an element shares a CPU.
    #[must_use]
    pub fn is_shared(&self, name: &str) -> bool {
        let names = self.shared.iter().flat_map(|shared| &shared.elements);
        names.into_iter().any(|other| other == name)
    }
}

/// Assigns CPUs to elements. Elements in `asked`, by name or in the graph, get their CPUs. Each other element gets one of the
/// remaining CPUs, the tester first. If no CPU remains, the elements get CPUs that the tester does not use, in turn.
///
/// # Errors
/// A CPU that is not in `online`, or a name that is not an element's.
pub fn assign(
    graph: &Graph,
    online: &CpuList,
    asked: &BTreeMap<String, CpuList>,
) -> Result<Assignment, TopologyError> {
    let is_known = |name: &str| graph.elements.iter().any(|element| element.name == name);
    if let Some(name) = asked.keys().find(|name| !is_known(name)) {
        let names: Vec<&str> = graph
            .elements
            .iter()
            .map(|element| element.name.as_str())
            .collect();
        return Err(TopologyError::Wrong(format!(
            "CPUs are assigned to '{name}', which is not an element (elements: {})",
            names.join(", ")
        )));
    }
    let request: Vec<Option<CpuList>> = graph
        .elements
        .iter()
        .map(|element| asked.get(&element.name).or(element.cpus.as_ref()).cloned())
        .collect();
    for (element, entry) in graph.elements.iter().zip(&request) {
        let Some(entry) = entry else { continue };
        let absent = entry.difference(online);
        if entry.is_empty() || !absent.is_empty() {
            return Err(TopologyError::Wrong(format!(
                "{} is assigned CPUs '{entry}', but only CPUs {online} are available",
                element.name
            )));
        }
    }
    if online.is_empty() {
        return Err(TopologyError::Wrong(
            "no CPU is available for the elements".to_owned(),
        ));
    }
    Ok(dealt(graph, online, &request))
}

fn dealt(graph: &Graph, online: &CpuList, request: &[Option<CpuList>]) -> Assignment {
    let requested = request
        .iter()
        .flatten()
        .fold(CpuList::new(), |all, entry| all.union(entry));
    let mut free = online
        .difference(&requested)
        .iter()
        .collect::<Vec<_>>()
        .into_iter();
    let mut elements: Vec<CpuList> = Vec::new();
    let mut turn = 0usize;
    for entry in request {
        let given = match entry {
            Some(entry) => entry.clone(),
            None => {
                let own = free.next().or_else(|| {
                    let all = cpus_without_tester(elements.first(), online);
                    let own = all.iter().cycle().nth(turn).copied();
                    turn = turn.saturating_add(1);
                    own
                });
                own.into_iter().collect()
            }
        };
        elements.push(given);
    }
    let taken = elements
        .iter()
        .fold(CpuList::new(), |all, cpus| all.union(cpus));
    let left = online.difference(&taken);
    let rest = if left.is_empty() {
        elements.first().cloned().unwrap_or_default()
    } else {
        left
    };
    let shared = online
        .iter()
        .filter_map(|cpu| {
            let who: Vec<String> = graph
                .elements
                .iter()
                .zip(&elements)
                .filter(|(_, cpus)| cpus.contains(cpu))
                .map(|(element, _)| element.name.clone())
                .collect();
            (who.len() > 1).then_some(Shared { cpu, elements: who })
        })
        .collect();
    Assignment {
        elements,
        rest,
        shared,
    }
}

/// Returns the CPUs that the tester does not use, or all CPUs if there are no others.
fn cpus_without_tester(tester: Option<&CpuList>, online: &CpuList) -> Vec<CpuId> {
    let others = tester.map_or_else(|| online.clone(), |tester| online.difference(tester));
    let chosen = if others.is_empty() { online } else { &others };
    chosen.iter().collect()
}
