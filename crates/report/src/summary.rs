// SPDX-License-Identifier: Apache-2.0
//! Summary of the results: computes every figure that a report shows.

mod activity;
mod alike;
mod application;
mod case;
mod cycles;
mod efficiency;
mod findings;
mod functions;
mod latency;
mod limit;
mod losses;
mod method_tables;
mod occupants;
mod profile;
mod published;
mod ranking;
mod samples;
mod spread;
mod steps;
mod tenants;
mod throughput;
mod timeline;
mod verdicts;

use std::collections::BTreeMap;

use quietwire_study::{
    Case, FrameSize, Goal, NeighboursIn, RunEnd, StepPlan, StudyFile, StudyResults, TrialRecord,
    Verdict,
};
use quietwire_tester::{DamageCheck, FrameSizes, InvalidCause};
use serde::Serialize;

use crate::error::ReportError;

pub use activity::{CpuShare, NeighbourShare, ThreadShare};
pub use alike::LikeForLike;
pub use application::Applications;
pub use case::{CaseSummary, Health};
pub use cycles::{CpuRate, CycleSource, CyclesPerFrame};
pub use efficiency::Efficiency;
pub use findings::MachineFinding;
pub use functions::FunctionCost;
pub use latency::{OwnPart, PercentileValue, RoundTrip};
pub use limit::{Limit, Limiter, TrialLimit};
pub use losses::LossPlaces;
pub(crate) use method_tables::soak_end;
pub use method_tables::{LatencyAtLoad, LossesAtRate, MethodFigures, MethodResult, RepeatedRates};
pub(crate) use occupants::{Occupant, occupants};
pub use profile::TrialProfile;
pub use published::{MeasuredRatios, PublishedRow};
pub use ranking::{RankedCase, Ranking};
pub(crate) use samples::samples;
pub use spread::Spread;
pub(crate) use spread::percent_of;
pub(crate) use steps::{Steps, measured};
pub use tenants::{TenantsAt, TenantsFound, TenantsSummary};
pub use throughput::{GoalSummary, HighestLoad, LossPoint, SearchOutcome, SweepPoint};
#[cfg(test)]
pub(crate) use timeline::CpuColumn;
pub(crate) use timeline::{CpuTimeline, timeline};
pub use verdicts::{Baselines, ObjectiveVerdict};
pub(crate) use verdicts::{STARVED, value_text};

/// Summary of a whole study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Name of the study.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Start of the study, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// Time between the first and the last event, over all runs, seconds.
    pub running_time_s: f64,
    /// State of the study.
    pub state: State,
    /// True for a simulated study, in which nothing was measured.
    pub is_simulated: bool,
    /// True for a study that `--quick` shortened.
    pub is_quick: bool,
    /// Configured number of rounds.
    pub rounds: u32,
    /// Number of trials.
    pub trials: usize,
    /// Invalid trials, in which the tester failed.
    pub invalid_trials: usize,
    /// Causes of invalid trials with their counts, the most frequent first. A trial counts under the cause of its first reason.
    pub invalid_causes: Vec<(InvalidCause, usize)>,
    /// Baseline: the case that others are compared with.
    pub baseline: String,
    /// Cases that are unavailable on this machine. They are not run, and nothing is compared with them.
    pub unavailable: Vec<UnavailableCase>,
    /// Verdicts about the objectives, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<ObjectiveVerdict>,
    /// Causes that the monitors' data shows, by case.
    pub findings: Vec<MachineFinding>,
    /// One summary for each frame size.
    pub sizes: Vec<SizeSummary>,
}

/// A case that was not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnavailableCase {
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Why the machine cannot run it, or what happened.
    pub reason: String,
    /// True if the machine has everything for the case, but its device did not start or stopped.
    pub has_failed: bool,
}

/// State of a study.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum State {
    /// Finished.
    Finished,
    /// Interrupted by a user.
    Interrupted,
    /// Failed.
    Failed(String),
    /// Running or killed.
    Unfinished,
}

