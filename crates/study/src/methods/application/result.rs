// SPDX-License-Identifier: Apache-2.0
//! Results of application measurements.

use quietwire_tester::LatencySummary;
use serde::{Deserialize, Serialize};

/// Results of application measurements through the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplicationResult {
    /// TCP from the first end to the second.
    pub up: TcpResult,
    /// TCP from the second end to the first.
    pub down: TcpResult,
    /// Round trips of a UDP echo, one request at a time.
    pub echo: LatencySummary,
}

/// TCP result of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpResult {
    /// Received bits per second of payload.
    pub received_bps: f64,
    /// Retransmitted segments, if the kernel reports them.
    pub retransmits: Option<u64>,
    /// Round-trip time of the sender's kernel, microseconds.
    pub mean_rtt_us: Option<f64>,
}
