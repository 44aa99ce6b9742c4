// SPDX-License-Identifier: Apache-2.0
//! Round trips: from the tester through the device back to the tester, at a low load.

use quietwire_study::{StepKind, StepRecord, TrialRecord};
use quietwire_tester::{
    DelayVariation, LatencySummary, TimeHistogram, TrialResult, is_bound, withhold, withhold_bounds,
};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::spread::{Spread, percent_of};
use super::steps::{Steps, of_kind};
use crate::error::ReportError;
use crate::format;

/// Percentiles that are shown if there are enough frames.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
/// Minimum number of frames beyond a percentile. With fewer, it depends on chance.
const FRAMES_BEYOND_MIN: f64 = 10.0;

/// Round trips in one case, over all its valid latency trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundTrip {
    /// Achieved load of the tester, frames per second, mean over the trials.
    pub offered_pps: f64,
    /// Valid trials, also those that lost every frame.
    pub trials: usize,
    /// Measured frames of these trials.
    pub frames: u64,
    /// Minimum, nanoseconds.
    pub min_ns: u64,
    /// Mean over all frames, nanoseconds.
    pub mean_ns: f64,
    /// Maximum, nanoseconds.
    pub max_ns: u64,
    /// Mean of each trial with measured frames, nanoseconds.
    pub trial_means_ns: Spread,
    /// Maximum of each trial with measured frames, nanoseconds.
    pub trial_maxima_ns: Spread,
    /// Percentiles over all frames with at least ten frames beyond them.
    pub percentiles: Vec<PercentileValue>,
    /// Latency of the tester itself, by its calibration. None without a calibration.
    pub own: Option<OwnPart>,
    /// Latency of the tester itself with its percentiles. None without a calibration.
    #[serde(skip)]
    pub own_latency: Option<LatencySummary>,
    /// Delay variation of every frame (RFC 5481); no samples if a version without this measurement made the trials.
    pub variation: DelayVariation,
    /// Latency of the low-rate streams, and its variation; no samples without such streams.
    pub low_rate: LatencySummary,
    /// Variation within the low-rate streams.
    pub low_rate_variation: DelayVariation,
    /// Times between starts of the tester's bursts, without those in which it stalled; no samples if no trial has their histogram.
    pub burst_gaps: LatencySummary,
    /// Minimum, mean and maximum in percent of the first case's. None if a figure is withheld.
    pub percent_of_baseline: [Option<f64>; 3],
    /// Loss ratio of all valid trials, 0 to 1.
    pub loss_ratio: f64,
}

/// A percentile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PercentileValue {
    /// 99.9 for the 99.9th.
    pub percentile: f64,
    /// Nanoseconds.
    pub latency_ns: u64,
    /// Latency of the tester itself at this percentile, by its calibration, nanoseconds. None without a calibration.
    pub own_ns: Option<u64>,
}

/// Latency of the tester itself, measured with its ports connected to each other, without a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OwnPart {
    /// Minimum, nanoseconds.
    pub min_ns: u64,
    /// Mean, nanoseconds.
    pub mean_ns: f64,
    /// Maximum, nanoseconds.
    pub max_ns: u64,
}

/// Returns a figure unless it is withheld.
fn known(figure_ns: f64, own_ns: Option<f64>) -> Option<f64> {
    let is_withheld = own_ns.is_some_and(|own_ns| is_bound(figure_ns, own_ns));
    (!is_withheld).then_some(figure_ns)
}

impl PercentileValue {
    /// Formats the latency, marked if it is only an upper bound.
    pub(crate) fn text(&self) -> String {
        format::latency_ns(self.latency_ns as f64, self.own_ns.map(|own| own as f64))
    }

    fn is_withheld(&self) -> bool {
        let own_ns = self.own_ns.map(|own| own as f64);
        known(self.latency_ns as f64, own_ns).is_none()
    }
}

impl RoundTrip {
    /// Formats the minimum, marked if it is only an upper bound.
    pub(crate) fn min_text(&self) -> String {
        format::latency_ns(self.min_ns as f64, self.own.map(|own| own.min_ns as f64))
    }

