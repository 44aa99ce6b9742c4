// SPDX-License-Identifier: Apache-2.0
//! Files that options name.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
use quietwire_base::durable;

use crate::exit::{CheckFailed, Usage};

/// Writes a file that an option names, beside its place first: it is never there in part.
///
/// # Errors
/// [`Usage`] if no file can be at this path, or the error of the system.
pub(crate) fn write_file(option: &str, path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    let written = durable::replace(path, contents.as_ref(), 0o666);
    written.map_err(|error| {
        let text = format!("{option} {}: cannot be written ({error})", path.display());
        match error.kind() {
            ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem => Usage(format!("{text}; give another path")).into(),
            _ => CheckFailed(text).into(),
        }
    })
}
