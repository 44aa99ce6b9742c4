// SPDX-License-Identifier: Apache-2.0
//! A study made short, to see that it runs on a machine. What comes of it says so, and is no figure.

use crate::file::{Percent, SearchMethod, StudyFile};

/// Longest counted part of a trial, seconds.
const DURATION_S: f64 = 0.15;
/// Longest warm-up and drain, seconds. Devices that share CPUs hold frames for a while.
const AROUND_S: f64 = 0.1;
/// Step and resolution of searches, percent of the maximum rate: a few trials each.
const STEP_PERCENT: f64 = 50.0;
const RESOLUTION_PERCENT: f64 = 25.0;
/// How often an invalid trial is made again.
const INVALID_REPEATS: u32 = 2;
/// Most tenants.
const TENANTS: u32 = 4;
/// Loads of a sweep.
const LOADS: usize = 2;

impl StudyFile {
    /// The text of a study with the same cases and methods, and as little of each as can be: one round, short trials, coarse
    /// searches. It says of itself that it is quick.
    ///
    /// # Errors
    /// Why it cannot be written, in words.
    pub fn quick(&self) -> Result<String, String> {
        let mut file = self.clone();
        file.quick = true;
        file.rounds = 1;
        file.traffic.frame_sizes.truncate(1);
        file.trials.duration_s = file.trials.duration_s.min(DURATION_S);
        file.trials.warm_up_s = file.trials.warm_up_s.min(AROUND_S);
        file.trials.drain_s = file.trials.drain_s.min(AROUND_S);
        file.trials.invalid_repeats = file.trials.invalid_repeats.min(INVALID_REPEATS);
        if let Some(search) = &mut file.search {
            search.repeats = search.repeats.map(|_| 2);
            search.best_of = None;
            search.trials_per_rate = search.trials_per_rate.map(|_| 2);
            if search.method == SearchMethod::MlrSearch {
                for goal in &mut search.goals {
                    goal.final_trial_duration_s = Some(DURATION_S);
                    goal.initial_trial_duration_s = Some(DURATION_S);
                    goal.duration_sum_s = Some(DURATION_S);
                    goal.width_percent = Some(Percent(RESOLUTION_PERCENT));
                }
            } else {
                search.start_rate_percent = Some(Percent(STEP_PERCENT));
                search.start_step_percent = Some(Percent(STEP_PERCENT));
                search.resolution_percent = Some(Percent(RESOLUTION_PERCENT));
            }
        }
        if let Some(sweep) = &mut file.sweep {
            // The highest is what cases are compared at.
            let loads = &mut sweep.loads_percent;
            loads.drain(..loads.len().saturating_sub(LOADS));
        }
        if let Some(latency) = &mut file.latency {
            latency.duration_s = latency.duration_s.min(DURATION_S);
            latency.repeats = 1;
        }
        if let Some(plan) = &mut file.loss_distribution {
            plan.trials = plan.trials.min(2);
        }
        // They are made of the plan again.
        file.cases.retain(|case| case.tenants.is_none());
        if let Some(plan) = &mut file.tenants {
            plan.trials = 1;
            plan.most = plan.most.min(TENANTS);
        }
        if let Some(plan) = &mut file.application {
            plan.tcp_s = 1;
            plan.echo_s = 1;
        }
        toml::to_string(&file).map_err(|error| error.to_string())
    }
}
