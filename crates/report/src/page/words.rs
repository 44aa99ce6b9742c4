// SPDX-License-Identifier: Apache-2.0
//! The result in sentences, and figures with the caveats that belong to them. All of it is computed; no sentence assumes how
//! a study ends.

use std::collections::BTreeSet;

use maud::{Markup, html};
use quietwire_search::Readings;
use quietwire_study::FrameSize;
use quietwire_tester::{DamageCheck, Trial};

use crate::format::{self, THIN};
use crate::summary::{
    CaseSummary, CyclesPerFrame, GoalSummary, HighestLoad, Limit, Limiter, MixSummary, RoundTrip,
    STARVED, SearchOutcome, SizeShare, SizeSummary, Spread, State, Summary, UnavailableCase,
};
use crate::tenants;

/// Note on the page of a study that `--quick` shortened.
pub(crate) const QUICK: &str = "Quick: one round, short trials and coarse searches, only to check that the study runs. Do not use the figures.";

/// Ranges at least this wide (largest over smallest) are reported in a sentence.
const WIDE: f64 = 1.2;

/// Maximum number of sizes of a mix that its composition lists.
const SIZES_MAX: usize = 12;

/// Neighbours with at least this share of the time of their CPUs show the effect of a partition.
const FAIR: f64 = 0.3;

/// Marks around a name in a sentence, for renderers that can emphasise it (private-use characters, which no name contains).
const NAME: [char; 2] = ['\u{e000}', '\u{e001}'];

fn name(text: &str) -> String {
    format!("{}{text}{}", NAME[0], NAME[1])
}

/// Renders a sentence with its names in bold.
pub(crate) fn marked(sentence: &str) -> Markup {
    html! {
        @for part in sentence.split(NAME[0]) {
            @match part.split_once(NAME[1]) {
                Some((name, rest)) => { b { (name) } (rest) }
                None => (part),
            }
        }
    }
}

/// Returns a sentence without the marks.
pub(crate) fn plain(sentence: &str) -> String {
    sentence.replace(NAME, "")
}

/// Returns `frames of 64 octets`, or the composition of a mix.
pub(crate) fn frames(size: &SizeSummary) -> String {
    match &size.mix {
        None => format!("frames of {} octets", size.frame_size),
        Some(mix) => named_mix(mix, &size.frame_size),
    }
}

/// Returns the composition of a trial's mix of frame sizes. None if all frames have one size.
#[must_use]
pub fn mix_text(trial: &Trial) -> Option<String> {
    if let Some(mix) = MixSummary::of(trial.frame_sizes) {
        let name = FrameSize(trial.frame_sizes).to_string();
        return Some(named_mix(&mix, &name));
    }
    let shares = SizeShare::of(trial.sizes());
    match &shares[..] {
        [] | [_] => None,
        [first, .., last] if shares.len() > SIZES_MAX => Some(format!(
            "a mix of {} sizes from {} to {} octets",
            shares.len(),
            first.octets,
            last.octets
        )),
        _ => Some(shares_text(&shares)),
    }
}

fn named_mix(mix: &MixSummary, name: &str) -> String {
    format!(
        "{} ({}; RFC 6985: {})",
        shares_text(&mix.shares),
        name.to_uppercase(),
        mix.genome
    )
}

fn shares_text(shares: &[SizeShare]) -> String {
    let joined = |part: fn(&SizeShare) -> String, by: &str| {
        let parts: Vec<String> = shares.iter().map(part).collect();
        parts.join(by)
    };
    format!(
        "a mix of {} octets in the ratio {}",
        joined(|share| share.octets.to_string(), ", "),
        joined(|share| share.frames.to_string(), ":")
    )
}

/// Returns the scopes of the check for damage, with the cases of each unless it is that of all cases.
pub(crate) fn damage_checks(size: &SizeSummary) -> Vec<String> {
    let mut checks: BTreeSet<DamageCheck> = BTreeSet::new();
    for case in &size.cases {
        checks.extend(&case.health.damage_checks);
    }
    let sentences = checks.into_iter().map(|check| {
        let has_check = |case: &&CaseSummary| case.health.damage_checks.contains(&check);
        let cases: Vec<&str> = size
            .cases
            .iter()
            .filter(has_check)
            .map(|case| case.name.as_str())
            .collect();
        if cases.len() == size.cases.len() {
            format!("Checked for damage: {check}.")
        } else {
            format!("Checked for damage in {}: {check}.", cases.join(", "))
        }
    });
    sentences.collect()
}

