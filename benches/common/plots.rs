// SPDX-License-Identifier: Apache-2.0
//! The figures that show runs: the cases and the quantity of each, and their links in the page.

use std::fmt::Write as _;
use std::path::Path;

use super::plot::{Bar, Labels, Series, draw, draw_bars};
use super::record::{Figure, Run};
use super::spread::Spread;

/// A figure of the runs of a benchmark.
pub(crate) struct Plot {
    pub(crate) bench: &'static str,
    /// Name of its file, without `.svg`.
    pub(crate) file: &'static str,
    /// Its description in the page.
    pub(crate) description: &'static str,
    /// It shows the cases whose group begins with this text.
    pub(crate) group: &'static str,
    pub(crate) figure: Figure,
    pub(crate) title: &'static str,
    /// Label of the axis of the quantity.
    pub(crate) quantity: &'static str,
    pub(crate) form: Form,
}

/// Form of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// Lines by the size of the cases, with this label.
    BySize(&'static str),
    /// A bar for each case and side.
    Bars,
}

const FORWARDED: &str = "forwarded, Mpps";
const OF_FILTERS: &str =
    "Cross-connect behind filter rules: 64-byte frames, one forwarding CPU, memif";
const OF_TRACKED: &str = "Tracked flows: 64-byte frames, one forwarding CPU";
const OF_FULL: &str = "Full tables of connections";

/// Every figure of the runs.
#[rustfmt::skip]
pub(crate) const PLOTS: &[Plot] = &[
    by_size("bridge_scale", "bridge-scale", "The bridge with many addresses", "", Figure::ForwardedPps,
        ["Bridge: 64-byte frames, one forwarding CPU", FORWARDED, "MAC addresses"]),
    by_size("route_scale", "route-scale-ipv4", "IPv4 routes and frames forwarded", "IPv4", Figure::ForwardedPps,
        ["Router: 64-byte frames, one forwarding CPU, memif", FORWARDED, "IPv4 routes"]),
    by_size("route_scale", "route-scale-ipv6", "IPv6 routes and frames forwarded", "IPv6", Figure::ForwardedPps,
        ["Router: 84-byte frames, one forwarding CPU, memif", FORWARDED, "IPv6 routes"]),
    by_size("ports_scale", "ports-scale", "Ports and frames forwarded", "", Figure::ForwardedPps,
        ["Bridge: 64-byte frames, one forwarding CPU, memif", FORWARDED, "ports"]),

    of_filters("filter-scale", "Filter rules and frames forwarded", Figure::ForwardedPps, FORWARDED),
    of_filters("filter-scale-cycles", "Filter rules and cycles of the filter", Figure::FilterCyclesAFrame,
        "cycles of the filter a frame"),
    of_filters("filter-scale-loaded", "Filter rules and time to load them", Figure::LoadedS, "loaded in, s"),
    of_filters("filter-scale-compile", "Filter rules and time to compile them", Figure::CompileMs, "compiled in, ms"),
    of_filters("filter-scale-swap", "Filter rules and time to exchange them", Figure::SwapMs, "exchanged in, ms"),
    of_filters("filter-scale-octets", "Filter rules and memory", Figure::OctetsARule, "memory, octets a rule"),
    bars("filter_scale", "filter-scale-changes", "Time of changes of rules and of a set", "from the request to the answer",
        Figure::P50Us, ["Changes of rules and of a set, from the request until they are in force", "median, µs"]),

    of_tracker("tracker-scale", "Tracked flows and frames forwarded", "tracked flows", Figure::ForwardedPps,
        [OF_TRACKED, FORWARDED, "flows"]),
    of_tracker("tracker-scale-cycles", "Tracked flows and cycles per frame", "tracked flows", Figure::CyclesAFrame,
        [OF_TRACKED, "cycles a frame", "flows"]),
    of_tracker("tracker-scale-octets", "Connections and memory", "full tables", Figure::OctetsAConnection,
        [OF_FULL, "memory, octets a connection", "connections"]),
    of_tracker("tracker-scale-loaded", "Connections and time to load them", "full tables", Figure::LoadedS,
        [OF_FULL, "loaded in, s", "connections"]),
    bars("tracker_scale", "tracker-scale-scan", "Established connections with and without a scan of all ports", "scan",
        Figure::EstablishedPps,
        ["60,000 established flows, alone and beside a scan: 64-byte frames, one forwarding CPU",
            "frames of established flows, Mpps"]),
    bars("tracker_scale", "tracker-scale-flood", "Open connections with and without a flood of SYNs", "open connections",
        Figure::AnswersPs, ["5,000 open TCP connections with 20 requests a second each", "answers a second"]),
    bars("tracker_scale", "tracker-scale-cpus", "Tracked flows with one and two forwarding CPUs", "forwarding CPUs",
        Figure::ForwardedPps, ["Tracked flows: 64-byte frames, one and two forwarding CPUs, memif", FORWARDED]),
    bars("tracker_scale", "tracker-scale-short", "Connections per second by RFC 9411", "RFC 9411", Figure::ConnectionsPs,
        ["Highest rate of short connections by RFC 9411, one forwarding CPU", "connections a second"]),
];

