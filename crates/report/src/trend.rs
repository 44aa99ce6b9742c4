// SPDX-License-Identifier: Apache-2.0
//! Trend over many stores: the values of each quantity in the order of time, the points at which they change by a stated test, and what
//! else changed there.

mod change;
mod page;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;

use quietwire_study::{Measure, Quantity, StudyFile, StudyResults, Unit, median};
use serde::Serialize;

use crate::comparison::{Difference, differing, measured, measures, settings};
use crate::error::ReportError;
use crate::summary::samples;
use change::change_points;

/// Settings of a trend.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrendConfig {
    /// Largest probability, 0 to 1, that a quantity that never changed has a change point.
    pub error_rate: f64,
    /// Changes up to this part of the value before are no regression: 0.02 for 2 %.
    pub margin: f64,
}

/// A store of a trend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrendStore {
    /// Name of its file.
    pub name: String,
    /// Start of the study, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
}

/// Value of a quantity in one store.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrendPoint {
    /// Index of the store.
    pub store: usize,
    /// Median over rounds; none if it is not known exactly.
    pub value: Option<f64>,
    /// Why the value is not known.
    pub reason: Option<String>,
}

/// A point from which the values of a quantity differ from those before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrendChange {
    /// Index of the first store after the change.
    pub store: usize,
    /// Median of the values since the previous change.
    pub before: f64,
    /// Median of the values until the next change.
    pub after: f64,
    /// Probability of a change at least this clear in values without a change.
    pub p_value: f64,
    /// True if the values are worse by more than the margin: lower rates, or longer times.
    pub is_regression: bool,
    /// Settings of study, machine and software that differ between this store and the one before.
    pub differences: Vec<Difference>,
}

/// A quantity over all stores that measured it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrendSeries {
    /// Name of the study.
    pub study: String,
    /// Case.
    pub case: String,
    /// Octets with FCS, or `imix`.
    pub frame_size: String,
    /// Name of the quantity: `p99 latency`. If stores have several loads or allowed losses of it, with that of these values.
    pub quantity: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Values in the order of time.
    pub points: Vec<TrendPoint>,
    /// Changes in the order of time.
    pub changes: Vec<TrendChange>,
    /// Why no change can be found; none if there are enough values.
    pub reason: Option<String>,
}

impl TrendSeries {
    /// Returns the last change if it is a regression, which still has an effect.
    #[must_use]
    pub fn regression(&self) -> Option<&TrendChange> {
        self.changes.last().filter(|change| change.is_regression)
    }
}

/// Trend over many stores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// Settings.
    #[serde(flatten)]
    pub config: TrendConfig,
    /// Stores in the order in which their studies started.
    pub stores: Vec<TrendStore>,
    /// Stores that are not part of the trend, with the reason.
    pub skipped: Vec<String>,
    /// All quantities.
    pub series: Vec<TrendSeries>,
}

/// Identity of a quantity: study, case, frame size, quantity, and its condition, which may be empty.
type Key = [String; 5];

/// Number of parts of a key before the condition.
const NAMES: usize = 4;

/// Returns the setting of a study without which values of a quantity are not comparable: the allowed loss of a rate, or the load of a latency.
/// Empty if there is none.
fn condition(file: &StudyFile, measure: &Measure) -> String {
    match &measure.quantity {
        Quantity::Rate(name) => {
            let mut goals = file.search.iter().flat_map(|search| &search.goals);
            let goal = goals.find(|goal| goal.name == *name);
            goal.map_or_else(String::new, |it| format!("loss ratio {}", it.loss_ratio))
        }
        Quantity::Latency | Quantity::Pdv => {
            let probe = file.latency.as_ref();
            match probe.map(|probe| (probe.rate_pps, probe.rate_percent)) {
                Some((Some(rate_pps), _)) => format!("{rate_pps} frames/s"),
                Some((None, Some(percent))) => format!("{} % load", percent.get()),
                _ => String::new(),
            }
        }
        _ => String::new(),
    }
}

/// Content of one store, as far as a trend requires it.
#[derive(Debug)]
struct Content {
    store: TrendStore,
    settings: BTreeMap<String, String>,
    values: BTreeMap<Key, (Unit, TrendPoint)>,
}

/// Stores of a trend. Each is read once, and only its values are kept.
#[derive(Debug, Default)]
pub struct TrendStores {
    contents: Vec<Content>,
    skipped: Vec<String>,
}

impl TrendStores {
    /// Records a store that is not part of the trend. `reason` is a clause with the name of the store.
    pub fn skip(&mut self, reason: String) {
        self.skipped.push(reason);
    }

