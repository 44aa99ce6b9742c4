// SPDX-License-Identifier: Apache-2.0
//! Simulated device with a simulated tester. Every method can be tried on it in milliseconds, because the time is simulated. The same
//! seed and the same trials always yield the same results.

mod distribution;
mod options;
mod stateful;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use options::{SimOptionError, SimOptions};

use distribution::{latency_ns, summary};
use quietwire_base::random::fraction;
use stateful::{StateTable, StatefulDevice, background_pps};

use crate::connections::{ConversationOutcome, ConversationRun};
use crate::error::TesterError;
use crate::generator::{
    GeneratorIdentity, Outage, Probed, Restart, StepDown, SteppedDown, TrafficGenerator,
};
use crate::latency::LatencySummary;
use crate::narrow::whole;
use crate::series::even;
use crate::trial::{Trial, TrialResult};
use crate::validity::{InvalidCause, Validity};

/// Start of the first trial of a simulation, nanoseconds since the Unix epoch: 2026-09-21. The system clock is not read.
const BEGIN_UNIX_NS: u64 = 1_790_000_000_000_000_000;
/// Random numbers per trial.
const THROWS: u64 = 8;

/// Simulated device with its simulated tester.
#[derive(Debug)]
pub struct SimulatedDevice {
    options: SimOptions,
    trials: u64,
    clock_ns: u64,
    /// Number of addresses in the device's table.
    learned: u32,
    /// Connections in the device's table.
    states: StateTable,
    abort: Arc<AtomicBool>,
}

impl SimulatedDevice {
    /// Creates a device before its first trial.
    #[must_use]
    pub fn new(options: SimOptions) -> Self {
        Self {
            options,
            trials: 0,
            clock_ns: BEGIN_UNIX_NS,
            learned: 0,
            states: StateTable::default(),
            abort: Arc::default(),
        }
    }

    /// Sets the number of completed trials, to resume a study.
    pub fn skip_trials(&mut self, trials: u64) {
        self.trials = trials;
    }

    /// Returns a random number in \[0, 1) for each trial and throw.
    fn dice(&self, throw: u64) -> f64 {
        let index = self.trials.wrapping_mul(THROWS).wrapping_add(throw);
        fraction(self.options.seed, index)
    }

    /// Returns the capacity of the device in this trial, frames per second.
    fn capacity_pps(&self) -> f64 {
        let options = &self.options;
        let noise = options.noise * (self.dice(0) + self.dice(1) - 1.0);
        let band = if self.dice(2) < options.band_chance {
            options.band
        } else {
            1.0
        };
        options.capacity_pps * (1.0 + noise) * band
    }

    /// Returns the forwarding rate at a load, frames per second.
    fn passed_pps(&self, load_pps: f64) -> f64 {
        let options = &self.options;
        let capacity = self.capacity_pps();
        let over = (load_pps - capacity).max(0.0);
        (load_pps.min(capacity) - options.degrades * over).max(0.0) * (1.0 - options.base_loss)
    }

    fn begin(&mut self, trial: &Trial) -> Result<(), TesterError> {
        trial.validate().map_err(TesterError::BadTrial)?;
        if self.abort.load(Ordering::Relaxed) {
            return Err(TesterError::Aborted);
        }
        Ok(())
    }

    /// Ends the trial. The next trial draws other numbers and begins later.
    fn end(&mut self, took_s: f64) {
        self.trials = self.trials.wrapping_add(1);
        self.clock_ns = self.clock_ns.saturating_add(whole(took_s * 1e9));
    }

    fn at_rate(&mut self, trial: &Trial, rate_pps: f64) -> Result<TrialResult, TesterError> {
        self.begin(trial)?;
        let line_rate_pps = self.options.line_rate_pps;
        let offered_pps = rate_pps.min(line_rate_pps);
        let offered = whole((offered_pps * trial.duration_s).round());
        let passed = whole((self.passed_pps(offered_pps) * trial.duration_s).round());
        let load = offered_pps / self.capacity_pps();
        let received = passed.min(offered);
        let mut result = TrialResult::of_counts(
            trial,
            trial.duration_s,
            offered,
            received,
            self.latency(load, received)?,
        );
        result.series.frames = even(trial.duration_s, (offered, received), &result.latency);
        result.started_unix_ns = self.clock_ns;
        result.scheduled_frames = whole((rate_pps * trial.duration_s).round());
        result.health.unsent_frames = result.scheduled_frames.saturating_sub(offered);
        result.health.pacing_miss_ratio = 1.0 - offered_pps / rate_pps;
        result.health.realtime = true;
        result.validity = self.judged(rate_pps);
        self.end(trial.warm_up_s + trial.duration_s + trial.drain_s);
        Ok(result)
    }

    fn judged(&self, rate_pps: f64) -> Validity {
        let mut reasons = Vec::new();
        if rate_pps > self.options.line_rate_pps * 1.001 {
            reasons.push(InvalidCause::RateMissed.because(format!(
                "the rate of {rate_pps} frames per second exceeds the simulated link rate, {}",
                self.options.line_rate_pps
            )));
        }
        if self.dice(3) < self.options.invalid {
            reasons.push(InvalidCause::Other.because("the simulated tester failed in this trial"));
        }
        Validity::of(reasons)
    }