/// Returns a figure with lines, of these texts: title, quantity, size.
const fn by_size(
    bench: &'static str,
    file: &'static str,
    description: &'static str,
    group: &'static str,
    figure: Figure,
    [title, quantity, size]: [&'static str; 3],
) -> Plot {
    let form = Form::BySize(size);
    Plot {
        bench,
        file,
        description,
        group,
        figure,
        title,
        quantity,
        form,
    }
}

/// Returns a figure by the number of rules.
const fn of_filters(
    file: &'static str,
    description: &'static str,
    figure: Figure,
    quantity: &'static str,
) -> Plot {
    let texts = [OF_FILTERS, quantity, "rules"];
    by_size("filter_scale", file, description, "rules, ", figure, texts)
}

/// Returns a figure of the tracker with lines, of these texts: title, quantity, size.
const fn of_tracker(
    file: &'static str,
    description: &'static str,
    group: &'static str,
    figure: Figure,
    texts: [&'static str; 3],
) -> Plot {
    by_size("tracker_scale", file, description, group, figure, texts)
}

/// Returns a figure with bars, of these texts: title, quantity.
const fn bars(
    bench: &'static str,
    file: &'static str,
    description: &'static str,
    group: &'static str,
    figure: Figure,
    [title, quantity]: [&'static str; 2],
) -> Plot {
    let form = Form::Bars;
    let texts = [title, quantity, ""];
    Plot {
        form,
        ..by_size(bench, file, description, group, figure, texts)
    }
}

/// Draws the figures of a run. One without values in this run is left out.
pub(crate) fn draw_run(directory: &Path, run: &Run) {
    for plot in of(run) {
        let (unit, _) = plot.figure.shown();
        let (title, quantity) = (plot.title, plot.quantity);
        match plot.form {
            Form::BySize(below) => {
                let labels = Labels {
                    title,
                    below,
                    left: quantity,
                    unit,
                };
                draw(directory, plot.file, &labels, &plot.lines(run));
            }
            Form::Bars => {
                let labels = Labels {
                    title,
                    below: quantity,
                    left: "",
                    unit,
                };
                draw_bars(directory, plot.file, &labels, &plot.bars(run));
            }
        }
    }
}

/// Returns the links of a run's figures in the page, one a line.
pub(crate) fn links(run: &Run) -> String {
    let mut text = String::new();
    for Plot {
        file, description, ..
    } in of(run)
    {
        let _ = writeln!(text, "![{description}](images/{file}.svg)");
    }
    text
}

/// Returns the figures that have values in a run.
fn of(run: &Run) -> impl Iterator<Item = &'static Plot> {
    PLOTS.iter().filter(move |plot| match plot.form {
        Form::BySize(_) => !plot.lines(run).is_empty(),
        Form::Bars => !plot.bars(run).is_empty(),
    })
}

impl Plot {
    /// Returns the lines, by the size of the cases.
    fn lines(&self, run: &Run) -> Vec<Series> {
        let mut lines: Vec<Series> = Vec::new();
        for (series, value) in self.shown(run) {
            let point = &series.point;
            let Some(size) = point.size else {
                continue;
            };
            let name = match self.bench {
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
            lines[at].points.push((size, value));
        }
        lines
    }

    /// Returns the bars, in the order of the run.
    fn bars(&self, run: &Run) -> Vec<Bar> {
        let bars = self.shown(run).map(|(series, value)| Bar {
            side: series.point.side.clone(),
            case: series.point.case.clone(),
            value,
        });
        bars.collect()
    }

    /// Returns the series of a run that the figure shows, and their values.
    fn shown<'a>(
        &'a self,
        run: &'a Run,
    ) -> impl Iterator<Item = (&'a super::record::Series, Spread)> {
        let of_bench = run.series.iter().filter(move |_| self.bench == run.bench);
        of_bench.filter_map(move |series| {
            let is_shown =
                series.figure == self.figure && series.point.group.starts_with(self.group);
            let values = series.values();
            (is_shown && !values.is_empty()).then(|| (series, Spread::of(&values)))
        })
    }
}
