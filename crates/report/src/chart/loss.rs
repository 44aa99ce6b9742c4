// SPDX-License-Identifier: Apache-2.0
//! Loss against offered load: the whole range on a logarithmic axis, small losses on a linear one.

use maud::{Markup, html};

use super::bars::tick_label;
use super::load_axes::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, axes, gap};
use super::scale::{Linear, Log};
use super::{colour, marker, marker_size, path, px};
use crate::format::{THIN, number};
use crate::summary::{CaseSummary, SweepPoint};

/// Range of losses that a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossView {
    /// All losses, from the smallest one measured, with a separate position for no loss.
    Whole,
    /// Losses from 0 to 0.01 %.
    Small,
}

/// Height of the position for no loss.
const NONE_BAND: f64 = 26.0;
/// Largest loss of the small view, as a ratio.
const SMALL_MAX: f64 = 1e-4;

enum Vertical {
    Whole(Log),
    Small(Linear),
}

impl Vertical {
    fn new(view: LossView, smallest: f64) -> Self {
        match view {
            LossView::Whole => Self::Whole(Log::new(smallest, 1.0, BOTTOM - NONE_BAND, TOP)),
            LossView::Small => Self::Small(Linear::new(SMALL_MAX * 100.0, BOTTOM, TOP)),
        }
    }

    /// Returns the position of a loss on the vertical axis.
    fn at(&self, ratio: f64) -> f64 {
        match self {
            Self::Whole(_) if ratio <= 0.0 => BOTTOM - NONE_BAND / 2.0 + 4.0,
            Self::Whole(scale) => scale.at(ratio),
            Self::Small(scale) => scale.at(ratio * 100.0),
        }
    }

    fn holds(&self, ratio: f64) -> bool {
        matches!(self, Self::Whole(_)) || ratio <= SMALL_MAX
    }

    /// Returns the ticks and their labels, from the bottom.
    fn ticks(&self) -> Vec<(f64, String)> {
        match self {
            Self::Whole(scale) => {
                let label = |ratio: f64| format!("{}{THIN}%", tick_label(ratio * 100.0));
                let ticks = scale.ticks().into_iter();
                let ticks = ticks.map(|ratio| (scale.at(ratio), label(ratio)));
                [(self.at(0.0), "none".to_owned())]
                    .into_iter()
                    .chain(ticks)
                    .collect()
            }
            Self::Small(scale) => {
                let label = |percent: f64| match percent {
                    0.0 => "none".to_owned(),
                    percent => format!("{}{THIN}%", tick_label(percent)),
                };
                let ticks = scale.ticks().into_iter();
                ticks
                    .map(|percent| (scale.at(percent), label(percent)))
                    .collect()
            }
        }
    }
}

/// Draws one chart. `id` is unique on the page.
pub(crate) fn loss(cases: &[CaseSummary], view: LossView, id: &str) -> Markup {
    let points = || cases.iter().flat_map(|case| &case.points);
    let highest_load = points().map(|point| point.offered_pps).fold(0.0, f64::max);
    let losses = points().map(|point| point.loss_ratio);
    let smallest = losses
        .filter(|ratio| *ratio > 0.0)
        .fold(1e-5, f64::min)
        .max(1e-9);
    let across = Linear::new(highest_load / 1e6, LEFT, RIGHT);
    let up = Vertical::new(view, smallest);
    let label = match view {
        LossView::Whole => "Loss against offered load, logarithmic",
        LossView::Small => "Loss against offered load, up to 0.01 %",
    };
    html! {
        svg.chart.half viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(label) {
            @if matches!(up, Vertical::Whole(_)) {
                rect.band x=(px(LEFT)) y=(px(BOTTOM - NONE_BAND + 8.0)) width=(px(RIGHT - LEFT)) height=(px(NONE_BAND - 8.0)) {}
            }
            (axes(&across, &up.ticks(), "frames lost"))
            clipPath id=(id) {
                rect x=(px(LEFT)) y=(px(TOP - 1.0)) width=(px(RIGHT - LEFT)) height=(px(BOTTOM - TOP + 2.0)) {}
            }
            @for (index, case) in cases.iter().enumerate() {
                (trials(index, case, &across, &up))
            }
            @for (index, case) in cases.iter().enumerate() {
                (sweep(index, case, &across, &up, id))
            }
        }
    }
}