/// Results at one frame size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeSummary {
    /// Octets with FCS, or `imix`.
    pub frame_size: String,
    /// Composition of the mix; none if all frames have one size.
    pub mix: Option<MixSummary>,
    /// 100 % of the load in all cases, frames per second; none if it was not found, or differs between cases.
    pub max_rate_pps: Option<f64>,
    /// Cases, in the order of the file.
    pub cases: Vec<CaseSummary>,
    /// A partitioned case with neighbours compared with the same case without; none if the study has no such pair.
    pub like_for_like: Option<LikeForLike>,
    /// Rankings of different switches; none if the study has no two that can be compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rankings: Vec<Ranking>,
    /// Maximum number of tenants; none if the study adds no tenants.
    pub tenants: Option<TenantsSummary>,
    /// Published figures next to measured ones, as ratios.
    pub published: Vec<PublishedRow>,
}

/// Octets of each frame on the wire beside the frame: preamble, start delimiter and gap (IEEE 802.3, clauses 3.1.1 and 4.4.2).
pub(crate) const AROUND_FRAME: f64 = 20.0;

impl SizeSummary {
    /// Returns the bits of a frame on the wire, of a mix their mean; none if the size is unknown.
    pub(crate) fn wire_bits(&self) -> Option<f64> {
        let octets = match &self.mix {
            Some(mix) => mix.mean_octets(),
            None => self.frame_size.parse().ok()?,
        };
        Some((octets + AROUND_FRAME) * 8.0)
    }
}

/// Composition of a mix of frame sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MixSummary {
    /// The order of the sizes, in the notation of RFC 6985.
    pub genome: String,
    /// Sizes, ascending.
    pub shares: Vec<SizeShare>,
}

/// One size of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeShare {
    /// Octets with FCS.
    pub octets: u16,
    /// Frames of this size in one round of the mix.
    pub frames: u32,
}

impl MixSummary {
    /// Returns the composition of a mix. None if all frames have one size.
    pub(crate) fn of(sizes: FrameSizes) -> Option<Self> {
        Some(Self {
            genome: sizes.genome()?.to_owned(),
            shares: SizeShare::of_composition(sizes.composition()),
        })
    }

    /// Returns the mean size, octets with FCS.
    fn mean_octets(&self) -> f64 {
        let sums = self.shares.iter().map(|share| {
            let frames = f64::from(share.frames);
            (f64::from(share.octets) * frames, frames)
        });
        let (octets, frames) = sums.fold((0.0, 0.0), |(octets, frames), (more, number)| {
            (octets + more, frames + number)
        });
        octets / f64::max(frames, 1.0)
    }
}

impl SizeShare {
    /// Returns the shares of the sizes of a sequence of frames.
    pub(crate) fn of(sizes: Vec<u16>) -> Vec<Self> {
        let mut composition: BTreeMap<u16, u32> = BTreeMap::new();
        for size in sizes {
            let count = composition.entry(size).or_default();
            *count = count.saturating_add(1);
        }
        Self::of_composition(composition)
    }

    fn of_composition(composition: BTreeMap<u16, u32>) -> Vec<Self> {
        let shares = composition.into_iter();
        shares
            .map(|(octets, frames)| Self { octets, frames })
            .collect()
    }
}

impl Summary {
    /// Returns the objectives with this verdict.
    pub fn objectives_with(&self, verdict: Verdict) -> impl Iterator<Item = &ObjectiveVerdict> {
        let all = self.verdicts.iter();
        all.filter(move |one| one.judgement.verdict == verdict)
    }

    /// Computes the summary, without baselines.
    ///
    /// # Errors
    /// [`ReportError::Histogram`] if a stored histogram is damaged.
    pub fn of(results: &StudyResults) -> Result<Self, ReportError> {
        Self::with_baselines(results, &Baselines::new())
    }

