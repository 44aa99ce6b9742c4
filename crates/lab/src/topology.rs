// SPDX-License-Identifier: Apache-2.0
//! Topologies: elements, their connections, their places and their CPUs. Topologies are data; nothing here changes the
//! machine.

mod build;
mod catalog;
mod check;
mod config;
mod cpus;
mod drawing;
mod file;
mod graph;
mod kinds;
mod partitioned;
mod program;
mod relay;
mod settings;
mod standalone;
mod text;

#[cfg(test)]
mod tests;

use quietwire_base::locate::FileError;

pub(crate) use build::is_pci_address;
pub use build::{CHAINS_MAX, LENGTH_MAX, Parameters};
pub use catalog::{CATALOG, CatalogEntry, Chains, Length, Shape, named};
pub use config::CONFIG_KEYS;
pub use cpus::{Assignment, Shared, assign};
pub use drawing::draw;
pub use file::read;
pub use graph::{Element, End, Graph, Join, Link, OwnImage, Part, RouterPlace, SWITCH, TESTER};
pub use kinds::{ElementPlace, Encapsulation, Forwarding, LinkKind, Role};
pub use partitioned::assign_by_plan;
pub use program::Program;
pub use settings::SwitchSettings;
pub use text::describe;

/// Error of a topology.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A name that is not in the catalogue of fifteen topologies.
    #[error(
        "unknown topology '{0}' (`quietwire lab list` lists the topologies; the path of a topology file ends with .toml)"
    )]
    Unknown(String),
    /// An invalid parameter or graph.
    #[error("{0}")]
    Wrong(String),
    /// An invalid file.
    #[error(transparent)]
    File(#[from] FileError),
}
