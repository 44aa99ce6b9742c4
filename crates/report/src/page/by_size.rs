// SPDX-License-Identifier: Apache-2.0
//! Rates by frame size: a line for each case. If a search had both sides, single, best and worst are side by side.

use maud::{Markup, html};

use super::words;
use crate::chart::{Categories, CategoryPoint, CategoryScale, CategorySeries, categories, legend};
use crate::format;
use crate::summary::{GoalSummary, SizeSummary, Spread, Summary};

/// Rate of a goal that a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The rate that was found; of both sides, the worst.
    Found,
    /// That of the best side.
    Best,
    /// That of the search by the first trial at each rate.
    Single,
}

impl Side {
    fn rate(self, goal: &GoalSummary) -> Option<&Spread> {
        match self {
            Self::Found => goal.rate_pps.as_ref(),
            Self::Best => goal.best_pps.as_ref(),
            Self::Single => goal.single_pps.as_ref(),
        }
    }

    /// Returns the name beside those of the others.
    fn name(self) -> &'static str {
        match self {
            Self::Found => "worst of N",
            Self::Best => "best of N",
            Self::Single => "single",
        }
    }
}

/// Unit of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateUnit {
    /// Millions of frames per second.
    Mpps,
    /// Gbit/s on the wire.
    Wire,
}

impl RateUnit {
    fn name(self) -> &'static str {
        match self {
            Self::Mpps => "Mpps",
            Self::Wire => "Gbit/s on the wire",
        }
    }

    /// Returns the value of a rate for the axis, and with its unit; none if the size of a frame is unknown.
    fn of(self, rate_pps: f64, size: &SizeSummary) -> Option<(f64, String)> {
        match self {
            Self::Mpps => Some((rate_pps / 1e6, format::rate(rate_pps))),
            Self::Wire => {
                let bps = rate_pps * size.wire_bits()?;
                Some((bps / 1e9, format::bits(bps)))
            }
        }
    }
}

/// Renders the charts. Returns nothing for a study of one frame size, or without searches.
pub(super) fn by_size(summary: &Summary) -> Markup {
    let Some(first) = summary.sizes.first().filter(|_| summary.sizes.len() > 1) else {
        return html! {};
    };
    let goals = first.cases.first().map_or(0, |case| case.goals.len());
    if goals == 0 {
        return html! {};
    }
    html! {
        section {
            h2 { "Throughput by frame size" }
            p.lead {
                "Medians over the rounds. A size without a result is a gap, marked ×. Gbit/s contain preamble and gap of each frame."
            }
            (legend(first.cases.iter().map(|case| case.name.as_str())))
            @for goal in 0..goals { (of_goal(summary, goal)) }
        }
    }
}

/// Renders the charts of the goal at an index.
fn of_goal(summary: &Summary, goal: usize) -> Markup {
    let all = || {
        let cases = summary.sizes.iter().flat_map(|size| &size.cases);
        cases.filter_map(move |case| case.goals.get(goal))
    };
    let name = all().next().map_or("", |goal| goal.name.as_str());
    let mut sides = vec![Side::Single, Side::Best, Side::Found];
    sides.retain(|side| *side == Side::Found || all().any(|goal| side.rate(goal).is_some()));
    if sides.len() == 1 {
        return html! {
            div.pair {
                @for unit in [RateUnit::Mpps, RateUnit::Wire] {
                    figure { (chart(summary, goal, Side::Found, unit, name)) }
                }
            }
        };
    }
    html! {
        @for unit in [RateUnit::Mpps, RateUnit::Wire] {
            div.trio {
                @for side in &sides {
                    figure { (chart(summary, goal, *side, unit, &format!("{name}, {}", side.name()))) }
                }
            }
        }
    }
}

fn chart(summary: &Summary, goal: usize, side: Side, unit: RateUnit, name: &str) -> Markup {
    let places: Vec<String> = summary
        .sizes
        .iter()
        .map(|size| size.frame_size.clone())
        .collect();
    categories(&Categories {
        title: &format!("{name} by frame size, {}", unit.name()),
        across: "frame size, octets with FCS",
        up: &format!("{name}, {}", unit.name()),
        scale: CategoryScale::Linear,
        places: &places,
        series: &series(summary, goal, side, unit),
    })
}

/// Returns the rates of each case of the first size, by size.
fn series(summary: &Summary, goal: usize, side: Side, unit: RateUnit) -> Vec<CategorySeries> {
    let cases = summary.sizes.first().map(|size| &size.cases[..]);
    let cases = cases.unwrap_or_default();
    let of_case = |name: &String| {
        let at = |size: &SizeSummary| {
            let case = size.cases.iter().find(|case| case.name == *name);
            match case.and_then(|case| case.goals.get(goal)) {
                Some(goal) => point(size, goal, side, unit),
                None => gap("not measured".to_owned()),
            }
        };
        CategorySeries {
            name: name.clone(),
            points: summary.sizes.iter().map(at).collect(),
        }
    };
    cases.iter().map(|case| of_case(&case.name)).collect()
}