/// Formats the rate of a goal and its share of the baseline's rate: `≥ 6.40 · 97 %`.
pub(crate) fn goal_value(goal: &GoalSummary) -> String {
    let Some(rate) = &goal.rate_pps else {
        return no_rate(goal).to_owned();
    };
    if rate.median == 0.0 {
        return match lowest_tried(goal) {
            Some(lowest) => format!("none held (under {})", format::mpps(lowest)),
            None => "none held".to_owned(),
        };
    }
    let at_least = if goal.is_lower_limit_only {
        "≥\u{202f}"
    } else {
        ""
    };
    format!(
        "{at_least}{}{}",
        format::mpps(rate.median),
        share(goal.percent_of_baseline)
    )
}

fn no_rate(goal: &GoalSummary) -> &'static str {
    let is_failed = |outcome: &SearchOutcome| *outcome == SearchOutcome::TesterFailed;
    if goal.outcomes.is_empty() {
        "not measured"
    } else if goal.outcomes.iter().any(is_failed) {
        "no result: the tester failed"
    } else {
        "not finished"
    }
}

fn lowest_tried(goal: &GoalSummary) -> Option<f64> {
    let tried = goal.outcomes.iter().filter_map(|outcome| match outcome {
        SearchOutcome::NothingHeld { lowest_tried_pps } => Some(*lowest_tried_pps),
        _ => None,
    });
    tried.reduce(f64::min)
}

fn share(percent: Option<f64>) -> String {
    percent.map_or_else(String::new, |percent| {
        format!(" · {}", format::percent(percent))
    })
}

/// Formats the forwarding rate at the highest load.
pub(crate) fn highest_load_value(top: &HighestLoad) -> String {
    format!(
        "{}{}",
        format::mpps(top.forwarding_pps.median),
        share(top.percent_of_baseline)
    )
}

/// Formats the mean round trip.
pub(crate) fn mean_round_trip(trip: &RoundTrip) -> String {
    let share = share(trip.percent_of_baseline[1]);
    format!("{}{share}", trip.mean_text())
}

/// Returns why a case has no figures, in a word or two.
pub(crate) fn left_out(case: &UnavailableCase) -> &'static str {
    if case.has_failed {
        "Failed"
    } else {
        "Unavailable"
    }
}

/// Formats the cost per frame; a dash if it is unknown.
pub(crate) fn cycles(cycles: Option<&CyclesPerFrame>) -> String {
    cycles.map_or_else(|| "–".to_owned(), CyclesPerFrame::text)
}

/// Formats what limited the rate of the first goal with a rate; a dash without one.
pub(crate) fn limit(case: &CaseSummary) -> String {
    let known = case.limits.iter().flatten().next();
    known.map_or_else(|| "–".to_owned(), Limit::text)
}

/// Returns the caveats of the figures, with the cases that each applies to.
pub(crate) fn warnings(size: &SizeSummary) -> Vec<String> {
    let mut reported: Vec<(&str, Vec<&str>)> = Vec::new();
    for case in &size.cases {
        for warning in &case.warnings {
            match reported
                .iter_mut()
                .find(|(known, _)| *known == warning.as_str())
            {
                Some((_, cases)) => cases.push(&case.name),
                None => reported.push((warning.as_str(), vec![&case.name])),
            }
        }
    }
    reported
        .into_iter()
        .map(|(warning, cases)| format!("{}: {warning}", cases.join(", ")))
        .collect()
}

/// Formats `4 %` of something, or `129 times` something.
fn of_baseline(percent: f64) -> String {
    if percent >= 1000.0 {
        format!("{} times", format::number((percent / 100.0).round()))
    } else {
        format::percent(percent)
    }
}

/// Maximum number of cases that sentences describe.
const CASES_IN_SENTENCES: usize = 6;

