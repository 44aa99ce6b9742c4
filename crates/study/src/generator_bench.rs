// SPDX-License-Identifier: Apache-2.0
//! A [`Bench`] without a lab: a traffic generator before a device that somebody else runs, or that is simulated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quietwire_lab::{IsolationRecord, RunningSwitch};
use quietwire_search::procedure::Action;
use quietwire_tester::{
    CitedCalibration, GeneratorIdentity, MissingCalibration, TesterError, TrafficGenerator, Trial,
    leave_cpu,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::activity::TrialActivity;
use crate::bench::{Bench, BenchError, CaseSpec, Environment, Measured, Seen};
use crate::executor::{Device, act};
use crate::file::{Case, FrameSize, NeighboursIn, StudyFile};
use crate::highest_rate::{CALIBRATION_MARGIN, CALIBRATION_S, CLEAN_SHARE, Pace, kept_rate};
use crate::pause;

/// How often an end that was asked for is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A generator by itself.
pub struct GeneratorBench {
    generator: Box<dyn TrafficGenerator>,
    identity: GeneratorIdentity,
    ageing_s: Option<f64>,
    /// The device, if its counters are to be read.
    device: Option<RunningSwitch>,
    file: StudyFile,
    /// What was isolated around it; none where it is not on this machine.
    isolation: Option<IsolationRecord>,
    /// What is offered in the case that is entered; none between cases.
    frames: Option<Trial>,
}

/// What is stored of a case.
#[derive(Serialize)]
struct Settings<'a> {
    case: &'a str,
    generator: &'a GeneratorIdentity,
    #[serde(flatten)]
    isolation: Option<&'a IsolationRecord>,
    calibration_missing: Vec<MissingCalibration>,
}

/// Nobody here can restart a device that is simulated, but its generator does that by itself; one of somebody else's is
/// left alone.
struct NoDevice {
    is_simulated: bool,
    /// How long to wait until it has forgotten its addresses, seconds.
    ageing_s: Option<f64>,
    abort: Arc<AtomicBool>,
}

impl Device for NoDevice {
    fn restart(&mut self) -> Result<(), String> {
        if self.is_simulated {
            Ok(())
        } else {
            Err("the device is not this program's to restart; run the study in the lab".to_owned())
        }
    }

    fn forget(&mut self) -> Option<Result<(), String>> {
        let ageing_s = self.ageing_s.filter(|_| !self.is_simulated)?;
        let began = Instant::now();
        while began.elapsed().as_secs_f64() < ageing_s {
            if self.abort.load(Ordering::Relaxed) {
                return Some(Err("interrupted while addresses aged".to_owned()));
            }
            std::thread::sleep(LOOK);
        }
        Some(Ok(()))
    }
}

impl GeneratorBench {
    /// Whether a study can be made on a device that is somebody else's.
    ///
    /// # Errors
    /// [`TesterError::BadTrial`] for what takes somebody who can restart the device or empty its table.
    pub fn check_without_lab(file: &StudyFile) -> Result<(), TesterError> {
        let methods = file.methods().into_iter();
        for method in methods {
            if let Some(why) = method.needs_lab() {
                let section = method.section();
                return Err(TesterError::BadTrial(format!("{section}: {why}")));
            }
        }
        if file.looks_for_addresses() && file.ageing_s().is_none() {
            return Err(TesterError::BadTrial(
                "addresses are learned anew for each number, and the device's table is not this program's to empty: say with ageing-s how long it keeps them, or run a study in which the lab starts it".to_owned(),
            ));
        }
        Ok(())
    }

    /// Checks whether a study can be run with a generator.
    ///
    /// # Errors
    /// [`TesterError::BadTrial`] for a study with neighbours, for which there is no machine here, and for one that restarts or
    /// empties a device that is neither ours nor simulated.
    pub fn check(file: &StudyFile, is_simulated: bool) -> Result<(), TesterError> {
        let has_neighbours = |case: &&Case| case.neighbours != NeighboursIn::None;
        if let Some(case) = file.cases.iter().find(has_neighbours) {
            return Err(TesterError::BadTrial(format!(
                "case '{}' has neighbours, which only the lab can start; run it with the built-in tester, or write neighbours = \"none\"",
                case.name
            )));
        }
        if is_simulated {
            return Ok(());
        }
        Self::check_without_lab(file)
    }

    /// A bench for a study, on this generator.
    ///
    /// # Errors
    /// [`TesterError`] of a generator that does not answer or is not fit; [`TesterError::BadTrial`] for a study with
    /// neighbours, for which there is no machine here, and for one that restarts or empties a device that is not ours.
    pub fn new(
        file: &StudyFile,
        mut generator: Box<dyn TrafficGenerator>,
    ) -> Result<Self, TesterError> {
        let identity = generator.identity()?;
        Self::check(file, identity.is_simulated)?;
        Ok(Self {
            identity,
            generator,
            ageing_s: file.ageing_s(),
            device: None,
            file: file.clone(),
            isolation: None,
            frames: None,
        })
    }

    /// The bench, with what was isolated around generator and device for its record.
    #[must_use]
    pub fn isolated(self, isolation: IsolationRecord) -> Self {
        Self {
            isolation: Some(isolation),
            ..self
        }
    }

