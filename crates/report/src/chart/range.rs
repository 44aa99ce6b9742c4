// SPDX-License-Identifier: Apache-2.0
//! Minimum, mean and maximum round trip of each case, on a logarithmic axis.

use maud::{Markup, html};

use super::percentiles::time_tick;
use super::scale::Log;
use super::{colour, marker, px, shortened};
use crate::summary::{CaseSummary, RoundTrip};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 160.0;
const RIGHT: f64 = WIDTH - 40.0;
const STEP: f64 = 52.0;
const AXIS: f64 = 50.0;
/// Minimum distance of labels. Labels closer to each other are in the table only.
const LABEL_WIDTH: f64 = 74.0;

/// Draws the chart. Returns nothing if there are no latency trials.
pub(crate) fn range(cases: &[CaseSummary]) -> Markup {
    let trips: Vec<(usize, &str, &RoundTrip)> = cases
        .iter()
        .enumerate()
        .filter_map(|(index, case)| Some((index, case.name.as_str(), case.round_trip.as_ref()?)))
        .collect();
    let smallest = trips.iter().map(|(_, _, trip)| trip.min_ns).min();
    let largest = trips.iter().map(|(_, _, trip)| trip.max_ns).max();
    let (Some(smallest), Some(largest)) = (smallest, largest) else {
        return html! {};
    };
    let scale = Log::new(
        smallest.max(1) as f64,
        largest.max(1) as f64,
        LEFT + 10.0,
        RIGHT,
    );
    let body = STEP * trips.len() as f64;
    html! {
        svg.chart.wide viewBox={ "0 0 " (WIDTH) " " (body + AXIS) } role="img" aria-label="Smallest, mean and largest round trip" {
            @for tick in scale.ticks() {
                line.grid x1=(px(scale.at(tick))) x2=(px(scale.at(tick))) y1="4" y2=(px(body + 2.0)) {}
                text.tick x=(px(scale.at(tick))) y=(px(body + 18.0)) text-anchor="middle" { (time_tick(tick)) }
            }
            text.axis x=(px((LEFT + RIGHT) / 2.0)) y=(px(body + 42.0)) text-anchor="middle" { "round trip" }
            @for (row, (index, name, trip)) in trips.iter().enumerate() {
                (one(*index, name, trip, &scale, STEP * row as f64 + 32.0))
            }
        }
    }
}

fn one(index: usize, name: &str, trip: &RoundTrip, scale: &Log, y: f64) -> Markup {
    let (min, mean, max) = (
        scale.at(trip.min_ns as f64),
        scale.at(trip.mean_ns),
        scale.at(trip.max_ns as f64),
    );
    html! {
        g {
            title {
                (name) ": smallest " (trip.min_text()) ", mean " (trip.mean_text())
                ", largest " (trip.max_text())
            }
            text.label x=(px(LEFT - 10.0)) y=(px(y + 4.5)) text-anchor="end" { (shortened(name, 20)) }
            line class={ "reach " (colour(index)) } x1=(px(min)) x2=(px(max)) y1=(px(y)) y2=(px(y)) {}
            line class={ "reach end " (colour(index)) } x1=(px(min)) x2=(px(min)) y1=(px(y - 7.0)) y2=(px(y + 7.0)) {}
            line class={ "reach end " (colour(index)) } x1=(px(max)) x2=(px(max)) y1=(px(y - 7.0)) y2=(px(y + 7.0)) {}
            (marker(index, mean, y, 5.5))
            text.value x=(px(mean)) y=(px(y - 12.0)) text-anchor="middle" { "mean " (trip.mean_text()) }
            @if mean - min > LABEL_WIDTH {
                text.tick x=(px(min)) y=(px(y - 12.0)) text-anchor="middle" { (trip.min_text()) }
            }
            @if max - mean > LABEL_WIDTH {
                text.tick x=(px(max)) y=(px(y - 12.0)) text-anchor="middle" { (trip.max_text()) }
            }
        }
    }
}
