// SPDX-License-Identifier: Apache-2.0
//! Saves the connections of a running switch into a file, and restores them from there.

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use quietwire_base::{durable, open_regular, unix_time};
use quietwire_tables::connections::{SAVED_OCTETS, SAVED_VERSION, SavedConnection};

use super::{ConnectionFileError, ConnectionFileReader, ConnectionFileWriter};
use crate::control::{Request, ask};
use crate::error::SwitchError;
use crate::report::{RestoredConnectionsReport, SavedConnectionsReport};

/// Result of [`restore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Report of the switch.
    pub report: RestoredConnectionsReport,
    /// Connections that have expired since they were saved.
    pub expired: u64,
}

/// Returns the error of a file.
pub(crate) fn wrong(path: &Path, what: impl ToString) -> SwitchError {
    SwitchError::Config {
        location: path.display().to_string(),
        what: what.to_string(),
    }
}

/// Saves the connections of the switch on a control socket into a file, which replaces one of this name once it is complete. Only its owner
/// can read it, because it names hosts. Returns the number of connections.
///
/// # Errors
/// Those of [`ask`]; [`SwitchError::Config`] if the file cannot be written.
pub fn save(socket: &Path, path: &Path) -> Result<u64, SwitchError> {
    let first: SavedConnectionsReport = ask(socket, &Request::SaveConnections { from: 0 })?;
    replace(path, |file| write(file, socket, first, path))
}

/// Creates a file that only its owner can read, and that replaces one of this name once it is complete.
///
/// # Errors
/// Those of `write`; [`SwitchError::Config`] if the file cannot be created.
pub(crate) fn replace<T>(
    path: &Path,
    write: impl FnOnce(&File) -> Result<T, SwitchError>,
) -> Result<T, SwitchError> {
    let cannot = |cause: std::io::Error| {
        let what = format!(
            "cannot write the file: {cause} (check that the directory exists and is writable)"
        );
        wrong(path, what)
    };
    durable::replace_private(path, write, cannot)
}

/// Writes all pages into a file, of which the first one is there.
fn write(
    file: &File,
    socket: &Path,
    first: SavedConnectionsReport,
    path: &Path,
) -> Result<u64, SwitchError> {
    let cannot = |cause: std::io::Error| wrong(path, format!("cannot write the file: {cause}"));
    let mut writer =
        ConnectionFileWriter::new(BufWriter::new(file), unix_time().as_secs()).map_err(cannot)?;
    let (mut page, mut position) = (first, 0);
    loop {
        let connections = connections_of(&page, path)?;
        writer.write(&connections).map_err(cannot)?;
        let Some(next) = page.next else {
            break;
        };
        if next <= position {
            return Err(wrong(path, "the switch repeats a page (this is a bug)"));
        }
        position = next;
        page = ask(socket, &Request::SaveConnections { from: next })?;
    }
    let (buffered, total) = writer.end().map_err(cannot)?;
    buffered
        .into_inner()
        .map_err(|error| cannot(error.into_error()))?;
    Ok(total)
}

/// Returns the connections of a page.
fn connections_of(
    page: &SavedConnectionsReport,
    path: &Path,
) -> Result<Vec<SavedConnection>, SwitchError> {
    if page.version != SAVED_VERSION {
        let error = ConnectionFileError::Version(page.version);
        return Err(wrong(path, error));
    }
    let octets = BASE64.decode(&page.records).unwrap_or_default();
    let (records, rest) = octets.as_chunks::<SAVED_OCTETS>();
    if !rest.is_empty() || records.is_empty() != page.records.is_empty() {
        return Err(wrong(
            path,
            "the switch sends other records (this is a bug)",
        ));
    }
    let records = records.iter().copied();
    Ok(records.map(SavedConnection::from_octets).collect())
}

/// Restores the connections of a regular file in the switch on a control socket. The whole file is checked first. Time that has passed
/// since it was written counts for timeouts.
///
/// # Errors
/// [`SwitchError::Config`] if the file cannot be read or is not one of [`save`]; those of [`ask`].
pub fn restore(socket: &Path, path: &Path) -> Result<Restored, SwitchError> {
    let refused = |error: ConnectionFileError| wrong(path, error);
    let unreadable = |cause: std::io::Error| wrong(path, ConnectionFileError::Io(cause));
    let mut file = open_regular(path).map_err(unreadable)?;
    {
        let mut check = ConnectionFileReader::new(BufReader::new(&file)).map_err(refused)?;
        while check.next_block().map_err(refused)?.is_some() {}
    }
    file.rewind().map_err(unreadable)?;
    let mut reader = ConnectionFileReader::new(BufReader::new(&file)).map_err(refused)?;
    let passed_s = unix_time().as_secs().saturating_sub(reader.saved_at_s());
    let passed_s = u32::try_from(passed_s).unwrap_or(u32::MAX);
    let mut restored = Restored::default();
    while let Some(block) = reader.next_block().map_err(refused)? {
        let mut octets = Vec::with_capacity(block.len().saturating_mul(SAVED_OCTETS));
        for connection in &block {
            match connection.later(passed_s) {
                Some(connection) => octets.extend_from_slice(connection.octets()),
                None => restored.expired = restored.expired.saturating_add(1),
            }
        }
        if octets.is_empty() {
            continue;
        }
        let request = Request::RestoreConnections {
            version: SAVED_VERSION,
            records: BASE64.encode(octets),
        };
        let report: RestoredConnectionsReport = ask(socket, &request)?;
        let all = &mut restored.report;
        all.restored = all.restored.saturating_add(report.restored);
        all.known = all.known.saturating_add(report.known);
        all.full = all.full.saturating_add(report.full);
        all.invalid = all.invalid.saturating_add(report.invalid);
    }
    Ok(restored)
}
