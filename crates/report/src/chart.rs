// SPDX-License-Identifier: Apache-2.0
//! Charts as SVG. Text stays text, and colours come from the style of the page, so charts follow its light and dark themes. Each
//! case has its own colour, marker and dash pattern: no chart relies on colour alone.

mod bars;
mod categories;
mod course;
mod distribution;
mod elements;
mod history;
mod load;
mod load_axes;
mod loss;
mod machine;
mod percentiles;
mod range;
mod scale;
mod search;
mod timeline;

use maud::{Markup, html};

pub(crate) use bars::{Bar, BarGroup, bars};
pub(crate) use categories::{Categories, CategoryPoint, CategoryScale, CategorySeries, categories};
pub(crate) use course::course;
pub(crate) use distribution::distribution;
pub(crate) use elements::{DrawnElement, DrawnLink, elements};
pub(crate) use history::{History, history};
pub(crate) use load::{LoadView, load};
pub(crate) use loss::{LossView, loss};
pub(crate) use machine::{DrawnCpu, machine};
pub(crate) use percentiles::{gaps, percentiles};
pub(crate) use range::range;
pub(crate) use search::{SearchTrial, search};
pub(crate) use timeline::cpu_timeline;

/// Number of different colours, markers and dash patterns. After that they repeat.
const LOOKS: usize = 6;

/// Returns the CSS class of the colour of a case.
pub(crate) fn colour(case: usize) -> String {
    format!("k{}", case % LOOKS)
}

/// Draws the marker of a case around a point.
fn marker(case: usize, x: f64, y: f64, size: f64) -> Markup {
    let class = colour(case);
    let points = |corners: &[(f64, f64)]| {
        corners
            .iter()
            .map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * size, y + dy * size))
            .collect::<Vec<_>>()
            .join(" ")
    };
    html! {
        @match case % LOOKS {
            0 => circle class={ "mark " (class) } cx=(px(x)) cy=(px(y)) r=(px(size)) {},
            1 => polygon class={ "mark " (class) } points=(points(&[(0.0, -1.25), (1.15, 0.9), (-1.15, 0.9)])) {},
            2 => polygon class={ "mark " (class) } points=(points(&[(-0.95, -0.95), (0.95, -0.95), (0.95, 0.95), (-0.95, 0.95)])) {},
            3 => polygon class={ "mark " (class) } points=(points(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)])) {},
            4 => polygon class={ "mark " (class) } points=(points(&[(0.0, 1.25), (1.15, -0.9), (-1.15, -0.9)])) {},
            _ => polygon class={ "mark " (class) } points=(points(&[(-1.3, -0.4), (1.3, -0.4), (1.3, 0.4), (-1.3, 0.4)])) {},
        }
    }
}

/// Returns the scale of a case's marks. Earlier cases have larger markers and wider lines, so all of them stay visible if figures are
/// equal.
fn marker_size(case: usize) -> f64 {
    [6.2, 4.8, 3.6].get(case % LOOKS).copied().unwrap_or(4.0)
}

/// Formats pixels, to a tenth.
fn px(value: f64) -> String {
    format!("{value:.1}")
}

/// Draws the legend: colour, marker and dash pattern of each case.
pub(crate) fn legend<'a>(names: impl Iterator<Item = &'a str>) -> Markup {
    html! {
        ul.legend {
            @for (case, name) in names.enumerate() {
                li {
                    svg viewBox="0 0 34 14" width="34" height="14" aria-hidden="true" {
                        line class={ "series " (colour(case)) } x1="1" y1="7" x2="33" y2="7" {}
                        (marker(case, 17.0, 7.0, 4.5))
                    }
                    (name)
                }
            }
        }
    }
}

/// Truncates a text to a number of characters.
fn shortened(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    let kept: String = text.chars().take(length.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Returns an SVG path through points.
fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    points
        .enumerate()
        .map(|(index, (x, y))| format!("{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" }))
        .collect()
}
