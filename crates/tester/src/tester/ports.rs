// SPDX-License-Identifier: Apache-2.0
//! Ports of the tester.

use quietwire_dpdk::StartedPort;

#[derive(Debug)]
pub(crate) struct TesterPort {
    pub(crate) port: StartedPort,
    pub(crate) drops_when_full: bool,
}

/// Ports are pairs: 0 and 1 speak with each other, 2 and 3, and so on; a port alone with itself.
pub(crate) fn peer_of(port: usize, ports: usize) -> usize {
    if port ^ 1 < ports { port ^ 1 } else { port }
}
