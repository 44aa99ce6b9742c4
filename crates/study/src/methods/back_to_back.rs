// SPDX-License-Identifier: Apache-2.0
//! `[back-to-back]`: the longest burst without loss (RFC 2544, section 26.4; RFC 9004).

use quietwire_search::ConfigError;
use quietwire_search::procedure::{BackToBack, BackToBackConfig};
use serde::{Deserialize, Serialize};

use super::checks::optional_duration;
use super::estimate::{CONFIDENCE, Estimate, actions, halvings};
use super::machine::Machine;
use super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::step_kind::StepKind;
use super::throughput::{self, Throughput};
use crate::file::limits::{Checked, REPEATS_MAX, between, duration};
use crate::file::locate::At::Key;
use crate::file::{Percent, SearchMethod};

/// Search for the longest burst without loss (`[back-to-back]`; RFC 2544, section 26.4; RFC 9004).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BackToBackPlan {
    /// Name of the goal whose rate is the throughput. Default: `NDR`.
    pub goal: Option<String>,
    /// Throughput in percent of the maximum rate. It replaces a goal.
    pub rate_percent: Option<Percent>,
    /// Longest burst, seconds of frames at the maximum rate. Default: 2 (RFC 2544).
    #[serde(default = "longest_burst_s")]
    pub longest_burst_s: f64,
    /// Resolution of the search for the longest burst, frames. Default: 1.
    #[serde(default = "resolution_frames")]
    pub resolution_frames: u32,
    /// Number of repeats of that search. Default: 50 (RFC 2544).
    #[serde(default = "repeats")]
    pub repeats: u32,
    /// Pause after each burst, seconds. Default: 2, the time of the longest burst, or `drain-s` of `[trials]`,
    /// whichever is longest (RFC 9004, section 6.2).
    pub pause_s: Option<f64>,
}

/// Shortest pause after a burst, seconds (RFC 9004, section 6.2).
const PAUSE_MIN_S: f64 = 2.0;

fn longest_burst_s() -> f64 {
    2.0
}

fn resolution_frames() -> u32 {
    1
}

fn repeats() -> u32 {
    50
}

impl BackToBackPlan {
    /// Returns the pause after each burst for trials with this drain time, seconds.
    fn pause_s(&self, drain_s: f64) -> f64 {
        self.pause_s
            .unwrap_or(PAUSE_MIN_S.max(self.longest_burst_s).max(drain_s))
    }
}

impl Method for BackToBackPlan {
    fn section(&self) -> &'static str {
        "back-to-back"
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("back-to-back"), Key(key)];
        throughput::check(
            around,
            "back-to-back",
            self.goal.as_ref(),
            self.rate_percent,
        )?;
        duration(self.longest_burst_s, &at("longest-burst-s"))?;
        between(
            self.resolution_frames,
            1,
            u32::MAX,
            &at("resolution-frames"),
        )?;
        between(self.repeats, 1, REPEATS_MAX, &at("repeats"))?;
        optional_duration(self.pause_s, &at("pause-s"))
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let bursts = Bursts {
            plan: self.clone(),
            goals: around.goals(),
        };
        Planned::new(StepKind::BackToBack, around.trials.duration_s, bursts)
    }

    fn shorten(&mut self) {}
}

/// Plan of the work; `goals` are the names of all goals, in order.
#[derive(Debug)]
struct Bursts {
    plan: BackToBackPlan,
    goals: Vec<String>,
}

impl Work for Bursts {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "frames of a checked time at a checked rate, and the cast saturates"
    )]
    fn machine(&self, common: &Common, found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let plan = &self.plan;
        let throughput = Throughput::new(plan.goal.as_ref(), plan.rate_percent);
        let throughput_pps = throughput
            .pps(common, &self.goals, found)
            // A device that forwards every rate never buffers frames (RFC 9004, section 4).
            .filter(|rate_pps| *rate_pps < common.max_rate_pps);
        let Some(throughput_pps) = throughput_pps else {
            return Ok(Machine::Nothing);
        };
        let bursts = BackToBack::new(BackToBackConfig {
            max_rate_pps: common.max_rate_pps,
            throughput_pps,
            max_burst_frames: (common.max_rate_pps * plan.longest_burst_s).ceil() as u64,
            resolution_frames: u64::from(plan.resolution_frames),
            repeats: plan.repeats,
            pause_s: plan.pause_s(common.drain_s),
            confidence: CONFIDENCE,
            max_invalid_repeats: common.invalid_repeats,
        })?;
        Ok(Machine::Procedure(Box::new(bursts)))
    }

    fn bound(&self, common: &Common) -> Estimate {
        let plan = &self.plan;
        let frames = common.max_rate_pps * plan.longest_burst_s;
        let bursts = halvings(frames, plan.resolution_frames) * f64::from(plan.repeats);
        let each_s = plan.longest_burst_s / 2.0 + plan.pause_s(common.drain_s);
        actions(bursts, each_s)
    }
}

impl Offered for BackToBackPlan {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "back-to-back",
        section: "back-to-back",
        defaults: &[],
        search: RateSearch::UnlessRates(SearchMethod::SingleRun),
    }];
}