    /// Computes the summary. Objectives with a baseline are judged by its results.
    ///
    /// # Errors
    /// [`ReportError::Histogram`] if a stored histogram is damaged.
    pub fn with_baselines(
        results: &StudyResults,
        baselines: &Baselines,
    ) -> Result<Self, ReportError> {
        let file = &results.file;
        let sizes = file.traffic.frame_sizes.iter();
        let sizes = sizes
            .map(|size| of_size(results, *size))
            .collect::<Result<Vec<_>, _>>()?;
        let of_sizes = sizes.iter().map(|size| size.cases.as_slice());
        let findings = findings::findings(results, of_sizes);
        Ok(Self {
            name: file.name.clone(),
            title: file.title.clone(),
            started_unix_ns: results.started_unix_ns,
            running_time_s: running_time_s(results),
            state: state(results),
            is_simulated: results.runs.iter().any(|run| run.facts.is_simulated),
            is_quick: file.quick,
            rounds: file.rounds,
            trials: results.trials().count(),
            invalid_trials: invalid(results.trials().map(|(_, trial)| trial)),
            invalid_causes: causes(results.trials().map(|(_, trial)| trial)),
            baseline: measured(results)
                .next()
                .map_or_else(String::new, |case| case.name.clone()),
            unavailable: unavailable(results),
            verdicts: verdicts::verdicts(results, baselines)?,
            findings,
            sizes,
        })
    }
}

fn unavailable(results: &StudyResults) -> Vec<UnavailableCase> {
    let cases = results.file.cases.iter();
    let left_out = cases.filter_map(|case| {
        Some(UnavailableCase {
            name: case.name.clone(),
            description: description(&results.file, case),
            reason: results.unavailable(&case.name)?.to_owned(),
            has_failed: results.has_failed(&case.name),
        })
    });
    left_out.collect()
}

fn invalid<'a>(trials: impl Iterator<Item = &'a TrialRecord>) -> usize {
    trials.filter(|trial| !trial.result.is_valid()).count()
}

fn state(results: &StudyResults) -> State {
    let file = &results.file;
    let of_cases = measured(results).map(|case| StepPlan::of_case(file, case).len());
    let planned = (file.rounds as usize)
        .saturating_mul(file.traffic.frame_sizes.len())
        .saturating_mul(of_cases.sum::<usize>());
    let finished = results.steps.iter().filter(|step| step.is_finished).count();
    match results.runs.last().and_then(|run| run.end.as_ref()) {
        Some((RunEnd::Failed(reason), _)) => State::Failed(reason.clone()),
        _ if finished >= planned && tenants::is_through(results) => State::Finished,
        Some((RunEnd::Interrupted, _)) => State::Interrupted,
        _ => State::Unfinished,
    }
}

/// Returns the sum over runs, which excludes the time between an interruption and the next run.
fn running_time_s(results: &StudyResults) -> f64 {
    let of_run = |(index, run): (usize, &quietwire_study::RunRecord)| {
        let last_trial = results
            .trials()
            .filter(|(_, trial)| trial.run == index)
            .map(|(_, trial)| trial.stored_unix_ns)
            .max();
        let end = run.end.as_ref().map(|(_, when)| *when).or(last_trial);
        end.unwrap_or(run.started_unix_ns)
            .saturating_sub(run.started_unix_ns)
    };
    results.runs.iter().enumerate().map(of_run).sum::<u64>() as f64 / 1e9
}

fn of_size(results: &StudyResults, size: FrameSize) -> Result<SizeSummary, ReportError> {
    let max_rate_pps = results
        .max_rates
        .iter()
        .find(|known| known.frame_size == size && known.case_name.is_none())
        .map(|known| known.rate_pps);
    let mut cases = measured(results)
        .map(|case| of_case(results, size, case))
        .collect::<Result<Vec<_>, _>>()?;
    throughput::set_highest_loads(&mut cases);
    set_against_first(&mut cases);
    Ok(SizeSummary {
        frame_size: size.to_string(),
        mix: MixSummary::of(size.0),
        max_rate_pps,
        like_for_like: alike::of_cases(&results.file, &cases),
        rankings: ranking::of_cases(&results.file, &cases),
        tenants: tenants::of_size(results, size),
        published: published::rows(results, &cases),
        cases,
    })
}

