// SPDX-License-Identifier: Apache-2.0
//! Positions of the picture's parts, in columns and layers.

use crate::topology::graph::Graph;
use crate::topology::kinds::Role;

/// First and last column of an element, and its layer. The tester's layer is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) layer: usize,
}

impl Span {
    fn overlaps(self, other: Self) -> bool {
        self.layer == other.layer && self.first <= other.last && other.first <= self.last
    }
}

/// Layout of a picture: one column per link, in the order of the chains.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) columns: usize,
    pub(super) layers: usize,
    /// One per element.
    spans: Vec<Span>,
    /// One per link.
    column_of: Vec<usize>,
}

impl Layout {
    pub(super) fn of(graph: &Graph) -> Self {
        let order: Vec<usize> = graph.chains.iter().flatten().copied().collect();
        let mut column_of = vec![0; graph.links.len()];
        for (column, link) in order.iter().enumerate() {
            if let Some(of_link) = column_of.get_mut(*link) {
                *of_link = column;
            }
        }
        let mut spans: Vec<Span> = (0..graph.elements.len())
            .map(|element| span(graph, &column_of, element))
            .collect();
        let mut switches = 0usize;
        for (span, element) in spans.iter_mut().zip(&graph.elements) {
            if matches!(element.role, Role::Switch | Role::Relay) {
                switches = switches.saturating_add(1);
                span.layer = switches;
            }
        }
        // VNFs that follow each other without a switch in between have different layers, so that their link is visible.
        let mut placed: Vec<Span> = Vec::new();
        for (span, element) in spans.iter_mut().zip(&graph.elements) {
            if element.role == Role::Vnf {
                span.layer = switches.saturating_add(1);
                while placed.iter().any(|other| other.overlaps(*span)) {
                    span.layer = span.layer.saturating_add(1);
                }
                placed.push(*span);
            }
        }
        let layers = spans
            .iter()
            .map(|span| span.layer.saturating_add(1))
            .max()
            .unwrap_or(1);
        Self {
            columns: order.len().max(1),
            layers,
            spans,
            column_of,
        }
    }

    /// Returns the columns and the layer of an element, by its index from 0.
    pub(super) fn span(&self, element: usize) -> Span {
        self.spans.get(element).copied().unwrap_or_default()
    }

    /// Returns the column of a link, by its index from 0.
    pub(super) fn column(&self, link: usize) -> usize {
        self.column_of.get(link).copied().unwrap_or(0)
    }
}

/// Returns the leftmost and the rightmost column of an element's links.
fn span(graph: &Graph, column_of: &[usize], element: usize) -> Span {
    let columns = graph
        .links
        .iter()
        .zip(column_of)
        .filter(|(link, _)| link.ends.iter().any(|end| end.element == element))
        .map(|(_, column)| *column);
    Span {
        first: columns.clone().min().unwrap_or(0),
        last: columns.max().unwrap_or(0),
        layer: 0,
    }
}
