// SPDX-License-Identifier: Apache-2.0
//! What procedures ask for, done with a traffic generator.

use quietwire_search::procedure::{Action, Observation};
use quietwire_tester::{
    Restart, StepDown, TesterError, TrafficGenerator, Trial, TrialResult, Validity,
};

/// Parts of a burst, each handed to a port at once, of which a rate can be told.
const PARTS_MIN: u64 = 4;

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
            generator.burst(&trial, count).map(passed)
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
            Ok(unless_invalid(
                seen.validity,
                Observation::Recovered {
                    after_s: seen.recovered_after_s,
                },
            ))
        }
        Action::Restart {
            rate_pps, limit_s, ..
        } => {
            let restart: &mut Restart<'_> = &mut || device.restart();
            let seen = match generator.outage(&with_rate(rate_pps), limit_s, restart) {
                Err(TesterError::Restart(reason)) => return Ok(Observation::Invalid { reason }),
                seen => seen?,
            };
            Ok(unless_invalid(
                seen.validity,
                Observation::CameBack {
                    lost_frames: seen.lost_frames,
                    gap_s: seen.gap_s,
                },
            ))
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
            .map(|validity| unless_invalid(validity, Observation::Done)),
        Action::Probe {
            addresses,
            rate_pps,
        } => {
            let seen = generator.probe(&with_rate(rate_pps), addresses)?;
            Ok(unless_invalid(
                seen.validity,
                Observation::Probed {
                    flooded_frames: seen.flooded_frames,
                    lost_frames: seen.lost_frames,
                },
            ))
        }
    }
}

fn unless_invalid(validity: Validity, seen: Observation) -> Observation {
    match validity.text() {
        None => seen,
        Some(reason) => Observation::Invalid { reason },
    }
}

fn passed(result: TrialResult) -> Observation {
    let seen = Observation::Passed {
        lost_frames: result.lost_frames,
        rate_pps: burst_rate_pps(&result),
    };
    unless_invalid(result.validity, seen)
}

/// Rate at which a burst went out. Its time ends when its last part begins, so that part is no part of the rate; of a burst
/// of a few parts none can be told.
fn burst_rate_pps(result: &TrialResult) -> Option<f64> {
    let senders = result.ports.iter().filter(|port| port.offered_frames > 0);
    let (parts, last) = (result.health.bursts, senders.count() as u64);
    (parts > PARTS_MIN * last)
        .then(|| result.achieved_rate_pps * (parts - last) as f64 / parts as f64)
}