    /// Returns true if no store was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// Adds a store. The figures of a study that `--quick` shortened are not valid, so it is skipped.
    ///
    /// # Errors
    /// [`ReportError::Histogram`] if a stored histogram is damaged.
    pub fn add(&mut self, name: &str, results: &StudyResults) -> Result<(), ReportError> {
        let file = &results.file;
        if file.quick {
            self.skip(format!("{name}: --quick shortened the study"));
            return Ok(());
        }
        let mut values = BTreeMap::new();
        for case in measured(results) {
            for size in &file.traffic.frame_sizes {
                for measure in measures(file, file) {
                    let samples = samples(results, *size, case, &measure)?;
                    let value = median(&samples);
                    let missing = samples.iter().find_map(|sample| sample.missing.clone());
                    let reason = value.is_none().then(|| {
                        missing.unwrap_or_else(|| "only limits of the value are known".to_owned())
                    });
                    let point = TrendPoint {
                        store: 0,
                        value,
                        reason,
                    };
                    let key = [
                        file.name.clone(),
                        case.name.clone(),
                        size.to_string(),
                        measure.to_string(),
                        condition(file, &measure),
                    ];
                    values.insert(key, (measure.quantity.unit(), point));
                }
            }
        }
        self.contents.push(Content {
            store: TrendStore {
                name: name.to_owned(),
                started_unix_ns: results.started_unix_ns,
            },
            settings: settings(results),
            values,
        });
        Ok(())
    }

    /// Orders the stores by time and finds the changes of each quantity.
    #[must_use]
    pub fn trend(mut self, config: TrendConfig) -> Trend {
        let key = |content: &Content| (content.store.started_unix_ns, content.store.name.clone());
        self.contents.sort_by_key(key);
        let mut found: BTreeMap<Key, (Unit, Vec<TrendPoint>)> = BTreeMap::new();
        for (store, content) in self.contents.iter_mut().enumerate() {
            for (key, (unit, point)) in std::mem::take(&mut content.values) {
                let (_, points) = found.entry(key).or_insert((unit, Vec::new()));
                points.push(TrendPoint { store, ..point });
            }
        }
        // Quantities that no store knows show nothing.
        found.retain(|_, (_, points)| points.iter().any(|point| point.value.is_some()));
        let mut conditions: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for key in found.keys() {
            let count = conditions.entry(key[..NAMES].to_vec()).or_default();
            *count = count.saturating_add(1);
        }
        let of_series = |(mut key, (unit, points)): (Key, (Unit, Vec<TrendPoint>))| {
            if conditions
                .get(&key[..NAMES])
                .is_some_and(|count| *count > 1)
            {
                key[3] = format!("{} ({})", key[3], key[4]);
            }
            series(key, unit, points, &self.contents, config)
        };
        Trend {
            config,
            series: found.into_iter().map(of_series).collect(),
            skipped: self.skipped,
            stores: self
                .contents
                .into_iter()
                .map(|content| content.store)
                .collect(),
        }
    }
}

/// Number of values that suffice for a change at an error rate of 0.05.
const VALUES_MIN: usize = 8;

fn series(
    [study, case, frame_size, quantity, _]: Key,
    unit: Unit,
    points: Vec<TrendPoint>,
    contents: &[Content],
    config: TrendConfig,
) -> TrendSeries {
    let known: Vec<(usize, f64)> = points
        .iter()
        .filter_map(|point| Some((point.store, point.value?)))
        .collect();
    let values: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
    let found = change_points(&values, config.error_rate);
    let bounds: Vec<usize> = std::iter::once(0)
        .chain(found.iter().map(|change| change.first_after))
        .chain([values.len()])
        .collect();
    let levels: Vec<f64> = bounds
        .iter()
        .zip(bounds.iter().skip(1))
        .map(|(from, to)| values.get(*from..*to))
        .map(|part| part.and_then(quietwire_search::median).unwrap_or(0.0))
        .collect();
    let sides = levels.iter().zip(levels.iter().skip(1));
    let changes = found.iter().zip(sides).filter_map(|(change, sides)| {
        let (before, after) = (*sides.0, *sides.1);
        let (last, _) = known.get(change.first_after.checked_sub(1)?)?;
        let (first, _) = known.get(change.first_after)?;
        let (last_content, first_content) = (contents.get(*last)?, contents.get(*first)?);
        Some(TrendChange {
            store: *first,
            before,
            after,
            p_value: change.p_value,
            is_regression: is_worse(unit, before, after, config.margin),
            differences: differing(&last_content.settings, &first_content.settings),
        })
    });
    TrendSeries {
        changes: changes.collect(),
        reason: (values.len() < VALUES_MIN).then(|| {
            format!(
                "{} known values are too few to find a change ({VALUES_MIN} suffice at an error rate of 0.05)",
                values.len()
            )
        }),
        study,
        case,
        frame_size,
        quantity,
        unit,
        points,
    }
}

fn is_worse(unit: Unit, before: f64, after: f64, margin: f64) -> bool {
    if unit.is_better_high() {
        after < before * (1.0 - margin)
    } else {
        after > before * (1.0 + margin)
    }
}
