// SPDX-License-Identifier: Apache-2.0
//! A topology: its elements as boxes with their programs and CPUs, in layers by their distance from the tester, and its links as lines.

use std::collections::VecDeque;

use maud::{Markup, html};

use super::{colour, px, shortened};

/// An element to draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrawnElement {
    /// Name.
    pub(crate) name: String,
    /// Program, and its place unless that is the host.
    pub(crate) program: String,
    /// CPUs.
    pub(crate) cpus: String,
}

/// A link to draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrawnLink {
    /// Kind.
    pub(crate) kind: String,
    /// Indices of its two elements.
    pub(crate) ends: [usize; 2],
    /// Index of its chain.
    pub(crate) chain: usize,
}

const COLUMN: f64 = 168.0;
const BOX_WIDTH: f64 = 140.0;
const BOX_HEIGHT: f64 = 60.0;
const LAYER: f64 = 118.0;
const MARGIN: f64 = 12.0;
/// Distance of links between the same two elements.
const APART: f64 = 40.0;
/// Characters of a line in a box.
const LETTERS: usize = 18;

/// Layers and columns of the elements. The first element is in layer 0, which is drawn at the bottom.
fn layers(count: usize, links: &[DrawnLink]) -> Vec<usize> {
    let mut found: Vec<Option<usize>> = vec![None; count];
    let mut next = VecDeque::from([(0, 0)]);
    while let Some((element, layer)) = next.pop_front() {
        let Some(place) = found.get_mut(element).filter(|place| place.is_none()) else {
            continue;
        };
        *place = Some(layer);
        for link in links {
            let [one, other] = link.ends;
            if one == element {
                next.push_back((other, layer.saturating_add(1)));
            } else if other == element {
                next.push_back((one, layer.saturating_add(1)));
            }
        }
    }
    let highest = found.iter().flatten().copied().max().unwrap_or(0);
    // Elements without a link to the others are on top.
    let place = |layer: Option<usize>| layer.unwrap_or(highest.saturating_add(1));
    found.into_iter().map(place).collect()
}

/// Centres of the boxes, and the size of the picture.
struct Layout {
    centres: Vec<(f64, f64)>,
    width: f64,
    height: f64,
}

impl Layout {
    fn of(elements: &[DrawnElement], links: &[DrawnLink]) -> Self {
        let layers = layers(elements.len(), links);
        let top = layers.iter().copied().max().unwrap_or(0);
        let in_layer = |layer: usize| layers.iter().filter(|other| **other == layer).count();
        let widest = (0..=top).map(in_layer).max().unwrap_or(1).max(1);
        let width = widest as f64 * COLUMN + 2.0 * MARGIN;
        let mut taken = vec![0_usize; top.saturating_add(1)];
        let mut centres = Vec::with_capacity(elements.len());
        for layer in &layers {
            let column = taken.get_mut(*layer).map_or(0, |taken| {
                let column = *taken;
                *taken = column.saturating_add(1);
                column
            });
            let step = (width - 2.0 * MARGIN) / in_layer(*layer).max(1) as f64;
            let x = MARGIN + step * (column as f64 + 0.5);
            let y = MARGIN + top.saturating_sub(*layer) as f64 * LAYER + BOX_HEIGHT / 2.0;
            centres.push((x, y));
        }
        Self {
            centres,
            width,
            height: top as f64 * LAYER + BOX_HEIGHT + 2.0 * MARGIN,
        }
    }

    /// Returns the ends of a link, of which there are `count` between the same elements; none if it has an unknown element.
    fn line(&self, link: &DrawnLink, index: usize, count: usize) -> Option<[(f64, f64); 2]> {
        let [one, other] = link.ends.map(|end| self.centres.get(end).copied());
        let aside = (index as f64 - (count as f64 - 1.0) / 2.0) * APART;
        let aside = aside.clamp(-BOX_WIDTH / 2.0, BOX_WIDTH / 2.0);
        let ((from_x, from_y), (to_x, to_y)) = one.zip(other)?;
        Some([(from_x + aside, from_y), (to_x + aside, to_y)])
    }
}

fn joins(link: &DrawnLink, other: &DrawnLink) -> bool {
    let [one, two] = other.ends;
    link.ends == other.ends || link.ends == [two, one]
}

