// SPDX-License-Identifier: Apache-2.0
//! Options for starting a lab.

use std::path::PathBuf;

use quietwire_host::cpuset::Cpuset;
use serde::{Deserialize, Serialize};

use crate::guest::AcceleratorChoice;
use crate::stop::Stop;
use crate::topology::{Assignment, Graph};

/// Options for starting a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpOptions {
    /// Name of the lab: up to 32 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// State directory of labs.
    pub state_directory: PathBuf,
    /// Path of the `quietwire` program.
    pub program: PathBuf,
    /// The topology.
    pub graph: Graph,
    /// CPU assignment of the elements.
    pub cpus: Assignment,
    /// Whether the CPUs come from a partition's plan. Then the lab may use CPUs that the partition isolates.
    #[serde(default)]
    pub by_plan: bool,
    /// Options for its guests.
    #[serde(default)]
    pub guests: GuestOptions,
    /// CPU set for all its processes, if a partition isolates its CPUs. It holds all CPUs in `cpus`.
    #[serde(skip)]
    pub set: Option<Cpuset>,
    /// Stops the start when set.
    #[serde(skip)]
    pub stop: Stop,
}

/// Options for all guests of a lab.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GuestOptions {
    /// Accelerator.
    pub accelerator: AcceleratorChoice,
    /// Boot timeout until the guest's agent answers, seconds. `None` is the default timeout.
    pub deadline_s: Option<f64>,
}
