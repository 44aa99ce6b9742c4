// SPDX-License-Identifier: Apache-2.0
//! Size and axes of charts against offered load.

use maud::{Markup, html};

use super::bars::tick_label;
use super::px;
use super::scale::Linear;

pub(super) const WIDTH: f64 = 520.0;
pub(super) const HEIGHT: f64 = 350.0;
pub(super) const LEFT: f64 = 92.0;
pub(super) const RIGHT: f64 = WIDTH - 18.0;
pub(super) const TOP: f64 = 16.0;
pub(super) const BOTTOM: f64 = HEIGHT - 54.0;
/// Distance of the marks of gaps at the same load, pixels.
const GAP_STEP: f64 = 9.0;

/// Draws both axes: the load in Mpps, and the figure `name` with its ticks, each a position and a label.
pub(super) fn axes(across: &Linear, ticks: &[(f64, String)], name: &str) -> Markup {
    html! {
        @for (y, label) in ticks {
            line.grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(*y)) y2=(px(*y)) {}
            text.tick x=(px(LEFT - 8.0)) y=(px(y + 4.5)) text-anchor="end" { (label) }
        }
        @for tick in across.ticks() {
            line.grid x1=(px(across.at(tick))) x2=(px(across.at(tick))) y1=(px(TOP)) y2=(px(BOTTOM)) {}
            text.tick x=(px(across.at(tick))) y=(px(BOTTOM + 18.0)) text-anchor="middle" { (tick_label(tick)) }
        }
        text.axis x=(px((LEFT + RIGHT) / 2.0)) y=(px(BOTTOM + 42.0)) text-anchor="middle" { "offered load, Mpps" }
        text.axis transform={ "translate(14 " (px((TOP + BOTTOM) / 2.0)) ") rotate(-90)" } text-anchor="middle" { (name) }
    }
}

/// Draws the mark of a load without the figure, with its reason. Marks of several cases at the same load are side by side.
pub(super) fn gap(case: usize, (x, y): (f64, f64), reason: &str) -> Markup {
    html! {
        g {
            title { (reason) }
            text.tick x=(px(x - GAP_STEP * case as f64)) y=(px(y)) text-anchor="middle" { "×" }
        }
    }
}
