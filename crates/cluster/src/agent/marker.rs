// SPDX-License-Identifier: Apache-2.0
//! File that names the resource of the applied partition. It is below `/run`, as the partition's journal is, so a reboot removes
//! both.

use std::io;
use std::path::Path;

use quietwire_base::durable;
use serde::{Deserialize, Serialize};

use super::state_file;

/// Owner of the applied partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    /// Name of the resource.
    pub(super) name: String,
    /// Its UID.
    pub(super) uid: String,
    /// Its generation.
    pub(super) generation: i64,
    /// Whether all changes were made.
    pub(super) is_complete: bool,
    /// Names of the checks that failed right after the changes.
    pub(super) baseline: Vec<String>,
}

impl Marker {
    /// Reads the file. `None` if it does not exist.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        state_file::read(path)
    }

    /// Writes the file, whole or not at all. The directory is created.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        state_file::write(path, self)
    }

    /// Removes the file if it exists.
    pub(super) fn remove(path: &Path) -> io::Result<()> {
        durable::remove_if_exists(path)
    }
}
