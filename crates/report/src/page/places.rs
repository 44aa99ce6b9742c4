// SPDX-License-Identifier: Apache-2.0
//! Topology and machine of each case: what ran where.

use std::collections::BTreeMap;

use maud::{Markup, html};
use quietwire_host::inventory::CpuPlace;
use quietwire_study::StudyResults;
use serde_json::Value;

use super::cpu::roles;
use crate::chart::{DrawnCpu, DrawnElement, DrawnLink, elements, machine};
use crate::format;
use crate::summary::{CaseSummary, CpuShare, Occupant, SizeSummary, occupants};

/// Most elements and links of a picture.
const ELEMENTS_MAX: usize = 32;
const LINKS_MAX: usize = 64;
/// Most CPUs of a picture. Of more, those without a role, a watched thread and much work are left out.
const CPUS_MAX: usize = 64;
/// A CPU that was busy for less than this share of the time is idle.
const BUSY_MIN: f64 = 0.05;
/// Threads of a CPU that are named.
const THREADS_MAX: usize = 6;

/// Renders the pictures of the cases at a frame size. Returns nothing without data.
pub(super) fn places(results: &StudyResults, size: &SizeSummary) -> Markup {
    let drawn: Vec<(&str, Option<Markup>, Option<Markup>)> = size
        .cases
        .iter()
        .map(|case| {
            let name = case.name.as_str();
            (name, topology(results, name), cpus(results, size, case))
        })
        .filter(|(_, topology, cpus)| topology.is_some() || cpus.is_some())
        .collect();
    html! {
        @if !drawn.is_empty() {
            details {
                summary { "Topology and machine: what ran where" }
                p.note {
                    "The topology has layers by the distance from the tester T. A darker CPU was busier. In each trial, a thread is on the "
                    "CPU on which it was at its end; the share is the part of the time of all valid trials in which it ran there."
                }
                @for (name, topology, cpus) in &drawn {
                    h3 { (name) }
                    @if let Some(topology) = topology { figure { (topology) } }
                    @if let Some(cpus) = cpus { figure { (cpus) } }
                    @if let Some(memory) = memory(results, name) {
                        p.note { "Memory of ports, in the last trial that has it: " (memory) "." }
                    }
                }
            }
        }
    }
}

/// Returns the memory of the ports of a case's device by NUMA node, in the last trial that has it.
fn memory(results: &StudyResults, case: &str) -> Option<String> {
    let steps = results.steps.iter().rev();
    let own = steps.filter(|step| step.case_name == case);
    let mut trials = own.flat_map(|step| step.trials.iter().rev());
    trials.find_map(|trial| {
        let elements = trial.activity.elements.iter();
        let ports = elements.flat_map(|element| {
            let ports = element.own_view.iter().flat_map(|view| &view.memory);
            ports.map(move |port| {
                let nodes = port.nodes.iter().map(|one| (one.node, one.kib));
                format!("{} {}: {}", element.name, port.port, memory_by_node(nodes))
            })
        });
        let ports: Vec<String> = ports.take(LINKS_MAX).collect();
        (!ports.is_empty()).then(|| ports.join("; "))
    })
}

/// Formats memory, KiB, by NUMA node.
pub(super) fn memory_by_node(nodes: impl Iterator<Item = (u32, u64)>) -> String {
    let nodes = nodes.map(|(node, kib)| format!("{} KiB on node {node}", format::grouped(kib)));
    nodes.collect::<Vec<_>>().join(", ")
}

/// Returns a text of a stored document; empty if it is none.
fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns a number of a stored document.
fn index(value: Option<&Value>) -> Option<usize> {
    usize::try_from(value?.as_u64()?).ok()
}

/// Draws the topology of the last setup of a case in the lab.
fn topology(results: &StudyResults, case: &str) -> Option<Markup> {
    let mut entries = results.entries.iter().rev();
    let lab = entries.find_map(|entry| {
        let lab = entry.settings.get("lab")?;
        (entry.case_name == case).then_some(lab)
    })?;
    let (drawn, links) = graph(lab)?;
    Some(elements(&format!("Topology of {case}"), &drawn, &links))
}

/// Returns the elements and links in the record of a lab. The store may be damaged: what is no graph is left out.
fn graph(lab: &Value) -> Option<(Vec<DrawnElement>, Vec<DrawnLink>)> {
    let graph = lab.get("graph")?;
    let cpus = lab.pointer("/cpus/elements").and_then(Value::as_array);
    let all = graph.get("elements")?.as_array()?;
    let element = |(index, stored): (usize, &Value)| {
        let program = text(stored.get("program"));
        let place = text(stored.get("place"));
        DrawnElement {
            name: text(stored.get("name")),
            program: match place.as_str() {
                "" | "host" => program,
                place => format!("{program}, {place}"),
            },
            cpus: text(cpus.and_then(|cpus| cpus.get(index))),
        }
    };
    let drawn: Vec<DrawnElement> = all
        .iter()
        .enumerate()
        .take(ELEMENTS_MAX)
        .map(element)
        .collect();
    let links = graph.get("links")?.as_array()?.iter().take(LINKS_MAX);
    let link = |stored: &Value| {
        Some(DrawnLink {
            kind: text(stored.get("kind")),
            ends: [
                index(stored.pointer("/ends/0/element"))?,
                index(stored.pointer("/ends/1/element"))?,
            ],
            chain: index(stored.get("chain")).unwrap_or(0),
        })
    };
    let links = links.filter_map(link).collect();
    (!drawn.is_empty()).then_some((drawn, links))
}

