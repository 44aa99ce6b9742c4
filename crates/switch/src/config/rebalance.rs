// SPDX-License-Identifier: Apache-2.0
//! Automatic rebalancing of receive queues between forwarding threads, by load.

use serde::{Deserialize, Serialize};

/// Conditions for moving receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Rules {
    /// Minimum load of the busiest thread, share of a CPU. Below it no queue moves.
    pub threshold: f64,
    /// Minimum reduction of the higher load of the two threads by a move, share of a CPU.
    pub improvement: f64,
    /// Maximum number of moves at once.
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
