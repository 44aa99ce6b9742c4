// SPDX-License-Identifier: Apache-2.0
//! Heat map of the CPUs over the time of a study.

use maud::{Markup, html};

use super::{colour, px};
use crate::format;
use crate::summary::CpuTimeline;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 10.0;
/// Top of the first CPU, below the strip of cases.
const TOP: f64 = 22.0;
/// Height of the strip of cases.
const STRIP: f64 = 10.0;
/// Number of CPUs from which on rows are low and only some have a label.
const MANY: usize = 33;

/// Draws the timeline. `case` returns the position of a case in the study file, which has its colour.
pub(crate) fn cpu_timeline(timeline: &CpuTimeline, case: impl Fn(&str) -> Option<usize>) -> Markup {
    let count = timeline.cpus.len();
    let (row, every) = if count < MANY { (18.0, 1) } else { (7.0, 8) };
    let bottom = TOP + row * count as f64;
    let width = (RIGHT - LEFT) / timeline.columns.len().max(1) as f64;
    let left = |column: usize| LEFT + width * column as f64;
    html! {
        svg.chart.wide viewBox={ "0 0 " (WIDTH) " " (px(bottom + 34.0)) } role="img" aria-label="Use of CPUs over time" {
            @for (index, cpu) in timeline.cpus.iter().enumerate().step_by(every) {
                text.tick x=(px(LEFT - 8.0)) y=(px(TOP + row * (index as f64 + 0.5) + 4.5)) text-anchor="end" { "CPU " (cpu) }
            }
            text.axis x=(px((LEFT + RIGHT) / 2.0)) y=(px(bottom + 24.0)) text-anchor="middle" { "trials in the order of time" }
            @for (index, column) in timeline.columns.iter().enumerate() {
                g {
                    title { (name(timeline, index)) }
                    @if let Some(case) = column.cases.first().and_then(|name| case(name.as_str())) {
                        rect class={ "bar " (colour(case)) } x=(px(left(index))) y="4.0" width=(px(width)) height=(px(STRIP)) {}
                    }
                    @for (cpu, busy) in column.busy.iter().enumerate() {
                        @if let Some(busy) = busy.filter(|busy| *busy >= 0.005) {
                            rect.heat x=(px(left(index))) y=(px(TOP + row * cpu as f64)) width=(px(width)) height=(px(row - 1.0)) fill-opacity=(format!("{busy:.2}")) {}
                        }
                    }
                }
            }
        }
    }
}

/// Returns the trials of a column with their cases and the use of the CPUs.
fn name(timeline: &CpuTimeline, index: usize) -> String {
    let before = index.saturating_mul(timeline.trials_a_column);
    let first = before.saturating_add(1);
    let trials = match timeline.trials_a_column {
        1 => format!("Trial {first}"),
        more => format!("Trials from {first} on, {more} in a column"),
    };
    let Some(column) = timeline.columns.get(index) else {
        return trials;
    };
    let shares = timeline.cpus.iter().zip(&column.busy);
    let shares = shares.map(|(cpu, busy)| match busy {
        Some(busy) => format!("CPU {cpu} {}", format::percent(busy * 100.0)),
        None => format!("CPU {cpu} unknown"),
    });
    let shares: Vec<String> = shares.take(MANY).collect();
    format!(
        "{trials}, {}: {}",
        column.cases.join(", "),
        shares.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::CpuColumn;

    #[test]
    fn each_busy_cpu_is_a_cell_and_each_column_has_its_case_and_shares() {
        let column = |case: &str, busy: [Option<f64>; 2]| CpuColumn {
            cases: vec![case.to_owned()],
            busy: busy.to_vec(),
        };
        let timeline = CpuTimeline {
            cpus: vec![0, 3],
            columns: vec![
                column("quiet", [Some(0.5), Some(0.0)]),
                column("a <case>", [None, Some(1.0)]),
            ],
            trials_a_column: 1,
        };
        let drawn = cpu_timeline(&timeline, |name| (name == "quiet").then_some(1));
        let svg = drawn.into_string();
        assert_eq!(svg.matches("class=\"heat\"").count(), 2);
        assert_eq!(svg.matches("class=\"bar k1\"").count(), 1);
        assert!(svg.contains("fill-opacity=\"0.50\"") && svg.contains("fill-opacity=\"1.00\""));
        let text = svg.replace(format::THIN, " ");
        assert!(
            text.contains("<title>Trial 1, quiet: CPU 0 50 %, CPU 3 0 %</title>"),
            "{text}"
        );
        assert!(
            text.contains("Trial 2, a &lt;case&gt;: CPU 0 unknown, CPU 3 100 %"),
            "{text}"
        );
    }
}
