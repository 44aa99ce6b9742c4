// SPDX-License-Identifier: Apache-2.0
//! Loss, latency and cycles over the time of a trial: three panels with one axis of time.

use maud::{Markup, html};
use quietwire_tester::{DevicePoint, FramePoint, TrialSeries};

use super::bars::tick_label;
use super::percentiles::time_tick;
use super::scale::{Linear, Log};
use super::{colour, marker, path, px};
use crate::format::{self, THIN};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = WIDTH - 20.0;
const PANEL: f64 = 90.0;
const GAP: f64 = 32.0;
const TOP: f64 = 24.0;
/// Height of the axis of time.
const AXIS: f64 = 44.0;

/// A panel: its place, its name and its ticks.
struct Panel {
    top: f64,
    name: &'static str,
    ticks: Vec<(f64, String)>,
}

impl Panel {
    fn draw(&self) -> Markup {
        html! {
            text.axis x=(px(LEFT)) y=(px(self.top - 8.0)) { (self.name) }
            @for (y, label) in &self.ticks {
                line.grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(*y)) y2=(px(*y)) {}
                text.tick x=(px(LEFT - 8.0)) y=(px(y + 4.5)) text-anchor="end" { (label) }
            }
        }
    }
}

/// Returns every n-th value from the last one on, so that at most four remain: more labels would overlap.
fn few<T>(values: Vec<T>) -> Vec<T> {
    let every = values.len().div_ceil(4).max(1);
    let last = values.len().saturating_sub(1);
    let kept = values.into_iter().enumerate();
    let kept = kept.filter(|(index, _)| last.saturating_sub(*index).is_multiple_of(every));
    kept.map(|(_, value)| value).collect()
}

/// Places and texts of the intervals of the tester.
struct Frames {
    loss: Panel,
    latency: Panel,
    points: Vec<FrameMarks>,
}

/// Marks of an interval.
struct FrameMarks {
    x: f64,
    loss: Option<f64>,
    mean: Option<f64>,
    largest: Option<f64>,
    text: String,
}

impl Frames {
    fn new(points: &[FramePoint], across: &Linear) -> Self {
        let losses = points.iter().filter_map(FramePoint::loss_ratio);
        let largest_loss = losses.fold(0.0, f64::max);
        let loss_top = TOP;
        let loss = Linear::new(largest_loss * 100.0, loss_top + PANEL, loss_top);
        let latency_top = loss_top + PANEL + GAP;
        let means = || points.iter().filter_map(|point| point.latency_mean_ns);
        let largest_ns = points.iter().filter_map(|point| point.latency_max_ns).max();
        let largest_ns = means().fold(largest_ns.unwrap_or(1) as f64, f64::max);
        let smallest_ns = means().fold(largest_ns, f64::min);
        let latency = Log::new(
            smallest_ns.max(1.0),
            largest_ns.max(1.0),
            latency_top + PANEL,
            latency_top,
        );
        let loss_ticks = loss.ticks().into_iter();
        let latency_ticks = latency.ticks().into_iter();
        let marks = points.iter().map(|point| FrameMarks {
            x: across.at(point.end_s),
            loss: point.loss_ratio().map(|ratio| loss.at(ratio * 100.0)),
            mean: point.latency_mean_ns.map(|ns| latency.at(ns)),
            largest: point.latency_max_ns.map(|ns| latency.at(ns as f64)),
            text: frame_text(point),
        });
        Self {
            loss: Panel {
                top: loss_top,
                name: "frames lost",
                ticks: few(loss_ticks
                    .map(|tick| (loss.at(tick), format!("{}{THIN}%", tick_label(tick))))
                    .collect()),
            },
            latency: Panel {
                top: latency_top,
                name: "latency: mean, and largest",
                ticks: few(latency_ticks
                    .map(|tick| (latency.at(tick), time_tick(tick)))
                    .collect()),
            },
            points: marks.collect(),
        }
    }

    fn draw(&self, case: usize) -> Markup {
        let class = colour(case);
        html! {
            (self.loss.draw())
            (self.latency.draw())
            @for run in runs(&self.points, |point| point.loss) {
                path class={ "series " (class) } d=(path(run.into_iter())) {}
            }
            @for run in runs(&self.points, |point| point.mean) {
                path class={ "series " (class) } d=(path(run.into_iter())) {}
            }
            @for point in &self.points {
                g {
                    title { (point.text) }
                    @if let Some(y) = point.loss { (marker(case, point.x, y, 3.0)) }
                    @if let Some(y) = point.mean { (marker(case, point.x, y, 3.0)) }
                    @if let Some(y) = point.largest { circle.dot cx=(px(point.x)) cy=(px(y)) r="2.4" {} }
                    @if point.loss.is_none() && point.mean.is_none() {
                        text.tick x=(px(point.x)) y=(px(self.loss.top + PANEL + 4.0)) text-anchor="middle" { "×" }
                    }
                }
            }
        }
    }
}

/// Returns the values without gaps between them.
fn runs(points: &[FrameMarks], of: impl Fn(&FrameMarks) -> Option<f64>) -> Vec<Vec<(f64, f64)>> {
    let places: Vec<Option<(f64, f64)>> = points
        .iter()
        .map(|point| Some((point.x, of(point)?)))
        .collect();
    let runs = places.split(Option::is_none);
    runs.map(|run| run.iter().flatten().copied().collect())
        .filter(|run: &Vec<(f64, f64)>| run.len() > 1)
        .collect()
}

fn seconds(end_s: f64) -> String {
    format!("until {}", format::time_ns(end_s * 1e9))
}