fn of_case(
    results: &StudyResults,
    size: FrameSize,
    case: &Case,
) -> Result<CaseSummary, ReportError> {
    let steps: Steps<'_> = results
        .steps
        .iter()
        .filter(|step| step.case_name == case.name && step.frame_size == size)
        .collect();
    let searched: Vec<&Goal> = results
        .file
        .search
        .iter()
        .flat_map(|search| &search.goals)
        .collect();
    let goals = throughput::of_goals(&steps, searched.iter().copied());
    let limits = searched
        .iter()
        .zip(&goals)
        .map(|(goal, found)| limit::of_goal(&steps, goal, found));
    let limits = limits.collect();
    let sweep = throughput::sweep(&steps);
    let trials: Vec<&TrialRecord> = steps.iter().flat_map(|step| &step.trials).collect();
    let places = results.runs.last().map(|run| &run.facts.cpus[..]);
    Ok(CaseSummary {
        name: case.name.clone(),
        description: description(&results.file, case),
        max_rate_pps: results.max_rate_pps(case, size),
        goals,
        limits,
        highest_load: None,
        sweep,
        points: throughput::points(&steps),
        round_trip: latency::round_trip(&steps)?,
        applications: application::of_steps(&steps),
        methods: method_tables::method_tables(&steps)?,
        cycles: cycles::of_frames(&trials),
        own_cycles: cycles::by_own_account(&trials),
        cpu_cycles: cycles::by_one_measure(&trials),
        cpu_rate: cycles::by_full_share(&trials),
        functions: functions::of_chain(&trials),
        efficiency: efficiency::of_trials(
            &trials,
            places.unwrap_or_default(),
            efficiency::line_rate_bps(results, case),
        ),
        warnings: warnings(results, case),
        cpus: activity::cpus(&trials),
        threads: activity::threads(&trials),
        neighbours: activity::neighbours(&trials, steps.iter().flat_map(|step| &step.actions)),
        losses: losses::of_trials(&trials),
        health: health(&trials),
    })
}

/// Computes percentages of the first case's figures.
fn set_against_first(cases: &mut [CaseSummary]) {
    let Some(first) = cases.first().cloned() else {
        return;
    };
    for case in cases {
        for (goal, base) in case.goals.iter_mut().zip(&first.goals) {
            goal.percent_of_baseline = match (&goal.rate_pps, &base.rate_pps) {
                // No rate held. That is no rate, not 0 % of one.
                (Some(rate), Some(base)) if rate.median > 0.0 => {
                    percent_of(rate.median, base.median)
                }
                _ => None,
            };
        }
        if let (Some(top), Some(base)) = (&mut case.highest_load, &first.highest_load) {
            top.percent_of_baseline =
                percent_of(top.forwarding_pps.median, base.forwarding_pps.median);
        }
        if let (Some(trip), Some(base)) = (&mut case.round_trip, &first.round_trip) {
            trip.set_against(base);
        }
    }
}

/// Description of the isolation of a device that quietwire does not start.
const NOT_OURS: &str =
    "a device that quietwire does not start: what else runs on its CPUs is unknown";

/// Returns the description of a case.
pub(crate) fn description(file: &StudyFile, case: &Case) -> String {
    let is_isolated = case.isolation().is_some_and(|it| !it.parts.is_empty());
    if file.is_external() && !is_isolated && case.neighbours == NeighboursIn::None {
        return NOT_OURS.to_owned();
    }
    let neighbours = match case.neighbours {
        NeighboursIn::None => "no neighbours",
        NeighboursIn::Everywhere if case.keeps_others_off() && case.isolation().is_some() => {
            "neighbours on every CPU available to them"
        }
        NeighboursIn::Everywhere => "neighbours on every CPU",
        NeighboursIn::OffForwardingCpus => "neighbours excluded from the forwarding CPUs",
        NeighboursIn::ForwardingCpus => "neighbours on the forwarding CPUs, and no others",
        NeighboursIn::Siblings => "neighbours on the forwarding cores' other threads",
        NeighboursIn::SameLlc => {
            "neighbours on other cores that share the forwarding CPUs' last-level cache"
        }
        NeighboursIn::OtherNode => "neighbours on NUMA nodes without a forwarding CPU",
    };
    let neighbours = match &case.kinds {
        Some(kinds) => format!("{neighbours} ({})", kinds.join(", ")),
        None => neighbours.to_owned(),
    };
    if file.runs_in_topologies() {
        return format!("{}, {neighbours}", device(file, case));
    }
    if let Some(isolation) = case.isolation() {
        return format!("{neighbours}; {}: {}", isolation.name, isolation.about);
    }
    let pinning = if case.is_pinned() {
        "switch threads pinned by role"
    } else {
        "switch threads placed by the scheduler"
    };
    let partition = if case.keeps_others_off() {
        ", everything else excluded from the forwarding CPUs"
    } else {
        ""
    };
    format!("{neighbours}, {pinning}{partition}")
}