fn gap(reason: String) -> CategoryPoint {
    CategoryPoint {
        value: None,
        label: reason,
    }
}

fn point(size: &SizeSummary, goal: &GoalSummary, side: Side, unit: RateUnit) -> CategoryPoint {
    // No rate held: that is no rate, and not a rate of zero.
    let Some(rate) = side.rate(goal).filter(|rate| rate.median > 0.0) else {
        return gap(match side {
            Side::Found => words::goal_value(goal),
            Side::Best => "the best side has no rate".to_owned(),
            Side::Single => "the single search has no rate".to_owned(),
        });
    };
    let bound = match side {
        Side::Found if goal.is_lower_limit_only => "≥\u{202f}",
        _ => "",
    };
    match unit.of(rate.median, size) {
        Some((value, text)) => CategoryPoint {
            value: Some(value),
            label: format!("{bound}{text}"),
        },
        None => gap("the size of a frame is unknown".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use quietwire_search::Findings;
    use quietwire_study::simulated::SimulatedBench;

    use super::*;
    use crate::tests::results_of;

    const STUDY: &str = "name = \"s\"\ntitle = \"T\"\nrounds = 3\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
         [tester]\ncpu = \"0\"\n[traffic]\nframe-sizes = [64, 512, \"imix\"]\n[trials]\nduration-s = 1\nmax-rate-pps = 9_000_000\n\
         [search]\nmethod = \"best-and-worst-of-n\"\ntrials-per-rate = 2\n\
         start-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\n\
         goal = [{ name = \"NDR\", loss-ratio = 0.0 }]\n\
         [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n";

    #[test]
    fn charts_have_the_median_of_each_size_and_side() {
        let results = results_of(STUDY, SimulatedBench::new(11, 0), usize::MAX);
        let summary = Summary::of(&results).unwrap();
        for unit in [RateUnit::Mpps, RateUnit::Wire] {
            let [worst, best, single] = [Side::Found, Side::Best, Side::Single].map(|side| {
                let all = series(&summary, 0, side, unit);
                assert_eq!((all.len(), all[0].points.len()), (1, 3));
                all[0].points.clone()
            });
            let sides = worst.iter().zip(&best).zip(&single);
            for (size, ((worst, best), single)) in summary.sizes.iter().zip(sides) {
                let goal = &size.cases[0].goals[0];
                let factor = match unit {
                    RateUnit::Mpps => 1e-6,
                    RateUnit::Wire => size.wire_bits().unwrap() / 1e9,
                };
                let median = goal.rate_pps.as_ref().unwrap().median;
                let value = worst.value.unwrap();
                assert!((value / (median * factor) - 1.0).abs() < 1e-9, "{worst:?}");
                assert!(best.value.unwrap() >= value, "{worst:?} {best:?}");
                assert_eq!(goal.best_pps.as_ref().unwrap().values.len(), 3);
                let rate = goal.single_pps.as_ref().unwrap();
                assert_eq!(rate.values.len(), 3);
                let value = single.value.unwrap();
                assert!(
                    (value / (rate.median * factor) - 1.0).abs() < 1e-9,
                    "{single:?}"
                );
            }
        }
        let page = by_size(&summary).into_string();
        for title in [
            "NDR, single by frame size, Mpps",
            "NDR, worst of N by frame size, Mpps",
            "NDR, best of N by frame size, Gbit/s on the wire",
        ] {
            assert!(page.contains(&format!("aria-label=\"{title}\"")), "{title}");
        }
        assert_eq!(page.matches("<div class=\"trio\">").count(), 2);
        let one = Summary {
            sizes: summary.sizes[..1].to_vec(),
            ..summary
        };
        assert!(by_size(&one).into_string().is_empty());
    }

    #[test]
    fn a_store_without_single_searches_has_the_charts_of_both_sides_only() {
        let mut results = results_of(STUDY, SimulatedBench::new(11, 0), usize::MAX);
        for step in &mut results.steps {
            if let Some(Findings::BestWorst(found)) = &mut step.findings {
                found.single = None;
            }
        }
        let page = by_size(&Summary::of(&results).unwrap()).into_string();
        assert!(page.contains("NDR, best of N by frame size, Mpps"));
        assert!(!page.contains("NDR, single"));
    }

    #[test]
    fn a_size_without_a_result_is_a_gap_with_its_reason() {
        let results = results_of(STUDY, SimulatedBench::new(11, 0), 1);
        let summary = Summary::of(&results).unwrap();
        for point in &series(&summary, 0, Side::Found, RateUnit::Mpps)[0].points {
            assert_eq!(point.value, None);
            assert!(point.label.starts_with("not "), "{point:?}");
        }
    }
}
