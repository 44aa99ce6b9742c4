// SPDX-License-Identifier: Apache-2.0
//! Comparison of two stores: the effect on each quantity of each case that both measured, with a confidence interval that holds for every
//! distribution of the values, and what else differs between them.

mod conditions;
#[cfg(test)]
mod tests;
mod text;

use quietwire_study::{
    Case, Measure, Point, Quantity, RatioEstimate, Sample, StudyFile, StudyResults, Unit, median,
    ratio_of_medians,
};
use serde::Serialize;

use crate::error::ReportError;
use crate::summary::samples;

pub use conditions::Difference;
pub(crate) use conditions::{differing, settings};

/// Settings of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparisonConfig {
    /// Confidence of each interval, 0 to 1. A false *different* has a probability of at most one minus this.
    pub confidence: f64,
    /// Effects up to this part of the first store's value are irrelevant: 0.02 for 2 %.
    pub margin: f64,
}

/// Result of the comparison of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The interval of the ratio contains no 1.
    Different,
    /// The interval of the ratio lies within the margin around 1.
    Same,
    /// Neither.
    Unknown,
}

impl Finding {
    /// Returns its name in texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Different => "different",
            Self::Same => "same",
            Self::Unknown => "unknown",
        }
    }
}

/// Comparison of one quantity of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedQuantity {
    /// Case.
    pub case: String,
    /// Case of the second store; none if it has the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_case: Option<String>,
    /// Octets with FCS, or `imix`.
    pub frame_size: String,
    /// Name of the quantity: `p99 latency`.
    pub quantity: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Median of the first and of the second store; none unless enough values are known exactly.
    pub medians: [Option<f64>; 2],
    /// Number of values in each store.
    pub values: [usize; 2],
    /// Ratio of the second store's median to the first one's, with its confidence limits.
    pub effect: RatioEstimate,
    /// Result of the comparison.
    pub finding: Finding,
    /// True if the whole interval is worse than the margin.
    pub is_regression: bool,
    /// Why the results do not decide; none if they do.
    pub reason: Option<String>,
}

/// Comparison of two stores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Names of the two studies.
    pub studies: [String; 2],
    /// Confidence of each interval, between 0 and 1.
    pub confidence: f64,
    /// Margin, as a part of the first store's value.
    pub margin: f64,
    /// Quantities that both stores measured.
    pub quantities: Vec<ComparedQuantity>,
    /// Cases that only one of the stores has, the first store's ones first.
    pub unmatched_cases: [Vec<String>; 2],
    /// Settings of study, machine and software that differ.
    pub differences: Vec<Difference>,
}

impl ComparedQuantity {
    /// Returns the name of the case, or both names if they differ: `quiet → noisy`.
    #[must_use]
    pub fn cases(&self) -> String {
        match &self.other_case {
            Some(other) => format!("{} → {other}", self.case),
            None => self.case.clone(),
        }
    }
}

impl Comparison {
    /// Compares the results of two stores: cases with the same name.
    ///
    /// # Errors
    /// [`ReportError::Histogram`] if a stored histogram is damaged.
    pub fn of(
        first: &StudyResults,
        second: &StudyResults,
        config: ComparisonConfig,
    ) -> Result<Self, ReportError> {
        let mut quantities = Vec::new();
        for case in measured(first) {
            if let Some(other) = measured(second).find(|other| other.name == case.name) {
                quantities.extend(of_pair([first, second], [case, other], config)?);
            }
        }
        Ok(Self {
            studies: [first.file.name.clone(), second.file.name.clone()],
            confidence: config.confidence,
            margin: config.margin,
            quantities,
            unmatched_cases: [unmatched(first, second), unmatched(second, first)],
            differences: conditions::differences(first, second),
        })
    }

    /// Compares a case of the first store with a case of the second one, by name. Both may be the same store. Without a measured case of a
    /// name, the comparison has no quantities.
    ///
    /// # Errors
    /// [`ReportError::Histogram`] if a stored histogram is damaged.
    pub fn of_cases(
        results: [&StudyResults; 2],
        names: [&str; 2],
        config: ComparisonConfig,
    ) -> Result<Self, ReportError> {
        let [first, second] = results;
        let case = measured(first).find(|case| case.name == names[0]);
        let other = measured(second).find(|case| case.name == names[1]);
        let (quantities, differences) = match (case, other) {
            (Some(case), Some(other)) => (
                of_pair(results, [case, other], config)?,
                conditions::differences_of_cases(results, [case, other]),
            ),
            _ => (Vec::new(), Vec::new()),
        };
        Ok(Self {
            studies: [first.file.name.clone(), second.file.name.clone()],
            confidence: config.confidence,
            margin: config.margin,
            quantities,
            unmatched_cases: [Vec::new(), Vec::new()],
            differences,
        })
    }

    /// Returns the quantities that are worse than the margin.
    pub fn regressions(&self) -> impl Iterator<Item = &ComparedQuantity> {
        self.quantities.iter().filter(|one| one.is_regression)
    }
}