/// Returns the description of a case's device and its traffic.
fn device(file: &StudyFile, case: &Case) -> String {
    let mut parts = vec![file.device_of(case).described()];
    let traffic = file.traffic_of(case);
    let counts = [
        (traffic.mac_addresses, "MAC addresses"),
        (traffic.ip_destinations, "IP destinations"),
        (u32::from(traffic.flows), "flows"),
    ];
    for (count, what) in counts.iter().filter(|(count, _)| *count > 1) {
        let count = crate::format::grouped(u64::from(*count));
        parts.push(format!("{count} {what} each way"));
    }
    parts.join(", ")
}

/// Returns the caveats of the lab, or of the tester beside a device that the lab did not start, for a case's figures. They are the same at
/// each setup.
fn warnings(results: &StudyResults, case: &Case) -> Vec<String> {
    let mut entries = results.entries.iter().rev();
    let entry = entries.find(|entry| entry.case_name == case.name);
    let Some(facts) = entry.map(|entry| &entry.facts) else {
        return Vec::new();
    };
    let of_lab = facts.lab.iter().flat_map(|lab| &lab.warnings);
    let of_tester = facts.tester.iter().flat_map(|tester| &tester.warnings);
    of_lab.chain(of_tester).cloned().collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "gaps are whole nanoseconds, and the cast saturates"
)]
fn health(trials: &[&TrialRecord]) -> Health {
    let all = || trials.iter().map(|trial| &trial.result);
    let gaps = all().map(|result| result.health.longest_gap_ns as f64);
    let gaps = Spread::of(gaps.collect());
    let pacing = all().filter(|result| result.is_valid());
    Health {
        trials: trials.len(),
        invalid: invalid(trials.iter().copied()),
        causes: causes(trials.iter().copied()),
        reasons: reasons(trials),
        worst_pacing_miss_ratio: pacing
            .map(|result| result.health.pacing_miss_ratio)
            .fold(0.0, f64::max),
        median_longest_gap_ns: gaps.as_ref().map_or(0, |gaps| gaps.median as u64),
        longest_gap_ns: gaps.map_or(0, |gaps| gaps.max as u64),
        gaps_over_100us: all().map(|result| result.health.gaps_over_100us).sum(),
        damage_checks: damage_checks(trials),
        receive_drops: all().map(|result| result.health.receive_drops).sum(),
        without_realtime: all().filter(|result| !result.health.realtime).count(),
    }
}

/// Returns the scopes of the check for damage, each once.
fn damage_checks(trials: &[&TrialRecord]) -> Vec<DamageCheck> {
    let checks = trials.iter().filter_map(|trial| trial.result.damage_check);
    let mut checks: Vec<DamageCheck> = checks.collect();
    checks.sort_unstable();
    checks.dedup();
    checks
}

/// Returns the invalid trials by cause, the most frequent first.
fn causes<'a>(trials: impl Iterator<Item = &'a TrialRecord>) -> Vec<(InvalidCause, usize)> {
    let all: Vec<InvalidCause> = trials
        .filter_map(|trial| trial.result.validity.cause())
        .collect();
    let counted = InvalidCause::ALL.into_iter().map(|cause| {
        let count = all.iter().filter(|it| **it == cause).count();
        (cause, count)
    });
    let mut counted: Vec<_> = counted.filter(|(_, count)| *count > 0).collect();
    counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counted
}

fn reasons(trials: &[&TrialRecord]) -> Vec<(String, usize)> {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for trial in trials {
        for reason in trial.result.validity.reasons() {
            let kind = without_numbers(&reason.text);
            match counted.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, count)) => *count = count.saturating_add(1),
                None => counted.push((kind, 1)),
            }
        }
    }
    counted.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
    counted
}

/// Replaces every number by `…`, so that sentences that differ in numbers only are equal.
fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        let is_of_number =
            c.is_ascii_digit() || (plain.ends_with('…') && (c == '.' || c == ',') && c != ' ');
        if !is_of_number {
            plain.push(c);
        } else if !plain.ends_with('…') {
            plain.push('…');
        }
    }
    plain
}
