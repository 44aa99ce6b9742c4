// SPDX-License-Identifier: Apache-2.0
//! A [`Bench`] without a lab: a traffic generator and a device that runs elsewhere or is simulated.

use std::time::Duration;

use quietwire_lab::topology::Role;
use quietwire_lab::{IsolationRecord, RunningSwitch, SwitchCycles};
use quietwire_search::procedure::Action;
use quietwire_tester::{
    CitedCalibration, GeneratorIdentity, MissingCalibration, TesterError, TrafficGenerator, Trial,
    leave_cpu,
};

use crate::activity::TrialActivity;
use crate::bench::{ActionOutcome, Bench, BenchError, CaseSpec, Measured};
use crate::case_settings::{CaseSettings, Environment, GeneratorCase, MachineRecord, Versions};
use crate::executor::act;
use crate::file::{Case, FrameSize, NeighboursIn, StudyFile};
use crate::highest_rate::{CALIBRATION_MARGIN, CALIBRATION_S, CLEAN_SHARE, Pace, kept_rate};
use crate::lab_bench::ElementActivity;
use crate::pause::after_invalid;
use crate::unmanaged::UnmanagedDevice;

/// A generator without a lab.
pub struct GeneratorBench {
    generator: Box<dyn TrafficGenerator>,
    identity: GeneratorIdentity,
    ageing_s: Option<f64>,
    /// Control connection to the device, if its counters are read.
    device: Option<RunningSwitch>,
    file: StudyFile,
    /// Isolation around the device; none if it is not on this machine.
    isolation: Option<IsolationRecord>,
    /// Traffic of the entered case; none between cases.
    frames: Option<Trial>,
}

impl GeneratorBench {
    /// Checks whether a study can run on a device that quietwire does not start.
    ///
    /// # Errors
    /// [`TesterError::BadTrial`] for methods that restart the device or flush its address table.
    pub fn check_without_lab(file: &StudyFile) -> Result<(), TesterError> {
        let methods = file.methods().into_iter();
        for method in methods {
            if let Some(why) = method.needs_lab() {
                let section = method.section();
                return Err(TesterError::BadTrial(format!("{section}: {why}")));
            }
        }
        if file.measures_addresses() && file.ageing_s().is_none() {
            return Err(TesterError::BadTrial(
                "quietwire cannot flush the address table of a device that it did not start, and each trial requires an empty one (set ageing-s to the ageing time of the device, or run the study in the lab)".to_owned(),
            ));
        }
        Ok(())
    }

    /// Checks whether a study can be run with a generator.
    ///
    /// # Errors
    /// [`TesterError::BadTrial`] for a study with neighbours, which require a lab, and for one that restarts a device, or flushes its
    /// table, if the device is neither started by the lab nor simulated.
    pub fn check(file: &StudyFile, is_simulated: bool) -> Result<(), TesterError> {
        let has_neighbours = |case: &&Case| case.neighbours != NeighboursIn::None;
        if let Some(case) = file.cases.iter().find(has_neighbours) {
            return Err(TesterError::BadTrial(format!(
                "case '{}' has neighbours, which require the lab (use the built-in tester, or set neighbours = \"none\")",
                case.name
            )));
        }
        if is_simulated {
            return Ok(());
        }
        Self::check_without_lab(file)
    }

    /// Returns a bench for a study, on this generator.
    ///
    /// # Errors
    /// [`TesterError`] of a generator that does not respond or is unsuitable; [`TesterError::BadTrial`] for a study with
    /// neighbours, which require a lab, and for one that restarts a device, or flushes its table, if the lab does not start it.
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

    /// Returns the bench, with the isolation around generator and device for its record.
    #[must_use]
    pub fn isolated(self, isolation: IsolationRecord) -> Self {
        Self {
            isolation: Some(isolation),
            ..self
        }
    }

    /// Returns the calibrations that trials of a case cannot cite, by frame sizes.
    fn missing_calibrations(&self, case: &Case) -> Vec<MissingCalibration> {
        let sizes = self.file.traffic.frame_sizes.iter();
        let frames = sizes.map(|size| crate::run::frames(&self.file, case, *size));
        frames
            .filter_map(|frames| self.generator.missing_calibration(&frames))
            .collect()
    }

    /// Yields the tester's CPU for a while, unless the device is simulated.
    fn leave_cpu(&self) {
        if !self.identity.is_simulated {
            leave_cpu();
        }
    }

    /// Attributes losses of trials by the counters of this switch, which is the device, and records its cycles.
    #[must_use]
    pub fn with_device(mut self, device: Option<RunningSwitch>) -> Self {
        self.device = device;
        self
    }

    /// Returns the name of the generator.
    #[must_use]
    pub fn identity(&self) -> &GeneratorIdentity {
        &self.identity
    }
}

/// Returns the work of a running switch during a trial. Its CPU time is unknown.
fn of_switch(cycles: SwitchCycles) -> ElementActivity {
    ElementActivity {
        name: "switch".to_owned(),
        role: Role::Switch,
        function: None,
        counted: Some(cycles.count),
        cpu_time_s: 0.0,
        is_kernels: false,
        kernel_cpus: None,
        tsc_hz: cycles.tsc_hz,
        own_view: None,
        own_view_unavailable: None,
    }
}

