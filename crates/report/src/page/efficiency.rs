// SPDX-License-Identifier: Apache-2.0
//! Rates for each physical core and in percent of the line rate, and frames for each joule.

use maud::{Markup, html};

use crate::format;
use crate::summary::{CaseSummary, Efficiency, GoalSummary, SizeSummary};

/// Placeholder for an unknown figure.
const NONE: &str = "–";

/// Renders the table. Returns nothing if no figure is known.
pub(super) fn efficiency(size: &SizeSummary) -> Markup {
    let known = |case: &CaseSummary| case.efficiency.is_some();
    if !size.cases.iter().any(known) {
        return html! {};
    }
    let goals = size.cases.first().map(|case| &case.goals[..]);
    html! {
        h3 { "For each physical core, joule and line" }
        p.lead {
            "Cores are those on which forwarding threads of the device ran. Energy is that of all processor packages, of trials at the "
            "highest load offered: it includes tester and neighbours. The line rate is that of the tester's network cards, with preambles "
            "and gaps."
        }
        div.scroll role="region" tabindex="0" aria-label="Rates for each physical core and joule" {
            table {
                thead {
                    tr {
                        th scope="col" { "Case" }
                        th.num scope="col" { "Physical cores" }
                        @for goal in goals.unwrap_or_default() {
                            th.num scope="col" { (goal.name) ", Mpps for each core" }
                            th.num scope="col" { (goal.name) ", % of line rate" }
                        }
                        th.num scope="col" { "Frames for each joule" }
                    }
                }
                tbody {
                    @for case in &size.cases {
                        tr {
                            th scope="row" { (case.name) }
                            td.num { (cores(case).map_or_else(|| NONE.to_owned(), |count| count.to_string())) }
                            @for goal in &case.goals {
                                td.num { (per_core(case, goal)) }
                                td.num { (of_line(case, goal, size.wire_bits())) }
                            }
                            td.num { (per_joule(case.efficiency.as_ref())) }
                        }
                    }
                }
            }
        }
    }
}

fn cores(case: &CaseSummary) -> Option<usize> {
    case.efficiency.as_ref()?.physical_cores
}

/// Returns the rate of a goal, frames per second, and the sign of a lower bound.
fn rate(goal: &GoalSummary) -> Option<(f64, &'static str)> {
    let rate = goal.rate_pps.as_ref().filter(|rate| rate.median > 0.0)?;
    let bound = if goal.is_lower_limit_only {
        "≥\u{202f}"
    } else {
        ""
    };
    Some((rate.median, bound))
}

/// Formats the rate of a goal for each core.
fn per_core(case: &CaseSummary, goal: &GoalSummary) -> String {
    let Some(((rate_pps, bound), cores)) = rate(goal).zip(cores(case)) else {
        return NONE.to_owned();
    };
    let of_each = rate_pps / cores.max(1) as f64;
    format!("{bound}{}", format::mpps(of_each))
}

/// Formats the rate of a goal in percent of the line rate.
fn of_line(case: &CaseSummary, goal: &GoalSummary, wire_bits: Option<f64>) -> String {
    let line_bps = case.efficiency.as_ref();
    let line_bps = line_bps.and_then(|known| known.line_rate_bps);
    let line_bps = line_bps.filter(|line_bps| *line_bps > 0.0);
    let Some(((rate_pps, bound), (line_bps, bits))) = rate(goal).zip(line_bps.zip(wire_bits))
    else {
        return NONE.to_owned();
    };
    let share = rate_pps * bits / line_bps;
    format!("{bound}{}", format::percent(share * 100.0))
}

fn per_joule(efficiency: Option<&Efficiency>) -> String {
    let frames = efficiency.and_then(|known| known.frames_per_joule.as_ref());
    frames.map_or_else(|| NONE.to_owned(), |frames| format::number(frames.median))
}

#[cfg(test)]
mod tests {
    use quietwire_study::simulated::SimulatedBench;

    use super::*;
    use crate::Summary;
    use crate::tests::results_of;

    const STUDY: &str = "name = \"s\"\ntitle = \"T\"\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
         [tester]\ncpu = \"0\"\n[trials]\nduration-s = 1\nmax-rate-pps = 9_000_000\n\
         [search]\nstart-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\n\
         goal = [{ name = \"NDR\", loss-ratio = 0.0 }]\n\
         [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n";

    #[test]
    fn rates_are_divided_by_cores_and_unknown_figures_are_left_out() {
        let results = results_of(STUDY, SimulatedBench::new(11, 0), usize::MAX);
        let mut size = Summary::of(&results).unwrap().sizes.remove(0);
        // The simulated machine reports neither.
        assert!(efficiency(&size).into_string().is_empty());
        let bits = size.wire_bits().unwrap();
        let case = &mut size.cases[0];
        case.efficiency = Some(Efficiency {
            physical_cores: Some(2),
            frames_per_joule: None,
            line_rate_bps: Some(1e10),
        });
        let half = case.goals[0].rate_pps.as_ref().unwrap().median / 2.0;
        let of_line = half * 2.0 * bits / 1e10 * 100.0;
        let page = efficiency(&size).into_string();
        let shown = format!("{}</td>", format::percent(of_line));
        assert!(page.contains(&shown), "{shown}: {page}");
        assert!(
            page.contains(&format!("{}</td>", format::mpps(half))),
            "{page}"
        );
        assert!(page.contains("<td class=\"num\">2</td>"), "{page}");
        assert!(
            page.contains(&format!("<td class=\"num\">{NONE}</td>")),
            "{page}"
        );
    }
}
