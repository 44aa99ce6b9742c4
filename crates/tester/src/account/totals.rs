// SPDX-License-Identifier: Apache-2.0
//! What a port of the tester's counted over a whole trial, learning frames, warm-up and drain included: a device's counters are
//! read before and after all of it.

use serde::{Deserialize, Serialize};

/// Frames of a port of the tester's over a whole trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortTotals {
    /// Frames that the device's side took.
    pub sent_frames: u64,
    /// Of those, frames of the learning and the warm-up.
    pub sent_before_frames: u64,
    /// Frames received, of whatever kind.
    pub received_frames: u64,
    /// Of those, frames of the learning and the warm-up.
    pub received_before_frames: u64,
    /// Frames that the tester's port could not send.
    pub send_error_frames: u64,
    /// Frames that came and that the tester's port dropped.
    pub receive_drop_frames: u64,
}

impl PortTotals {
    /// Returns true if nothing was counted.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
