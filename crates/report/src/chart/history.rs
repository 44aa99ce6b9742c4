// SPDX-License-Identifier: Apache-2.0
//! Values over stores in the order of time, with the points at which they change.

use maud::{Markup, html};

use super::scale::Linear;
use super::{colour, marker, path, px};

/// Values to draw.
pub(crate) struct History<'a> {
    /// Values in the order of time; none for a gap.
    pub(crate) values: &'a [Option<f64>],
    /// Name and value of each point.
    pub(crate) labels: &'a [String],
    /// Indices of the first values after changes.
    pub(crate) starts: &'a [usize],
    /// Description of the chart.
    pub(crate) title: &'a str,
    /// Formats a value of the axis.
    pub(crate) format: &'a dyn Fn(f64) -> String,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = HEIGHT - 40.0;

/// Draws the values. Changes are vertical lines.
pub(crate) fn history(drawn: &History<'_>) -> Markup {
    let largest = drawn.values.iter().flatten().copied().fold(0.0, f64::max);
    let up = Linear::new(largest, BOTTOM, TOP);
    let count = drawn.values.len().max(1) as f64;
    let across = |index: usize| LEFT + (RIGHT - LEFT) * (index as f64 + 0.5) / count;
    html! {
        svg.chart.wide viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(drawn.title) {
            @for tick in up.ticks() {
                line.grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(up.at(tick))) y2=(px(up.at(tick))) {}
                text.tick x=(px(LEFT - 8.0)) y=(px(up.at(tick) + 4.5)) text-anchor="end" { ((drawn.format)(tick)) }
            }
            text.axis x=(px((LEFT + RIGHT) / 2.0)) y=(px(BOTTOM + 28.0)) text-anchor="middle" { "stores in the order of time" }
            @for start in drawn.starts {
                @let x = px(f64::midpoint(across(*start), across(start.saturating_sub(1))));
                line.whisker x1=(x) x2=(x) y1=(px(TOP)) y2=(px(BOTTOM)) {}
            }
            @for run in runs(drawn.values) {
                path class={ "series " (colour(0)) } d=(path(run.iter().map(|(index, value)| (across(*index), up.at(*value))))) {}
            }
            @for (index, value) in drawn.values.iter().enumerate() {
                @if let Some(value) = value {
                    g {
                        title { (drawn.labels.get(index).map_or("", String::as_str)) }
                        (marker(0, across(index), up.at(*value), 4.0))
                    }
                }
            }
        }
    }
}

/// Returns the values without gaps between them, with their indices.
fn runs(values: &[Option<f64>]) -> Vec<Vec<(usize, f64)>> {
    let mut all: Vec<Vec<(usize, f64)>> = vec![Vec::new()];
    for (index, value) in values.iter().enumerate() {
        match (value, all.last_mut()) {
            (Some(value), Some(run)) => run.push((index, *value)),
            _ => all.push(Vec::new()),
        }
    }
    all.retain(|run| !run.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_divides_the_line() {
        let values = [None, Some(1.0), Some(2.0), None, None, Some(3.0)];
        assert_eq!(runs(&values), [vec![(1, 1.0), (2, 2.0)], vec![(5, 3.0)]]);
        let labels = values.map(|_| "a <store>".to_owned());
        let drawn = history(&History {
            values: &values,
            labels: &labels,
            starts: &[5],
            title: "NDR",
            format: &|value| format!("{value}"),
        });
        let svg = drawn.into_string();
        assert_eq!(svg.matches("<path").count(), 2);
        assert_eq!(svg.matches("class=\"mark").count(), 3);
        assert_eq!(svg.matches("class=\"whisker\"").count(), 1);
        assert!(svg.contains("a &lt;store&gt;"));
    }
}