impl Bench for GeneratorBench {
    fn environment(&mut self) -> Environment {
        Environment {
            machine: if self.identity.is_simulated {
                MachineRecord::Simulated {
                    simulated: true,
                    note: "arithmetic, nothing was measured".to_owned(),
                }
            } else {
                MachineRecord::Unknown {
                    note: "the device is not this program's; see the generator".to_owned(),
                }
            },
            versions: Versions::Generator {
                quietwire: env!("CARGO_PKG_VERSION").to_owned(),
                generator: self.identity.clone(),
            },
        }
    }

    fn unavailable(&mut self, case: &CaseSpec) -> Option<String> {
        let isolation = case.case.isolation()?;
        (!isolation.parts.is_empty()).then(|| {
            "quietwire cannot isolate a device that it does not start (use isolation = \"none\")"
                .to_owned()
        })
    }

    fn enter_case(&mut self, case: &CaseSpec) -> Result<CaseSettings, BenchError> {
        if self.frames.is_some() {
            return Err("a case was entered before the previous one was left".into());
        }
        let size = FrameSize::default();
        self.frames = Some(crate::run::frames(&self.file, &case.case, size));
        Ok(CaseSettings::Generator(Box::new(GeneratorCase {
            case: case.case.name.clone(),
            generator: self.identity.clone(),
            isolation: self.isolation.clone(),
            calibration_missing: self.missing_calibrations(&case.case),
        })))
    }

    fn leave_case(&mut self) -> Result<(), BenchError> {
        self.frames = None;
        Ok(())
    }

    fn calibrate(&mut self, frame_size: FrameSize) -> Result<f64, BenchError> {
        let Some(frames) = &self.frames else {
            return Err("no case is entered".into());
        };
        let trial = Trial {
            frame_sizes: frame_size.0,
            duration_s: CALIBRATION_S,
            ..frames.clone()
        };
        // A rate at which the tester has no losses of its own is more useful than its maximum rate.
        let cited = self.generator.cited(&trial, trial.offered_rate_pps);
        let clean_pps = cited
            .map(|cited| cited.clean_rate_pps)
            .filter(|clean_pps| *clean_pps > 0.0);
        if self.identity.is_simulated {
            let unpaced_pps = self.generator.run_unpaced(&trial)?.achieved_rate_pps;
            let most_pps = clean_pps.map_or(unpaced_pps, |clean_pps| clean_pps.min(unpaced_pps));
            return Ok(most_pps.max(1.0));
        }
        let repeats = self.file.trials.invalid_repeats;
        let generator = &mut self.generator;
        let mut run = |trial: &Trial, pace: Pace| {
            leave_cpu();
            match pace {
                Pace::Unpaced => generator.run_unpaced(trial),
                Pace::Scheduled => generator.run(trial),
            }
        };
        // The maximum rate of the tester differs between runs; a calibrated rate keeps 100 % of the load constant.
        Ok(match clean_pps {
            Some(clean_pps) => {
                let from_pps = clean_pps * CLEAN_SHARE;
                kept_rate(&mut run, trial, from_pps, repeats, after_invalid)?
            }
            None => {
                let unpaced_pps = run(&trial, Pace::Unpaced)?.achieved_rate_pps;
                kept_rate(&mut run, trial, unpaced_pps, repeats, after_invalid)?
                    * CALIBRATION_MARGIN
            }
        })
    }

    fn pause_after_invalid(&self, in_a_row: u32) -> Duration {
        if self.identity.is_simulated {
            return Duration::ZERO;
        }
        after_invalid(in_a_row)
    }

    fn cited(&self, trial: &Trial, rate_pps: f64) -> Option<CitedCalibration> {
        self.generator.cited(trial, rate_pps)
    }

    fn missing_calibration(&self, trial: &Trial) -> Option<MissingCalibration> {
        self.generator.missing_calibration(trial)
    }

    fn run(&mut self, trial: &Trial) -> Result<Measured, BenchError> {
        self.leave_cpu();
        let before = self.device.as_ref().map(RunningSwitch::read);
        let mut result = self.generator.run(trial)?;
        let mut activity = TrialActivity::default();
        if let Some((device, before)) = self.device.as_ref().zip(before) {
            match device.account_for(&mut result, &before) {
                Ok(cycles) => activity.elements.push(of_switch(cycles)),
                Err(why) => tracing::debug!("the cycles of the device are unknown: {why}"),
            }
        }
        Ok(Measured { result, activity })
    }

    fn act(&mut self, action: &Action, frames: &Trial) -> Result<ActionOutcome, BenchError> {
        self.leave_cpu();
        let mut device = UnmanagedDevice {
            is_simulated: self.identity.is_simulated,
            ageing_s: self.ageing_s,
            abort: self.generator.abort_flag(),
        };
        Ok(ActionOutcome {
            observation: act(
                self.generator.as_mut(),
                &mut device,
                action,
                (frames, &self.file.conversations()),
            )?,
            activity: TrialActivity::default(),
        })
    }
}
