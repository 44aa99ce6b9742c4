// SPDX-License-Identifier: Apache-2.0
//! Figures as SVG: one line per series, or one bar per case, with the range of the rounds.

use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;

use super::spread::Spread;
use super::words::grouped;

/// A line of a figure.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Position on the horizontal axis, and value.
    pub(crate) points: Vec<(u64, Spread)>,
}

/// A bar of a figure.
pub(crate) struct Bar {
    /// Determines its colour.
    pub(crate) side: String,
    pub(crate) case: String,
    pub(crate) value: Spread,
}

/// Labels of a figure.
#[derive(Clone, Copy)]
pub(crate) struct Labels<'a> {
    pub(crate) title: &'a str,
    /// Label of the horizontal axis, which is logarithmic. With bars, it is linear and begins at 0.
    pub(crate) below: &'a str,
    /// Label of the vertical axis, which begins at 0. Bars have none.
    pub(crate) left: &'a str,
    /// Divisor of the drawn values.
    pub(crate) unit: f64,
}

const SIZE: (u32, u32) = (860, 480);
/// Height of a bar with its label, and of everything around the bars, pixels.
const BAR_HEIGHT: u32 = 46;
const AROUND_BARS: u32 = 120;
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 90, 170),
    RGBColor(200, 80, 0),
    RGBColor(0, 130, 90),
    RGBColor(140, 60, 150),
    RGBColor(90, 90, 90),
    RGBColor(180, 20, 60),
];

/// Draws `DIR/NAME.svg`; creates the directory if necessary.
pub(crate) fn draw(directory: &Path, name: &str, labels: &Labels<'_>, series: &[Series]) {
    std::fs::create_dir_all(directory).expect("the directory for figures");
    let path = directory.join(format!("{name}.svg"));
    let (across, up) = (reach(series), highest(series) / labels.unit * 1.1);
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    area.fill(&WHITE).expect("the figure is drawn");
    let mut chart = ChartBuilder::on(&area)
        .caption(labels.title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d((across.start..across.end).log_scale(), 0.0..up.max(1e-9))
        .expect("the axes fit");
    chart
        .configure_mesh()
        .x_desc(labels.below)
        .y_desc(labels.left)
        .x_label_formatter(&|x| grouped(x.round() as u64))
        .label_style(("sans-serif", 15))
        .draw()
        .expect("the axes are drawn");
    for (index, line) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points = || {
            line.points
                .iter()
                .map(|(x, y)| (*x as f64, y.median / labels.unit))
        };
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(2)))
            .expect("a line is drawn")
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(2)));
        chart
            .draw_series(points().map(|point| Circle::new(point, 4, colour.filled())))
            .expect("points are drawn");
        let ranges = line.points.iter().map(|(x, y)| {
            let ends = [y.min, y.max].map(|end| (*x as f64, end / labels.unit));
            PathElement::new(ends, colour.stroke_width(1))
        });
        chart.draw_series(ranges).expect("ranges are drawn");
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font(("sans-serif", 15))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .expect("the legend is drawn");
    area.present().expect("the figure is written");
}

/// Returns a range somewhat wider than that of the points.
fn reach(series: &[Series]) -> Range<f64> {
    let places = || series.iter().flat_map(|line| &line.points).map(|(x, _)| *x);
    let first = places().min().unwrap_or(1).max(1) as f64;
    let last = places().max().unwrap_or(1).max(1) as f64;
    first / 1.3..last * 1.3
}

fn highest(series: &[Series]) -> f64 {
    let points = series.iter().flat_map(|line| &line.points);
    points.map(|(_, y)| y.max).fold(0.0, f64::max)
}

/// Draws `DIR/NAME.svg` with one bar below the other; creates the directory if necessary.
pub(crate) fn draw_bars(directory: &Path, name: &str, labels: &Labels<'_>, bars: &[Bar]) {
    std::fs::create_dir_all(directory).expect("the directory for figures");
    let path = directory.join(format!("{name}.svg"));
    let size = (SIZE.0, AROUND_BARS + BAR_HEIGHT * bars.len() as u32);
    let right = bars.iter().map(|bar| bar.value.max).fold(0.0, f64::max) / labels.unit * 1.05;
    let area = SVGBackend::new(&path, size).into_drawing_area();
    area.fill(&WHITE).expect("the figure is drawn");
    let mut chart = ChartBuilder::on(&area)
        .caption(labels.title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(48)
        .build_cartesian_2d(0.0..right.max(1e-9), 0.0..bars.len() as f64)
        .expect("the axes fit");
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .y_labels(0)
        .x_desc(labels.below)
        .x_label_formatter(&|x| short(*x))
        .label_style(("sans-serif", 15))
        .draw()
        .expect("the axes are drawn");
    let mut sides: Vec<&str> = Vec::new();
    for (index, Bar { side, case, value }) in bars.iter().enumerate() {
        if !sides.contains(&side.as_str()) {
            sides.push(side);
        }
        let known = sides.iter().position(|known| known == side).unwrap_or(0);
        let colour = COLOURS[known % COLOURS.len()];
        let top = (bars.len() - index) as f64;
        let [median, min, max] = [value.median, value.min, value.max].map(|it| it / labels.unit);
        let corners = [(0.0, top - 0.9), (median, top - 0.5)];
        let bar = Rectangle::new(corners, colour.mix(0.5).filled());
        chart
            .draw_series(std::iter::once(bar))
            .expect("a bar is drawn");
        let ends = [min, max].map(|end| (end, top - 0.7));
        let range = PathElement::new(ends, colour.stroke_width(2));
        chart
            .draw_series(std::iter::once(range))
            .expect("a range is drawn");
        let text = format!("{side}: {case}: {}", short(median));
        let text = Text::new(text, (0.0, top - 0.05), ("sans-serif", 15));
        chart
            .draw_series(std::iter::once(text))
            .expect("a label is drawn");
    }
    area.present().expect("the figure is written");
}

/// Formats a number without useless decimals.
fn short(number: f64) -> String {
    if number >= 1000.0 {
        grouped(number.round() as u64)
    } else {
        ((number * 1000.0).round() / 1000.0).to_string()
    }
}
