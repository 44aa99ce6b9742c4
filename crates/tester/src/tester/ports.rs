// SPDX-License-Identifier: Apache-2.0
//! Ports of the tester.

use quietwire_dpdk::StartedPort;

#[derive(Debug)]
pub(crate) struct TesterPort {
    pub(crate) port: StartedPort,
    pub(crate) drops_when_full: bool,
    /// True for a network card.
    pub(crate) is_card: bool,
}

/// Returns the number of a port in frames and samples. A tester has at most 64 ports.
pub(crate) fn number_of(port: usize) -> u8 {
    u8::try_from(port).unwrap_or(u8::MAX)
}

/// Returns the other port of a pair: ports 0 and 1, 2 and 3, and so on. A single port is its own peer.
pub(crate) fn peer_of(port: usize, ports: usize) -> usize {
    if port ^ 1 < ports { port ^ 1 } else { port }
}
