// SPDX-License-Identifier: Apache-2.0
//! Verdicts: whether the median of a measured quantity meets a bound, by a sign test that makes no assumption about the distribution of
//! the values except that the rounds are independent.
//!
//! *Pass* and *fail* are each wrong with at most the error rate of the rule, whatever the true value is. Everything else is *unknown*.
//! Missing values and values of which only a limit is known count neither for nor against the bound, unless the limit decides.

#[cfg(test)]
mod tests;

use quietwire_host::verify::Verdict;
use quietwire_search::{median_rank, sign_test, two_ranks};
use serde::Serialize;

/// Direction of a bound: the values that meet it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Values not below it.
    AtLeast,
    /// Values not above it.
    AtMost,
}

/// Rule of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// Direction of the bound.
    pub direction: Direction,
    /// The bound.
    pub bound: f64,
    /// Largest probability of a wrong verdict, 0 to 1.
    pub error_rate: f64,
}

/// Value of one round or repeat, as far as it is known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Number of the round, from 0.
    pub round: u32,
    /// Number of the repeat within the round, from 0.
    pub repeat: u32,
    /// The value is not below this. None if nothing is known.
    pub low: Option<f64>,
    /// The value is not above this. None if nothing is known.
    pub high: Option<f64>,
    /// Why the value is missing; none if something is known about it.
    pub missing: Option<String>,
}

impl Sample {
    /// Returns a value that is known exactly.
    #[must_use]
    pub fn exact(round: u32, repeat: u32, value: f64) -> Self {
        Self::within(round, repeat, Some(value), Some(value))
    }

    /// Returns a value of which limits are known.
    #[must_use]
    pub fn within(round: u32, repeat: u32, low: Option<f64>, high: Option<f64>) -> Self {
        let known = |limit: Option<f64>| limit.filter(|limit| limit.is_finite());
        Self {
            round,
            repeat,
            low: known(low),
            high: known(high),
            missing: None,
        }
    }

    /// Returns a value of which nothing is known.
    #[must_use]
    pub fn missing(round: u32, repeat: u32, reason: impl Into<String>) -> Self {
        Self {
            missing: Some(reason.into()),
            ..Self::within(round, repeat, None, None)
        }
    }

    /// Returns the value if it is known exactly.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        self.low.filter(|low| self.high == Some(*low))
    }

    /// Returns the ratio to a value of the same round. Its lower limit is infinite if the quotient is.
    fn ratio_to(&self, other: &Self, quotient: Quotient) -> Self {
        let reason = [self, other]
            .into_iter()
            .find_map(|one| one.missing.as_ref());
        if let Some(reason) = reason {
            return Self::missing(self.round, self.repeat, reason.as_str());
        }
        let high = quotient(self.high, other.low);
        Self {
            low: quotient(self.low, other.high),
            ..Self::within(self.round, self.repeat, None, high)
        }
    }
}

/// Verdict with its grounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// Verdict.
    pub verdict: Verdict,
    /// Why the results do not decide; none with *pass* and *fail*.
    pub reason: Option<String>,
    /// Number of values, missing ones included.
    pub values: usize,
    /// True if two medians are compared, as with a baseline: then no single value meets or violates the bound.
    pub is_of_medians: bool,
    /// Number of ratios without a value, because the reference is 0 and the value is above 0. They violate an upper bound.
    pub infinite: usize,
    /// Number of values that meet the bound.
    pub meeting: usize,
    /// Number of values that violate the bound.
    pub violating: usize,
    /// Median, or ratio of two medians; none unless enough values are known exactly.
    pub median: Option<f64>,
    /// Lower and upper confidence limit of it, each wrong with at most the error rate; none if there is no limit.
    pub limits: [Option<f64>; 2],
}

impl Judgement {
    /// Returns *unknown* for a reason outside the values.
    #[must_use]
    pub fn undecided(reason: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Unknown,
            reason: Some(reason.into()),
            values: 0,
            is_of_medians: false,
            infinite: 0,
            meeting: 0,
            violating: 0,
            median: None,
            limits: [None; 2],
        }
    }

    /// Replaces a verdict by *unknown*, because something else explains it.
    #[must_use]
    pub fn without(mut self, verdict: Verdict, reason: &str) -> Self {
        if self.verdict == verdict {
            self.verdict = Verdict::Unknown;
            self.reason = Some(reason.to_owned());
        }
        self
    }
}

