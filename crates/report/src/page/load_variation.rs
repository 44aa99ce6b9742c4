// SPDX-License-Identifier: Apache-2.0
//! Delay variation at each load of the latency plan.

use maud::{Markup, html};
use quietwire_tester::DelayVariation;

use crate::chart::{Categories, CategoryPoint, CategoryScale, CategorySeries, categories, legend};
use crate::format;
use crate::summary::{CaseSummary, LatencyAtLoad, MethodFigures, SizeSummary, Spread};

/// A figure of delay variation with its name; none if there are too few frames for it.
type Figure = (&'static str, fn(&DelayVariation) -> Option<i64>);

const IPDV: [Figure; 3] = [
    ("p50", |variation| variation.ipdv.p50_ns),
    ("p90", |variation| variation.ipdv.p90_ns),
    ("max", |variation| {
        (variation.ipdv.samples > 0).then_some(variation.ipdv.max_ns)
    }),
];

const PDV: [Figure; 3] = [
    ("p50", |variation| signed(variation.pdv.p50_ns)),
    ("p90", |variation| signed(variation.pdv.p90_ns)),
    ("max", |variation| signed(Some(variation.pdv.max_ns))),
];

fn signed(ns: Option<u64>) -> Option<i64> {
    i64::try_from(ns?).ok()
}

/// A load with its name, and its trials in all rounds.
struct Load<'a> {
    name: String,
    rounds: Vec<&'a LatencyAtLoad>,
}

/// Renders both charts of each case. Returns nothing without a latency plan that measured delay variation.
pub(super) fn by_load(size: &SizeSummary) -> Markup {
    let cases: Vec<(&CaseSummary, Vec<Load<'_>>)> = size
        .cases
        .iter()
        .map(|case| (case, loads(case)))
        .filter(|(_, loads)| has_variation(loads))
        .collect();
    html! {
        @if !cases.is_empty() {
            section {
                h2 { "Delay variation against load" }
                p.lead {
                    "At each load of the latency plan (RFC 5481), medians over the rounds. A load without the figure is a gap, marked ×. "
                    "The axis is linear around zero and logarithmic from 10" (format::THIN) "ns on."
                }
                (legend(IPDV.iter().map(|(name, _)| *name)))
                @for (case, loads) in &cases {
                    @if size.cases.len() > 1 { h3 { (case.name) } }
                    div.pair {
                        figure { (chart("IPDV", &IPDV, case, loads)) }
                        figure { (chart("PDV", &PDV, case, loads)) }
                    }
                }
            }
        }
    }
}

fn has_variation(loads: &[Load<'_>]) -> bool {
    let mut trials = loads.iter().flat_map(|load| &load.rounds);
    trials.any(|trial| trial.variation().is_ok())
}

/// Returns the loads of a case in the order of their rates. A trial that stands for several loads belongs to each of them.
fn loads(case: &CaseSummary) -> Vec<Load<'_>> {
    let mut found: Vec<Load<'_>> = Vec::new();
    for result in &case.methods {
        let MethodFigures::LatencyPlan { loads } = &result.figures else {
            continue;
        };
        for trial in loads {
            for name in &trial.stands_for {
                match found.iter_mut().find(|load| load.name == *name) {
                    Some(load) => load.rounds.push(trial),
                    None => found.push(Load {
                        name: name.clone(),
                        rounds: vec![trial],
                    }),
                }
            }
        }
    }
    let rate = |load: &Load<'_>| {
        let rates = load.rounds.iter().map(|trial| trial.rate_pps);
        Spread::of(rates.collect()).map_or(0.0, |rate| rate.median)
    };
    found.sort_by(|one, other| rate(one).total_cmp(&rate(other)));
    found
}

