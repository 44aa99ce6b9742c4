// SPDX-License-Identifier: Apache-2.0
//! Counters of a port.

/// Counters of a port as its driver keeps them (`struct rte_eth_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Octets received.
    pub rx_octets: u64,
    /// Octets sent.
    pub tx_octets: u64,
    /// Frames lost because the receive ring was full.
    pub rx_missed: u64,
    /// Damaged frames received.
    pub rx_errors: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Frames lost because no buffer was free.
    pub rx_no_buffers: u64,
}