/// Draws the CPUs of a case, if the store has data about them.
fn cpus(results: &StudyResults, size: &SizeSummary, case: &CaseSummary) -> Option<Markup> {
    if case.cpus.is_empty() {
        return None;
    }
    let places = results
        .runs
        .last()
        .map(|run| &run.facts.cpus[..])
        .unwrap_or_default();
    let threads = occupants(results, &case.name, &size.frame_size);
    let of_cpu = |share: &CpuShare| DrawnCpu {
        roles: roles(&results.file, share.cpu),
        ..drawn(share, places, &threads)
    };
    let mut all: Vec<DrawnCpu> = case.cpus.iter().map(of_cpu).collect();
    if all.len() > CPUS_MAX {
        all.retain(|cpu| {
            let is_busy = cpu.busy.is_some_and(|busy| busy >= BUSY_MIN);
            is_busy || !cpu.roles.is_empty() || !cpu.threads.is_empty()
        });
        all.truncate(CPUS_MAX);
    }
    Some(machine(&format!("CPUs of {}", case.name), &all))
}

fn drawn(
    share: &CpuShare,
    places: &[CpuPlace],
    threads: &BTreeMap<u32, Vec<Occupant>>,
) -> DrawnCpu {
    let place = places.iter().find(|place| place.cpu.0 == share.cpu);
    let idle: f64 = share
        .states
        .iter()
        .filter(|(state, _)| ["idle", "iowait"].contains(state))
        .map(|(_, share)| share)
        .sum();
    let named = threads.get(&share.cpu).into_iter().flatten();
    let named = named
        .take(THREADS_MAX)
        .map(|thread| format!("{} {}", thread.name, format::percent(thread.share * 100.0)));
    DrawnCpu {
        cpu: share.cpu,
        place: place.map_or((None, None), |place| (place.package, place.node)),
        core: place.and_then(|place| place.core),
        roles: String::new(),
        busy: Some(1.0 - idle),
        threads: named.collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stored_graph_has_its_elements_links_and_cpus() {
        let lab = json!({
            "graph": {
                "elements": [
                    { "name": "T", "role": "tester", "place": "host", "program": "tester" },
                    { "name": "V1", "role": "vnf", "place": "guest", "program": "testpmd-io" },
                ],
                "links": [
                    { "kind": "vhost-user", "ends": [{ "element": 0, "port": 0 }, { "element": 1, "port": 0 }], "chain": 0 },
                    { "kind": "memif", "ends": [{ "element": -1, "port": 0 }], "chain": 0 },
                ],
            },
            "cpus": { "elements": ["0", "1-2"] },
        });
        let (drawn, links) = graph(&lab).unwrap();
        assert_eq!(drawn[1].program, "testpmd-io, guest");
        assert_eq!(
            (drawn[0].cpus.as_str(), drawn[1].cpus.as_str()),
            ("0", "1-2")
        );
        assert_eq!(links.len(), 1);
        assert_eq!(
            (links[0].kind.as_str(), links[0].ends),
            ("vhost-user", [0, 1])
        );
        for damaged in [
            json!({}),
            json!({ "graph": 1 }),
            json!({ "graph": { "elements": [], "links": [] } }),
        ] {
            assert_eq!(graph(&damaged), None);
        }
    }

    #[test]
    fn memory_is_listed_by_node() {
        let text = memory_by_node([(0, 96), (1, 32)].into_iter());
        assert_eq!(text, "96 KiB on node 0, 32 KiB on node 1");
        assert_eq!(memory_by_node(std::iter::empty()), "");
    }

    #[test]
    fn a_cpu_has_its_place_its_use_and_its_threads() {
        let share = CpuShare {
            cpu: 3,
            states: vec![("user", 0.7), ("idle", 0.2), ("iowait", 0.1)],
            trials: 1,
        };
        let threads = BTreeMap::from([(
            3,
            vec![Occupant {
                name: "device qw-fwd-1".to_owned(),
                share: 0.5,
            }],
        )]);
        let found = drawn(&share, &[], &threads);
        assert!((found.busy.unwrap() - 0.7).abs() < 1e-9);
        assert_eq!(found.place, (None, None));
        assert_eq!(found.threads.len(), 1);
        assert!(
            found.threads[0].starts_with("device qw-fwd-1 50"),
            "{found:?}"
        );
    }
}