/// Returns the result, sentence by sentence.
pub(crate) fn answer(summary: &Summary, size: &SizeSummary) -> Vec<String> {
    let mut sentences = like_for_like(size);
    sentences.extend(size.tenants.iter().flat_map(tenants::sentences));
    if !has_many_cases(size) {
        sentences.extend(throughput(size));
        sentences.extend(round_trip(size));
    }
    sentences.extend(spread(size));
    sentences.extend(starved(size));
    sentences.extend(not_of_cpu(size));
    sentences.extend(not_measured(size));
    sentences.extend(readings(size));
    sentences.extend(validity(summary));
    sentences
}

/// Reports devices that lost frames although their forwarding threads had idle time.
fn not_of_cpu(size: &SizeSummary) -> Vec<String> {
    let limits = size.cases.iter().flat_map(|case| {
        let limits = case.goals.iter().zip(&case.limits);
        limits.filter_map(move |(goal, limit)| Some((case, goal, limit.as_ref()?)))
    });
    let of_others = limits.filter(|(.., limit)| limit.by == Limiter::NotDeviceCpu);
    let sentences = of_others.filter_map(|(case, goal, limit)| {
        let idle = limit.device_idle_ratio.as_ref()?;
        Some(format!(
            "{} lost frames above its {} although its forwarding CPUs were idle for {} of the time: pauses or bursts limited the rate, not the cycles per frame.",
            name(&case.name),
            goal.name,
            format::percent(idle.median * 100.0)
        ))
    });
    sentences.collect()
}

/// Compares the partitioned case with neighbours and the same case without, and reports the share of CPU time of the neighbours.
pub(crate) fn like_for_like(size: &SizeSummary) -> Vec<String> {
    let Some(pair) = &size.like_for_like else {
        return Vec::new();
    };
    let named = |name: &str| size.cases.iter().find(|case| case.name == name);
    let (Some(case), Some(against)) = (named(&pair.case), named(&pair.against)) else {
        return Vec::new();
    };
    let known = pair.percent_of_goals.iter().enumerate();
    let known = known.filter_map(|(index, percent)| Some((index, (*percent)?)));
    let compared = known.filter_map(|(index, percent)| {
        let (goal, base) = (case.goals.get(index)?, against.goals.get(index)?);
        let (rate, of) = (goal.rate_pps.as_ref()?, base.rate_pps.as_ref()?);
        Some(format!(
            "{} forwards {} of {}'s {} ({} of {}{THIN}Mpps{}).",
            name(&case.name),
            of_baseline(percent),
            name(&against.name),
            goal.name,
            format::mpps(rate.median),
            format::mpps(of.median),
            if goal.is_lower_limit_only && base.is_lower_limit_only {
                ", both the highest rate offered"
            } else {
                ""
            }
        ))
    });
    let mut sentences: Vec<String> = compared.take(1).collect();
    if sentences.is_empty() {
        return sentences;
    }
    sentences.extend(case.neighbours.as_ref().map(|observed| {
        let share = format::percent(observed.share.median * 100.0);
        if observed.share.median < FAIR {
            format!("Its neighbours got only {share} of their CPUs, so this machine cannot show the effect of the partition.")
        } else {
            format!("Its neighbours got {share} of their CPUs.")
        }
    }));
    sentences
}

/// Returns true if there are too many cases to compare each with the first in a sentence. A table replaces the sentences then.
pub(crate) fn has_many_cases(size: &SizeSummary) -> bool {
    size.cases.len() > CASES_IN_SENTENCES
}

/// Returns the first goal at which the baseline has a rate, so that other cases can be compared with it.
fn decisive_goal(size: &SizeSummary) -> Option<usize> {
    let goals = &size.cases.first()?.goals;
    let has_rate = |goal: &GoalSummary| goal.rate_pps.as_ref().is_some_and(|r| r.median > 0.0);
    goals.iter().position(has_rate)
}