    /// Formats the mean, marked if it is only an upper bound.
    pub(crate) fn mean_text(&self) -> String {
        format::latency_ns(self.mean_ns, self.own.map(|own| own.mean_ns))
    }

    /// Formats the maximum, marked if it is only an upper bound.
    pub(crate) fn max_text(&self) -> String {
        format::latency_ns(self.max_ns as f64, self.own.map(|own| own.max_ns as f64))
    }

    /// Returns minimum, mean and maximum, nanoseconds; none for a figure that is withheld.
    pub(super) fn known_ns(&self) -> [Option<f64>; 3] {
        let own = self.own;
        [
            known(self.min_ns as f64, own.map(|own| own.min_ns as f64)),
            known(self.mean_ns, own.map(|own| own.mean_ns)),
            known(self.max_ns as f64, own.map(|own| own.max_ns as f64)),
        ]
    }

    pub(super) fn set_against(&mut self, base: &Self) {
        let ([min, mean, max], base) = (self.known_ns(), base.known_ns());
        let share = |value: Option<f64>, base: Option<f64>| percent_of(value?, base?);
        self.percent_of_baseline = [
            share(min, base[0]),
            share(mean, base[1]),
            share(max, base[2]),
        ];
    }

    /// Withholds figures in the JSON of this round trip.
    fn withhold_in(&self, document: &mut Value) {
        let Some(own) = &self.own_latency else {
            return;
        };
        withhold_bounds(document, own);
        if is_bound(self.trial_means_ns.min, own.mean_ns) {
            withhold(document, "trial_means_ns");
        }
        if is_bound(self.trial_maxima_ns.min, own.max_ns as f64) {
            withhold(document, "trial_maxima_ns");
        }
        if let Some(low_rate) = document.get_mut("low_rate") {
            withhold_bounds(low_rate, own);
        }
        let percentiles = document.get_mut("percentiles");
        let percentiles = percentiles.and_then(Value::as_array_mut);
        let values = percentiles.into_iter().flatten();
        for (value, percentile) in values.zip(&self.percentiles) {
            if percentile.is_withheld() {
                withhold(value, "latency_ns");
            }
        }
    }
}

/// Serialises a round trip without the figures that are withheld: each is null, and has an upper bound instead.
pub(super) fn without_withheld<S: Serializer>(
    trip: &Option<RoundTrip>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut document = serde_json::to_value(trip).map_err(S::Error::custom)?;
    if let Some(trip) = trip {
        trip.withhold_in(&mut document);
    }
    document.serialize(serializer)
}

/// Returns none if no frame came back in a valid trial.
pub(super) fn round_trip(steps: &Steps<'_>) -> Result<Option<RoundTrip>, ReportError> {
    of_trials(
        of_kind(steps, &StepKind::Latency)
            .flat_map(|step| step.trials.iter().map(move |trial| (step, trial))),
    )
}