/// Compares all quantities of a case of each store, at the frame sizes that both have.
fn of_pair(
    [first, second]: [&StudyResults; 2],
    [case, other]: [&Case; 2],
    config: ComparisonConfig,
) -> Result<Vec<ComparedQuantity>, ReportError> {
    let mut quantities = Vec::new();
    let sizes = first.file.traffic.frame_sizes.iter();
    let both = sizes.filter(|size| second.file.traffic.frame_sizes.contains(size));
    for size in both {
        for measure in measures(&first.file, &second.file) {
            let own = samples(first, *size, case, &measure)?;
            let theirs = samples(second, *size, other, &measure)?;
            let is_empty = |all: &[Sample]| all.iter().all(|one| one.missing.is_some());
            if is_empty(&own) && is_empty(&theirs) {
                continue;
            }
            let place = [case.name.clone(), size.to_string()];
            let mut quantity = compared(place, &measure, [&own, &theirs], config);
            quantity.other_case = (other.name != case.name).then(|| other.name.clone());
            quantities.push(quantity);
        }
    }
    Ok(quantities)
}

/// Returns the cases that were run.
pub(crate) fn measured(results: &StudyResults) -> impl Iterator<Item = &Case> {
    let cases = results.file.cases.iter();
    cases.filter(|case| results.was_tried(case) && results.unavailable(&case.name).is_none())
}

fn unmatched(results: &StudyResults, other: &StudyResults) -> Vec<String> {
    let is_in_other = |case: &&Case| !measured(other).any(|one| one.name == case.name);
    let alone = measured(results).filter(is_in_other);
    alone.map(|case| case.name.clone()).collect()
}

/// Returns what both studies measure.
pub(crate) fn measures(first: &StudyFile, second: &StudyFile) -> Vec<Measure> {
    let of = |quantity, point| Measure {
        quantity,
        load_percent: None,
        load: None,
        point,
    };
    let goals = |file: &StudyFile| -> Vec<(String, f64)> {
        let goals = file.search.iter().flat_map(|search| &search.goals);
        goals
            .map(|goal| (goal.name.clone(), goal.loss_ratio))
            .collect()
    };
    let theirs = goals(second);
    let shared = goals(first).into_iter();
    let mut all: Vec<Measure> = shared
        .filter(|goal| theirs.contains(goal))
        .map(|(name, _)| of(Quantity::Rate(name), Point::Mean))
        .collect();
    // Latencies at different loads are not comparable.
    let load = |file: &StudyFile| {
        let probe = file.latency.as_ref();
        probe.map(|probe| (probe.rate_pps, probe.rate_percent))
    };
    if load(first).is_some() && load(first) == load(second) {
        let points = [
            Point::Mean,
            Point::Percentile(50.0),
            Point::Percentile(99.0),
        ];
        all.extend(points.map(|point| of(Quantity::Latency, point)));
        all.push(of(Quantity::Pdv, Point::Percentile(99.0)));
    }
    let both = |has: fn(&StudyFile) -> bool| has(first) && has(second);
    if both(|file| file.system_recovery.is_some()) {
        all.push(of(Quantity::SystemRecovery, Point::Mean));
    }
    if both(|file| file.reset.is_some()) {
        all.push(of(Quantity::Reset, Point::Mean));
    }
    type IsMeasured = fn(&StudyFile) -> bool;
    let of_connections: [(Quantity, IsMeasured); 4] = [
        (Quantity::ConnectionsPerSecond, |file| {
            file.connections_per_second.is_some()
        }),
        (Quantity::ConcurrentConnections, |file| {
            file.concurrent_connections.is_some()
        }),
        (Quantity::TransactionsPerSecond, |file| {
            file.transactions_per_second.is_some()
        }),
        (Quantity::ConnectionThroughput, |file| {
            file.connection_throughput.is_some()
        }),
    ];
    for (quantity, has) in of_connections {
        if both(has) {
            all.push(of(quantity, Point::Mean));
        }
    }
    all
}

fn compared(
    [case, frame_size]: [String; 2],
    measure: &Measure,
    [own, theirs]: [&[Sample]; 2],
    config: ComparisonConfig,
) -> ComparedQuantity {
    let unit = measure.quantity.unit();
    // Half of the error rate for each limit.
    let error_rate = (1.0 - config.confidence) / 2.0;
    let effect = ratio_of_medians(theirs, own, error_rate);
    let [low, high] = effect.limits;
    let least = 1.0 - config.margin;
    let most = 1.0 + config.margin;
    let is_same = low.is_some_and(|low| low >= least) && high.is_some_and(|high| high <= most);
    let is_different = low.is_some_and(|low| low > 1.0) || high.is_some_and(|high| high < 1.0);
    let finding = match (is_same, is_different) {
        (true, _) => Finding::Same,
        (_, true) => Finding::Different,
        _ => Finding::Unknown,
    };
    let is_regression = if unit.is_better_high() {
        high.is_some_and(|high| high < least)
    } else {
        low.is_some_and(|low| low > most)
    };
    ComparedQuantity {
        case,
        other_case: None,
        frame_size,
        quantity: measure.to_string(),
        unit,
        medians: [own, theirs].map(median),
        values: [own.len(), theirs.len()],
        effect,
        finding,
        is_regression,
        reason: (finding == Finding::Unknown).then(|| reason([own, theirs], &effect)),
    }
}

fn reason(samples: [&[Sample]; 2], effect: &RatioEstimate) -> String {
    let mut all = samples.iter().flat_map(|all| all.iter());
    let missing = all.find_map(|one| one.missing.as_ref());
    if let Some(reason) = missing {
        return format!("a value is missing: {reason}");
    }
    match effect.limits {
        [Some(_), Some(_)] => {
            "the interval contains 1 and exceeds the margin (increase rounds)".to_owned()
        }
        _ => format!(
            "{} and {} values are too few, or only limits of them are known (increase rounds: 7 and 7 suffice at 0.95)",
            samples[0].len(),
            samples[1].len()
        ),
    }
}
