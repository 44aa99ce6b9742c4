// SPDX-License-Identifier: Apache-2.0
//! Threads of elements, as results list them.

use serde::{Deserialize, Serialize};

/// A thread of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceThread {
    /// The kernel's number.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// `forwarding`, `service` or `control`.
    pub role: String,
    /// CPUs that it may use, as a list.
    pub cpus: String,
}
