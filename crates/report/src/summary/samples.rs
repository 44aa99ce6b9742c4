// SPDX-License-Identifier: Apache-2.0
//! Values of one quantity of a case: one for each round, or for each repeat if the study has a single round. They are the figures of the
//! summary, computed from the steps of that round alone.

use quietwire_search::procedure::{
    ConversationSearchEnd, ConversationSearchFindings, ProcedureFindings,
};
use quietwire_study::{
    Case, FrameSize, Goal, Measure, Point, Quantity, Sample, StepKind, StepRecord, StudyResults,
    median_limits,
};
use quietwire_tester::{DelayVariation, LatencySummary, PERCENTILES, SignedSummary, is_bound};

use super::latency::{RoundTrip, of_trials};
use super::method_tables::{MethodFigures, method_tables};
use super::steps::{Steps, of_kind};
use super::throughput::{self, SearchOutcome};
use crate::error::ReportError;

/// Returns the values of a case at a frame size. Every configured round has at least one value, which may be missing.
///
/// # Errors
/// [`ReportError::Histogram`] if a stored histogram is damaged.
pub(crate) fn samples(
    results: &StudyResults,
    size: FrameSize,
    case: &Case,
    measure: &Measure,
) -> Result<Vec<Sample>, ReportError> {
    let rounds = results.file.rounds;
    let mut all = Vec::new();
    for round in 0..rounds {
        let steps: Steps<'_> = results
            .steps
            .iter()
            .filter(|step| {
                step.round == round && step.case_name == case.name && step.frame_size == size
            })
            .collect();
        let of_round = Round {
            results,
            steps,
            case,
            size,
            number: round,
        };
        let values = of_round.values(measure)?;
        match values.len() {
            0 => all.push(Sample::missing(round, 0, of_round.why_nothing())),
            _ if rounds == 1 => all.extend(values),
            _ => all.push(middle(round, &values)),
        }
    }
    Ok(all)
}

/// The steps of a case in one round.
struct Round<'a> {
    results: &'a StudyResults,
    steps: Steps<'a>,
    case: &'a Case,
    size: FrameSize,
    number: u32,
}

