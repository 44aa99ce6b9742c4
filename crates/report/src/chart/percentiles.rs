// SPDX-License-Identifier: Apache-2.0
//! Latency by percentile: each step to the right covers a tenth of the frames of the step before.

use maud::{Markup, html};

use super::bars::tick_label;
use super::scale::Log;
use super::{colour, marker, marker_size, path, px};
use crate::format::THIN;
use crate::summary::{CaseSummary, RoundTrip};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 370.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = WIDTH - 40.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = HEIGHT - 54.0;

/// Positions of the percentiles; the last column is the maximum.
struct Columns {
    percentiles: Vec<f64>,
}

impl Columns {
    fn of(trips: &[(usize, &str, &RoundTrip)]) -> Self {
        let longest = trips
            .iter()
            .max_by_key(|(_, _, trip)| trip.percentiles.len());
        let percentiles = longest.map(|(_, _, trip)| &trip.percentiles);
        Self {
            percentiles: percentiles
                .into_iter()
                .flatten()
                .map(|value| value.percentile)
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

/// Draws the chart. Returns nothing if there are no latency trials.
pub(crate) fn percentiles(cases: &[CaseSummary]) -> Markup {
    let trips: Vec<(usize, &str, &RoundTrip)> = cases
        .iter()
        .enumerate()
        .filter_map(|(index, case)| Some((index, case.name.as_str(), case.round_trip.as_ref()?)))
        .collect();
    if trips.is_empty() {
        return html! {};
    }
    let columns = Columns::of(&trips);
    let smallest = trips
        .iter()
        .flat_map(|(_, _, trip)| trip.percentiles.iter().map(|value| value.latency_ns))
        .chain(trips.iter().map(|(_, _, trip)| trip.max_ns))
        .min();
    let largest = trips.iter().map(|(_, _, trip)| trip.max_ns).max();
    let up = Log::new(
        smallest.unwrap_or(1).max(1) as f64,
        largest.unwrap_or(1).max(1) as f64,
        BOTTOM,
        TOP,
    );
    html! {
        svg.chart.wide viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label="Latency by percentile" {
            @for tick in up.ticks() {
                line.grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(up.at(tick))) y2=(px(up.at(tick))) {}
                text.tick x=(px(LEFT - 8.0)) y=(px(up.at(tick) + 4.5)) text-anchor="end" { (time_tick(tick)) }
            }
            @for (column, percentile) in columns.percentiles.iter().enumerate() {
                text.tick x=(px(columns.at(column))) y=(px(BOTTOM + 18.0)) text-anchor="middle" { "p" (tick_label(*percentile)) }
            }
            text.tick x=(px(columns.of_max())) y=(px(BOTTOM + 18.0)) text-anchor="middle" { "largest" }
            text.axis x=(px((LEFT + RIGHT) / 2.0)) y=(px(BOTTOM + 42.0)) text-anchor="middle" { "percentile of frames" }
            text.axis transform={ "translate(14 " (px((TOP + BOTTOM) / 2.0)) ") rotate(-90)" } text-anchor="middle" { "round trip" }
            @for (index, name, trip) in &trips {
                (one(*index, name, trip, &columns, &up))
            }
        }
    }
}

fn one(index: usize, name: &str, trip: &RoundTrip, columns: &Columns, up: &Log) -> Markup {
    let points: Vec<(f64, f64, String)> = trip
        .percentiles
        .iter()
        .enumerate()
        .map(|(column, value)| {
            let height = up.at(value.latency_ns as f64);
            let label = format!("p{}: {}", tick_label(value.percentile), value.text());
            (columns.at(column), height, label)
        })
        .collect();
    let largest = (columns.of_max(), up.at(trip.max_ns as f64));
    let last = points.last().map(|(x, y, _)| (*x, *y));
    html! {
        path class={ "series " (colour(index)) } d=(path(points.iter().map(|(x, y, _)| (*x, *y)))) {}
        @if let Some(last) = last {
            path class={ "series thin " (colour(index)) } d=(path([last, largest].into_iter())) {}
        }
        @for (x, y, label) in &points {
            g { title { (name) ", " (label) } (marker(index, *x, *y, marker_size(index))) }
        }
        g { title { (name) ", largest: " (trip.max_text()) } (marker(index, largest.0, largest.1, marker_size(index))) }
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
