// SPDX-License-Identifier: Apache-2.0
//! What a procedure asks for, and what it learns of it.

use serde::{Deserialize, Serialize};

/// How a device is restarted (RFC 6201, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartKind {
    /// The machine or card that forwards.
    Hardware,
    /// The process that forwards, killed and started again.
    Software,
    /// The power is taken away and comes back.
    PowerInterruption,
}

/// One thing to do on the bench. Rates are frames per second, what they sum over is the caller's to define.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// Send so many frames with the shortest gap there is, then wait. Answered by [`Observation::Passed`].
    Burst {
        /// Frames in the burst, summed over whatever rates sum over.
        frames: u64,
        /// How long to wait and go on receiving, seconds.
        pause_s: f64,
    },
    /// Offer too much, then without a gap a load that the device can take, until frames stop being lost. Answered by
    /// [`Observation::Recovered`].
    StepDown {
        /// The load that is too much.
        overload_pps: f64,
        /// How long that is offered, seconds.
        overload_s: f64,
        /// The load after it.
        reduced_pps: f64,
        /// How long that is offered, seconds.
        reduced_s: f64,
    },
    /// Offer a load and restart the device meanwhile. Answered by [`Observation::CameBack`].
    Restart {
        /// How.
        kind: RestartKind,
        /// The load.
        rate_pps: f64,
        /// How long to wait for frames to come again, seconds.
        limit_s: f64,
    },
    /// Make the device forget all addresses: flush its table, or wait until they have aged. Answered by
    /// [`Observation::Done`].
    Forget,
    /// Send frames from so many source addresses, one each, into the learning port. Answered by [`Observation::Done`].
    Learn {
        /// How many addresses, always the same ones.
        addresses: u32,
        /// Frames per second.
        rate_pps: f64,
    },
    /// Send a frame to each of these addresses, and look for it at the learning port and at a port that it is not for.
    /// Answered by [`Observation::Probed`].
    Probe {
        /// How many addresses, the ones that were learned.
        addresses: u32,
        /// Frames per second.
        rate_pps: f64,
    },
}

/// What was seen of an [`Action`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "seen")]
pub enum Observation {
    /// So many frames of a burst did not come through.
    Passed {
        /// Frames lost.
        lost_frames: u64,
        /// Rate at which the burst went out, frames per second, where that is known better than beforehand.
        #[serde(default)]
        rate_pps: Option<f64>,
    },
    /// The last frame that was lost was sent so long after the load was reduced.
    Recovered {
        /// Seconds, 0 when none was lost after that; none when frames were lost to the very end.
        after_s: Option<f64>,
    },
    /// Frames came again after a restart.
    CameBack {
        /// Frames lost, of a load that is lost at no other time; none when none came again within the limit.
        lost_frames: Option<u64>,
        /// Time from the last frame before to the first after, seconds, where the tester has it.
        gap_s: Option<f64>,
    },
    /// It was done.
    Done,
    /// What became of the frames to learned addresses.
    Probed {
        /// Frames that came out of a port that they were not for.
        flooded_frames: u64,
        /// Frames that did not come out of the port that they were for.
        lost_frames: u64,
    },
    /// The tester or the lab failed: says nothing about the device.
    Invalid {
        /// What went wrong, one sentence.
        reason: String,
    },
}