impl Round<'_> {
    fn why_nothing(&self) -> String {
        match self.results.unavailable(&self.case.name) {
            Some(reason) => format!("{} was not run: {reason}", self.case.name),
            None => format!(
                "round {} of {} has no result",
                self.number.saturating_add(1),
                self.case.name
            ),
        }
    }

    fn values(&self, measure: &Measure) -> Result<Vec<Sample>, ReportError> {
        Ok(match &measure.quantity {
            Quantity::Rate(goal) => self.rates(goal),
            Quantity::Loss => self.losses(measure),
            Quantity::Latency | Quantity::Ipdv | Quantity::Pdv => match &measure.load {
                Some(load) => self.at_load(load, measure)?,
                None => self.round_trips(measure)?,
            },
            Quantity::SystemRecovery
            | Quantity::Reset
            | Quantity::ConnectionsPerSecond
            | Quantity::ConcurrentConnections
            | Quantity::TransactionsPerSecond
            | Quantity::ConnectionThroughput => self.procedure(&measure.quantity)?,
        })
    }

    fn numbered(&self, values: impl IntoIterator<Item = Sample>) -> Vec<Sample> {
        let numbered = (0..).zip(values);
        numbered
            .map(|(repeat, sample)| Sample { repeat, ..sample })
            .collect()
    }

    fn rates(&self, name: &str) -> Vec<Sample> {
        let goals: Vec<&Goal> = self
            .results
            .file
            .search
            .iter()
            .flat_map(|search| &search.goals)
            .collect();
        let found = throughput::of_goals(&self.steps, goals.into_iter());
        let Some(goal) = found.into_iter().find(|goal| goal.name == name) else {
            return Vec::new();
        };
        let outcomes = goal.outcomes.into_iter();
        self.numbered(outcomes.map(|outcome| of_outcome(self.number, outcome)))
    }

    fn losses(&self, measure: &Measure) -> Vec<Sample> {
        let max_rate_pps = self.results.max_rate_pps(self.case, self.size);
        let (Some(max_rate_pps), Some(load)) = (max_rate_pps, measure.load_percent) else {
            return Vec::new();
        };
        let load_pps = load.of(max_rate_pps);
        let is_at = |rate_pps: f64| (rate_pps / load_pps - 1.0).abs() < 1e-6;
        let mut points = throughput::sweep(&self.steps).into_iter();
        let point = points.find(|point| is_at(point.load_pps));
        let sample = point.map(|point| match point.loss_ratio {
            Some(loss) => Sample::exact(self.number, 0, loss.median),
            None => invalid(self.number),
        });
        sample.into_iter().collect()
    }

    fn round_trips(&self, measure: &Measure) -> Result<Vec<Sample>, ReportError> {
        let steps = || of_kind(&self.steps, &StepKind::Latency);
        let trials = || steps().flat_map(|step| step.trials.iter().map(move |trial| (step, trial)));
        if self.results.file.rounds > 1 {
            let merged = of_trials(trials())?;
            let has_trials = trials().next().is_some();
            let is_lost = trials().any(|(_, trial)| trial.result.is_valid());
            let sample = match merged {
                Some(trip) => Some(self.of_trip(&trip, measure)),
                None if is_lost => Some(all_lost(self.number)),
                None => has_trials.then(|| invalid(self.number)),
            };
            return Ok(sample.into_iter().collect());
        }
        let mut values = Vec::new();
        for (step, trial) in trials().filter(|(_, trial)| trial.result.is_valid()) {
            let trip = of_trials(std::iter::once((step, trial)))?;
            values.push(match trip {
                Some(trip) => self.of_trip(&trip, measure),
                None => all_lost(self.number),
            });
        }
        let planned = self.results.file.latency.as_ref();
        let planned = planned.map_or(0, |probe| probe.repeats);
        values.resize(values.len().max(planned as usize), invalid(self.number));
        Ok(self.numbered(values))
    }

    fn at_load(&self, load: &str, measure: &Measure) -> Result<Vec<Sample>, ReportError> {
        let tables = method_tables(&self.steps)?;
        let plans = tables.into_iter().filter_map(|table| match table.figures {
            MethodFigures::LatencyPlan { loads } => Some(loads),
            _ => None,
        });
        let mut loads = plans.flatten();
        let known = loads.find(|known| known.stands_for.iter().any(|name| name == load));
        let sample = known.map(|known| match &known.round_trip {
            Some(trip) => self.of_trip(trip, measure),
            None => invalid(self.number),
        });
        Ok(sample.into_iter().collect())
    }

    fn of_trip(&self, trip: &RoundTrip, measure: &Measure) -> Sample {
        let value = match measure.quantity {
            Quantity::Ipdv => of_signed(&trip.variation, measure.point),
            Quantity::Pdv => of_times(&trip.variation.pdv, measure.point),
            _ => return self.of_latency(trip, measure.point),
        };
        value.map_or_else(
            || self.too_few(measure.point),
            |value_ns| Sample::exact(self.number, 0, value_ns),
        )
    }

    /// Returns a latency. If much of it may be the tester's, only its upper limit is known.
    fn of_latency(&self, trip: &RoundTrip, point: Point) -> Sample {
        let own = trip.own;
        let value = match point {
            Point::Mean => Some((trip.mean_ns, own.map(|own| own.mean_ns))),
            Point::Max => Some((trip.max_ns as f64, own.map(|own| own.max_ns as f64))),
            Point::Percentile(wanted) => {
                let mut known = trip.percentiles.iter();
                let found = known.find(|known| known.percentile == wanted);
                found.map(|found| (found.latency_ns as f64, found.own_ns.map(|own| own as f64)))
            }
        };
        match value {
            Some((latency_ns, Some(own_ns))) if is_bound(latency_ns, own_ns) => {
                Sample::within(self.number, 0, Some(0.0), Some(latency_ns))
            }
            Some((latency_ns, _)) => Sample::exact(self.number, 0, latency_ns),
            None => self.too_few(point),
        }
    }

    fn too_few(&self, point: Point) -> Sample {
        let reason = match point {
            Point::Percentile(percentile) => {
                format!("too few frames for the {percentile} percentile (use longer trials)")
            }
            _ => "the store has no such measurement".to_owned(),
        };
        Sample::missing(self.number, 0, reason)
    }

    fn procedure(&self, quantity: &Quantity) -> Result<Vec<Sample>, ReportError> {
        let kind = match quantity {
            Quantity::Reset => StepKind::Reset,
            Quantity::ConnectionsPerSecond => StepKind::ConnectionsPerSecond,
            Quantity::ConcurrentConnections => StepKind::ConcurrentConnections,
            Quantity::TransactionsPerSecond => StepKind::TransactionsPerSecond,
            Quantity::ConnectionThroughput => StepKind::ConnectionThroughput,
            _ => StepKind::SystemRecovery,
        };
        let steps: Vec<&StepRecord> = of_kind(&self.steps, &kind).collect();
        let mut samples = Vec::new();
        for step in steps.into_iter().filter(|step| step.is_finished) {
            let Some(found) = &step.procedure else {
                samples.push(invalid(self.number));
                continue;
            };
            // A device that does not recover within the time observed takes longer than that.
            let longer = |limit_s: f64| Sample::within(self.number, 0, Some(limit_s), None);
            let exact = |time_s: f64| Sample::exact(self.number, 0, time_s);
            match &found.findings {
                ProcedureFindings::SystemRecovery(found) => {
                    let limit_s = found.config.reduced_s;
                    let all = found.recoveries_s.iter();
                    samples.extend(all.map(|one| one.map_or_else(|| longer(limit_s), exact)));
                }
                ProcedureFindings::Reset(found) => {
                    let limit_s = found.config.limit_s;
                    let all = found.outages.iter();
                    samples.extend(all.map(|one| {
                        one.map_or_else(|| longer(limit_s), |outage| exact(outage.by_loss_s))
                    }));
                }
                ProcedureFindings::ConnectionsPerSecond(found)
                | ProcedureFindings::ConcurrentConnections(found)
                | ProcedureFindings::TransactionsPerSecond(found) => {
                    samples.push(of_search(self.number, found));
                }
                ProcedureFindings::ConnectionThroughput(found) => {
                    let rates = found.runs.iter().map(|run| run.received_bps);
                    // A tester without idle time may have been the limit.
                    samples.extend(rates.map(|bps| {
                        let most = (!found.is_limit).then_some(bps);
                        Sample::within(self.number, 0, Some(bps), most)
                    }));
                }
                _ => {}
            }
        }
        Ok(self.numbered(samples))
    }
}

