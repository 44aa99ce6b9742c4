// SPDX-License-Identifier: Apache-2.0
//! State of a running study, for the progress output.

use std::time::{Duration, Instant};

use quietwire_search::procedure::{Action, ConversationLoad, Observation};
use quietwire_study::{ActionEvent, CaseSpec, Estimate, StepKind, StudyFile, TrialEvent};
use quietwire_tester::is_bound;

/// Most finished steps that are kept.
const DONE_MAX: usize = 100;

/// Bounds of a goal's result, from the trials of its search so far.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) goal: String,
    pub(super) loss_ratio: f64,
    /// Highest rate within the loss ratio, frames per second.
    pub(super) held_pps: Option<f64>,
    /// Lowest rate above the loss ratio, frames per second.
    pub(super) lost_pps: Option<f64>,
}

impl Interval {
    fn take(&mut self, rate_pps: f64, loss_ratio: f64) {
        if loss_ratio <= self.loss_ratio {
            self.held_pps = Some(self.held_pps.map_or(rate_pps, |held| held.max(rate_pps)));
        } else {
            self.lost_pps = Some(self.lost_pps.map_or(rate_pps, |lost| lost.min(rate_pps)));
        }
    }
}

/// The last trial.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Last {
    pub(super) rate_pps: f64,
    pub(super) loss_ratio: f64,
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
    /// The tester's own part of these two, nanoseconds; none without a calibration.
    pub(super) own_ns: Option<[u64; 2]>,
    pub(super) is_valid: bool,
}

/// The displayed state.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) title: String,
    pub(super) case: String,
    pub(super) round: u32,
    pub(super) rounds: u32,
    pub(super) frame_size: String,
    pub(super) step: String,
    pub(super) max_rate_pps: Option<f64>,
    pub(super) last: Option<Last>,
    pub(super) last_action: Option<String>,
    pub(super) intervals: Vec<Interval>,
    pub(super) trials: u32,
    pub(super) invalid: u32,
    pub(super) estimate: Estimate,
    pub(super) done: Vec<String>,
    goals: Vec<Interval>,
    /// Trials of this run. Trials of an earlier run give no duration for the estimate.
    made_now: u32,
    began: Instant,
}

impl State {
    pub(super) fn new(file: &StudyFile) -> Self {
        let goals = file.search.iter().flat_map(|search| &search.goals);
        Self {
            title: file.title.clone(),
            case: String::new(),
            round: 0,
            rounds: file.rounds,
            frame_size: String::new(),
            step: String::new(),
            max_rate_pps: None,
            last: None,
            last_action: None,
            intervals: Vec::new(),
            trials: 0,
            invalid: 0,
            estimate: Estimate::of(file),
            done: Vec::new(),
            goals: goals
                .map(|goal| Interval {
                    goal: goal.name.clone(),
                    loss_ratio: goal.loss_ratio,
                    held_pps: None,
                    lost_pps: None,
                })
                .collect(),
            made_now: 0,
            began: Instant::now(),
        }
    }

    pub(super) fn entering(&mut self, case: &CaseSpec) {
        self.case.clone_from(&case.case.name);
        self.round = case.round;
    }

    pub(super) fn max_rate(&mut self, max_rate_pps: f64) {
        self.max_rate_pps = Some(max_rate_pps);
    }

    fn place(&mut self, case: &str, size: String, kind: &StepKind, sequence: u32) {
        if sequence == 0 || self.step != kind.to_string() {
            let of_step = |goal: &&Interval| kind.searches_for(&goal.goal);
            self.intervals = self.goals.iter().filter(of_step).cloned().collect();
        }
        case.clone_into(&mut self.case);
        self.frame_size = size;
        self.step = kind.to_string();
        self.trials = self.trials.saturating_add(1);
    }

    fn count(&mut self, is_replayed: bool, is_valid: bool) {
        self.made_now = self.made_now.saturating_add(u32::from(!is_replayed));
        self.invalid = self.invalid.saturating_add(u32::from(!is_valid));
    }

    pub(super) fn trial(&mut self, event: &TrialEvent<'_>) {
        let result = event.result;
        self.place(
            event.case,
            event.frame_size.to_string(),
            event.kind,
            event.sequence,
        );
        self.count(event.is_replayed, result.is_valid());
        let rate_pps = result.trial.offered_rate_pps;
        if result.is_valid() {
            for interval in &mut self.intervals {
                interval.take(rate_pps, result.loss_ratio);
            }
        }
        let cited = result.calibration.as_ref();
        let own = cited.and_then(|cited| cited.own.as_ref());
        let own_ns = own.map(|own| [own.at_or_max(50.0), own.at_or_max(99.0)]);
        self.last_action = None;
        self.last = Some(Last {
            rate_pps,
            loss_ratio: result.loss_ratio,
            p50_ns: result.latency.p50_ns,
            p99_ns: result.latency.p99_ns,
            own_ns,
            is_valid: result.is_valid(),
        });
    }

