// SPDX-License-Identifier: Apache-2.0
//! State of the agent in files (JSON) that survive a kill.

use std::fs;
use std::io;
use std::path::Path;

use quietwire_base::{durable, read_regular};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Mode of the files.
const MODE: u32 = 0o600;
/// Largest file, octets: some times the largest resource that etcd stores.
const OCTETS_MAX: u64 = 16 << 20;

/// Reads a file. `None` if it does not exist.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match read_regular(path, OCTETS_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => serde_json::from_slice(&read?)
            .map(Some)
            .map_err(io::Error::other),
    }
}

/// Writes a file, whole or not at all. The directory is created.
pub(super) fn write(path: &Path, state: &impl Serialize) -> io::Result<()> {
    fs::create_dir_all(durable::directory_of(path))?;
    let text = serde_json::to_vec(state).map_err(io::Error::other)?;
    durable::replace(path, &text, MODE)
}
