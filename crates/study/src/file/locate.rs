// SPDX-License-Identifier: Apache-2.0
//! Positions of faults in a study file.

pub use quietwire_base::locate::FileError;
pub(crate) use quietwire_base::locate::{At, LocatedFault, of_fault, of_toml, read};
