// SPDX-License-Identifier: Apache-2.0
//! Where in a study file a fault is.

pub use quietwire_base::locate::FileError;
pub(crate) use quietwire_base::locate::{At, Fault, of_fault, of_toml};