/// Judges the median of a quantity by its values of independent rounds.
#[must_use]
pub fn judge(rule: &Rule, samples: &[Sample]) -> Judgement {
    let of = |wanted: bool| {
        let is_one = |sample: &&Sample| meets_bound(rule, sample.low, sample.high) == Some(wanted);
        samples.iter().filter(is_one).count()
    };
    let (meeting, violating) = (of(true), of(false));
    let values = samples.len();
    let is_certain = |count: usize| sign_test(values, count) <= rule.error_rate;
    let verdict = if is_certain(meeting) {
        Verdict::Pass
    } else if is_certain(violating) {
        Verdict::Fail
    } else {
        Verdict::Unknown
    };
    let [low, high] = sorted_limits(samples);
    let rank = median_rank(values, rule.error_rate);
    Judgement {
        verdict,
        reason: (verdict == Verdict::Unknown).then(|| undecided(rule, samples, meeting, violating)),
        values,
        is_of_medians: false,
        infinite: samples.iter().filter(|one| is_infinite(one.low)).count(),
        meeting,
        violating,
        median: median(samples),
        limits: [
            rank.and_then(|rank| at_rank(&low, rank)),
            rank.and_then(|rank| from_above(&high, rank)),
        ],
    }
}

/// Judges the median of the ratios to another case. Values of one round are neighbours in time, so they are compared with each other.
///
/// Beside a reference of 0, a value of 0 meets an upper bound, and any higher value violates it. For a lower bound, there is no ratio to 0.
#[must_use]
pub fn judge_ratio(rule: &Rule, samples: &[Sample], others: &[Sample]) -> Judgement {
    judge(rule, &ratios(rule.direction, samples, others))
}

/// Returns the ratio of each value to that of the other case in the same round, for a bound in this direction.
#[must_use]
pub fn ratios(direction: Direction, samples: &[Sample], others: &[Sample]) -> Vec<Sample> {
    let quotient = quotient_for(direction);
    let ratio = |sample: &Sample| {
        let (round, repeat) = (sample.round, sample.repeat);
        let mut others = others.iter();
        match others.find(|other| (other.round, other.repeat) == (round, repeat)) {
            Some(other) => sample.ratio_to(other, quotient),
            None => Sample::missing(
                round,
                repeat,
                "the other case has no value of the same round",
            ),
        }
    };
    samples.iter().map(ratio).collect()
}

/// Judges the ratio of the median to that of an earlier study, whose rounds are independent of these. A reference of 0 counts as in
/// [`judge_ratio`].
#[must_use]
pub fn judge_against_baseline(rule: &Rule, samples: &[Sample], baseline: &[Sample]) -> Judgement {
    let quotient = quotient_for(rule.direction);
    let estimate = estimate(samples, baseline, rule.error_rate, quotient);
    let [low, high] = estimate.limits;
    let verdict = match meets_bound(rule, low, high) {
        Some(true) => Verdict::Pass,
        Some(false) => Verdict::Fail,
        None => Verdict::Unknown,
    };
    let reason = || {
        let counts = [samples.len(), baseline.len()];
        if two_ranks(counts[0], counts[1], rule.error_rate).is_none() {
            return format!(
                "{} values and {} of the baseline are too few for a verdict (increase rounds: {} of each suffice)",
                counts[0],
                counts[1],
                values_required(|count| two_ranks(count, count, rule.error_rate).is_some())
            );
        }
        "the confidence interval of the ratio contains the bound, or has no limit (increase rounds)"
            .to_owned()
    };
    Judgement {
        verdict,
        reason: (verdict == Verdict::Unknown)
            .then(|| missing_values(samples).unwrap_or_else(reason)),
        values: samples.len(),
        is_of_medians: true,
        infinite: usize::from(is_infinite(low)),
        meeting: 0,
        violating: 0,
        median: estimate.ratio.filter(|ratio| ratio.is_finite()),
        limits: estimate
            .limits
            .map(|limit| limit.filter(|limit| limit.is_finite())),
    }
}

/// Ratio of the medians of two independent samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RatioEstimate {
    /// Ratio of the medians; none unless enough values are known exactly, or if the second is zero.
    pub ratio: Option<f64>,
    /// Lower and upper confidence limit, each wrong with at most the error rate; none if there is no limit.
    pub limits: [Option<f64>; 2],
}

/// Estimates the ratio of two medians of values that are not negative. Each limit is wrong with at most `error_rate`, for any two
/// distributions.
#[must_use]
pub fn ratio_of_medians(samples: &[Sample], others: &[Sample], error_rate: f64) -> RatioEstimate {
    estimate(samples, others, error_rate, quotient)
}

/// Estimates the ratio of two medians by a quotient.
fn estimate(
    samples: &[Sample],
    others: &[Sample],
    error_rate: f64,
    quotient: Quotient,
) -> RatioEstimate {
    let limits = two_ranks(samples.len(), others.len(), error_rate).map(|ranks| {
        let [low, high] = sorted_limits(samples);
        let [other_low, other_high] = sorted_limits(others);
        [
            quotient(
                at_rank(&low, ranks.first),
                from_above(&other_high, ranks.second),
            ),
            quotient(
                from_above(&high, ranks.first),
                at_rank(&other_low, ranks.second),
            ),
        ]
    });
    RatioEstimate {
        ratio: quotient(median(samples), median(others)),
        limits: limits.unwrap_or_default(),
    }
}

/// Quotient of a value and a reference; none if it is unknown.
type Quotient = fn(Option<f64>, Option<f64>) -> Option<f64>;

