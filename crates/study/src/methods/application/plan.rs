// SPDX-License-Identifier: Apache-2.0
//! Keys of `[application]`.

use serde::{Deserialize, Serialize};

/// Application measurements (`[application]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ApplicationPlan {
    /// Duration of the TCP measurement in each direction, whole seconds.
    pub tcp_s: u32,
    /// Number of parallel connections.
    #[serde(default = "streams")]
    pub streams: u8,
    /// Duration of the echo measurement, seconds.
    pub echo_s: u32,
    /// Size of a request, octets.
    #[serde(default = "payload")]
    pub payload: u16,
}

fn streams() -> u8 {
    1
}

fn payload() -> u16 {
    64
}