fn throughput(size: &SizeSummary) -> Vec<String> {
    let Some(first) = size.cases.first() else {
        return Vec::new();
    };
    let mut sentences = Vec::new();
    let telling = decisive_goal(size);
    for (index, goal) in first.goals.iter().enumerate() {
        if telling.is_some_and(|telling| index >= telling) {
            break;
        }
        if goal.rate_pps.is_some() {
            sentences.push(format!(
                "{}: {} ({}) held at no tested rate, so there is no figure to compare the other cases with.",
                name(&first.name),
                goal.name,
                format::allows(goal.loss_ratio)
            ));
        }
    }
    let Some(index) = telling else {
        return sentences;
    };
    sentences.extend(at_goal(size, index));
    // If a case has no rate at all, a goal that allows more loss may show how far it is behind.
    let has_none = |goal: &GoalSummary| goal.rate_pps.as_ref().is_some_and(|r| r.median == 0.0);
    let is_silent = size
        .cases
        .iter()
        .skip(1)
        .any(|case| case.goals.get(index).is_some_and(has_none));
    let next = first.goals.get(index.saturating_add(1));
    if is_silent && next.is_some_and(|goal| goal.rate_pps.is_some() && !has_none(goal)) {
        sentences.extend(at_goal(size, index.saturating_add(1)));
    }
    sentences
}

/// Reports the rate of the first case at a goal, and the other cases relative to it.
fn at_goal(size: &SizeSummary, index: usize) -> Vec<String> {
    let Some((first, others)) = size.cases.split_first() else {
        return Vec::new();
    };
    let Some(base) = first.goals.get(index) else {
        return Vec::new();
    };
    let rate = base.rate_pps.as_ref().map_or(0.0, |rate| rate.median);
    let at_least = if base.is_lower_limit_only {
        "at least "
    } else {
        ""
    };
    let mut sentences = vec![format!(
        "{} forwards {at_least}{}{THIN}Mpps at {} ({}).",
        name(&first.name),
        format::mpps(rate),
        base.name,
        format::allows(base.loss_ratio)
    )];
    if base.is_lower_limit_only {
        sentences.push("This is the highest rate offered, so the real value may be higher and the percentages lower.".to_owned());
    }
    for case in others {
        sentences.extend(
            case.goals
                .get(index)
                .and_then(|goal| against(&case.name, &first.name, goal)),
        );
    }
    sentences
}

fn against(case: &str, first: &str, goal: &GoalSummary) -> Option<String> {
    let rate = goal.rate_pps.as_ref()?;
    let at_least = if goal.is_lower_limit_only {
        "at least "
    } else {
        ""
    };
    Some(if rate.median == 0.0 {
        format!(
            "{}: no rate held at {}{}.",
            name(case),
            goal.name,
            lowest_tried(goal).map_or_else(String::new, |lowest| format!(
                ", not even {}",
                format::rate(lowest)
            ))
        )
    } else {
        let percent = of_baseline(goal.percent_of_baseline?);
        format!(
            "{}: {at_least}{percent} of {first}'s {} ({at_least}{}{THIN}Mpps).",
            name(case),
            goal.name,
            format::mpps(rate.median)
        )
    })
}

fn round_trip(size: &SizeSummary) -> Option<String> {
    let first = size.cases.first()?;
    let base = first.round_trip.as_ref()?;
    let others: Vec<String> = size
        .cases
        .iter()
        .skip(1)
        .filter_map(|case| {
            let trip = case.round_trip.as_ref()?;
            let mean = trip.percent_of_baseline[1]?;
            Some(format!(
                "{} {} in {} ({})",
                of_baseline(mean),
                if mean >= 1000.0 { "that" } else { "of that" },
                name(&case.name),
                trip.mean_text()
            ))
        })
        .collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!("; {}", others.join(", "))
    };
    Some(format!(
        "The mean round trip at {} is {} in {}{others}.",
        format::rate(base.offered_pps),
        base.mean_text(),
        name(&first.name)
    ))
}

/// Returns the cases whose rounds differ much.
fn spread(size: &SizeSummary) -> Option<String> {
    let index = decisive_goal(size)?;
    let wide: Vec<String> = size
        .cases
        .iter()
        .filter_map(|case| {
            let rate = case.goals.get(index)?.rate_pps.as_ref()?;
            let is_wide = rate.values.len() > 1 && rate.max > rate.min * WIDE;
            is_wide.then(|| format!("{} {}", case.name, range_mpps(rate)))
        })
        .collect();
    let name = &size.cases.first()?.goals.get(index)?.name;
    (!wide.is_empty()).then(|| {
        format!(
            "Rounds differ: {name} ranges over {} Mpps (median shown).",
            wide.join(", ")
        )
    })
}

