// SPDX-License-Identifier: Apache-2.0
//! Simulated devices. `oracle.py` has the same ones, number for number.

use serde::Serialize;

use crate::chance::chance;
use crate::{Method, MlrFindings, MlrSearch, MlrSearchConfig, Outcome, Step};

/// Time around each trial, seconds.
pub(super) const OVERHEAD_S: f64 = 0.5;

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Device {
    pub(super) capacity_pps: f64,
    /// Largest relative deviation of a trial's capacity. Small deviations are more likely.
    pub(super) noise: f64,
    /// Part of the capacity that is available in some trials.
    pub(super) band: f64,
    pub(super) band_chance: f64,
    /// Frames that pass less for each frame over the capacity.
    pub(super) degrades: f64,
    /// Loss ratio at any load.
    pub(super) base_loss: f64,
    /// Probability per second of a loss of 0.1 % that is independent of the load.
    pub(super) bursts_per_s: f64,
}

impl Device {
    pub(super) const fn of(capacity_pps: f64) -> Self {
        Self {
            capacity_pps,
            noise: 0.0,
            band: 1.0,
            band_chance: 0.0,
            degrades: 0.0,
            base_loss: 0.0,
            bursts_per_s: 0.0,
        }
    }

    pub(super) fn loss_ratio(&self, seed: u64, trial: u64, load: f64, duration_s: f64) -> f64 {
        let dice = |throw| chance(seed, trial * 4 + throw);
        let noise = self.noise * (dice(0) + dice(1) - 1.0);
        let band = if dice(2) < self.band_chance {
            self.band
        } else {
            1.0
        };
        let capacity = self.capacity_pps * (1.0 + noise) * band;
        let over = (load - capacity).max(0.0);
        let mut passed =
            (load.min(capacity) - self.degrades * over).max(0.0) * (1.0 - self.base_loss);
        if dice(3) < 1.0 - (1.0 - self.bursts_per_s).powf(duration_s) {
            passed *= 0.999;
        }
        let offered = (load * duration_s + 0.5).floor();
        let lost = (offered - (passed * duration_s + 0.5).floor()).clamp(0.0, offered);
        if offered > 0.0 { lost / offered } else { 0.0 }
    }
}

/// Trials and findings of a search.
pub(super) struct Searched {
    pub(super) time_s: f64,
    pub(super) history: Vec<crate::Attempt>,
    pub(super) found: MlrFindings,
}

pub(super) fn search(config: &MlrSearchConfig, device: Device, seed: u64) -> Searched {
    let mut search = MlrSearch::new(config.clone()).unwrap();
    let mut time_s = 0.0;
    loop {
        let request = match search.step() {
            Step::Run(request) => request,
            Step::Done(result) => {
                let crate::Findings::MlrSearch(found) = result.findings else {
                    panic!("findings of another method");
                };
                return Searched {
                    time_s,
                    history: result.history,
                    found,
                };
            }
        };
        let trial = search.history().len() as u64;
        let effective_s = request.duration_s + OVERHEAD_S;
        time_s += effective_s;
        let outcome = Outcome::Valid {
            loss_ratio: device.loss_ratio(seed, trial, request.rate_pps, request.duration_s),
            effective_duration_s: Some(effective_s),
        };
        search.record(outcome).unwrap();
    }
}
