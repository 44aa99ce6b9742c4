// SPDX-License-Identifier: Apache-2.0
//! Counters of a program in a guest, as reported by the guest's agent.

use quietwire_tester::account::{DropStage, ElementCounts, PortCounts};

use crate::guest::agent::protocol::PortCounters;

/// Returns the counters of an element's ports, in order.
pub(crate) fn of_agent(ports: &[PortCounters]) -> ElementCounts {
    let ports = ports.iter().enumerate().map(|(index, port)| {
        let counts = PortCounts {
            received: port.rx_frames,
            sent: port.tx_frames,
            ..PortCounts::default()
        }
        .with_drops(DropStage::Received, "rx_dropped", port.rx_dropped)
        .with_drops(DropStage::ToSend, "tx_dropped", port.tx_dropped);
        (format!("p{index}"), counts)
    });
    ElementCounts {
        ports: ports.collect(),
        ..ElementCounts::default()
    }
}
