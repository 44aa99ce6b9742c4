// SPDX-License-Identifier: Apache-2.0
//! Reads the files of partitions that options name: requests and plans.

use std::fmt::Display;
use std::path::Path;

use anyhow::Result;
use quietwire_base::read_text;
use quietwire_host::partition::{PartitionRequest, Plan};

use crate::exit::Usage;

fn wrong(path: &Path, error: impl Display) -> Usage {
    Usage(format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<String> {
    Ok(read_text(path).map_err(|error| wrong(path, error))?)
}

/// Reads a partition plan (JSON).
///
/// # Errors
/// [`Usage`] with the path.
pub(crate) fn read_plan(path: &Path) -> Result<Plan> {
    Ok(serde_json::from_str(&read(path)?).map_err(|error| {
        let cure = "create a plan with `quietwire partition plan --json`";
        wrong(path, format!("{error} ({cure})"))
    })?)
}

/// Reads a partition request (TOML).
///
/// # Errors
/// [`Usage`] with the path.
pub(crate) fn read_request(path: &Path) -> Result<PartitionRequest> {
    Ok(PartitionRequest::parse(&read(path)?).map_err(|error| wrong(path, error))?)
}
