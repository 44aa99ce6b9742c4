// SPDX-License-Identifier: Apache-2.0
//! A [`Bench`] without a lab: a traffic generator before a device that somebody else runs, or that is simulated.

use quietwire_search::procedure::Action;
use quietwire_tester::{GeneratorIdentity, TesterError, TrafficGenerator, Trial};
use serde_json::{Value, json};

use crate::bench::{Bench, BenchError, CaseSpec, Environment, Measured, Seen};
use crate::executor::{Device, act};
use crate::file::{FrameSize, NeighboursIn, StudyFile, Trials};

/// How long the highest rate is looked for, seconds.
const CALIBRATION_S: f64 = 0.5;

/// A generator by itself.
pub struct GeneratorBench {
    generator: Box<dyn TrafficGenerator>,
    identity: GeneratorIdentity,
    trials: Trials,
    frames: Trial,
    is_entered: bool,
}

/// Nobody here can restart a device that is simulated, but its generator does that by itself; one of somebody else's is
/// left alone.
struct NoDevice {
    is_simulated: bool,
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
        None
    }
}

impl GeneratorBench {
    /// A bench for a study, on this generator.
    ///
    /// # Errors
    /// [`TesterError`] of a generator that does not answer or is not fit; [`TesterError::BadTrial`] for a study with
    /// neighbours, for which there is no machine here.
    pub fn new(
        file: &StudyFile,
        mut generator: Box<dyn TrafficGenerator>,
    ) -> Result<Self, TesterError> {
        let has_neighbours = |case: &&crate::Case| case.neighbours != NeighboursIn::None;
        if let Some(case) = file.cases.iter().find(has_neighbours) {
            return Err(TesterError::BadTrial(format!(
                "case '{}' has neighbours, which only the lab can start; run it with the built-in tester, or write neighbours = \"none\"",
                case.name
            )));
        }
        Ok(Self {
            identity: generator.identity()?,
            generator,
            trials: file.trials.clone(),
            frames: crate::run::frames(file, FrameSize::default()),
            is_entered: false,
        })
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

    fn enter_case(&mut self, case: &CaseSpec) -> Result<Value, BenchError> {
        if self.is_entered {
            return Err("a case was entered and the last one not left".into());
        }
        self.is_entered = true;
        Ok(json!({ "case": case.case.name, "generator": self.identity }))
    }

    fn leave_case(&mut self) -> Result<(), BenchError> {
        self.is_entered = false;
        Ok(())
    }

    fn calibrate(&mut self, frame_size: FrameSize) -> Result<f64, BenchError> {
        let trial = Trial {
            frame_sizes: frame_size.0,
            duration_s: CALIBRATION_S,
            warm_up_s: self.trials.warm_up_s,
            drain_s: self.trials.drain_s,
            ..self.frames.clone()
        };
        Ok(self
            .generator
            .run_unpaced(&trial)?
            .achieved_rate_pps
            .max(1.0))
    }

    fn run(&mut self, trial: &Trial) -> Result<Measured, BenchError> {
        Ok(Measured {
            result: self.generator.run(trial)?,
            activity: Value::Null,
        })
    }

    fn act(&mut self, action: &Action, frames: &Trial) -> Result<Seen, BenchError> {
        let mut device = NoDevice {
            is_simulated: self.identity.is_simulated,
        };
        Ok(Seen {
            observation: act(self.generator.as_mut(), &mut device, action, frames)?,
            activity: Value::Null,
        })
    }
}