    /// Returns a skewed latency distribution, with higher values near the capacity.
    fn latency(&self, load: f64, frames: u64) -> Result<LatencySummary, TesterError> {
        summary(latency_ns(&self.options, load), frames)
    }
}

impl TrafficGenerator for SimulatedDevice {
    fn identity(&mut self) -> Result<GeneratorIdentity, TesterError> {
        Ok(GeneratorIdentity {
            name: "sim".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            details: self.options.to_string(),
            is_simulated: true,
        })
    }

    fn abort_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.abort)
    }

    fn run(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        self.at_rate(trial, trial.offered_rate_pps)
    }

    fn run_unpaced(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        self.at_rate(trial, self.options.line_rate_pps)
    }

    /// Simulates a burst: the buffer holds a part of it, and the capacity limits the rest.
    fn burst(&mut self, trial: &Trial, frames: u64) -> Result<TrialResult, TesterError> {
        self.begin(trial)?;
        let burst_s = frames as f64 / self.options.line_rate_pps;
        let passed = whole(self.passed_pps(self.options.line_rate_pps) * burst_s);
        let received = passed
            .saturating_add(self.options.buffer_frames)
            .min(frames);
        let latency = self.latency(1.0, received)?;
        let mut result = TrialResult::of_counts(trial, burst_s, frames, received, latency);
        result.started_unix_ns = self.clock_ns;
        result.scheduled_frames = frames;
        result.health.realtime = true;
        result.validity = self.judged(self.options.line_rate_pps);
        self.end(burst_s + trial.drain_s);
        Ok(result)
    }

    fn step_down(&mut self, trial: &Trial, step: StepDown) -> Result<SteppedDown, TesterError> {
        self.begin(trial)?;
        let capacity = self.capacity_pps();
        let is_over = step.overload_pps > capacity;
        let recovered_after_s = match (step.reduced_pps <= capacity, is_over) {
            (false, _) => None,
            (true, false) => Some(0.0),
            (true, true) if self.options.recovery_s > step.reduced_s => None,
            (true, true) => Some(self.options.recovery_s),
        };
        let validity = self.judged(step.overload_pps);
        self.end(step.overload_s + step.reduced_s);
        Ok(SteppedDown {
            recovered_after_s,
            validity,
        })
    }

    fn outage(
        &mut self,
        trial: &Trial,
        limit_s: f64,
        restart: &mut Restart<'_>,
    ) -> Result<Outage, TesterError> {
        self.begin(trial)?;
        restart().map_err(TesterError::Restart)?;
        let restart_s = self.options.restart_s * (1.0 + self.options.noise * (self.dice(0) - 0.5));
        let is_back = restart_s <= limit_s;
        self.learned = 0;
        let validity = self.judged(trial.offered_rate_pps);
        self.end(restart_s.min(limit_s));
        Ok(Outage {
            lost_frames: is_back.then(|| whole((restart_s * trial.offered_rate_pps).round())),
            gap_s: is_back.then_some(restart_s),
            validity,
        })
    }

    fn forget(&mut self) -> Result<(), TesterError> {
        self.learned = 0;
        Ok(())
    }

    /// Simulates learning: if addresses arrive too fast, the device learns only a part of them.
    fn learn(&mut self, trial: &Trial, addresses: u32) -> Result<Validity, TesterError> {
        self.begin(trial)?;
        let part = (self.options.learning_rate / trial.offered_rate_pps).min(1.0);
        let in_time = u32::try_from(whole(f64::from(addresses) * part)).unwrap_or(u32::MAX);
        self.learned = self.learned.max(in_time).min(self.options.addresses);
        let validity = self.judged(trial.offered_rate_pps);
        self.end(f64::from(addresses) / trial.offered_rate_pps);
        Ok(validity)
    }

    fn probe(&mut self, trial: &Trial, addresses: u32) -> Result<Probed, TesterError> {
        self.begin(trial)?;
        let validity = self.judged(trial.offered_rate_pps);
        self.end(f64::from(addresses) / trial.offered_rate_pps);
        Ok(Probed {
            flooded_frames: u64::from(addresses.saturating_sub(self.learned)),
            lost_frames: 0,
            validity,
        })
    }

    fn converse(&mut self, run: &ConversationRun) -> Result<ConversationOutcome, TesterError> {
        run.validate().map_err(TesterError::BadTrial)?;
        if run.description.flood.is_some() {
            let text = "simulated devices have no flood (remove [connections.flood])";
            return Err(TesterError::BadTrial(text.to_owned()));
        }
        if self.abort.load(Ordering::Relaxed) {
            return Err(TesterError::Aborted);
        }
        let mut device = StatefulDevice {
            capacity_pps: (self.capacity_pps() - background_pps(&run.description)).max(1.0),
            options: &self.options,
            states: &mut self.states,
            clock_ns: &mut self.clock_ns,
        };
        let mut outcome = device.run(run)?;
        if self.dice(3) < self.options.invalid {
            let reason = InvalidCause::Other.because("the simulated tester failed in this trial");
            outcome.invalid.push(reason);
        }
        self.end(run.duration_s + run.pause_s);
        Ok(outcome)
    }
}
