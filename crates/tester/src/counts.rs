// SPDX-License-Identifier: Apache-2.0
//! Results computed from counters alone, for generators that do not report each frame.

use crate::latency::{DelayVariation, LatencySummary, LowRateStreams};
use crate::series::TrialSeries;
use crate::trial::{PortResult, TesterHealth, Trial, TrialResult};
use crate::validity::Validity;

impl TrialResult {
    /// Returns a valid result of a trial with these numbers of offered and received frames, all in one port's name. More received than
    /// offered frames count as no loss; the caller sets `validity` if they are an error.
    #[must_use]
    pub fn of_counts(
        trial: &Trial,
        elapsed_s: f64,
        offered_frames: u64,
        received_frames: u64,
        latency: LatencySummary,
    ) -> Self {
        let lost_frames = offered_frames.saturating_sub(received_frames);
        let rate = |frames: u64| {
            if elapsed_s > 0.0 {
                frames as f64 / elapsed_s
            } else {
                0.0
            }
        };
        Self {
            trial: trial.clone(),
            started_unix_ns: 0,
            elapsed_s,
            scheduled_frames: offered_frames,
            offered_frames,
            received_frames,
            lost_frames,
            loss_ratio: lost_frames as f64 / offered_frames.max(1) as f64,
            duplicate_frames: 0,
            damaged_frames: 0,
            damage_check: None,
            stale_frames: 0,
            reordered_frames: 0,
            achieved_rate_pps: rate(offered_frames),
            forwarding_rate_pps: rate(received_frames),
            latency,
            variation: DelayVariation::default(),
            low_rate: LowRateStreams::default(),
            ports: vec![PortResult {
                name: "all".to_owned(),
                offered_frames,
                received_frames,
                ..PortResult::default()
            }],
            flows: Vec::new(),
            health: TesterHealth::default(),
            validity: Validity::Valid,
            calibration: None,
            loss_account: None,
            series: TrialSeries::default(),
        }
    }
}
