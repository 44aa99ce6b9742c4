// SPDX-License-Identifier: Apache-2.0
//! Grouped horizontal bars: a dot for each single value, a line for their range.

use maud::{Markup, html};

use super::scale::Linear;
use super::{colour, px, shortened};
use crate::format;

/// A group of bars for one quantity.
pub(crate) struct BarGroup {
    /// Name of the quantity.
    pub(crate) title: String,
    /// One bar for each case.
    pub(crate) bars: Vec<Bar>,
}

/// One bar.
pub(crate) struct Bar {
    /// Index of the case.
    pub(crate) case: usize,
    /// Name of the case.
    pub(crate) name: String,
    /// Length of the bar, frames per second.
    pub(crate) value: f64,
    /// Single values.
    pub(crate) values: Vec<f64>,
    /// Label at the end of the bar.
    pub(crate) label: String,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 160.0;
/// Width for the labels at the ends of bars.
const RIGHT: f64 = 190.0;
const BAR: f64 = 20.0;
const STEP: f64 = 28.0;
const TITLE: f64 = 30.0;
const AXIS: f64 = 46.0;

/// Draws bars on a scale in Mpps.
pub(crate) fn bars(groups: &[BarGroup], description: &str) -> Markup {
    let values = groups
        .iter()
        .flat_map(|group| &group.bars)
        .flat_map(|bar| bar.values.iter().chain([&bar.value]));
    let max = values.copied().fold(0.0, f64::max);
    let scale = Linear::exact(max / 1e6, LEFT, WIDTH - RIGHT);
    let body: f64 = groups
        .iter()
        .map(|group| TITLE + STEP * group.bars.len() as f64)
        .sum();
    let height = body + AXIS;
    let tops = groups.iter().scan(0.0, |next, group| {
        let top = *next;
        *next += TITLE + STEP * group.bars.len() as f64;
        Some(top)
    });
    html! {
        svg.chart.wide viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(description) {
            @for tick in scale.ticks() {
                line.grid x1=(px(scale.at(tick))) x2=(px(scale.at(tick))) y1="8" y2=(px(body + 4.0)) {}
                text.tick x=(px(scale.at(tick))) y=(px(body + 20.0)) text-anchor="middle" { (tick_label(tick)) }
            }
            text.axis x=(px((LEFT + WIDTH - RIGHT) / 2.0)) y=(px(body + 40.0)) text-anchor="middle" { "Mpps" }
            @for (group, top) in groups.iter().zip(tops) {
                text.group x="0" y=(px(top + 20.0)) { (group.title) }
                @for (index, bar) in group.bars.iter().enumerate() {
                    (draw_bar(bar, &scale, top + TITLE + STEP * index as f64))
                }
            }
        }
    }
}

fn draw_bar(bar: &Bar, scale: &Linear, top: f64) -> Markup {
    let middle = top + BAR / 2.0;
    let mpps = |value: f64| scale.at(value / 1e6);
    let furthest = bar.values.iter().copied().fold(bar.value, f64::max);
    let nearest = bar.values.iter().copied().fold(bar.value, f64::min);
    html! {
        g {
            title { (bar.name) ": " (bar.label) }
            text.label x=(px(LEFT - 10.0)) y=(px(middle + 4.5)) text-anchor="end" { (shortened(&bar.name, 20)) }
            rect class={ "bar " (colour(bar.case)) } x=(px(LEFT)) y=(px(top)) width=(px(mpps(bar.value) - LEFT)) height=(px(BAR)) rx="2" {}
            @if bar.values.len() > 1 {
                line.whisker x1=(px(mpps(nearest))) x2=(px(mpps(furthest))) y1=(px(middle)) y2=(px(middle)) {}
                @for value in &bar.values {
                    circle.dot cx=(px(mpps(*value))) cy=(px(middle)) r="3.2" {}
                }
            }
            text.value x=(px(mpps(furthest) + 10.0)) y=(px(middle + 4.5)) { (bar.label) }
        }
    }
}

/// Formats tick values with no more digits than needed; ticks are round numbers. Ticks below a millionth have an exponent.
pub(super) fn tick_label(tick: f64) -> String {
    // Four digits hide the error of the multiplication.
    let rounded: f64 = format!("{tick:.3e}").parse().unwrap_or(tick);
    if rounded != 0.0 && rounded.abs() < 1e-6 {
        return format!("{rounded:e}");
    }
    let text = format!("{tick:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text.parse::<u64>() {
        Ok(whole) => format::grouped(whole),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tick_at_zero_is_labelled_0() {
        for (tick, label) in [
            (0.0, "0"),
            (2.5, "2.5"),
            (1e-4 * 100.0, "0.01"),
            (1e-8 * 100.0, "0.000001"),
            (1e-9 * 100.0, "1e-7"),
            (6.0 * 2e-12, "1.2e-11"),
        ] {
            assert_eq!(tick_label(tick), label);
        }
        assert_eq!(tick_label(12_000.0), format!("12{}000", format::THIN));
    }
}
