// SPDX-License-Identifier: Apache-2.0
//! Kernel forwarding of a bridge.

use serde::{Deserialize, Serialize};

/// State of kernel forwarding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelForwardingState {
    /// The kernel forwards between stations that the bridge knows.
    Active,
    /// The switch forwards all frames, because its settings require that.
    #[default]
    Paused,
    /// The switch forwards all frames, because of an error of the kernel.
    Unavailable,
}

impl KernelForwardingState {
    /// Returns its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Kernel forwarding of a bridge with the option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelForwardingReport {
    /// Its state.
    pub state: KernelForwardingState,
    /// The reason for another state than active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Names of the ports that take part.
    pub ports: Vec<String>,
    /// Addresses of stations that the kernel has.
    pub addresses: u32,
}
