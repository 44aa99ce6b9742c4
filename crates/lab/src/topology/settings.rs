// SPDX-License-Identifier: Apache-2.0
//! Settings of quietwire's switch.

use quietwire_base::Idle;
use quietwire_host::CpuList;
use serde::{Deserialize, Serialize};

/// Settings of quietwire's switch that override the lab's defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchSettings {
    /// CPUs of its service threads.
    pub service_cpus: CpuList,
    /// CPUs of its control threads.
    pub control_cpus: CpuList,
    /// Descriptors in each receive ring.
    pub rx_ring_size: u16,
    /// Descriptors in each transmit ring.
    pub tx_ring_size: u16,
    /// Action of an idle forwarding thread.
    pub idle: Idle,
    /// Whether threads are pinned to the CPUs of their role. The lab verifies the pinning.
    pub is_pinned: bool,
    /// Whether it uses huge pages if enough are free.
    pub huge_pages: bool,
    /// Memory for buffers, MiB.
    pub memory_mib: u32,
    /// Largest frame with FCS, octets.
    pub frame_size_max: u16,
    /// Maximum number of addresses in a bridge's table.
    pub mac_addresses_max: u32,
    /// Whether it has two more ports, separate from the others, for neighbours that send through it.
    pub has_neighbour_ports: bool,
}