fn chart(quantity: &str, figures: &[Figure], case: &CaseSummary, loads: &[Load<'_>]) -> Markup {
    let places: Vec<String> = loads.iter().map(|load| load.name.clone()).collect();
    categories(&Categories {
        title: &format!("{quantity} of {} by load", case.name),
        across: "load",
        up: quantity,
        scale: CategoryScale::Times,
        places: &places,
        series: &series(figures, loads),
    })
}

fn series(figures: &[Figure], loads: &[Load<'_>]) -> Vec<CategorySeries> {
    let of_figure = |(name, value): &Figure| CategorySeries {
        name: (*name).to_owned(),
        points: loads.iter().map(|load| point(load, *value)).collect(),
    };
    figures.iter().map(of_figure).collect()
}

fn point(load: &Load<'_>, value: fn(&DelayVariation) -> Option<i64>) -> CategoryPoint {
    let trials = load.rounds.iter();
    let known = trials.filter_map(|trial| value(trial.variation().ok()?));
    let Some(spread) = Spread::of(known.map(|ns| ns as f64).collect()) else {
        let mut reasons = load
            .rounds
            .iter()
            .filter_map(|trial| trial.variation().err());
        return CategoryPoint {
            value: None,
            label: reasons.next_back().unwrap_or("too few frames").to_owned(),
        };
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a median of times in an i64, and the cast saturates"
    )]
    let median_ns = spread.median.round() as i64;
    let time = format::signed_time_ns(median_ns);
    let label = match spread.values.len() {
        1 => time,
        rounds => format!("{time} (median of {rounds} rounds)"),
    };
    CategoryPoint {
        value: Some(spread.median),
        label,
    }
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
         goal = [{ name = \"NDR\", loss-ratio = 0.0 }, { name = \"PDR\", loss-ratio = 0.005 }]\n[latency-plan]\n\
         [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n";

    #[test]
    fn points_are_those_of_the_store_and_a_missing_one_has_its_reason() {
        let results = results_of(STUDY, SimulatedBench::new(3, 0), usize::MAX);
        let mut summary = Summary::of(&results).unwrap();
        let known = loads(&summary.sizes[0].cases[0]);
        assert!(known.len() >= 4, "{}", known.len());
        for (figures, all) in [(IPDV, series(&IPDV, &known)), (PDV, series(&PDV, &known))] {
            for ((_, value), series) in figures.iter().zip(&all) {
                for (load, point) in known.iter().zip(&series.points) {
                    // The study has one round: the figure of the trial in the store.
                    let rate_pps = load.rounds[0].rate_pps;
                    let mut trials = results.trials().filter(|(step, trial)| {
                        step.kind == quietwire_study::StepKind::LatencyPlan
                            && trial.request.offered_rate_pps == rate_pps
                            && trial.result.is_valid()
                    });
                    let (_, stored) = trials.next().unwrap();
                    let stored = value(&stored.result.variation).map(|ns| ns as f64);
                    let both = point.value.zip(stored);
                    // A histogram has three digits.
                    let is_near = both.is_none_or(|(one, other)| {
                        (one - other).abs() <= 2.0 + 0.002 * other.abs()
                    });
                    let is_both = point.value.is_some() == stored.is_some();
                    assert!(is_near && is_both, "{}: {point:?}, {stored:?}", load.name);
                }
            }
        }
        let page = by_load(&summary.sizes[0]).into_string();
        for title in ["IPDV of c by load", "PDV of c by load"] {
            assert!(page.contains(&format!("aria-label=\"{title}\"")), "{title}");
        }
        // The tester failed at one load, and no frame came back at another.
        let case = &mut summary.sizes[0].cases[0];
        for result in &mut case.methods {
            if let MethodFigures::LatencyPlan { loads } = &mut result.figures {
                loads[0].round_trip = None;
                loads[0].loss_ratio = None;
                loads[1].round_trip = None;
            }
        }
        let page = by_load(&summary.sizes[0]).into_string();
        assert!(page.contains("p90: the tester failed, "), "{page}");
        assert!(page.contains("max: no frame came back, "), "{page}");
        let tables = crate::methods::tables(&summary.sizes[0]);
        let table = tables
            .iter()
            .find(|table| table.title.starts_with("Delay variation"));
        let cells: Vec<&String> = table.unwrap().rows.iter().flatten().collect();
        assert!(
            cells.iter().any(|cell| *cell == "the tester failed"),
            "{cells:?}"
        );
    }
}
