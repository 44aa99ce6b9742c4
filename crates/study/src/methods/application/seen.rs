// SPDX-License-Identifier: Apache-2.0
//! What applications saw.

use quietwire_tester::LatencySummary;
use serde::{Deserialize, Serialize};

/// What applications saw of the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplicationSeen {
    /// TCP from the first end to the second.
    pub up: TcpSeen,
    /// TCP from the second to the first.
    pub down: TcpSeen,
    /// Round trips of an echo over UDP, one request at a time.
    pub echo: LatencySummary,
}

/// What came of TCP data one way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpSeen {
    /// Bits of data a second that arrived.
    pub received_bps: f64,
    /// Segments sent again, where the kernel says.
    pub retransmits: Option<u64>,
    /// Round-trip time as the sender's kernel has it, microseconds.
    pub mean_rtt_us: Option<f64>,
}
