// SPDX-License-Identifier: Apache-2.0
//! Rate and loss of each trial of the searches for a goal, in the order of the trials.

use maud::{Markup, html};

use super::bars::tick_label;
use super::scale::{Linear, Log};
use super::{colour, marker, path, px};
use crate::format::{self, THIN};

/// A trial of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SearchTrial {
    /// Number of the round, from 0.
    pub(crate) round: u32,
    /// Achieved rate, frames per second.
    pub(crate) rate_pps: f64,
    /// Share of the frames that were lost, 0 to 1. None if the trial is invalid.
    pub(crate) loss_ratio: Option<f64>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = WIDTH - 20.0;
/// Panel of the rates.
const RATE_TOP: f64 = 14.0;
const RATE_BOTTOM: f64 = 150.0;
/// Panel of the losses; no loss has a position of its own below it.
const LOSS_TOP: f64 = 176.0;
const LOSS_BOTTOM: f64 = 238.0;
const NO_LOSS: f64 = 252.0;
/// Smallest loss of the axis.
const LOSS_MIN: f64 = 1e-6;

/// Draws the trials. `allowed` is the loss ratio of the goal.
pub(crate) fn search(title: &str, case: usize, trials: &[SearchTrial], allowed: f64) -> Markup {
    let highest = trials
        .iter()
        .map(|trial| trial.rate_pps)
        .fold(0.0, f64::max);
    let rate = Linear::new(highest / 1e6, RATE_BOTTOM, RATE_TOP);
    let losses = || trials.iter().filter_map(|trial| trial.loss_ratio);
    let smallest = losses().filter(|ratio| *ratio > 0.0).fold(1.0, f64::min);
    let loss = Log::new(smallest.clamp(LOSS_MIN, 0.1), 1.0, LOSS_BOTTOM, LOSS_TOP);
    let width = (RIGHT - LEFT) / trials.len().max(1) as f64;
    let across = |index: usize| LEFT + width * (index as f64 + 0.5);
    let places: Vec<(f64, f64)> = trials
        .iter()
        .enumerate()
        .map(|(index, trial)| (across(index), rate.at(trial.rate_pps / 1e6)))
        .collect();
    let pairs = trials.iter().zip(trials.iter().skip(1));
    let rounds = pairs
        .enumerate()
        .filter(|(_, (last, next))| last.round != next.round);
    html! {
        svg.chart.wide viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(title) {
            (axes(&rate, &loss))
            @for (index, (_, next)) in rounds {
                @let x = px(LEFT + width * (index as f64 + 1.0));
                line.whisker x1=(x) x2=(x) y1=(px(RATE_TOP)) y2=(px(NO_LOSS)) { title { "round " (next.round.saturating_add(1)) } }
            }
            path class={ "series thin " (colour(case)) } d=(path(places.iter().copied())) {}
            @for (trial, (x, y)) in trials.iter().zip(&places) {
                g {
                    title { (text(trial)) }
                    @match trial.loss_ratio {
                        Some(ratio) => {
                            @if ratio <= allowed { (marker(case, *x, *y, 3.6)) } @else { circle.dot cx=(px(*x)) cy=(px(*y)) r="3.6" {} }
                            circle class={ "bar " (colour(case)) } cx=(px(*x)) cy=(px(height(&loss, ratio))) r="2.4" {}
                        }
                        None => text.tick x=(px(*x)) y=(px(*y + 4.0)) text-anchor="middle" { "×" },
                    }
                }
            }
        }
    }
}

fn height(loss: &Log, ratio: f64) -> f64 {
    if ratio > 0.0 { loss.at(ratio) } else { NO_LOSS }
}

fn axes(rate: &Linear, loss: &Log) -> Markup {
    // The first, the middle and the last decade: more labels would overlap.
    let decades = loss.ticks();
    let every = decades.len().div_ceil(3).max(1);
    html! {
        @for tick in rate.ticks() {
            line.grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(rate.at(tick))) y2=(px(rate.at(tick))) {}
            text.tick x=(px(LEFT - 8.0)) y=(px(rate.at(tick) + 4.5)) text-anchor="end" { (tick_label(tick)) " Mpps" }
        }
        @for tick in decades.iter().rev().step_by(every) {
            line.grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(loss.at(*tick))) y2=(px(loss.at(*tick))) {}
            text.tick x=(px(LEFT - 8.0)) y=(px(loss.at(*tick) + 4.5)) text-anchor="end" { (tick_label(*tick * 100.0)) (THIN) "%" }
        }
        text.tick x=(px(LEFT - 8.0)) y=(px(NO_LOSS + 4.5)) text-anchor="end" { "no loss" }
        text.axis x=(px((LEFT + RIGHT) / 2.0)) y=(px(HEIGHT - 10.0)) text-anchor="middle" { "trials in order; lines between rounds" }
    }
}

fn text(trial: &SearchTrial) -> String {
    let result = match trial.loss_ratio {
        Some(ratio) => format!("{} lost", format::loss(ratio)),
        None => "invalid".to_owned(),
    };
    format!(
        "round {}: {}, {result}",
        trial.round.saturating_add(1),
        format::rate(trial.rate_pps)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trial_has_a_mark_and_each_round_a_line() {
        let trial = |round, rate_pps, loss_ratio| SearchTrial {
            round,
            rate_pps,
            loss_ratio,
        };
        let trials = [
            trial(0, 2e6, Some(0.0)),
            trial(0, 4e6, Some(0.25)),
            trial(1, 3e6, None),
            trial(1, 3e6, Some(0.001)),
        ];
        let svg = search("PDR of a <case>", 0, &trials, 0.005).into_string();
        assert!(svg.contains("aria-label=\"PDR of a &lt;case&gt;\""));
        // Two held, one lost too much, one is invalid. All valid ones have a loss.
        assert_eq!(svg.matches("class=\"mark k0\"").count(), 2);
        assert_eq!(svg.matches("class=\"dot\"").count(), 1);
        assert_eq!(svg.matches('×').count(), 1);
        assert_eq!(svg.matches("class=\"bar k0\"").count(), 3);
        assert_eq!(svg.matches("class=\"whisker\"").count(), 1);
        assert!(svg.contains("<title>round 2</title>"), "{svg}");
        assert!(svg.contains("<title>round 2: "), "{svg}");
    }
}
