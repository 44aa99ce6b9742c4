// SPDX-License-Identifier: Apache-2.0
//! Runs the actions of procedures on a traffic generator.

mod conversations;

use quietwire_search::procedure::{Action, Observation};
use quietwire_tester::connections::{Connections, ConversationRun};
use quietwire_tester::{
    Restart, StepDown, TesterError, TrafficGenerator, Trial, TrialResult, Validity,
};

use crate::methods::DRAIN_S_MIN;

/// Number of parts of a burst. A port sends each part at once, and they determine the rate of the burst.
const PARTS_MIN: u64 = 4;

/// Actions on the device that a generator does not support: restarting it and flushing its address table.
pub(crate) trait Device {
    /// Restarts the forwarding process.
    ///
    /// # Errors
    /// A sentence.
    fn restart(&mut self) -> Result<(), String>;

    /// Flushes the address table. None if the generator does that.
    ///
    /// # Errors
    /// A sentence.
    fn forget(&mut self) -> Option<Result<(), String>>;
}

/// Runs one action. `traffic` has the frames of procedures, and the connections of methods for connections. A failure of the tester shows
/// nothing about the device and is [`Observation::Invalid`].
///
/// # Errors
/// [`TesterError`] if the action could not run.
pub(crate) fn act(
    generator: &mut dyn TrafficGenerator,
    device: &mut dyn Device,
    action: &Action,
    (frames, connections): (&Trial, &Connections),
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
            step_down(generator, &with_rate(overload_pps), step)
        }
        Action::Restart {
            rate_pps, limit_s, ..
        } => restart(generator, device, &with_rate(rate_pps), limit_s),
        Action::FlushFdb => match device.forget() {
            Some(Err(reason)) => Ok(invalid(reason)),
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
        } => probe(generator, &with_rate(rate_pps), addresses),
        Action::Converse(trial) => {
            let run = ConversationRun {
                description: connections.clone(),
                load: conversations::load(&trial.load),
                duration_s: trial.duration_s,
                drain_s: frames.drain_s.max(DRAIN_S_MIN),
                pause_s: trial.pause_s,
                answer: trial.answer,
            };
            generator.converse(&run).map(conversations::observation)
        }
    }
}

/// Overloads the device, reduces the rate, and measures the time until no frame is lost.
fn step_down(
    generator: &mut dyn TrafficGenerator,
    trial: &Trial,
    step: StepDown,
) -> Result<Observation, TesterError> {
    let observed = generator.step_down(trial, step)?;
    let recovered = Observation::Recovered {
        after_s: observed.recovered_after_s,
    };
    Ok(unless_invalid(observed.validity, recovered))
}

/// Restarts the forwarding process under traffic.
fn restart(
    generator: &mut dyn TrafficGenerator,
    device: &mut dyn Device,
    trial: &Trial,
    limit_s: f64,
) -> Result<Observation, TesterError> {
    let restart: &mut Restart<'_> = &mut || device.restart();
    let observed = match generator.outage(trial, limit_s, restart) {
        Err(TesterError::Restart(reason)) => return Ok(invalid(reason)),
        observed => observed?,
    };
    let restored = Observation::Restored {
        lost_frames: observed.lost_frames,
        gap_s: observed.gap_s,
    };
    Ok(unless_invalid(observed.validity, restored))
}

/// Sends to learned addresses, and counts the frames that the device floods.
fn probe(
    generator: &mut dyn TrafficGenerator,
    trial: &Trial,
    addresses: u32,
) -> Result<Observation, TesterError> {
    let observed = generator.probe(trial, addresses)?;
    let probed = Observation::Probed {
        flooded_frames: observed.flooded_frames,
        lost_frames: observed.lost_frames,
    };
    Ok(unless_invalid(observed.validity, probed))
}

fn invalid(reason: String) -> Observation {
    Observation::Invalid {
        reason,
        achieved_per_s: None,
    }
}

fn unless_invalid(validity: Validity, observed: Observation) -> Observation {
    match validity.text() {
        None => observed,
        Some(reason) => invalid(reason),
    }
}

fn passed(result: TrialResult) -> Observation {
    let observed = Observation::Passed {
        lost_frames: result.lost_frames,
        rate_pps: burst_rate_pps(&result),
    };
    unless_invalid(result.validity, observed)
}

/// Returns the rate of a sent burst. The measured time ends at the start of the last part, so the last part does not count. A burst
/// with too few parts has no rate.
fn burst_rate_pps(result: &TrialResult) -> Option<f64> {
    let senders = result.ports.iter().filter(|port| port.offered_frames > 0);
    let (parts, last) = (result.health.bursts, senders.count() as u64);
    let counted = parts.saturating_sub(last) as f64;
    (parts > PARTS_MIN.saturating_mul(last))
        .then(|| result.achieved_rate_pps * counted / parts as f64)
}
