// SPDX-License-Identifier: Apache-2.0
//! A topology as a picture (SVG), drawn as in networking papers: the tester at the bottom, switches as bars above it, VNFs on top,
//! each link a vertical line, and each chain in a colour.

mod layout;
mod svg;

use super::cpus::Assignment;
use super::graph::{Element, Graph, Link};
use super::kinds::{ElementPlace, Role};
use super::text::{bracketed, summary};
use layout::{Layout, Span};
use svg::Picture;

const COLUMN: f64 = 92.0;
const MARGIN: f64 = 24.0;
const BAR: f64 = 58.0;
const GAP: f64 = 62.0;
const HEADING: f64 = 74.0;
const PORT: f64 = 9.0;
const LINE: f64 = 15.0;
const DARK: &str = "#1d2733";
const GREY: &str = "#5f6f7f";
/// Width of a heading's letter, rounded up so that the heading always fits.
const LETTER: f64 = 7.2;

/// Colours of chains, distinct for colour-blind readers, too.
const CHAINS: [&str; 8] = [
    "#1f6fbf", "#d1731f", "#2f8f6b", "#a8467f", "#6b5bb5", "#8a6d1d", "#c0392b", "#3d7a8c",
];

/// Returns the colour of a chain, by its index from 0.
fn colour(chain: usize) -> &'static str {
    let index = chain.checked_rem(CHAINS.len());
    index
        .and_then(|index| CHAINS.get(index))
        .copied()
        .unwrap_or(DARK)
}

fn fill(element: &Element) -> &'static str {
    match element.role {
        Role::Tester => "#eef0f3",
        Role::Switch => "#dce9f6",
        Role::Vnf => "#e3f1e8",
        Role::Relay => "#f3ead8",
    }
}

/// Draws a topology with CPUs and ports.
#[must_use]
pub fn draw(graph: &Graph, cpus: &Assignment) -> String {
    let layout = Layout::of(graph);
    let drawer = Drawer {
        graph,
        cpus,
        layout: &layout,
    };
    drawer.draw().to_svg()
}

struct Drawer<'a> {
    graph: &'a Graph,
    cpus: &'a Assignment,
    layout: &'a Layout,
}

