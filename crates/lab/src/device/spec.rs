// SPDX-License-Identifier: Apache-2.0
//! What is asked of a device under test.

use quietwire_host::CpuList;
use quietwire_host::roles::Roles;
use serde::{Deserialize, Serialize};

/// What the device does with frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardingMode {
    /// Whatever comes in at one port goes out at the other.
    CrossConnect,
    /// A learning bridge.
    Bridge,
}

/// What is asked of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// What it does with frames.
    pub mode: ForwardingMode,
    /// CPUs of its forwarding threads.
    pub forwarding_cpus: CpuList,
    /// CPUs of its service threads.
    pub service_cpus: CpuList,
    /// CPUs of its control threads.
    pub control_cpus: CpuList,
    /// Descriptors in each receive ring.
    pub rx_ring_size: u16,
    /// Descriptors in each transmit ring.
    pub tx_ring_size: u16,
    /// What an idle forwarding thread does: `poll` or `yield`.
    pub idle: String,
    /// Whether threads are pinned to the CPUs of their role.
    pub pinned: bool,
    /// Whether it may use huge pages, where enough are free.
    pub huge_pages: bool,
    /// Memory for buffers, MiB.
    pub memory_mib: u32,
    /// Largest frame with FCS, octets.
    pub frame_size_max: u16,
    /// Addresses that its table has room for, in bridge mode.
    pub mac_addresses_max: u32,
    /// Its ports: two, or in bridge mode three, the last of which sees what is flooded (RFC 2889, section 5.7.3).
    pub ports: u8,
}

impl DeviceSpec {
    /// Who gets which CPUs.
    #[must_use]
    pub fn roles(&self) -> Roles {
        Roles {
            forwarding: self.forwarding_cpus.clone(),
            service: self.service_cpus.clone(),
            control: self.control_cpus.clone(),
        }
    }
}