    pub(super) fn action(&mut self, event: &ActionEvent<'_>) {
        self.place(
            event.case,
            event.frame_size.to_string(),
            event.kind,
            event.sequence,
        );
        let is_valid = !matches!(event.observation, Observation::Invalid { .. });
        self.count(event.is_replayed, is_valid);
        self.last_action = Some(describe_action(event));
    }

    pub(super) fn step_done(&mut self, case: &str, kind: &StepKind) {
        let intervals: Vec<String> = self.intervals.iter().map(within).collect();
        self.remark(&format!("{case}, {kind} {}", intervals.join("; ")));
    }

    /// Adds a line to the finished steps.
    pub(super) fn remark(&mut self, line: &str) {
        self.done.push(line.trim_end().to_owned());
        if self.done.len() > DONE_MAX {
            self.done.remove(0);
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Estimates the remaining time from the rate of trials so far; none before the first trial of this run. Searches usually end
    /// earlier than estimated.
    pub(super) fn left(&self, elapsed: Duration) -> Option<Duration> {
        let to_do = self.estimate.trials.saturating_sub(self.trials);
        let each = elapsed.checked_div(self.made_now)?;
        Some(each.saturating_mul(to_do))
    }
}

/// Formats a latency. If too much of it may be the tester's own part, it is marked as an upper bound.
pub(super) fn latency_us(ns: u64, own_ns: Option<u64>) -> String {
    let is_withheld = own_ns.is_some_and(|own_ns| is_bound(ns as f64, own_ns as f64));
    let mark = if is_withheld { "<" } else { "" };
    format!("{mark}{:.1} us", ns as f64 / 1e3)
}

/// Formats an interval like `6.100 to 6.300 Mpps`, with the bounds known so far.
pub(super) fn within(interval: &Interval) -> String {
    let mpps = |rate: f64| format!("{:.3}", rate / 1e6);
    match (interval.held_pps, interval.lost_pps) {
        (Some(held), Some(lost)) if held >= lost => {
            format!(
                "{} Mpps passed but {} Mpps failed: inconsistent",
                mpps(held),
                mpps(lost)
            )
        }
        (Some(held), Some(lost)) => format!("{} to {} Mpps", mpps(held), mpps(lost)),
        (Some(held), None) => format!("{} Mpps or more", mpps(held)),
        (None, Some(lost)) => format!("under {} Mpps", mpps(lost)),
        (None, None) => "nothing known yet".to_owned(),
    }
}

/// Formats a load with connections.
fn describe_load(load: &ConversationLoad) -> String {
    match load {
        ConversationLoad::Connections { per_s } => format!("{per_s:.0} connections per second"),
        ConversationLoad::Open { connections, .. } => format!("{connections} open connections"),
        ConversationLoad::Transactions { connections, per_s } => {
            format!("{per_s:.0} transactions per second on {connections} connections")
        }
        ConversationLoad::Transfer { connections, .. } => {
            format!("transfers on {connections} connections")
        }
    }
}

/// Formats an action and its observation in one line.
pub(super) fn describe_action(event: &ActionEvent<'_>) -> String {
    let action = match event.action {
        Action::Burst { frames, .. } => format!("burst of {frames} frames"),
        Action::StepDown { overload_pps, .. } => {
            format!("overload of {:.3} Mpps", overload_pps / 1e6)
        }
        Action::Restart { .. } => "restart".to_owned(),
        Action::FlushFdb => "addresses flushed".to_owned(),
        Action::Learn {
            addresses,
            rate_pps,
        } => {
            format!("{addresses} addresses at {rate_pps:.0} per second")
        }
        Action::Probe { addresses, .. } => format!("frames to {addresses} addresses"),
        Action::Converse(trial) => describe_load(&trial.load),
    };
    let observed = match event.observation {
        Observation::Passed { lost_frames, .. } => format!("{lost_frames} lost"),
        Observation::Recovered { after_s: Some(s) } => format!("recovered after {:.3} ms", s * 1e3),
        Observation::Recovered { after_s: None } => "did not recover".to_owned(),
        Observation::Restored {
            lost_frames: Some(lost),
            ..
        } => format!("came back, {lost} frames lost"),
        Observation::Restored { .. } => "did not come back".to_owned(),
        Observation::Done => return action,
        Observation::Probed {
            flooded_frames,
            lost_frames,
        } => format!("{flooded_frames} flooded, {lost_frames} lost"),
        Observation::Conversed(counts) => {
            format!("{} of {} failed", counts.failed, counts.attempted)
        }
        Observation::Invalid { reason, .. } => format!("INVALID: {reason}"),
    };
    format!("{action}: {observed}")
}
