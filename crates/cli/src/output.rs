// SPDX-License-Identifier: Apache-2.0
//! Files and directories that options name.

use std::fs::{self, OpenOptions};
use std::io::{Error, ErrorKind, Write as _};
use std::path::Path;

use anyhow::{Result, bail};
use quietwire_base::{Fault, durable};

use crate::exit::{CheckFailed, Usage};

/// Returns the error of a file or directory that an option names and that cannot be written.
pub(crate) fn unwritable(option: &str, path: &Path, error: &Error) -> anyhow::Error {
    let text = format!("{option} {}: cannot be written ({error})", path.display());
    match Fault::of_path(error) {
        Fault::Failed => CheckFailed(text).into(),
        Fault::BadInput | Fault::MissingPrerequisite => {
            Usage(format!("{text} (give another path)")).into()
        }
    }
}

/// Writes a file that an option names, beside its place first: it is never there in part.
///
/// # Errors
/// [`Usage`] if no file can be at this path, or the error of the system.
pub(crate) fn write_file(option: &str, path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    durable::replace(path, contents.as_ref(), 0o666)
        .map_err(|error| unwritable(option, path, &error))
}

/// Creates a directory that an option names, with those above it, unless it exists.
///
/// # Errors
/// [`Usage`] if no directory can be at this path, or the error of the system.
pub(crate) fn make_directory(option: &str, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).map_err(|error| unwritable(option, directory, &error))
}

/// Creates the directory of a file that an option names, unless it exists.
///
/// # Errors
/// [`Usage`] if no directory can be at this path, or the error of the system.
pub(crate) fn make_parent(option: &str, path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => make_directory(option, parent),
        _ => Ok(()),
    }
}

/// Least space for a file, octets. A page is larger, and so is a store.
const SPACE: usize = 64 << 10;

/// Refuses a path at which no file can be written. Directories that are not there are no hindrance: they are made.
pub(crate) fn check_place(option: &str, path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!(Usage(format!(
            "{option} {}: is a directory (give the path of a file in it)",
            path.display()
        )));
    }
    if path.exists() && !path.is_file() {
        // Opening a pipe would wait for its reader.
        bail!(Usage(format!(
            "{option} {}: is a device, a pipe or a socket (give the path of a file)",
            path.display()
        )));
    }
    let above = path.ancestors().skip(1);
    // The path of a file in the current directory ends with an empty one above.
    let above = above.map(|directory| match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    });
    let nearest = above.into_iter().find(|directory| directory.exists());
    let nearest = nearest.unwrap_or(Path::new("."));
    if !nearest.is_dir() {
        bail!(Usage(format!(
            "{option} {}: {} is not a directory (give another path)",
            path.display(),
            nearest.display()
        )));
    }
    // A name that is too long, or links that lead nowhere.
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(unwritable(option, path, &error));
        }
        _ => {}
    }
    let writable = match path.exists() {
        true => OpenOptions::new().append(true).open(path).map(drop),
        false => Ok(()),
    };
    // A full disk accepts new files, but no contents. Pages are written beside their places first.
    let space = || {
        let mut file = tempfile::tempfile_in(nearest)?;
        file.write_all(&[0; SPACE])?;
        file.sync_all()
    };
    writable
        .and_then(|()| space())
        .map_err(|error| unwritable(option, path, &error))
}
