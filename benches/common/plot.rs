// SPDX-License-Identifier: Apache-2.0
//! Figures as SVG: one line per series, with the range of the rounds.

use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;

use super::record::{Figure, Run};
use super::spread::Spread;

/// Figures of a run's cases by size: bench, file, group of cases, title, horizontal axis.
const BY_SIZE: [[&str; 5]; 6] = [
    [
        "bridge_scale",
        "bridge-scale",
        "",
        "Bridge: 64-byte frames, one forwarding CPU",
        "MAC addresses",
    ],
    [
        "route_scale",
        "route-scale-ipv4",
        "IPv4",
        "Router: 64-byte frames, one forwarding CPU, memif",
        "IPv4 routes",
    ],
    [
        "route_scale",
        "route-scale-ipv6",
        "IPv6",
        "Router: 84-byte frames, one forwarding CPU, memif",
        "IPv6 routes",
    ],
    [
        "ports_scale",
        "ports-scale",
        "",
        "Bridge: 64-byte frames, one forwarding CPU, memif",
        "ports",
    ],
    [
        "filter_scale",
        "filter-scale",
        "rules, ",
        "Cross-connect behind filter rules: 64-byte frames, one forwarding CPU, memif",
        "rules",
    ],
    [
        "tracker_scale",
        "tracker-scale",
        "tracked flows",
        "Tracked flows: 64-byte frames, one forwarding CPU",
        "flows",
    ],
];

/// Further figures of filters: quantity, file, vertical axis.
const OF_FILTERS: [(Figure, &str, &str); 5] = [
    (
        Figure::FilterCyclesAFrame,
        "filter-scale-cycles",
        "cycles of the filter a frame",
    ),
    (Figure::LoadedS, "filter-scale-loaded", "loaded in, s"),
    (Figure::CompileMs, "filter-scale-compile", "compiled in, ms"),
    (Figure::SwapMs, "filter-scale-swap", "exchanged in, ms"),
    (
        Figure::OctetsARule,
        "filter-scale-octets",
        "memory, octets a rule",
    ),
];

/// Further figures of the tracker.
const OF_TRACKER: [(Figure, &str, &str); 1] = [(
    Figure::CyclesAFrame,
    "tracker-scale-cycles",
    "cycles a frame",
)];

/// Draws the figures that show a run's rates by the size of its cases, and other quantities of filters and of the tracker.
pub(crate) fn draw_run(directory: &Path, run: &Run) {
    for [bench, file, group, title, below] in BY_SIZE {
        if bench != run.bench {
            continue;
        }
        let labels = Labels {
            title,
            below,
            left: "forwarded, Mpps",
            unit: 1e6,
        };
        let rates = lines(run, group, Figure::ForwardedPps);
        draw_lines(directory, file, &labels, &rates);
        let further: &[(Figure, &str, &str)] = match bench {
            "filter_scale" => &OF_FILTERS,
            "tracker_scale" => &OF_TRACKER,
            _ => &[],
        };
        for (figure, file, left) in further.iter().copied() {
            let labels = Labels {
                left,
                unit: 1.0,
                ..labels
            };
            draw_lines(directory, file, &labels, &lines(run, group, figure));
        }
    }
}

fn draw_lines(directory: &Path, file: &str, labels: &Labels<'_>, lines: &[Series]) {
    if !lines.is_empty() {
        draw(directory, file, labels, lines);
    }
}

/// Returns the lines of a quantity by the size of the cases whose group begins with a text.
fn lines(run: &Run, group: &str, figure: Figure) -> Vec<Series> {
    let mut lines: Vec<Series> = Vec::new();
    for series in &run.series {
        let point = &series.point;
        let is_drawn = series.figure == figure && point.group.starts_with(group);
        let values = series.values();
        let Some(size) = point.size.filter(|_| is_drawn && !values.is_empty()) else {
            continue;
        };
        let name = match run.bench.as_str() {
            "ports_scale" => point.group.clone(),
            "filter_scale" => format!("{}, {}", point.side, point.group),
            _ => point.side.clone(),
        };
        let at = lines.iter().position(|line| line.name == name);
        let at = at.unwrap_or_else(|| {
            lines.push(Series {
                name,
                points: Vec::new(),
            });
            lines.len() - 1
        });
        lines[at].points.push((size, Spread::of(&values)));
    }
    lines
}

/// A line of a figure.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Position on the horizontal axis, and value.
    pub(crate) points: Vec<(u64, Spread)>,
}

/// Labels of a figure.
#[derive(Clone, Copy)]
pub(crate) struct Labels<'a> {
    pub(crate) title: &'a str,
    /// Label of the horizontal axis, which is logarithmic.
    pub(crate) below: &'a str,
    /// Label of the vertical axis, which begins at 0.
    pub(crate) left: &'a str,
    /// Divisor of the drawn values.
    pub(crate) unit: f64,
}

const SIZE: (u32, u32) = (860, 480);
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
        .x_label_formatter(&|x| super::words::grouped(x.round() as u64))
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
