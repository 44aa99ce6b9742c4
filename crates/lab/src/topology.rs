// SPDX-License-Identifier: Apache-2.0
//! Topologies: which elements there are, what connects them, who is where and on which CPUs. All of it is data; nothing here
//! touches the machine.

mod alone;
mod build;
mod catalog;
mod check;
mod cpus;
mod drawing;
mod file;
mod graph;
mod kinds;
mod partitioned;
mod program;
mod relay;
mod settings;
mod text;

#[cfg(test)]
mod tests;

use quietwire_base::locate::FileError;

pub(crate) use build::is_pci_address;
pub use build::{CHAINS_MAX, LENGTH_MAX, Parameters};
pub use catalog::{CATALOG, CatalogEntry, Chains, Length, Shape, named};
pub use cpus::{Assignment, Shared, assign};
pub use drawing::draw;
pub use file::read;
pub use graph::{Element, End, Graph, Join, Link, OwnImage, Part, SWITCH, TESTER};
pub use kinds::{ElementPlace, Encapsulation, Forwarding, LinkKind, Role};
pub use partitioned::assign_by_plan;
pub use program::Program;
pub use settings::SwitchSettings;
pub use text::describe;

/// Why there is no such topology.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A name that is none of the fifteen.
    #[error(
        "there is no topology '{0}'; `quietwire lab list` shows those that there are, and a name that ends with .toml is a file with your own"
    )]
    Unknown(String),
    /// A parameter or a graph that makes no sense.
    #[error("{0}")]
    Wrong(String),
    /// A file that makes no sense.
    #[error(transparent)]
    File(#[from] FileError),
}
