// SPDX-License-Identifier: Apache-2.0
//! A topology as text.

use super::cpus::Assignment;
use super::graph::{Element, End, Graph};
use super::kinds::{ElementPlace, Role};

/// Describes a topology: one line per chain, one line per element, and the shared CPUs.
#[must_use]
pub fn describe(graph: &Graph, cpus: &Assignment) -> String {
    let mut lines = vec![heading(graph), summary(graph), String::new()];
    lines.extend(
        (0..graph.chains.len())
            .map(|chain| format!("chain {}  {}", chain + 1, chain_text(graph, chain))),
    );
    lines.push(String::new());
    lines.extend(elements(graph, cpus));
    let warnings = cpus.warnings();
    if !warnings.is_empty() {
        lines.push(String::new());
        lines.extend(warnings.iter().map(|warning| format!("WARNING  {warning}")));
    }
    lines.join("\n")
}

fn heading(graph: &Graph) -> String {
    if graph.about.is_empty() {
        graph.name.clone()
    } else {
        format!("{}: {}", graph.name, graph.about)
    }
}

/// Returns a line with the numbers of chains and VNFs, the encapsulation and the forwarding mode.
pub(super) fn summary(graph: &Graph) -> String {
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    format!(
        "{}, {} in each, frames of {}, forwarding {}",
        counted(graph.chains.len(), "chain"),
        counted(graph.length(), "VNF"),
        graph.encapsulation,
        graph.forwarding,
    )
}

/// Returns an element in the brackets of its place: `[V]` in a guest, `(V)` in a container.
pub(super) fn bracketed(element: &Element) -> String {
    match element.place {
        ElementPlace::Host => element.name.clone(),
        ElementPlace::Container => format!("({})", element.name),
        ElementPlace::Guest => format!("[{}]", element.name),
    }
}

/// Returns a chain as text, such as `T p0 -memif- p0 S p1 -memif- p1 T`.
fn chain_text(graph: &Graph, chain: usize) -> String {
    let mut text = String::new();
    let shown = |end: End| bracketed(&graph.elements[end.element]);
    for (hop, link) in graph.chains[chain]
        .iter()
        .map(|link| &graph.links[*link])
        .enumerate()
    {
        let [from, to] = link.ends;
        if hop == 0 {
            text += &shown(from);
        }
        let kind = match &link.pci {
            Some(address) => format!("{} {address}", link.kind),
            None => link.kind.to_string(),
        };
        text += &format!(" p{} -{kind}- p{} {}", from.port, to.port, shown(to));
    }
    text
}

fn elements(graph: &Graph, cpus: &Assignment) -> Vec<String> {
    let heads = ["element", "role", "place", "program", "ports", "CPUs"].map(str::to_owned);
    let mut rows = vec![heads];
    for (index, element) in graph.elements.iter().enumerate() {
        rows.push([
            element.name.clone(),
            element.role.to_string(),
            element.place.to_string(),
            if element.role == Role::Tester {
                "built in".to_owned()
            } else {
                element.program.to_string()
            },
            graph.port_count(index).to_string(),
            cpus.elements[index].to_string(),
        ]);
    }
    let widths: Vec<usize> = (0..6)
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    rows.iter()
        .map(|row| {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}