/// Formats a range: `6.1 to 6.5`.
pub(crate) fn range_mpps(spread: &Spread) -> String {
    let low = if spread.min == 0.0 {
        "none".to_owned()
    } else {
        format::mpps(spread.min)
    };
    format!("{low} to {}", format::mpps(spread.max))
}

fn not_measured(size: &SizeSummary) -> Option<String> {
    let missing: Vec<&str> = size
        .cases
        .iter()
        .filter(|case| case.health.trials == case.health.invalid)
        .filter(|case| !case.has_results_without_trials())
        .map(|case| case.name.as_str())
        .collect();
    (!missing.is_empty()).then(|| format!("No trial is valid in: {}.", missing.join(", ")))
}

/// Returns the cases whose neighbours got almost no CPU time, except the case that the page begins with.
fn starved(size: &SizeSummary) -> Vec<String> {
    let first = size.like_for_like.as_ref().map(|pair| &pair.case);
    let cases = size.cases.iter().filter(|case| Some(&case.name) != first);
    let starved = cases.filter_map(|case| {
        let share = case.neighbours.as_ref()?.share.median;
        (share < STARVED).then(|| {
            format!(
                "{}: the neighbours got only {} of their CPUs, so this case shows little about isolation.",
                name(&case.name),
                format::percent(share * 100.0)
            )
        })
    });
    starved.collect()
}

fn validity(summary: &Summary) -> Option<String> {
    let mut cases = summary.sizes.iter().flat_map(|size| &size.cases);
    match (summary.invalid_trials, summary.trials) {
        (_, 0) if cases.any(CaseSummary::has_results_without_trials) => None,
        (_, 0) => Some("No trial has been made yet.".to_owned()),
        (0, trials) => Some(format!("All {trials} trials were valid.")),
        (invalid, trials) => {
            let causes = summary.invalid_causes.iter();
            let causes: Vec<String> = causes
                .map(|(cause, count)| format!("{count}: {}", cause.words()))
                .collect();
            Some(format!(
                "{invalid} of {trials} trials are invalid because the tester failed ({}). They are listed and excluded from all figures.",
                causes.join("; ")
            ))
        }
    }
}

/// Returns the figures that the invalid trials may have changed by more than the width of the search.
fn readings(size: &SizeSummary) -> Vec<String> {
    let of_case = |case: &CaseSummary| {
        let goals: Vec<String> = case.goals.iter().filter_map(bounded).collect();
        (!goals.is_empty()).then(|| {
            format!(
                "{}: if all invalid trials counted as failed, or all as passed, {}.",
                name(&case.name),
                goals.join(", ")
            )
        })
    };
    size.cases.iter().filter_map(of_case).collect()
}

/// Returns `NDR would be 1.1 to 1.3 Mpps`, for the median of the rounds. Returns nothing if no round's readings differ by more than the
/// width.
fn bounded(goal: &GoalSummary) -> Option<String> {
    let all: Vec<&Readings> = goal.readings.iter().flatten().collect();
    if !all.iter().any(|readings| readings.differ()) {
        return None;
    }
    let median = |pick: fn(&Readings) -> Option<f64>| {
        let rates = all.iter().map(|readings| pick(readings).unwrap_or(0.0));
        Spread::of(rates.collect()).map_or(0.0, |rates| rates.median)
    };
    let (low, high) = (median(|it| it.all_lost_pps), median(|it| it.all_held_pps));
    (low < high).then(|| {
        let low = if low == 0.0 {
            "none".to_owned()
        } else {
            format::mpps(low)
        };
        format!(
            "{} would be {low} to {}{THIN}Mpps",
            goal.name,
            format::mpps(high)
        )
    })
}

/// Returns the state of a study that is not finished; nothing if it is.
pub(crate) fn incomplete(state: &State) -> Option<String> {
    match state {
        State::Finished => None,
        State::Interrupted => Some(
            "This study was interrupted. The figures below are from the trials completed before."
                .to_owned(),
        ),
        State::Failed(reason) => Some(format!(
            "This study failed: {reason}. The figures below are from the trials completed before."
        )),
        State::Unfinished => Some(
            "This study is unfinished: it is still running, or was killed. The figures below are from the trials completed so far."
                .to_owned(),
        ),
    }
}
