// SPDX-License-Identifier: Apache-2.0
//! What procedures ask for, done with a traffic generator.

use quietwire_search::procedure::{Action, Observation};
use quietwire_tester::{
    Restart, StepDown, TesterError, TrafficGenerator, Trial, TrialResult, Validity,
};

/// Restarts the device, and makes it forget its addresses: what is not the generator's to do.
pub(crate) trait Device {
    /// Kills what forwards and starts it again.
    ///
    /// # Errors
    /// One sentence.
    fn restart(&mut self) -> Result<(), String>;

    /// Empties the address table. None when that is the generator's to do.
    ///
    /// # Errors
    /// One sentence.
    fn forget(&mut self) -> Option<Result<(), String>>;
}

/// Does one thing. What fails in it says nothing about the device and is [`Observation::Invalid`].
///
/// # Errors
/// [`TesterError`] when it could not be done at all.
pub(crate) fn act(
    generator: &mut dyn TrafficGenerator,
    device: &mut dyn Device,
    action: &Action,
    frames: &Trial,
) -> Result<Observation, TesterError> {
    let with_rate = |rate_pps: f64| Trial {
        offered_rate_pps: rate_pps,
        ..frames.clone()
    };
    match *action {
        Action::Burst {
            frames: count,
            pause_s,
        } => {
            let trial = Trial {
                drain_s: pause_s,
                ..frames.clone()
            };
            generator.burst(&trial, count).map(|result| passed(&result))
        }
        Action::StepDown {
            overload_pps,
            overload_s,
            reduced_pps,
            reduced_s,
        } => {
            let step = StepDown {
                overload_pps,
                overload_s,
                reduced_pps,
                reduced_s,
            };
            let seen = generator.step_down(&with_rate(overload_pps), step)?;
            Ok(Observation::Recovered {
                after_s: seen.recovered_after_s,
            })
        }
        Action::Restart {
            rate_pps, limit_s, ..
        } => {
            let restart: &mut Restart<'_> = &mut || device.restart();
            let seen = match generator.outage(&with_rate(rate_pps), limit_s, restart) {
                Err(TesterError::Restart(reason)) => return Ok(Observation::Invalid { reason }),
                seen => seen?,
            };
            Ok(Observation::CameBack {
                lost_frames: seen.lost_frames,
                gap_s: seen.gap_s,
            })
        }
        Action::Forget => match device.forget() {
            Some(Err(reason)) => Ok(Observation::Invalid { reason }),
            Some(Ok(())) => Ok(Observation::Done),
            None => generator.forget().map(|()| Observation::Done),
        },
        Action::Learn {
            addresses,
            rate_pps,
        } => generator
            .learn(&with_rate(rate_pps), addresses)
            .map(|()| Observation::Done),
        Action::Probe {
            addresses,
            rate_pps,
        } => {
            let seen = generator.probe(&with_rate(rate_pps), addresses)?;
            Ok(Observation::Probed {
                flooded_frames: seen.flooded_frames,
                lost_frames: seen.lost_frames,
            })
        }
    }
}

fn passed(result: &TrialResult) -> Observation {
    match &result.validity {
        Validity::Valid => Observation::Passed {
            lost_frames: result.lost_frames,
        },
        Validity::Invalid(reasons) => Observation::Invalid {
            reason: reasons.join("; "),
        },
    }
}
