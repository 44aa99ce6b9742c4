// SPDX-License-Identifier: Apache-2.0
//! The lab: devices under test, their neighbours, and the CPU sets that isolate them. The lab journals every change first and undoes it at
//! the end, at an interrupt, and by [`clean`] after a kill.
//!
//! A device under test is a [`topology`]; a single switch is a topology of one element. [`up`] starts it, element by element, through the
//! one trait that all programs implement. A [`Lab`] does so for each case, with the environment that a study requests for the device.
//!
//! Judges no results and parses no packets.

// Text and files of others: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod clean;
mod control;
mod counts;
mod cycle_reader;
mod cycles;
mod element;
mod error;
#[cfg(test)]
mod fuzz;
mod guard;
pub mod guest;
mod host_isolation;
pub mod iperf;
mod isolation;
mod lab;
mod neighbours;
mod netns;
mod own_view;
mod programs;
mod router_tables;
mod spawn;
mod state_directory;
mod statistics;
mod stop;
mod switch_command;
#[cfg(test)]
mod testing;
mod thread;
pub mod topology;
mod unavailable;
pub mod up;
mod vpp_runtime;

pub use clean::{CleanReport, clean};
pub use counts::{RunningSwitch, SwitchCycles, SwitchReading};
pub use cycle_reader::CycleReader;
pub use cycles::CycleCount;
pub use error::LabError;
pub use guard::clean_when_orphaned;
pub use host_isolation::{IsolationRecord, IsolationRequest, RunningIsolation, TESTER_PRIORITY};
pub use isolation::{
    Applied, IsolationCase, IsolationLevel, IsolationPart, Setup, isolation_cases,
};
pub use lab::{Case, DeviceCommand, ExternalDevice, Lab, LabOptions};
pub use neighbours::{
    Intensity, NeighbourKind, NeighbourPlace, NeighbourSample, NeighbourSpec, NetworkNeighbour,
    Placement, neighbour_kinds,
};
pub use netns::NetNs;
pub use own_view::{OwnView, PartView, PortMemory};
pub use programs::{FIREWALL_RULES, availability};
pub use state_directory::{STATE_DIRECTORY, check_idle};
pub use stop::Stop;
pub use thread::{DeviceThread, ThreadRole};
pub use unavailable::Unavailable;