/// Draws a small mark for every valid trial.
fn trials(index: usize, case: &CaseSummary, across: &Linear, up: &Vertical) -> Markup {
    let shown = case
        .points
        .iter()
        .filter(|point| up.holds(point.loss_ratio));
    html! {
        g class={ "trials " (colour(index)) } {
            @for point in shown {
                circle cx=(px(across.at(point.offered_pps / 1e6))) cy=(px(up.at(point.loss_ratio))) r="2.4" {}
            }
        }
    }
}

/// Draws the medians of the sweep, connected by lines. A load without valid trials is a gap, marked at the top: the bottom is no loss.
fn sweep(index: usize, case: &CaseSummary, across: &Linear, up: &Vertical, id: &str) -> Markup {
    let at = |point: &SweepPoint| across.at(point.offered_pps / 1e6);
    let median = |point: &SweepPoint| {
        let ratio = point.loss_ratio.as_ref()?.median;
        Some((at(point), point.offered_pps, ratio))
    };
    let medians: Vec<Option<(f64, f64, f64)>> = case.sweep.iter().map(median).collect();
    // Above the top of the small view a line keeps its direction and is clipped.
    let height = |ratio: f64| match up {
        Vertical::Small(_) if ratio > SMALL_MAX => TOP - (BOTTOM - TOP),
        _ => up.at(ratio),
    };
    html! {
        @for run in medians.split(Option::is_none) {
            @if run.len() > 1 {
                path class={ "series " (colour(index)) } clip-path={ "url(#" (id) ")" }
                    d=(path(run.iter().flatten().map(|(x, _, ratio)| (*x, height(*ratio))))) {}
            }
        }
        @for point in case.sweep.iter().filter(|point| point.loss_ratio.is_none()) {
            @let reason = format!("{}: no valid trial at {} Mpps", case.name, number(point.offered_pps / 1e6));
            (gap(index, (at(point), TOP + 12.0), &reason))
        }
        @for (x, load, ratio) in medians.iter().flatten().filter(|(_, _, ratio)| up.holds(*ratio)) {
            g {
                title { (case.name) ": " (crate::format::loss(*ratio)) " lost at " (number(load / 1e6)) " Mpps (median)" }
                (marker(index, *x, up.at(*ratio), marker_size(index)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use quietwire_study::simulated::SimulatedBench;

    use super::*;
    use crate::Summary;
    use crate::tests::results_of;

    const STUDY: &str = "name = \"s\"\ntitle = \"T\"\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
         [tester]\ncpu = \"0\"\n[trials]\nduration-s = 1\nmax-rate-pps = 1_000_000\n[sweep]\nloads-percent = [25, 50, 75, 100]\n\
         [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n";

    #[test]
    fn a_load_without_a_valid_trial_is_a_gap() {
        let mut bench = SimulatedBench::new(11, 0);
        bench.invalid_ratio = 0.0;
        let results = results_of(STUDY, bench, usize::MAX);
        let mut cases = Summary::of(&results).unwrap().sizes.remove(0).cases;
        let drawn = |cases: &[CaseSummary]| loss(cases, LossView::Whole, "id").into_string();
        let whole = drawn(&cases);
        let medians = whole.matches("class=\"mark k0\"").count();
        assert_eq!((medians, whole.matches('×').count()), (4, 0), "{whole}");
        cases[0].sweep[1].loss_ratio = None;
        let svg = drawn(&cases);
        assert_eq!(svg.matches("class=\"mark k0\"").count(), 3, "{svg}");
        // The load before the gap has no line.
        let lines = |svg: &str| svg.matches("<path").count();
        assert_eq!((lines(&whole), lines(&svg)), (1, 1));
        assert!(svg.contains("<title>c: no valid trial at "), "{svg}");
    }
}
