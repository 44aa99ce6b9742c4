// SPDX-License-Identifier: Apache-2.0
//! Actions of a procedure, and their observations.

use serde::{Deserialize, Serialize};

use super::conversations::{ConversationCounts, ConversationTrial};

/// Kind of a device restart (RFC 6201, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartKind {
    /// Restart of the forwarding machine or card.
    Hardware,
    /// Restart of the forwarding process: killed and started again.
    Software,
    /// Power interruption.
    PowerInterruption,
}

/// Action on the test bench. Rates are frames per second. The caller defines whether they are sums over directions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// Send `frames` frames with the smallest possible gap, then wait. The result is an [`Observation::Passed`].
    Burst {
        /// Number of frames, summed in the same way as rates.
        frames: u64,
        /// Time to wait and receive afterwards, seconds.
        pause_s: f64,
    },
    /// Offer an overload, then without a gap a load below capacity, until no more frames are lost. The result is an
    /// [`Observation::Recovered`].
    StepDown {
        /// Rate of the overload.
        overload_pps: f64,
        /// Duration of the overload, seconds.
        overload_s: f64,
        /// Rate of the reduced load.
        reduced_pps: f64,
        /// Duration of the reduced load, seconds.
        reduced_s: f64,
    },
    /// Offer a load and restart the device. The result is an [`Observation::Restored`].
    Restart {
        /// Kind of the restart.
        kind: RestartKind,
        /// Rate of the load.
        rate_pps: f64,
        /// Time limit for frames to return, seconds.
        limit_s: f64,
    },
    /// Clear the device's address table: flush it, or wait until its entries age out. The result is an [`Observation::Done`].
    #[serde(alias = "forget")]
    FlushFdb,
    /// Send one frame from each of `addresses` source addresses into the learning port. The result is an [`Observation::Done`].
    Learn {
        /// Number of addresses. They are the same each time.
        addresses: u32,
        /// Frames per second.
        rate_pps: f64,
    },
    /// Send a frame to each of `addresses` addresses, and check whether it comes out of the learning port or of another port. The result
    /// is an [`Observation::Probed`].
    Probe {
        /// Number of addresses, as learned before.
        addresses: u32,
        /// Frames per second.
        rate_pps: f64,
    },
    /// Converse over TCP through the device. The result is an [`Observation::Conversed`].
    Converse(ConversationTrial),
}

/// Observation of an [`Action`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
// The key of stored observations.
#[serde(rename_all = "kebab-case", tag = "seen")] // words: stores have it
pub enum Observation {
    /// Loss of a burst.
    Passed {
        /// Frames lost.
        lost_frames: u64,
        /// Rate of the burst, frames per second, if the tester measured it.
        #[serde(default)]
        rate_pps: Option<f64>,
    },
    /// Recovery from an overload.
    Recovered {
        /// Time from the reduction of the load to the transmission of the last lost frame, seconds. 0 if no frame was lost after the
        /// reduction; `None` if frames were lost until the end.
        after_s: Option<f64>,
    },
    /// Return of frames after a restart.
    #[serde(alias = "came-back")]
    Restored {
        /// Frames lost, for a load without any other loss; `None` if frames did not return within the limit.
        lost_frames: Option<u64>,
        /// Time from the last frame before to the first frame after the restart, seconds, if the tester measured it.
        gap_s: Option<f64>,
    },
    /// The action was performed.
    Done,
    /// Outcome of the frames to learned addresses.
    Probed {
        /// Frames that came out of a port other than that of their destination.
        flooded_frames: u64,
        /// Frames that did not come out of the port of their destination.
        lost_frames: u64,
    },
    /// Outcome of a trial with conversations.
    Conversed(Box<ConversationCounts>),
    /// The tester or the lab failed. The action shows nothing about the device.
    Invalid {
        /// The failure, as one sentence.
        reason: String,
        /// Rate or number that the tester reached in a trial with conversations, if it missed the intended one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        achieved_per_s: Option<f64>,
    },
}
