// SPDX-License-Identifier: Apache-2.0
//! Studies with a calibrated tester: they keep to its clean rate and report it if they do not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quietwire_tester::{
    CitedCalibration, GeneratorIdentity, SimOptions, SimulatedDevice, TesterError,
    TrafficGenerator, Trial, TrialResult,
};

use quietwire_search::Findings;

use super::SMALL;
use crate::simulated::SimulatedBench;
use crate::*;

/// A simulated device and a tester with this clean rate, frames per second.
struct Calibrated {
    device: SimulatedDevice,
    clean_rate_pps: f64,
}

impl TrafficGenerator for Calibrated {
    fn identity(&mut self) -> Result<GeneratorIdentity, TesterError> {
        self.device.identity()
    }

    fn abort_flag(&self) -> Arc<AtomicBool> {
        self.device.abort_flag()
    }

    fn cited(&self, _trial: &Trial, rate_pps: f64) -> Option<CitedCalibration> {
        Some(CitedCalibration {
            measured_unix_ns: 1,
            clean_rate_pps: self.clean_rate_pps,
            latency_floor_ns: 1000,
            own: None,
            is_exceeded: rate_pps > self.clean_rate_pps,
        })
    }

    fn run(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        let mut result = self.device.run(trial)?;
        result.calibration = self.cited(trial, trial.offered_rate_pps);
        Ok(result)
    }

    fn run_unpaced(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        self.device.run_unpaced(trial)
    }
}

/// Reports about the calibration, and the number of finished trials at that time.
#[derive(Default)]
struct Recorded {
    exceeds: Vec<(FrameSize, f64, f64, u32)>,
    trials: u32,
}

impl Progress for Recorded {
    fn exceeds_calibration(
        &mut self,
        frame_size: FrameSize,
        max_rate_pps: f64,
        cited: &CitedCalibration,
    ) {
        let printed = (frame_size, max_rate_pps, cited.clean_rate_pps, self.trials);
        self.exceeds.push(printed);
    }

    fn trial(&mut self, _event: &TrialEvent<'_>) {
        self.trials += 1;
    }
}

/// Runs the small study without neighbours, with this maximum rate and this clean rate.
fn run(max_rate: &str, clean_rate_pps: f64) -> (StudyResults, Recorded) {
    let text = SMALL
        .replace("neighbours = \"everywhere\"", "neighbours = \"none\"")
        .replace(
            "[trials]",
            &format!("[traffic]\nframe-sizes = [64, 512]\n[trials]\nmax-rate-pps = {max_rate}"),
        );
    let file = StudyFile::parse(&text, Path::new("c.toml")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.sqlite");
    let mut store = Store::open(&path, &file, &text, OpenMode::New).unwrap();
    let generator = Calibrated {
        device: SimulatedDevice::new(SimOptions::default()),
        clean_rate_pps,
    };
    let mut bench = GeneratorBench::new(&file, Box::new(generator)).unwrap();
    let mut heard = Recorded::default();
    let stop = AtomicBool::new(false);
    run_study(&file, &mut store, &mut bench, &mut heard, &stop).unwrap();
    (store.results().unwrap(), heard)
}

#[test]
fn the_maximum_rate_is_the_calibrated_clean_rate_of_the_tester() {
    let (results, heard) = run("\"auto\"", 9e6);
    assert!(results.max_rates.iter().all(|known| known.rate_pps == 9e6));
    assert_eq!(heard.exceeds, []);
    for (_, trial) in results.trials() {
        let cited = trial.result.calibration.as_ref().unwrap();
        assert!(!cited.is_exceeded, "{:?}", trial.request);
    }
    // If the clean rate of the tester exceeds its current rate, or is 0, the current rate counts.
    for clean_rate_pps in [20e6, 0.0] {
        let (results, _) = run("\"auto\"", clean_rate_pps);
        let line_rate_pps = SimOptions::default().line_rate_pps;
        assert!(
            results
                .max_rates
                .iter()
                .all(|known| known.rate_pps == line_rate_pps)
        );
    }
}

#[test]
fn a_study_reports_rates_above_the_calibrated_one_before_it_offers_them() {
    let (results, heard) = run("8_000_000", 5e6);
    let sizes = &results.max_rates;
    assert_eq!(heard.exceeds.len(), sizes.len());
    for ((size, max_rate_pps, clean_rate_pps, trials), known) in heard.exceeds.iter().zip(sizes) {
        assert_eq!(
            (size, *max_rate_pps, *clean_rate_pps),
            (&known.frame_size, 8e6, 5e6)
        );
        if *size == sizes[0].frame_size {
            assert_eq!(*trials, 0, "reported after a trial");
        }
    }
    // Each trial has its own mark.
    let exceeded = |over: bool| {
        let trials = results.trials();
        trials
            .filter(|(_, trial)| (trial.request.offered_rate_pps > 5e6) == over)
            .all(|(_, trial)| trial.result.calibration.as_ref().unwrap().is_exceeded == over)
    };
    assert!(exceeded(true) && exceeded(false));
}

#[test]
fn a_search_goes_beyond_a_measured_maximum_rate_that_held_and_not_beyond_a_given_one() {
    let found = |max_rate: &str, raises_max_rate: bool| {
        let text = SMALL.replace("[trials]", &format!("[trials]\nmax-rate-pps = {max_rate}"));
        let file = StudyFile::parse(&text, Path::new("c.toml")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.sqlite");
        let mut store = Store::open(&path, &file, &text, OpenMode::New).unwrap();
        // The device forwards 6.4 Mpps now, and forwarded less when the rate was measured.
        let mut bench = SimulatedBench::new(7, 0);
        bench.invalid_ratio = 0.0;
        bench.measured_max_rate_pps = 5e6;
        bench.raises_max_rate = raises_max_rate;
        let stop = AtomicBool::new(false);
        run_study(
            &file,
            &mut store,
            &mut bench,
            &mut Recorded::default(),
            &stop,
        )
        .unwrap();
        let results = store.results().unwrap();
        // Random losses of the device are no losses for this goal.
        let goal = StepKind::Search("PDR".to_owned());
        let quiet = |step: &&StepRecord| step.case_name == "quiet" && step.kind == goal;
        let mut steps = results.steps.iter().filter(quiet);
        let found = steps.find_map(|step| match &step.findings {
            Some(Findings::SingleRun(found)) => Some(found.clone()),
            _ => None,
        });
        assert!(results.max_rates.iter().all(|known| known.rate_pps == 5e6));
        found.unwrap()
    };
    let raised = found("\"auto\"", true);
    assert!(!raised.is_lower_limit_only(), "{raised:?}");
    let rate_pps = raised.highest_held_pps.unwrap();
    assert!((5.8e6..6.7e6).contains(&rate_pps), "{rate_pps}");
    for (max_rate, raises) in [("\"auto\"", false), ("5_000_000", true)] {
        let kept = found(max_rate, raises);
        assert_eq!(
            (kept.highest_held_pps, kept.is_lower_limit_only()),
            (Some(5e6), true)
        );
    }
}