/// Returns the quotient for a bound in a direction.
fn quotient_for(direction: Direction) -> Quotient {
    match direction {
        Direction::AtLeast => quotient,
        Direction::AtMost => quotient_for_upper_bound,
    }
}

/// Returns the quotient; none unless both are known and the divisor is above zero.
fn quotient(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    let base = base.filter(|base| *base > 0.0)?;
    Some(value? / base)
}

/// Returns the quotient as [`quotient`], and also for a divisor of zero: 0 if the value is not above zero, otherwise infinity. A value is at
/// most a multiple of a reference of zero if it is not above zero itself.
fn quotient_for_upper_bound(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    if base != Some(0.0) {
        return quotient(value, base);
    }
    Some(if value? > 0.0 { f64::INFINITY } else { 0.0 })
}

fn is_infinite(limit: Option<f64>) -> bool {
    limit.is_some_and(f64::is_infinite)
}

/// Returns whether a value between these limits meets the bound; none if they do not decide.
fn meets_bound(rule: &Rule, low: Option<f64>, high: Option<f64>) -> Option<bool> {
    let bound = rule.bound;
    match rule.direction {
        Direction::AtLeast if low.is_some_and(|low| low >= bound) => Some(true),
        Direction::AtLeast if high.is_some_and(|high| high < bound) => Some(false),
        Direction::AtMost if high.is_some_and(|high| high <= bound) => Some(true),
        Direction::AtMost if low.is_some_and(|low| low > bound) => Some(false),
        _ => None,
    }
}

/// Returns the lower and the upper limits of all values, ascending.
fn sorted_limits(samples: &[Sample]) -> [Vec<f64>; 2] {
    let sorted = |limit: fn(&Sample) -> f64| {
        let mut all: Vec<f64> = samples.iter().map(limit).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    [
        sorted(|sample| sample.low.unwrap_or(f64::NEG_INFINITY)),
        sorted(|sample| sample.high.unwrap_or(f64::INFINITY)),
    ]
}

/// Returns the value of a rank from below, from 1, if it is finite.
fn at_rank(sorted: &[f64], rank: usize) -> Option<f64> {
    let value = sorted.get(rank.checked_sub(1)?).copied();
    value.filter(|value| value.is_finite())
}

/// Returns the value of a rank from above, from 1, if it is finite.
fn from_above(sorted: &[f64], rank: usize) -> Option<f64> {
    at_rank(sorted, sorted.len().checked_sub(rank)?.saturating_add(1))
}

/// Returns the median; none unless enough values are known exactly.
#[must_use]
pub fn median(samples: &[Sample]) -> Option<f64> {
    let [low, high] = median_limits(samples);
    low.filter(|_| low == high)
}

/// Returns a lower and an upper limit of the median of these values, which follow from theirs; none if there is no limit.
#[must_use]
pub fn median_limits(samples: &[Sample]) -> [Option<f64>; 2] {
    sorted_limits(samples).map(|sorted| {
        let middle = sorted.len().div_ceil(2);
        Some(f64::midpoint(
            at_rank(&sorted, middle)?,
            from_above(&sorted, middle)?,
        ))
    })
}

/// Maximum number of values that a reason recommends.
const REQUIRED_MAX: usize = 1000;

fn values_required(suffices: impl Fn(usize) -> bool) -> usize {
    let mut counts = 1..REQUIRED_MAX;
    counts
        .find(|count| suffices(*count))
        .unwrap_or(REQUIRED_MAX)
}

/// Returns a sentence about missing values, unless there are none.
fn missing_values(samples: &[Sample]) -> Option<String> {
    let reasons = || samples.iter().filter_map(|sample| sample.missing.as_ref());
    let first = reasons().next()?;
    let count = reasons().count();
    Some(format!(
        "{count} of {} values {} missing: {first}",
        samples.len(),
        if count == 1 { "is" } else { "are" }
    ))
}

/// Returns why the values do not decide.
fn undecided(rule: &Rule, samples: &[Sample], meeting: usize, violating: usize) -> String {
    let values = samples.len();
    let is_enough = |count: usize| sign_test(count, count) <= rule.error_rate;
    if !is_enough(values) {
        return format!(
            "{values} {} too few for a verdict, which requires at least {} (increase rounds)",
            if values == 1 {
                "value is"
            } else {
                "values are"
            },
            values_required(is_enough)
        );
    }
    if let Some(missing) = missing_values(samples) {
        return missing;
    }
    let needed = (0..=values)
        .find(|count| sign_test(values, *count) <= rule.error_rate)
        .unwrap_or(values);
    let open = values.saturating_sub(meeting).saturating_sub(violating);
    let limits = match open {
        0 => String::new(),
        _ => format!(", and only limits are known of {open}"),
    };
    format!(
        "{meeting} of {values} values meet the bound, {violating} do not{limits}: {needed} alike are required (increase rounds)"
    )
}
