// SPDX-License-Identifier: Apache-2.0
//! Latency and CPU use against offered load, at each load of the sweep. A load without the figure is a gap.

use maud::{Markup, html};

use super::bars::tick_label;
use super::load_axes::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, axes};
use super::percentiles::time_tick;
use super::scale::{Linear, Log};
use super::{colour, marker, marker_size, path};
use crate::format;
use crate::summary::{CaseSummary, SweepPoint};

/// Figure of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadView {
    /// 99th percentile of the round trips.
    Latency,
    /// CPUs that the device used.
    Cpus,
}

impl LoadView {
    /// Returns the median over the rounds at a load.
    pub(crate) fn value(self, point: &SweepPoint) -> Option<f64> {
        let spread = match self {
            Self::Latency => &point.latency_p99_ns,
            Self::Cpus => &point.device_cpus,
        };
        spread.as_ref().map(|spread| spread.median)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Latency => "99 % of round trips",
            Self::Cpus => "CPUs of the device",
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::Latency => format::time_ns(value),
            Self::Cpus => format!("{} CPUs", format::number(value)),
        }
    }
}

/// The vertical axis: logarithmic for times.
enum Vertical {
    Times(Log),
    Cpus(Linear),
}

impl Vertical {
    fn new(view: LoadView, values: &[f64]) -> Self {
        let largest = values.iter().copied().fold(0.0, f64::max);
        match view {
            LoadView::Latency => {
                let smallest = values.iter().copied().fold(largest, f64::min);
                Self::Times(Log::new(smallest.max(1.0), largest.max(1.0), BOTTOM, TOP))
            }
            LoadView::Cpus => Self::Cpus(Linear::new(largest, BOTTOM, TOP)),
        }
    }

    fn at(&self, value: f64) -> f64 {
        match self {
            Self::Times(scale) => scale.at(value),
            Self::Cpus(scale) => scale.at(value),
        }
    }

    /// Returns the ticks and their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        let (ticks, label): (Vec<f64>, fn(f64) -> String) = match self {
            Self::Times(scale) => (scale.ticks(), time_tick),
            Self::Cpus(scale) => (scale.ticks(), tick_label),
        };
        ticks
            .into_iter()
            .map(|tick| (self.at(tick), label(tick)))
            .collect()
    }
}

/// Draws one chart.
pub(crate) fn load(cases: &[CaseSummary], view: LoadView) -> Markup {
    let points = || cases.iter().flat_map(|case| &case.sweep);
    let highest = points().map(|point| point.offered_pps).fold(0.0, f64::max);
    let values: Vec<f64> = points().filter_map(|point| view.value(point)).collect();
    let across = Linear::new(highest / 1e6, LEFT, RIGHT);
    let up = Vertical::new(view, &values);
    html! {
        svg.chart.half viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (view.name()) " against offered load" } {
            (axes(&across, &up.ticks(), view.name()))
            @for (index, case) in cases.iter().enumerate() { (series(index, case, view, &across, &up)) }
        }
    }
}

/// Draws the medians of a case, connected by lines.
fn series(
    index: usize,
    case: &CaseSummary,
    view: LoadView,
    across: &Linear,
    up: &Vertical,
) -> Markup {
    let at = |point: &SweepPoint| {
        let value = view.value(point)?;
        Some((across.at(point.offered_pps / 1e6), up.at(value), value))
    };
    let places: Vec<Option<(f64, f64, f64)>> = case.sweep.iter().map(at).collect();
    html! {
        @for run in places.split(Option::is_none) {
            @if run.len() > 1 {
                path class={ "series " (colour(index)) } d=(path(run.iter().flatten().map(|(x, y, _)| (*x, *y)))) {}
            }
        }
        @for (place, point) in places.iter().zip(&case.sweep) {
            @if let Some((x, y, value)) = place {
                g {
                    title { (case.name) ": " (view.text(*value)) " at " (format::number(point.offered_pps / 1e6)) " Mpps (median)" }
                    (marker(index, *x, *y, marker_size(index)))
                }
            }
        }
    }
}
