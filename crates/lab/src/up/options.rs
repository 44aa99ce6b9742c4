// SPDX-License-Identifier: Apache-2.0
//! What is asked of a lab that is to be brought up.

use std::path::PathBuf;

use quietwire_host::cpuset::Cpuset;
use serde::{Deserialize, Serialize};

use crate::guest::AcceleratorChoice;
use crate::stop::Stop;
use crate::topology::{Assignment, Graph};

/// What is to be brought up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpOptions {
    /// Name of the lab: up to 32 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Where labs keep their state.
    pub state_directory: PathBuf,
    /// The `quietwire` program.
    pub program: PathBuf,
    /// The topology.
    pub graph: Graph,
    /// Who has which CPUs.
    pub cpus: Assignment,
    /// Whether a partition's plan gave it its CPUs: it may use those that the partition isolates.
    #[serde(default)]
    pub by_plan: bool,
    /// About its guests.
    #[serde(default)]
    pub guests: GuestOptions,
    /// The CPU set that all its processes are in, where a partition keeps everything else out of it. It holds all CPUs in `cpus`.
    #[serde(skip)]
    pub set: Option<Cpuset>,
    /// Nothing more is brought up once this is wanted.
    #[serde(skip)]
    pub stop: Stop,
}

/// What is asked of all guests of a lab.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GuestOptions {
    /// Under what they run.
    pub accelerator: AcceleratorChoice,
    /// How long each may take until its agent answers, seconds; what is usual where nothing is said.
    pub deadline_s: Option<f64>,
}