fn invalid(round: u32) -> Sample {
    Sample::missing(
        round,
        0,
        format!("the tester failed in round {}", round.saturating_add(1)),
    )
}

/// Returns the value of a latency of which no frame came back: the tester worked.
fn all_lost(round: u32) -> Sample {
    Sample::missing(
        round,
        0,
        format!(
            "the device lost every frame in round {}",
            round.saturating_add(1)
        ),
    )
}

/// Returns the result of a search over connections.
fn of_search(round: u32, found: &ConversationSearchFindings) -> Sample {
    match (found.highest_held, found.end) {
        (_, Some(ConversationSearchEnd::TesterFailed) | None) => invalid(round),
        (
            Some(highest),
            Some(ConversationSearchEnd::HeldAtMax | ConversationSearchEnd::TrialLimit),
        ) => Sample::within(round, 0, Some(highest), None),
        (Some(highest), _) => Sample::exact(round, 0, highest),
        (None, _) => Sample::within(round, 0, Some(0.0), found.lowest_failed),
    }
}

fn of_outcome(round: u32, outcome: SearchOutcome) -> Sample {
    match outcome {
        SearchOutcome::Held { rate_pps, .. } => Sample::exact(round, 0, rate_pps),
        SearchOutcome::AtLeast { rate_pps } => Sample::within(round, 0, Some(rate_pps), None),
        // Every rate tried lost too much. Lower ones were not tried.
        SearchOutcome::NothingHeld { lowest_tried_pps } => {
            Sample::within(round, 0, Some(0.0), Some(lowest_tried_pps))
        }
        SearchOutcome::TesterFailed => invalid(round),
        SearchOutcome::Unfinished => Sample::missing(
            round,
            0,
            format!("round {} is unfinished", round.saturating_add(1)),
        ),
    }
}

/// Returns a value of the delay variation between consecutive frames; none without samples.
pub(super) fn of_signed(variation: &DelayVariation, point: Point) -> Option<f64> {
    let times: &SignedSummary = &variation.ipdv;
    let percentiles = times.percentiles().map(|value| value.map(|ns| ns as f64));
    let value_ns = of_point(point, times.mean_ns, times.max_ns as f64, percentiles);
    value_ns.filter(|_| times.samples > 0)
}

/// Returns a value of a distribution of times; none without samples.
pub(super) fn of_times(times: &LatencySummary, point: Point) -> Option<f64> {
    let percentiles = times.percentiles().map(|value| value.map(|ns| ns as f64));
    let value_ns = of_point(point, times.mean_ns, times.max_ns as f64, percentiles);
    value_ns.filter(|_| times.samples > 0)
}

/// Returns a value of a distribution. `percentiles` are those of [`PERCENTILES`].
fn of_point(
    point: Point,
    mean: f64,
    max: f64,
    percentiles: [Option<f64>; PERCENTILES.len()],
) -> Option<f64> {
    match point {
        Point::Mean => Some(mean),
        Point::Max => Some(max),
        Point::Percentile(wanted) => {
            let mut all = PERCENTILES.iter().zip(percentiles);
            all.find(|(known, _)| **known == wanted)?.1
        }
    }
}

/// Returns the median of the repeats of a round, as one value with the limits that are certain.
fn middle(round: u32, values: &[Sample]) -> Sample {
    if let [value] = values {
        return value.clone();
    }
    if let Some(reason) = values.iter().find_map(|value| value.missing.as_ref()) {
        return Sample::missing(round, 0, reason.as_str());
    }
    let [low, high] = median_limits(values);
    Sample::within(round, 0, low, high)
}
