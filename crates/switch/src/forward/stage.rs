// SPDX-License-Identifier: Apache-2.0
//! What is done with the frames of a port. Made by the control thread, never changed: another takes its place.

use std::sync::Arc;

use crate::fdb::Fdb;

/// What is done with the frames of a receive queue.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Nothing: they are dropped and counted.
    Drop,
    /// All go out of one port.
    CrossConnect {
        /// Its number.
        output: usize,
    },
    /// They are bridged.
    Bridge {
        /// Addresses of the bridge.
        fdb: Arc<Fdb>,
        /// Numbers of its other ports.
        others: Vec<usize>,
    },
}
