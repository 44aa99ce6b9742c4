// SPDX-License-Identifier: Apache-2.0
//! Loss by percentile of trials: one line for each rate, from the trial with the least loss to the one with the most.

use maud::{Markup, html};

use super::bars::tick_label;
use super::scale::Linear;
use super::{colour, legend, marker, path, px};
use crate::format::{THIN, loss, rate};
use crate::summary::LossesAtRate;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = WIDTH - 18.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = HEIGHT - 54.0;

/// Draws the chart and its legend.
pub(crate) fn distribution(rates: &[LossesAtRate]) -> Markup {
    let largest = rates
        .iter()
        .filter_map(|rate| rate.loss_ratios.last())
        .fold(0.0_f64, |largest, loss| largest.max(*loss));
    let across = Linear::exact(100.0, LEFT, RIGHT);
    let up = Linear::new(largest * 100.0, BOTTOM, TOP);
    let names: Vec<String> = rates.iter().map(|it| rate(it.rate_pps)).collect();
    html! {
        (legend(names.iter().map(String::as_str)))
        svg.chart.half viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label="Loss by percentile of trials" {
            @for tick in up.ticks() {
                line.grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(up.at(tick))) y2=(px(up.at(tick))) {}
                text.tick x=(px(LEFT - 8.0)) y=(px(up.at(tick) + 4.5)) text-anchor="end" { (tick_label(tick)) (THIN) "%" }
            }
            @for tick in across.ticks() {
                text.tick x=(px(across.at(tick))) y=(px(BOTTOM + 18.0)) text-anchor="middle" { (tick_label(tick)) }
            }
            text.axis x=(px((LEFT + RIGHT) / 2.0)) y=(px(BOTTOM + 42.0)) text-anchor="middle" { "percentile of trials" }
            text.axis transform={ "translate(14 " (px((TOP + BOTTOM) / 2.0)) ") rotate(-90)" } text-anchor="middle" { "lost" }
            @for (index, (rate, name)) in rates.iter().zip(&names).enumerate() {
                (one(index, rate, name, &across, &up))
            }
        }
    }
}

/// Draws one dot for each trial: the n-th of N ascending losses is at percentile n / N.
fn one(index: usize, rate: &LossesAtRate, name: &str, across: &Linear, up: &Linear) -> Markup {
    let count = rate.loss_ratios.len() as f64;
    let points: Vec<(f64, f64, f64, f64)> = rate
        .loss_ratios
        .iter()
        .enumerate()
        .map(|(n, lost)| {
            let percentile = n.saturating_add(1) as f64 / count * 100.0;
            (
                across.at(percentile),
                up.at(lost * 100.0),
                percentile,
                *lost,
            )
        })
        .collect();
    html! {
        path class={ "series " (colour(index)) } d=(path(points.iter().map(|(x, y, ..)| (*x, *y)))) {}
        @for (x, y, percentile, lost) in &points {
            g { title { (name) ", p" (tick_label((percentile * 10.0).round() / 10.0)) ": " (loss(*lost)) } (marker(index, *x, *y, 3.0)) }
        }
    }
}