fn frame_text(point: &FramePoint) -> String {
    let loss = point.loss_ratio().map_or_else(
        || "no frame offered".to_owned(),
        |ratio| format!("{} lost", format::loss(ratio)),
    );
    let latency = match (point.latency_mean_ns, point.latency_max_ns) {
        (Some(mean_ns), Some(max_ns)) => format!(
            "latency {} in the mean, {} at most",
            format::time_ns(mean_ns),
            format::time_ns(max_ns as f64)
        ),
        _ => "no frame received".to_owned(),
    };
    format!("{}: {loss}, {latency}", seconds(point.end_s))
}

/// Draws the cycles per frame below the other panels.
fn device(points: &[DevicePoint], case: usize, across: &Linear, top: f64) -> Markup {
    let costs = points
        .iter()
        .filter_map(|point| Some((point, point.cycles_per_frame()?)));
    let costs: Vec<(&DevicePoint, f64)> = costs.collect();
    let largest = costs.iter().map(|(_, cost)| *cost).fold(0.0, f64::max);
    let up = Linear::new(largest, top + PANEL, top);
    let panel = Panel {
        top,
        name: "cycles per frame, counted by the device",
        ticks: few(up
            .ticks()
            .into_iter()
            .map(|tick| (up.at(tick), tick_label(tick)))
            .collect()),
    };
    let places = costs
        .iter()
        .map(|(point, cost)| (across.at(point.end_s), up.at(*cost)));
    html! {
        (panel.draw())
        path class={ "series " (colour(case)) } d=(path(places)) {}
        @for (point, cost) in &costs {
            g {
                title { (seconds(point.end_s)) ": " (format::number(*cost)) " cycles per frame" }
                (marker(case, across.at(point.end_s), up.at(*cost), 3.0))
            }
        }
    }
}

/// Draws the course of a trial.
pub(crate) fn course(title: &str, case: usize, series: &TrialSeries) -> Markup {
    let ends = series.frames.iter().map(|point| point.end_s);
    let ends = ends.chain(series.device.iter().map(|point| point.end_s));
    let across = Linear::exact(ends.fold(0.0, f64::max), LEFT, RIGHT);
    let frames = Frames::new(&series.frames, &across);
    let device_top = TOP + 2.0 * (PANEL + GAP);
    let has_device = series.device.iter().any(|point| point.frames > 0);
    let panels = if has_device { 3.0 } else { 2.0 };
    let bottom = TOP + panels * PANEL + (panels - 1.0) * GAP;
    html! {
        svg.chart.wide viewBox={ "0 0 " (WIDTH) " " (bottom + AXIS) } role="img" aria-label=(title) {
            @for tick in across.ticks() {
                line.grid x1=(px(across.at(tick))) x2=(px(across.at(tick))) y1=(px(TOP)) y2=(px(bottom)) {}
                text.tick x=(px(across.at(tick))) y=(px(bottom + 18.0)) text-anchor="middle" { (tick_label(tick)) }
            }
            text.axis x=(px((LEFT + RIGHT) / 2.0)) y=(px(bottom + 38.0)) text-anchor="middle" { "time of the trial, s" }
            (frames.draw(case))
            @if has_device { (device(&series.device, case, &across, device_top)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(end_s: f64, offered: u64, received: u64) -> FramePoint {
        FramePoint {
            end_s,
            offered_frames: offered,
            received_frames: received,
            latency_mean_ns: (received > 0).then_some(2000.0),
            latency_max_ns: (received > 0).then_some(9000),
        }
    }

    #[test]
    fn each_interval_has_its_marks_and_a_missing_one_is_a_gap() {
        let frames = vec![
            point(0.1, 100, 100),
            point(0.2, 100, 50),
            point(0.3, 0, 0),
            point(0.4, 100, 100),
            point(0.5, 100, 100),
        ];
        let device = vec![
            DevicePoint {
                end_s: 0.25,
                cycles: 25_000,
                frames: 100,
            },
            DevicePoint {
                end_s: 0.5,
                cycles: 7,
                frames: 0,
            },
        ];
        let series = TrialSeries { frames, device };
        let svg = course("loss of a <case>", 1, &series).into_string();
        let text = svg.replace(THIN, " ");
        assert!(text.contains("aria-label=\"loss of a &lt;case&gt;\""));
        // Loss and mean of four intervals, and one interval of the device; the largest latency of four.
        assert_eq!(svg.matches("class=\"mark k1\"").count(), 9);
        assert_eq!(svg.matches("class=\"dot\"").count(), 4);
        // The interval without frames.
        assert_eq!(svg.matches('×').count(), 1);
        // Two lines of the loss, two of the latency, one of the cycles.
        assert_eq!(svg.matches("<path").count(), 5);
        let wanted = "<title>until 200 ms: 50.0 % lost, latency 2.00 µs in the mean, 9.00 µs at most</title>";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("<title>until 300 ms: no frame offered, no frame received</title>"));
        assert!(text.contains("<title>until 250 ms: 250 cycles per frame</title>"));
    }

    #[test]
    fn without_cycles_there_is_no_panel_for_them() {
        let series = TrialSeries {
            frames: vec![point(0.1, 100, 100)],
            device: Vec::new(),
        };
        let svg = course("t", 0, &series).into_string();
        assert!(!svg.contains("cycles per frame"));
    }

    #[test]
    fn few_values_remain_and_the_last_of_them() {
        assert_eq!(few(vec![1, 2, 3]), [1, 2, 3]);
        assert_eq!(few((0..9).collect()), [2, 5, 8]);
        assert!(few(Vec::<u8>::new()).is_empty());
    }
}
