// SPDX-License-Identifier: Apache-2.0
//! The keys of `[application]`.

use serde::{Deserialize, Serialize};

/// `[application]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ApplicationPlan {
    /// How long TCP data are sent each way, whole seconds.
    pub tcp_s: u32,
    /// Connections at a time.
    #[serde(default = "one")]
    pub streams: u8,
    /// How long requests are sent to the echo service, seconds.
    pub echo_s: u32,
    /// Octets of a request.
    #[serde(default = "payload")]
    pub payload: u16,
}

fn one() -> u8 {
    1
}

fn payload() -> u16 {
    64
}
