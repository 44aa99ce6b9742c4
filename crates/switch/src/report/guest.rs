// SPDX-License-Identifier: Apache-2.0
//! The guest of a port.

use serde::{Deserialize, Serialize};

/// The guest of a vhost-user port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestReport {
    /// Virtio features that both sides negotiated.
    pub features: Vec<String>,
    /// Number of rings that it has set up, both directions.
    pub rings: u16,
    /// Size of the first ring, descriptors.
    pub ring_size: u16,
}