/// Draws the topology.
pub(crate) fn elements(
    description: &str,
    elements: &[DrawnElement],
    links: &[DrawnLink],
) -> Markup {
    let layout = Layout::of(elements, links);
    html! {
        svg.chart.half viewBox={ "0 0 " (px(layout.width)) " " (px(layout.height)) } role="img" aria-label=(description) {
            @for (index, link) in links.iter().enumerate() {
                @let before = links.iter().take(index).filter(|other| joins(link, other)).count();
                @let count = links.iter().filter(|other| joins(link, other)).count();
                @if let Some([from, to]) = layout.line(link, before, count) {
                    line class={ "reach " (colour(link.chain)) } x1=(px(from.0)) y1=(px(from.1)) x2=(px(to.0)) y2=(px(to.1)) {}
                    @let lower = 4.5 + 14.0 * (before % 2) as f64;
                    text.note x=(px(f64::midpoint(from.0, to.0) + 5.0)) y=(px(f64::midpoint(from.1, to.1) + lower)) { (link.kind) }
                }
            }
            @for (element, (x, y)) in elements.iter().zip(&layout.centres) { (one(element, *x, *y)) }
        }
    }
}

fn one(element: &DrawnElement, x: f64, y: f64) -> Markup {
    let cpus = match element.cpus.as_str() {
        "" => "no CPU of its own".to_owned(),
        cpus => format!("CPU {cpus}"),
    };
    html! {
        g {
            title { (element.name) ": " (element.program) ", " (cpus) }
            rect.element x=(px(x - BOX_WIDTH / 2.0)) y=(px(y - BOX_HEIGHT / 2.0)) width=(px(BOX_WIDTH)) height=(px(BOX_HEIGHT)) rx="4" {}
            text.group x=(px(x)) y=(px(y - 12.0)) text-anchor="middle" { (shortened(&element.name, LETTERS)) }
            text.label x=(px(x)) y=(px(y + 5.0)) text-anchor="middle" { (shortened(&element.program, LETTERS)) }
            text.note x=(px(x)) y=(px(y + 22.0)) text-anchor="middle" { (shortened(&cpus, LETTERS)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(name: &str) -> DrawnElement {
        DrawnElement {
            name: name.to_owned(),
            program: "quietwire".to_owned(),
            cpus: "1".to_owned(),
        }
    }

    fn link(one: usize, other: usize, chain: usize) -> DrawnLink {
        DrawnLink {
            kind: "memif".to_owned(),
            ends: [one, other],
            chain,
        }
    }

    #[test]
    fn elements_are_in_layers_by_their_distance_from_the_tester() {
        let links = [link(0, 1, 0), link(1, 2, 0), link(2, 1, 0), link(1, 0, 0)];
        assert_eq!(layers(4, &links), [0, 1, 2, 3]);
        let all = ["T", "S", "V1", "alone"].map(element);
        let layout = Layout::of(&all, &links);
        let heights: Vec<f64> = layout.centres.iter().map(|centre| centre.1).collect();
        assert!(
            heights.windows(2).all(|pair| pair[1] < pair[0]),
            "{heights:?}"
        );
        let svg = elements("Topology of a <case>", &all, &links).into_string();
        assert_eq!(svg.matches("class=\"reach k0\"").count(), 4);
        assert_eq!(svg.matches("class=\"element\"").count(), 4);
        assert!(svg.contains("Topology of a &lt;case&gt;"));
        assert!(svg.contains("<title>V1: quietwire, CPU 1</title>"), "{svg}");
        // Both links between two elements are visible.
        let [first, second] = [0, 1].map(|index| layout.line(&links[0], index, 2).unwrap());
        assert_ne!(first, second);
    }

    #[test]
    fn links_of_a_damaged_store_are_left_out() {
        let links = [link(0, 9, 0), link(usize::MAX, 1, usize::MAX)];
        let all = ["T", "S"].map(element);
        let svg = elements("T", &all, &links).into_string();
        assert_eq!(svg.matches("<line").count(), 0);
        assert_eq!(svg.matches("class=\"element\"").count(), 2);
        let none = elements("T", &[], &links).into_string();
        assert!(none.contains("<svg"));
    }
}
