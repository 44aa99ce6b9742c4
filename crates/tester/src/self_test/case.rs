// SPDX-License-Identifier: Apache-2.0
//! Cases of the self-test, and the trials that prove them.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use serde::Serialize;

use super::compare::{Figure, Verdict, figures, verdict};
use super::ledger::Ledger;
use super::link::{DeviceLink, Orders};
use super::script::{Fault, Script};
use crate::error::TesterError;
use crate::tester::Tester;
use crate::trial::{FrameSizes, Trial};

/// A load and the faults of the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// Offered load in frames per second, summed over both ports.
    pub rate_pps: f64,
    /// Frame size with FCS, octets.
    pub frame_size: u16,
    /// Faults of the device.
    pub faults: Vec<Fault>,
}

/// Loads and faults of a self-test.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfTestOptions {
    /// Offered loads in frames per second, summed over both ports.
    pub rates_pps: Vec<f64>,
    /// Frame sizes with FCS, octets.
    pub frame_sizes: Vec<u16>,
    /// Faults. Each is tested in a separate case, in addition to a case without faults and one with all of them.
    pub faults: Vec<Fault>,
    /// Time during which frames are offered in each trial, seconds.
    pub duration_s: f64,
    /// Seed of all random choices of the scripts.
    pub seed: u64,
}

/// Result of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    /// The case.
    pub case: Case,
    /// The fault, `none` or `all`.
    pub name: String,
    /// Script of the device.
    pub script: Script,
    /// Outcome.
    pub verdict: Verdict,
    /// Number of trials. An inconclusive trial is repeated. All other fields describe the last trial.
    pub trials: u32,
    /// Rate at which frames were offered, frames per second.
    pub achieved_rate_pps: f64,
    /// Ledger of the device.
    pub ledger: Ledger,
    /// Figures of the tester with the expected values.
    pub figures: Vec<Figure>,
}

/// Largest number of trials per case.
const TRIALS_MAX: u32 = 3;
/// Length of the warm-up, seconds.
const WARM_UP_S: f64 = 0.1;
/// Time to receive after the last frame, seconds. The device holds frames back for 50 ms without traffic, and its last frame has to come
/// 100 ms before the end: this is twice as long.
const DRAIN_S: f64 = 0.3;
/// Length of a trial that only empties the rings, seconds.
const EMPTYING_S: f64 = 0.02;

impl Case {
    /// Returns the trial of the case.
    pub(super) fn trial(&self, duration_s: f64) -> Trial {
        Trial {
            warm_up_s: WARM_UP_S,
            drain_s: DRAIN_S,
            ..Trial::new(
                self.rate_pps,
                duration_s,
                FrameSizes::Fixed(self.frame_size),
            )
        }
    }

    /// Returns the fault, `none` or `all`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.faults.as_slice() {
            [] => "none",
            [fault] => fault.name(),
            _ => "all",
        }
    }
}

impl SelfTestOptions {
    /// Returns the cases in the order in which they are run.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        let mut faults = vec![Vec::new()];
        faults.extend(self.faults.iter().map(|fault| vec![*fault]));
        if self.faults.len() > 1 {
            faults.push(self.faults.clone());
        }
        let mut cases = Vec::new();
        for rate_pps in &self.rates_pps {
            for frame_size in &self.frame_sizes {
                cases.extend(faults.iter().map(|faults| Case {
                    rate_pps: *rate_pps,
                    frame_size: *frame_size,
                    faults: faults.clone(),
                }));
            }
        }
        cases
    }
}

impl Tester {
    /// Runs all cases over a device that follows scripts and that is connected to both ports. Calls `tell` with each report.
    ///
    /// # Errors
    /// [`TesterError`] if the device ended or does not reply, or if a trial cannot be run.
    pub fn self_test<R: Read + AsFd, W: Write>(
        &mut self,
        device: &mut DeviceLink<R, W>,
        options: &SelfTestOptions,
        mut tell: impl FnMut(&CaseReport),
    ) -> Result<Vec<CaseReport>, TesterError> {
        let mut reports = Vec::new();
        for case in options.cases() {
            let report = self.run_case(device, case, options)?;
            tell(&report);
            reports.push(report);
        }
        Ok(reports)
    }

    fn run_case<R: Read + AsFd, W: Write>(
        &mut self,
        device: &mut DeviceLink<R, W>,
        case: Case,
        options: &SelfTestOptions,
    ) -> Result<CaseReport, TesterError> {
        let script = Script::of(&case.faults, options.seed);
        let trial = case.trial(options.duration_s);
        let mut trials = 0_u32;
        loop {
            trials = trials.saturating_add(1);
            device.begin(Orders {
                trial: self.trials.saturating_add(1),
                script: script.clone(),
            })?;
            let result = self.run(&trial)?;
            let ledger = device.finish()?;
            let figures = figures(&ledger, &result);
            let verdict = verdict(&ledger, &result, &figures);
            let is_over = !matches!(verdict, Verdict::NotProven(_)) || trials == TRIALS_MAX;
            if verdict != Verdict::Agrees {
                self.empty_rings(&trial)?;
            }
            if is_over {
                return Ok(CaseReport {
                    name: case.name().to_owned(),
                    case,
                    script,
                    verdict,
                    trials,
                    achieved_rate_pps: result.achieved_rate_pps,
                    ledger,
                    figures,
                });
            }
        }
    }

    /// Runs a short trial in which the device forwards everything, so that no frame of an earlier trial stays in a ring.
    fn empty_rings(&mut self, trial: &Trial) -> Result<(), TesterError> {
        let trial = Trial {
            duration_s: EMPTYING_S,
            warm_up_s: 0.0,
            ..trial.clone()
        };
        self.run(&trial).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_case_at_each_rate_and_size() {
        let options = SelfTestOptions {
            rates_pps: vec![1e6, 1e7],
            frame_sizes: vec![64, 512],
            faults: Fault::ALL.to_vec(),
            duration_s: 1.0,
            seed: 1,
        };
        let cases = options.cases();
        assert_eq!(cases.len(), 2 * 2 * 10);
        let names: Vec<_> = cases.iter().take(10).map(Case::name).collect();
        assert_eq!(names.first(), Some(&"none"));
        assert_eq!(names.last(), Some(&"all"));
        for case in &cases {
            case.trial(options.duration_s).validate().unwrap();
        }
        let one = SelfTestOptions {
            faults: vec![Fault::Loss],
            ..options
        };
        assert_eq!(one.cases().len(), 2 * 2 * 2);
    }
}
