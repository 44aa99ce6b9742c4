// SPDX-License-Identifier: Apache-2.0
//! The lab: devices under test (one adapter a file), their neighbours, the CPU sets that keep them apart, and the
//! way back: everything made is journalled first and undone at the end, at an interrupt, and by [`clean`] after a kill.
//!
//! Judges no results and knows no packets.

mod adapters;
mod around;
mod clean;
mod control;
mod counts;
mod cycles;
mod device;
mod element;
mod error;
mod guard;
pub mod guest;
pub mod iperf;
mod isolation;
mod lab;
mod neighbours;
mod place;
mod programs;
mod spawn;
mod state_directory;
mod stop;
mod thread;
pub mod topology;
mod unavailable;
pub mod up;

pub use adapters::Places;
pub use around::{IsolationRecord, IsolationRequest, RunningIsolation, TESTER_PRIORITY};
pub use clean::{CleanReport, clean};
pub use counts::RunningSwitch;
pub use cycles::CycleCount;
pub use device::{DeviceSpec, ForwardingMode};
pub use error::LabError;
pub use guard::clean_when_orphaned;
pub use isolation::{
    Applied, IsolationCase, IsolationLevel, IsolationPart, Setup, isolation_cases,
};
pub use lab::{Begun, Case, Entered, Lab, LabOptions};
pub use neighbours::{
    AtWork, Intensity, NeighbourKind, NeighbourPlace, NeighbourSpec, NetworkNeighbour, Placement,
    neighbour_kinds,
};
pub use place::Place;
pub use programs::{FIREWALL_RULES, availability};
pub use state_directory::STATE_DIRECTORY;
pub use stop::Stop;
pub use thread::DeviceThread;
pub use unavailable::Unavailable;