impl Drawer<'_> {
    fn draw(&self) -> Picture {
        let heading = self.heading();
        let longest = heading
            .iter()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0);
        let columns = self.layout.columns as f64 * COLUMN;
        let width = (columns.max(longest as f64 * LETTER) + 2.0 * MARGIN).ceil();
        let height = self.bottom(0) + MARGIN + LINE * (1.0 + self.warnings().len() as f64);
        let mut picture = Picture::new(width, height);
        for (index, line) in heading.iter().enumerate() {
            let size = if index == 0 { 15.0 } else { 11.0 };
            let y = MARGIN + index as f64 * LINE * 1.2;
            picture.text((MARGIN, y), line, size, DARK, false);
        }
        for (index, element) in self.graph.elements.iter().enumerate() {
            self.frame(&mut picture, index, element);
        }
        for (index, link) in self.graph.links.iter().enumerate() {
            self.link(&mut picture, index, link);
        }
        self.joins(&mut picture);
        for index in 0..self.graph.elements.len() {
            self.ports(&mut picture, index);
        }
        for (line, warning) in self.warnings().iter().enumerate() {
            let y = self.bottom(0) + LINE * (1.4 + line as f64);
            picture.text((MARGIN, y), warning, 10.0, "#a3341f", false);
        }
        picture
    }

    fn heading(&self) -> Vec<String> {
        let name = if self.graph.about.is_empty() {
            self.graph.name.clone()
        } else {
            format!("{}: {}", self.graph.name, self.graph.about)
        };
        let rest = "(V) in a container, [V] in a guest";
        vec![name, format!("{}; {rest}", summary(self.graph))]
    }

    fn warnings(&self) -> Vec<String> {
        let reported = |shared: &super::cpus::Shared| {
            format!(
                "CPU {} is shared by {}",
                shared.cpu,
                shared.elements.join(", ")
            )
        };
        self.cpus.shared.iter().map(reported).collect()
    }

    /// Returns the upper edge of a layer's boxes; the tester's layer is 0, at the bottom.
    fn top(&self, layer: usize) -> f64 {
        let above = self.layout.layers.saturating_sub(layer).saturating_sub(1);
        HEADING + above as f64 * (BAR + GAP)
    }

    fn bottom(&self, layer: usize) -> f64 {
        self.top(layer) + BAR
    }

    fn x(&self, column: usize) -> f64 {
        MARGIN + (column as f64 + 0.5) * COLUMN
    }

    fn sides(&self, span: Span) -> (f64, f64) {
        let inset = 0.36 * COLUMN;
        (self.x(span.first) - inset, self.x(span.last) + inset)
    }

    /// Draws the box of an element, with its name, program and CPUs.
    fn frame(&self, picture: &mut Picture, index: usize, element: &Element) {
        let span = self.layout.span(index);
        let (left, right) = self.sides(span);
        let top = self.top(span.layer);
        if element.place != ElementPlace::Host {
            let pad = 5.0;
            let edge = (left - pad, top - pad, right + pad, top + BAR + pad);
            picture.frame(edge, element.place == ElementPlace::Container);
        }
        picture.rectangle((left, top, right, top + BAR), fill(element));
        let program = match element.role {
            Role::Tester => "tester".to_owned(),
            _ => element.program.to_string(),
        };
        let middle = (left + right) / 2.0;
        // Next to the lines between its ports, which lie at their own edge.
        let ports = self.graph.port_count(index);
        let uppers = (0..ports).filter(|port| self.port(index, *port).1 < top + BAR / 2.0);
        let aside = match uppers.count() {
            0 => -10.0,
            upper if upper == ports => 8.0,
            _ => 0.0,
        };
        let centre = top + BAR / 2.0 + aside;
        picture.text(
            (middle, centre - 5.0),
            &bracketed(element),
            12.0,
            DARK,
            true,
        );
        picture.text((middle, centre + 6.0), &program, 9.5, GREY, true);
        let cpus = format!("CPU {}", self.cpus.of(index));
        picture.text((middle, centre + 17.0), &cpus, 9.5, GREY, true);
    }

    /// Draws a link as a line in its column, with its kind as a label.
    fn link(&self, picture: &mut Picture, index: usize, link: &Link) {
        let colour = colour(link.chain);
        let x = self.x(self.layout.column(index));
        let (low, high) = self.edges(link);
        picture.line(&[(x, low), (x, high)], colour, 2.0);
        let label = link.kind.to_string();
        let y = low - GAP / 2.0;
        picture.text((x + 6.0, y + 3.0), &label, 9.5, colour, false);
        if let Some(address) = &link.pci {
            picture.text((x + 6.0, y + 14.0), address, 8.5, colour, false);
        }
    }

    /// Returns the points at which a link leaves its lower element and meets its upper element.
    fn edges(&self, link: &Link) -> (f64, f64) {
        let [one, other] = link.ends.map(|end| self.layout.span(end.element).layer);
        (self.top(one.min(other)), self.bottom(one.max(other)))
    }

    /// Draws a join of an element: a line from port to port within the box.
    fn joins(&self, picture: &mut Picture) {
        for join in &self.graph.joins {
            let colour = colour(join.chain);
            let [from, to] = join.ports.map(|port| self.port(join.element, port));
            let span = self.layout.span(join.element);
            let reach = |y: f64| {
                if y > self.top(span.layer) + BAR / 2.0 {
                    -12.0
                } else {
                    12.0
                }
            };
            let way = [
                from,
                (from.0, from.1 + reach(from.1)),
                (to.0, to.1 + reach(to.1)),
                to,
            ];
            picture.dashed(&way, colour);
        }
    }

    /// Returns the position of a port.
    fn port(&self, element: usize, port: usize) -> (f64, f64) {
        let end = super::graph::End { element, port };
        let Some((index, link)) = self.graph.link_at(end) else {
            return (0.0, 0.0);
        };
        let (low, high) = self.edges(link);
        let own = self.layout.span(element).layer;
        let others = link.ends.map(|end| self.layout.span(end.element).layer);
        let is_lower = others.iter().all(|layer| *layer >= own);
        (
            self.x(self.layout.column(index)),
            if is_lower { low } else { high },
        )
    }

    fn ports(&self, picture: &mut Picture, index: usize) {
        let span = self.layout.span(index);
        for port in 0..self.graph.port_count(index) {
            let (x, y) = self.port(index, port);
            let half = PORT / 2.0;
            picture.rectangle((x - half, y - half, x + half, y + half), "#ffffff");
            let is_upper = y < self.top(span.layer) + BAR / 2.0;
            let label = if is_upper { y - 7.0 } else { y + 13.0 };
            picture.text((x - 8.0, label), &format!("p{port}"), 8.5, GREY, true);
        }
    }
}
