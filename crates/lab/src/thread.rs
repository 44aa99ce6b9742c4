// SPDX-License-Identifier: Apache-2.0
//! Threads of elements, as results list them.

use quietwire_host::CpuList;
use serde::{Deserialize, Serialize};

pub use quietwire_switch::report::Role as ThreadRole;

/// A thread of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceThread {
    /// The kernel's number.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: ThreadRole,
    /// CPUs that it may use.
    pub cpus: CpuList,
}
