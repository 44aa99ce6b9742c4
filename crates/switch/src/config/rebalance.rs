// SPDX-License-Identifier: Apache-2.0
//! When receive queues are moved between forwarding threads by their loads.

use serde::{Deserialize, Serialize};

/// When to move.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Rules {
    /// Below this load of the busiest thread nothing is moved, share of a CPU.
    pub threshold: f64,
    /// By how much a move has to lower the higher load of the two threads, share of a CPU.
    pub improvement: f64,
    /// Moves at once at most.
    pub moves_max: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            threshold: 0.7,
            improvement: 0.1,
            moves_max: 8,
        }
    }
}