/// Summarises these trials, all at the same load.
pub(super) fn of_trials<'a>(
    trials: impl Iterator<Item = (&'a StepRecord, &'a TrialRecord)>,
) -> Result<Option<RoundTrip>, ReportError> {
    let valid: Vec<(&StepRecord, &TrialRecord)> = trials
        .filter(|(_, trial)| trial.result.is_valid())
        .collect();
    // A trial that lost every frame has no latency, but its frames are lost.
    let mut trials = valid.clone();
    trials.retain(|(_, trial)| trial.result.latency.samples > 0);
    if trials.is_empty() {
        return Ok(None);
    }
    let mut all = TimeHistogram::default();
    for trial in &trials {
        all.add_stored(&trial.1.result.latency.histogram_v2_base64)
            .map_err(|reason| damaged(*trial, reason))?;
    }
    let latencies = || trials.iter().map(|(_, trial)| &trial.result.latency);
    let frames: u64 = latencies().map(|latency| latency.samples).sum();
    let sum: f64 = latencies()
        .map(|latency| latency.mean_ns * latency.samples as f64)
        .sum();
    let means = Spread::of(latencies().map(|latency| latency.mean_ns).collect());
    let maxima = Spread::of(latencies().map(|latency| latency.max_ns as f64).collect());
    let (Some(trial_means_ns), Some(trial_maxima_ns)) = (means, maxima) else {
        return Ok(None);
    };
    let max_ns = latencies().map(|latency| latency.max_ns).max().unwrap_or(0);
    // All trials are of one tester at one rate, so they cite the same calibration.
    let own = trials.first().and_then(|(_, trial)| {
        let cited = trial.result.calibration.as_ref()?;
        cited.own.as_ref()
    });
    let achieved = valid.iter().map(|(_, t)| t.result.achieved_rate_pps);
    let offered: u64 = valid.iter().map(|(_, t)| t.result.offered_frames).sum();
    let lost: u64 = valid.iter().map(|(_, t)| t.result.lost_frames).sum();
    Ok(Some(RoundTrip {
        offered_pps: achieved.sum::<f64>() / valid.len() as f64,
        trials: valid.len(),
        frames,
        min_ns: latencies().map(|latency| latency.min_ns).min().unwrap_or(0),
        mean_ns: sum / frames as f64,
        max_ns,
        trial_means_ns,
        trial_maxima_ns,
        percentiles: percentiles(&all, max_ns, own),
        own: own.map(|own| OwnPart {
            min_ns: own.min_ns,
            mean_ns: own.mean_ns,
            max_ns: own.max_ns,
        }),
        own_latency: own.cloned(),
        variation: merged(&trials, |parts| {
            DelayVariation::merged(parts.iter().map(|result| &result.variation))
        })?,
        low_rate: merged(&trials, |parts| {
            LatencySummary::merged(parts.iter().map(|result| &result.low_rate.latency))
        })?,
        low_rate_variation: merged(&trials, |parts| {
            DelayVariation::merged(parts.iter().map(|result| &result.low_rate.variation))
        })?,
        burst_gaps: merged(&trials, |parts| {
            LatencySummary::merged(parts.iter().map(|result| &result.health.burst_gaps))
        })?,
        percent_of_baseline: [None; 3],
        loss_ratio: if offered == 0 {
            0.0
        } else {
            lost as f64 / offered as f64
        },
    }))
}

/// Merges the results of all trials.
fn merged<T>(
    trials: &[(&StepRecord, &TrialRecord)],
    merge: impl Fn(&[&TrialResult]) -> Result<T, String>,
) -> Result<T, ReportError> {
    let results: Vec<&TrialResult> = trials.iter().map(|(_, trial)| &trial.result).collect();
    merge(&results).map_err(|reason| {
        // The trial that is damaged itself, or the first one.
        let is_damaged = |one: &&(&StepRecord, &TrialRecord)| merge(&[&one.1.result]).is_err();
        let found = trials.iter().find(is_damaged).or(trials.first());
        match found {
            Some(trial) => damaged(*trial, reason),
            None => ReportError::Histogram {
                case: String::new(),
                step: 0,
                sequence: 0,
                reason,
            },
        }
    })
}

/// Returns the percentiles with enough frames beyond them. The histogram rounds up by a thousandth; no percentile exceeds the maximum.
fn percentiles(
    histogram: &TimeHistogram,
    max_ns: u64,
    own: Option<&LatencySummary>,
) -> Vec<PercentileValue> {
    let frames = histogram.samples() as f64;
    let values = histogram.at_percentiles(&PERCENTILES);
    PERCENTILES
        .into_iter()
        .zip(values)
        // Slightly less than exact, so that 100 000 frames are enough for the 99.99th percentile.
        .filter(|(percentile, _)| frames * (1.0 - percentile / 100.0) >= FRAMES_BEYOND_MIN - 1e-6)
        .map(|(percentile, value_ns)| PercentileValue {
            percentile,
            latency_ns: value_ns.min(max_ns),
            own_ns: own.map(|own| own.at_or_max(percentile)),
        })
        .collect()
}

fn damaged((step, trial): (&StepRecord, &TrialRecord), reason: String) -> ReportError {
    ReportError::Histogram {
        case: step.case_name.clone(),
        step: step.id,
        sequence: trial.sequence,
        reason,
    }
}
