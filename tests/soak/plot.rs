// SPDX-License-Identifier: Apache-2.0
//! The samples of a soak as SVG: the tail of the latency, and the resident memory, over time.

use std::path::Path;

use plotters::prelude::*;

use crate::samples::{Sample, Samples};

const SIZE: (u32, u32) = (860, 640);
const TAIL: RGBColor = RGBColor(0, 90, 170);
const FARTHER: RGBColor = RGBColor(120, 60, 160);
const LARGEST: RGBColor = RGBColor(200, 80, 0);
const MEMORY: RGBColor = RGBColor(0, 130, 90);
const FONT: (&str, u32) = ("sans-serif", 15);

/// Draws the samples.
pub(crate) fn draw(path: &Path, samples: &Samples) {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE).unwrap();
    let parts = area.split_evenly((2, 1));
    let end = samples
        .trials
        .iter()
        .map(|trial| trial.at_s / 60.0)
        .fold(1e-3, f64::max);
    let valid: Vec<_> = samples
        .trials
        .iter()
        .filter(|trial| trial.is_valid)
        .collect();
    let tail = |of: fn(&Sample) -> Option<u64>| -> Vec<(f64, f64)> {
        let point = |trial: &&Sample| Some((trial.at_s / 60.0, of(trial)? as f64 / 1e3));
        valid.iter().filter_map(point).collect()
    };
    let (tail, farther) = (tail(|trial| trial.p99_9_ns), tail(|trial| trial.p99_99_ns));
    let largest: Vec<(f64, f64)> = valid
        .iter()
        .map(|trial| (trial.at_s / 60.0, trial.max_ns as f64 / 1e3))
        .collect();
    let highest = largest.iter().map(|(_, y)| *y).fold(10.0, f64::max);
    let mut chart = ChartBuilder::on(&parts[0])
        .caption(
            "Latency of the traffic beside the changes, since the frames were due",
            FONT,
        )
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..end, (1.0..highest * 2.0).log_scale())
        .unwrap();
    chart
        .configure_mesh()
        .x_desc("minutes")
        .y_desc("µs")
        .label_style(FONT)
        .draw()
        .unwrap();
    for (points, colour, name) in [
        (tail, TAIL, "99.9 %"),
        (farther, FARTHER, "99.99 %"),
        (largest, LARGEST, "largest"),
    ] {
        let points = points.into_iter();
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))
            .unwrap()
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .label_font(FONT)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .unwrap();
    let mib = |kib: u64| kib as f64 / 1024.0;
    let busy = samples
        .trials
        .iter()
        .map(|trial| (trial.at_s / 60.0, mib(trial.memory.resident_kib)));
    let rest = samples
        .rests
        .iter()
        .map(|rest| (rest.at_s / 60.0, mib(rest.memory.resident_kib)));
    let most = busy
        .clone()
        .chain(rest.clone())
        .map(|(_, y)| y)
        .fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&parts[1])
        .caption(
            "Resident memory of the switch without --memory-mib; circles: all changes undone",
            FONT,
        )
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..end, 0.0..most * 1.2)
        .unwrap();
    chart
        .configure_mesh()
        .x_desc("minutes")
        .y_desc("MiB")
        .label_style(FONT)
        .draw()
        .unwrap();
    chart
        .draw_series(LineSeries::new(busy, MEMORY.stroke_width(2)))
        .unwrap();
    let circles = rest.map(|point| Circle::new(point, 4, MEMORY.filled()));
    chart.draw_series(circles).unwrap();
    area.present().unwrap();
}
