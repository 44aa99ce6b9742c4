// SPDX-License-Identifier: Apache-2.0
//! File that names the resource of the applied partition. It is below `/run`, as the partition's journal is, so a reboot removes
//! both.

use std::fs;
use std::io;
use std::path::Path;

use quietwire_base::durable;
use serde::{Deserialize, Serialize};

/// Mode of the file.
const MODE: u32 = 0o600;

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
        match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => serde_json::from_slice(&read?)
                .map(Some)
                .map_err(io::Error::other),
        }
    }

    /// Writes the file, whole or not at all. The directory is created.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(durable::directory_of(path))?;
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        durable::replace(path, &text, MODE)
    }

    /// Removes the file if it exists.
    pub(super) fn remove(path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
