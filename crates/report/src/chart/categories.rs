// SPDX-License-Identifier: Apache-2.0
//! Values at a few named places, such as frame sizes or loads, with a line for each series. A missing value is a gap, marked with its
//! reason.

use maud::{Markup, html};

use super::bars::tick_label;
use super::load_axes::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH};
use super::percentiles::time_tick;
use super::scale::{Linear, SignedLog};
use super::{colour, marker, marker_size, path, px, shortened};

/// Most names of places in one row; more of them alternate between two rows.
const IN_A_ROW: usize = 5;
/// Longest name of a place, characters.
const PLACE_MAX: usize = 16;
/// Distance of marks of gaps at the same place, pixels.
const GAP_STEP: f64 = 9.0;

/// A value of a series at a place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CategoryPoint {
    /// The value; none for a gap.
    pub(crate) value: Option<f64>,
    /// The value with its unit, or the reason of the gap.
    pub(crate) label: String,
}

/// A series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CategorySeries {
    /// Name.
    pub(crate) name: String,
    /// A point for each place.
    pub(crate) points: Vec<CategoryPoint>,
}

/// Scale of the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CategoryScale {
    /// Linear from zero.
    Linear,
    /// Times in nanoseconds of both signs, logarithmic.
    Times,
}

/// A chart of categories.
pub(crate) struct Categories<'a> {
    /// Description of the chart.
    pub(crate) title: &'a str,
    /// Name of the horizontal axis.
    pub(crate) across: &'a str,
    /// Name of the vertical axis.
    pub(crate) up: &'a str,
    /// Scale of the vertical axis.
    pub(crate) scale: CategoryScale,
    /// Names of the places.
    pub(crate) places: &'a [String],
    /// The series. Their numbers decide on colours and markers.
    pub(crate) series: &'a [CategorySeries],
}

enum Up {
    Linear(Linear),
    Times(SignedLog),
}

impl Up {
    fn new(drawn: &Categories<'_>) -> Self {
        let points = drawn.series.iter().flat_map(|series| &series.points);
        let values: Vec<f64> = points.filter_map(|point| point.value).collect();
        let largest = values.iter().copied().fold(0.0, f64::max);
        let smallest = values.iter().copied().fold(0.0, f64::min);
        match drawn.scale {
            CategoryScale::Linear => Self::Linear(Linear::new(largest, BOTTOM, TOP)),
            CategoryScale::Times => Self::Times(SignedLog::new(smallest, largest, BOTTOM, TOP)),
        }
    }

    fn at(&self, value: f64) -> f64 {
        match self {
            Self::Linear(scale) => scale.at(value),
            Self::Times(scale) => scale.at(value),
        }
    }

    /// Returns the ticks and their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        let (ticks, label): (Vec<f64>, fn(f64) -> String) = match self {
            Self::Linear(scale) => (scale.ticks(), tick_label),
            Self::Times(scale) => (scale.ticks(), signed_time),
        };
        let labelled = ticks.into_iter().map(|tick| (self.at(tick), label(tick)));
        labelled.collect()
    }
}

fn signed_time(ns: f64) -> String {
    if ns < 0.0 {
        format!("−{}", time_tick(-ns))
    } else {
        time_tick(ns)
    }
}

/// Draws the chart.
pub(crate) fn categories(drawn: &Categories<'_>) -> Markup {
    let up = Up::new(drawn);
    let width = (RIGHT - LEFT) / drawn.places.len().max(1) as f64;
    let across = |index: usize| LEFT + width * (index as f64 + 0.5);
    let has_rows = drawn.places.len() > IN_A_ROW;
    let row = |index: usize| if has_rows { index % 2 } else { 0 };
    html! {
        svg.chart.half viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(drawn.title) {
            @for (y, label) in up.ticks() {
                line.grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(y)) y2=(px(y)) {}
                text.tick x=(px(LEFT - 8.0)) y=(px(y + 4.5)) text-anchor="end" { (label) }
            }
            @for (index, place) in drawn.places.iter().enumerate() {
                text.tick x=(px(across(index))) y=(px(BOTTOM + 16.0 + 14.0 * row(index) as f64)) text-anchor="middle" {
                    (shortened(place, PLACE_MAX))
                }
            }
            text.axis x=(px((LEFT + RIGHT) / 2.0)) y=(px(BOTTOM + 48.0)) text-anchor="middle" { (drawn.across) }
            text.axis transform={ "translate(14 " (px((TOP + BOTTOM) / 2.0)) ") rotate(-90)" } text-anchor="middle" { (drawn.up) }
            @for (index, series) in drawn.series.iter().enumerate() {
                (one(index, series, drawn.places, &across, &up))
            }
        }
    }
}

/// Draws a series: values connected by lines, and gaps.
fn one(
    index: usize,
    series: &CategorySeries,
    places: &[String],
    across: &dyn Fn(usize) -> f64,
    up: &Up,
) -> Markup {
    let at = |(place, point): (usize, &CategoryPoint)| {
        let value = point.value?;
        Some((across(place), up.at(value)))
    };
    let marks: Vec<Option<(f64, f64)>> = series.points.iter().enumerate().map(at).collect();
    html! {
        @for run in marks.split(Option::is_none) {
            @if run.len() > 1 {
                path class={ "series " (colour(index)) } d=(path(run.iter().flatten().copied())) {}
            }
        }
        @for ((place, point), mark) in series.points.iter().enumerate().zip(&marks) {
            g {
                title {
                    (series.name) ": " (point.label) ", " (places.get(place).map_or("", String::as_str))
                }
                @match mark {
                    Some((x, y)) => { (marker(index, *x, *y, marker_size(index))) }
                    None => {
                        text.tick x=(px(across(place) + GAP_STEP * index as f64)) y=(px(BOTTOM - 5.0)) text-anchor="middle" { "×" }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(value: Option<f64>, label: &str) -> CategoryPoint {
        CategoryPoint {
            value,
            label: label.to_owned(),
        }
    }

    fn drawn(scale: CategoryScale) -> String {
        let places = ["64", "512", "1518", "imix"].map(str::to_owned);
        let series = [CategorySeries {
            name: "a <case>".to_owned(),
            points: vec![
                point(Some(5.0), "5"),
                point(Some(-4.0), "−4"),
                point(None, "the tester failed"),
                point(Some(1.0), "1"),
            ],
        }];
        let chart = categories(&Categories {
            title: "T",
            across: "frame size",
            up: "Mpps",
            scale,
            places: &places,
            series: &series,
        });
        chart.into_string()
    }

    #[test]
    fn each_value_has_a_mark_and_a_gap_has_its_reason() {
        for scale in [CategoryScale::Linear, CategoryScale::Times] {
            let svg = drawn(scale);
            assert_eq!(svg.matches("class=\"mark k0\"").count(), 3, "{svg}");
            // The value after the gap has no line.
            assert_eq!(svg.matches("<path").count(), 1);
            assert_eq!(svg.matches('×').count(), 1);
            assert!(svg.contains("<title>a &lt;case&gt;: the tester failed, 1518</title>"));
        }
        assert!(drawn(CategoryScale::Times).contains('−'));
    }
}
