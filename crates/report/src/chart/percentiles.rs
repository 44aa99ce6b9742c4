// SPDX-License-Identifier: Apache-2.0
//! Latency and gaps between bursts by percentile: each step to the right covers a tenth of the frames of the step before.

use maud::{Markup, html};
use quietwire_tester::PERCENTILES;

use super::bars::tick_label;
use super::scale::Log;
use super::{colour, marker, marker_size, path, px};
use crate::format::{THIN, time_ns};
use crate::summary::{CaseSummary, RoundTrip};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 370.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = WIDTH - 40.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = HEIGHT - 54.0;

/// A percentile of a line.
struct Point {
    /// 99.9 for the 99.9th.
    percentile: f64,
    /// Nanoseconds.
    ns: u64,
    text: String,
}

/// The line of a case.
struct Line<'a> {
    /// Number of the case.
    index: usize,
    name: &'a str,
    /// In ascending order, from the first percentile on.
    points: Vec<Point>,
    /// Maximum, nanoseconds.
    max_ns: u64,
    max_text: String,
}

/// Positions of the percentiles; the last column is the maximum.
struct Columns {
    percentiles: Vec<f64>,
}

impl Columns {
    fn of(lines: &[Line<'_>]) -> Self {
        let longest = lines.iter().max_by_key(|line| line.points.len());
        let points = longest.map(|line| &line.points);
        Self {
            percentiles: points
                .into_iter()
                .flatten()
                .map(|point| point.percentile)
                .collect(),
        }
    }

    fn at(&self, column: usize) -> f64 {
        let count = self.percentiles.len().saturating_add(1);
        LEFT + (RIGHT - LEFT) * (column as f64 + 0.5) / count as f64
    }

    fn of_max(&self) -> f64 {
        self.at(self.percentiles.len())
    }
}

/// Returns the cases with latency trials.
fn trips(cases: &[CaseSummary]) -> impl Iterator<Item = (usize, &str, &RoundTrip)> {
    let cases = cases.iter().enumerate();
    cases.filter_map(|(index, case)| Some((index, case.name.as_str(), case.round_trip.as_ref()?)))
}

/// Draws the chart of round trips. Returns nothing if there are no latency trials.
pub(crate) fn percentiles(cases: &[CaseSummary]) -> Markup {
    let lines = trips(cases).map(|(index, name, trip)| Line {
        index,
        name,
        points: trip
            .percentiles
            .iter()
            .map(|value| Point {
                percentile: value.percentile,
                ns: value.latency_ns,
                text: value.text(),
            })
            .collect(),
        max_ns: trip.max_ns,
        max_text: trip.max_text(),
    });
    let lines: Vec<Line<'_>> = lines.collect();
    chart(
        &lines,
        "Latency by percentile",
        ["percentile of frames", "round trip"],
    )
}

/// Draws the chart of the times between bursts of latency trials. Returns nothing if none is known.
pub(crate) fn gaps(cases: &[CaseSummary]) -> Markup {
    let known = trips(cases).filter(|(.., trip)| trip.burst_gaps.samples > 0);
    let lines = known.map(|(index, name, trip)| {
        let gaps = &trip.burst_gaps;
        let points = PERCENTILES.into_iter().zip(gaps.percentiles());
        let points = points.filter_map(|(percentile, ns)| {
            ns.map(|ns| Point {
                percentile,
                ns,
                text: time_ns(ns as f64),
            })
        });
        Line {
            index,
            name,
            points: points.collect(),
            max_ns: gaps.max_ns,
            max_text: time_ns(gaps.max_ns as f64),
        }
    });
    let lines: Vec<Line<'_>> = lines.collect();
    chart(
        &lines,
        "Gaps between bursts by percentile",
        ["percentile of gaps", "gap"],
    )
}

/// Draws lines with this label of the chart, and these of the axes.
fn chart(lines: &[Line<'_>], label: &str, [across, upwards]: [&str; 2]) -> Markup {
    if lines.is_empty() {
        return html! {};
    }
    let columns = Columns::of(lines);
    let smallest = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|point| point.ns))
        .chain(lines.iter().map(|line| line.max_ns))
        .min();
    let largest = lines.iter().map(|line| line.max_ns).max();
    let up = Log::new(
        smallest.unwrap_or(1).max(1) as f64,
        largest.unwrap_or(1).max(1) as f64,
        BOTTOM,
        TOP,
    );
    html! {
        svg.chart.wide viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(label) {
            @for tick in up.ticks() {
                line.grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(up.at(tick))) y2=(px(up.at(tick))) {}
                text.tick x=(px(LEFT - 8.0)) y=(px(up.at(tick) + 4.5)) text-anchor="end" { (time_tick(tick)) }
            }
            @for (column, percentile) in columns.percentiles.iter().enumerate() {
                text.tick x=(px(columns.at(column))) y=(px(BOTTOM + 18.0)) text-anchor="middle" { "p" (tick_label(*percentile)) }
            }
            text.tick x=(px(columns.of_max())) y=(px(BOTTOM + 18.0)) text-anchor="middle" { "largest" }
            text.axis x=(px((LEFT + RIGHT) / 2.0)) y=(px(BOTTOM + 42.0)) text-anchor="middle" { (across) }
            text.axis transform={ "translate(14 " (px((TOP + BOTTOM) / 2.0)) ") rotate(-90)" } text-anchor="middle" { (upwards) }
            @for line in lines {
                (one(line, &columns, &up))
            }
        }
    }
}

fn one(line: &Line<'_>, columns: &Columns, up: &Log) -> Markup {
    let Line {
        index,
        name,
        points,
        max_ns,
        max_text,
    } = line;
    let index = *index;
    let points: Vec<(f64, f64, String)> = points
        .iter()
        .enumerate()
        .map(|(column, point)| {
            let height = up.at(point.ns as f64);
            let label = format!("p{}: {}", tick_label(point.percentile), point.text);
            (columns.at(column), height, label)
        })
        .collect();
    let largest = (columns.of_max(), up.at(*max_ns as f64));
    let last = points.last().map(|(x, y, _)| (*x, *y));
    html! {
        path class={ "series " (colour(index)) } d=(path(points.iter().map(|(x, y, _)| (*x, *y)))) {}
        @if let Some(last) = last {
            path class={ "series thin " (colour(index)) } d=(path([last, largest].into_iter())) {}
        }
        @for (x, y, label) in &points {
            g { title { (name) ", " (label) } (marker(index, *x, *y, marker_size(index))) }
        }
        g { title { (name) ", largest: " (max_text) } (marker(index, largest.0, largest.1, marker_size(index))) }
    }
}

/// Formats a power of ten, nanoseconds.
pub(super) fn time_tick(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 0.99e9 => (ns / 1e9, "s"),
        ns if ns >= 0.99e6 => (ns / 1e6, "ms"),
        ns if ns >= 0.99e3 => (ns / 1e3, "µs"),
        ns => (ns, "ns"),
    };
    format!("{}{THIN}{unit}", tick_label(value))
}
