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
        (1..).zip(&graph.chains).map(|(chain, links): (usize, _)| {
            format!("chain {chain}  {}", chain_text(graph, links))
        }),
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
fn chain_text(graph: &Graph, links: &[usize]) -> String {
    let mut text = String::new();
    let shown = |end: End| bracketed(graph.element(end.element));
    let links = links.iter().filter_map(|link| graph.links.get(*link));
    for (hop, link) in links.enumerate() {
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
            cpus.of(index).to_string(),
        ]);
    }
    let mut widths = [0usize; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
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
