// SPDX-License-Identifier: Apache-2.0
//! Where the parts of the picture are, in columns and layers.

use crate::topology::graph::Graph;
use crate::topology::kinds::Role;

/// Columns from one to another, and the layer, which elements of a topology have. The tester's layer is 0.
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

/// The layout: a column a link, in the order of the chains.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) columns: usize,
    pub(super) layers: usize,
    /// One an element.
    pub(super) spans: Vec<Span>,
    /// One a link.
    pub(super) column_of: Vec<usize>,
}

impl Layout {
    pub(super) fn of(graph: &Graph) -> Self {
        let order: Vec<usize> = graph.chains.iter().flatten().copied().collect();
        let mut column_of = vec![0; graph.links.len()];
        for (column, link) in order.iter().enumerate() {
            column_of[*link] = column;
        }
        let mut spans: Vec<Span> = (0..graph.elements.len())
            .map(|element| span(graph, &column_of, element))
            .collect();
        let mut switches = 0;
        for (span, element) in spans.iter_mut().zip(&graph.elements) {
            if matches!(element.role, Role::Switch | Role::Relay) {
                switches += 1;
                span.layer = switches;
            }
        }
        // VNFs that follow each other without a switch between stand on different layers, or their link would be nowhere.
        let mut placed: Vec<Span> = Vec::new();
        for (span, element) in spans.iter_mut().zip(&graph.elements) {
            if element.role == Role::Vnf {
                span.layer = switches + 1;
                while placed.iter().any(|other| other.overlaps(*span)) {
                    span.layer += 1;
                }
                placed.push(*span);
            }
        }
        let layers = spans.iter().map(|span| span.layer + 1).max().unwrap_or(1);
        Self {
            columns: order.len().max(1),
            layers,
            spans,
            column_of,
        }
    }
}

/// From the leftmost to the rightmost of an element's links.
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