    /// Calibrations that trials of a case cannot cite, by frame sizes.
    fn missing_calibrations(&self, case: &Case) -> Vec<MissingCalibration> {
        let sizes = self.file.traffic.frame_sizes.iter();
        let frames = sizes.map(|size| crate::run::frames(&self.file, case, *size));
        frames
            .filter_map(|frames| self.generator.missing_calibration(&frames))
            .collect()
    }

    /// Leaves the tester's CPU to others for a while, unless nothing is measured.
    fn leave_cpu(&self) {
        if !self.identity.is_simulated {
            leave_cpu();
        }
    }

    /// Has trials account for their losses by the counters of this switch, which is the device.
    #[must_use]
    pub fn with_device(mut self, device: Option<RunningSwitch>) -> Self {
        self.device = device;
        self
    }

    /// Which generator it is.
    #[must_use]
    pub fn identity(&self) -> &GeneratorIdentity {
        &self.identity
    }
}

impl Bench for GeneratorBench {
    fn environment(&mut self) -> Environment {
        Environment {
            machine: if self.identity.is_simulated {
                json!({ "simulated": true, "note": "arithmetic, nothing was measured" })
            } else {
                json!({ "note": "the device is not this program's; see the generator" })
            },
            versions: json!({
                "quietwire": env!("CARGO_PKG_VERSION"),
                "generator": self.identity,
            }),
        }
    }

    fn unavailable(&mut self, case: &CaseSpec) -> Option<String> {
        let isolation = case.case.isolation()?;
        (!isolation.parts.is_empty()).then(|| {
            "the device is not run by this program, which cannot isolate it; `none` is what can be measured"
                .to_owned()
        })
    }

    fn enter_case(&mut self, case: &CaseSpec) -> Result<Value, BenchError> {
        if self.frames.is_some() {
            return Err("a case was entered and the last one not left".into());
        }
        let size = FrameSize::default();
        self.frames = Some(crate::run::frames(&self.file, &case.case, size));
        Ok(serde_json::to_value(Settings {
            case: &case.case.name,
            generator: &self.identity,
            isolation: self.isolation.as_ref(),
            calibration_missing: self.missing_calibrations(&case.case),
        })?)
    }

    fn leave_case(&mut self) -> Result<(), BenchError> {
        self.frames = None;
        Ok(())
    }

    fn calibrate(&mut self, frame_size: FrameSize) -> Result<f64, BenchError> {
        let Some(frames) = &self.frames else {
            return Err("no case was entered".into());
        };
        let trial = Trial {
            frame_sizes: frame_size.0,
            duration_s: CALIBRATION_S,
            ..frames.clone()
        };
        // A rate at which the tester was seen to be clean says more than the most it can push out.
        let cited = self.generator.cited(&trial, trial.offered_rate_pps);
        let clean_pps = cited
            .map(|cited| cited.clean_rate_pps)
            .filter(|clean_pps| *clean_pps > 0.0);
        if self.identity.is_simulated {
            let unpaced_pps = self.generator.run_unpaced(&trial)?.achieved_rate_pps;
            let most_pps = clean_pps.map_or(unpaced_pps, |clean_pps| clean_pps.min(unpaced_pps));
            return Ok(most_pps.max(1.0));
        }
        let generator = &mut self.generator;
        let mut run = |trial: &Trial, pace: Pace| {
            leave_cpu();
            match pace {
                Pace::Unpaced => generator.run_unpaced(trial),
                Pace::Scheduled => generator.run(trial),
            }
        };
        // What the tester can push out differs from run to run; a calibrated rate keeps 100 % of the load the same.
        Ok(match clean_pps {
            Some(clean_pps) => kept_rate(&mut run, trial, clean_pps * CLEAN_SHARE)?,
            None => {
                let unpaced_pps = run(&trial, Pace::Unpaced)?.achieved_rate_pps;
                kept_rate(&mut run, trial, unpaced_pps)? * CALIBRATION_MARGIN
            }
        })
    }

    fn pause_after_invalid(&self, in_a_row: u32) -> Duration {
        if self.identity.is_simulated {
            return Duration::ZERO;
        }
        pause::after_invalid(in_a_row)
    }

    fn cited(&self, trial: &Trial, rate_pps: f64) -> Option<CitedCalibration> {
        self.generator.cited(trial, rate_pps)
    }

    fn missing_calibration(&self, trial: &Trial) -> Option<MissingCalibration> {
        self.generator.missing_calibration(trial)
    }

    fn run(&mut self, trial: &Trial) -> Result<Measured, BenchError> {
        self.leave_cpu();
        let before = self.device.as_ref().map(RunningSwitch::counts);
        let mut result = self.generator.run(trial)?;
        if let Some((device, before)) = self.device.as_ref().zip(before) {
            result.account_for(device.layout(), &before, &device.counts());
        }
        Ok(Measured {
            result,
            activity: TrialActivity::default(),
        })
    }

    fn act(&mut self, action: &Action, frames: &Trial) -> Result<Seen, BenchError> {
        self.leave_cpu();
        let mut device = NoDevice {
            is_simulated: self.identity.is_simulated,
            ageing_s: self.ageing_s,
            abort: self.generator.abort_flag(),
        };
        Ok(Seen {
            observation: act(self.generator.as_mut(), &mut device, action, frames)?,
            activity: TrialActivity::default(),
        })
    }
}
