// SPDX-License-Identifier: Apache-2.0
//! Latency and CPU use against offered load, at each load of the sweep. A load without the figure is a gap.

use maud::{Markup, html};

use super::bars::tick_label;
use super::load_axes::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, axes, gap};
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

    /// Returns why a load has no figure.
    fn reason(self, point: &SweepPoint) -> &'static str {
        match self {
            _ if point.valid_trials == 0 => "no valid trial",
            Self::Latency => "too few frames",
            Self::Cpus => "CPU time unknown",
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
            @let at_load = format!("at {} Mpps", format::number(point.offered_pps / 1e6));
            @match place {
                Some((x, y, value)) => {
                    g {
                        title { (case.name) ": " (view.text(*value)) " " (at_load) " (median)" }
                        (marker(index, *x, *y, marker_size(index)))
                    }
                }
                None => {
                    @let reason = format!("{}: {} {at_load}", case.name, view.reason(point));
                    (gap(index, (across.at(point.offered_pps / 1e6), BOTTOM - 5.0), &reason))
                }
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
    fn a_load_without_the_figure_is_a_gap_with_its_reason() {
        let mut bench = SimulatedBench::new(11, 0);
        bench.invalid_ratio = 0.0;
        let results = results_of(STUDY, bench, usize::MAX);
        let mut cases = Summary::of(&results).unwrap().sizes.remove(0).cases;
        let mut drawn = |valid_trials| {
            let point = &mut cases[0].sweep[1];
            point.latency_p99_ns = None;
            point.valid_trials = valid_trials;
            load(&cases, LoadView::Latency).into_string()
        };
        for (valid_trials, reason) in [(1, "too few frames"), (0, "no valid trial")] {
            let svg = drawn(valid_trials);
            // The load before the gap has no line.
            assert_eq!(svg.matches("<path").count(), 1, "{svg}");
            assert_eq!(svg.matches("class=\"mark k0\"").count(), 3);
            assert_eq!(svg.matches('×').count(), 1);
            assert!(svg.contains(&format!("<title>c: {reason} at ")), "{svg}");
        }
    }
}
