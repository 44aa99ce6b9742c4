// SPDX-License-Identifier: Apache-2.0
//! Counters of a tester port over a whole trial, including learning frames, warm-up and drain: the device's counters are read before and
//! after all of it.

use serde::{Deserialize, Serialize};

/// Frames of a tester port over a whole trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortTotals {
    /// Frames that the peer of the port accepted.
    pub sent_frames: u64,
    /// Frames of `sent_frames` sent in the learning and the warm-up.
    pub sent_before_frames: u64,
    /// Frames received, of any kind.
    pub received_frames: u64,
    /// Frames of `received_frames` received in the learning and the warm-up.
    pub received_before_frames: u64,
    /// Frames that the tester's port could not send.
    pub send_error_frames: u64,
    /// Frames that arrived and that the tester's port dropped.
    pub receive_drop_frames: u64,
}

impl PortTotals {
    /// Returns true if all counters are zero.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
