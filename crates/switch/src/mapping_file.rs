// SPDX-License-Identifier: Apache-2.0
//! Files of saved mappings of NAT and connections of load balancers, for a planned restart: `quietwire switch mappings save` and `restore`.
//!
//! A file is what an active switch sends to a standby: a message with all versions, messages with entries, and one that says that these are
//! all. A file that is damaged, longer or shorter is refused as a whole.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::path::Path;

use quietwire_base::open_regular;

use crate::connection_file::{replace, wrong};
use crate::control::{Request, ask};
use crate::error::SwitchError;
use crate::replication::{Message, Reader, WireError, messages_of, text_of};
use crate::report::{RestoredMappingsReport, SavedMappingsReport, TablePosition};

/// Octets that are read at a time.
const PART: usize = 64 * 1024;

/// Error of reading a file.
#[derive(Debug, thiserror::Error)]
enum MappingFileError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Io(#[from] std::io::Error),
    /// The file is damaged, of another kind, or of another version.
    #[error("not a file of saved mappings of this version, or damaged: {0}")]
    Wire(#[from] WireError),
    /// The file has other messages, or not all.
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    /// The switch refuses the entries, or does not answer.
    #[error(transparent)]
    Switch(#[from] SwitchError),
}

/// Returns the number of entries in a message.
fn entries(message: &Message) -> u64 {
    match message {
        Message::Mappings { changes, .. } => changes.len() as u64,
        Message::MappingsIpv6 { changes, .. } => changes.len() as u64,
        Message::Balanced { changes, .. } => changes.len() as u64,
        Message::BalancedIpv6 { changes, .. } => changes.len() as u64,
        _ => 0,
    }
}

/// Saves the mappings of NAT and the connections of load balancers of the switch on a control socket into a file, which replaces one of this
/// name once it is complete. Only its owner can read it, because it names hosts. Returns the number of entries.
///
/// # Errors
/// Those of [`ask`]; [`SwitchError::Config`] if the file cannot be written.
pub fn save(socket: &Path, path: &Path) -> Result<u64, SwitchError> {
    let position = TablePosition::default();
    let first: SavedMappingsReport = ask(socket, &Request::SaveMappings { position })?;
    replace(path, |file| write(file, socket, first, path))
}

/// Writes all pages into a file, of which the first one is there.
fn write(
    file: &File,
    socket: &Path,
    first: SavedMappingsReport,
    path: &Path,
) -> Result<u64, SwitchError> {
    let cannot = |cause: std::io::Error| wrong(path, format!("cannot write the file: {cause}"));
    let mut out = BufWriter::new(file);
    let (mut page, mut position) = (first, TablePosition::default());
    let (mut sequence, mut total) = (1_u64, 0_u64);
    let mut octets = Vec::new();
    Message::Hello.put(0, &mut octets);
    loop {
        let messages = messages_of(&page.messages).map_err(|error| wrong(path, error))?;
        for message in messages {
            total = total.saturating_add(entries(&message));
            message.put(sequence, &mut octets);
            sequence = sequence.saturating_add(1);
        }
        out.write_all(&octets).map_err(cannot)?;
        octets.clear();
        let Some(next) = page.next else {
            break;
        };
        if next <= position {
            return Err(wrong(path, "the switch repeats a page (this is a bug)"));
        }
        position = next;
        page = ask(socket, &Request::SaveMappings { position })?;
    }
    Message::Complete.put(sequence, &mut octets);
    out.write_all(&octets).map_err(cannot)?;
    out.into_inner()
        .map_err(|error| cannot(error.into_error()))?;
    Ok(total)
}

/// Reads a whole file, and calls `each` with every message that has entries.
fn read_all(
    mut input: impl Read,
    mut each: impl FnMut(Message) -> Result<(), SwitchError>,
) -> Result<(), MappingFileError> {
    let mut reader = Reader::default();
    let mut part = vec![0; PART];
    let mut is_complete = false;
    loop {
        let length = input.read(&mut part)?;
        if length == 0 {
            break;
        }
        reader.push(part.get(..length).unwrap_or_default());
        while let Some(message) = reader.next()? {
            match message {
                _ if is_complete => {
                    return Err(MappingFileError::Damaged("data follows its end"));
                }
                Message::Hello => {}
                Message::Complete => is_complete = true,
                message if message.is_of_mappings() => each(message)?,
                _ => {
                    return Err(MappingFileError::Damaged(
                        "it contains an unexpected message",
                    ));
                }
            }
        }
    }
    if reader.has_rest() || !is_complete {
        return Err(MappingFileError::Damaged(
            "it is truncated, or data follows its end",
        ));
    }
    Ok(())
}

/// Restores the entries of a regular file in the switch on a control socket. The whole file is checked first. Timeouts begin again.
///
/// # Errors
/// [`SwitchError::Config`] if the file cannot be read or is not one of [`save`]; those of [`ask`].
pub fn restore(socket: &Path, path: &Path) -> Result<RestoredMappingsReport, SwitchError> {
    let refused = |error: MappingFileError| match error {
        MappingFileError::Switch(error) => error,
        error => wrong(path, error),
    };
    let unreadable = |cause: std::io::Error| wrong(path, MappingFileError::Io(cause));
    let mut file = open_regular(path).map_err(unreadable)?;
    read_all(&file, |_| Ok(())).map_err(refused)?;
    file.rewind().map_err(unreadable)?;
    let mut sum = RestoredMappingsReport::default();
    let restore_one = |message: Message| -> Result<(), SwitchError> {
        let messages = text_of(&[message]);
        let report: RestoredMappingsReport = ask(socket, &Request::RestoreMappings { messages })?;
        sum.restored = sum.restored.saturating_add(report.restored);
        sum.known = sum.known.saturating_add(report.known);
        sum.full = sum.full.saturating_add(report.full);
        sum.invalid = sum.invalid.saturating_add(report.invalid);
        Ok(())
    };
    read_all(&file, restore_one).map_err(refused)?;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use quietwire_tables::nat::{MappingChange, NatProtocol, SavedMappingIpv6};

    use super::*;
    use crate::replication::wire_tests::{saved_mapping, written};

    fn mappings(ports: std::ops::Range<u16>) -> Message {
        let changes = ports.map(|port| MappingChange::Present(saved_mapping(port)));
        Message::Mappings {
            nat: "x".to_owned(),
            changes: changes.collect(),
        }
    }

    fn mappings_ipv6(ports: std::ops::Range<u16>) -> Message {
        let changes = ports.map(|port| {
            MappingChange::Present(SavedMappingIpv6 {
                protocol: NatProtocol::Tcp,
                is_answered: port % 2 == 0,
                internal: format!("[fd00:1::5]:{port}").parse().unwrap(),
                external: format!("[2001:db8::1]:{port}").parse().unwrap(),
            })
        });
        Message::MappingsIpv6 {
            nat: "y".to_owned(),
            changes: changes.collect(),
        }
    }

    /// Reads a whole file: its messages with entries.
    fn read(octets: &[u8]) -> Result<Vec<Message>, String> {
        let mut messages = Vec::new();
        let keep = |message: Message| -> Result<(), SwitchError> {
            messages.push(message);
            Ok(())
        };
        read_all(octets, keep).map_err(|error| error.to_string())?;
        Ok(messages)
    }

    #[test]
    fn files_are_read_as_they_are_written() {
        for count in [0, 1, 100] {
            let all: Vec<Message> = (0..count)
                .flat_map(|at| {
                    let ports = at * 10 + 1..at * 10 + 9;
                    [mappings(ports.clone()), mappings_ipv6(ports)]
                })
                .collect();
            let mut file = vec![Message::Hello];
            file.extend(all.iter().cloned());
            file.push(Message::Complete);
            assert_eq!(read(&written(&file)), Ok(all));
        }
        assert_eq!(entries(&mappings(1..9)), 8);
        assert_eq!(entries(&mappings_ipv6(1..9)), 8);
    }

    #[test]
    fn every_changed_octet_and_every_other_length_is_found() {
        let file = written(&[Message::Hello, mappings(1..3), Message::Complete]);
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x10;
            assert!(read(&changed).is_err(), "octet {at}");
            assert!(read(&file[..at]).is_err(), "length {at}");
        }
        let longer = [&file[..], &[0]].concat();
        let error = read(&longer).unwrap_err();
        assert!(error.contains("data follows its end"), "{error}");
    }

    #[test]
    fn errors_have_their_cause() {
        let error = |messages: &[Message]| read(&written(messages)).unwrap_err();
        let behind = error(&[Message::Hello, Message::Complete, mappings(1..2)]);
        assert!(behind.contains("data follows its end"), "{behind}");
        let other = error(&[Message::Hello, Message::Heartbeat, Message::Complete]);
        assert!(other.contains("unexpected message"), "{other}");
        let foreign = read(&[b'#'; 100]).unwrap_err();
        assert!(
            foreign.contains("not a file of saved mappings"),
            "{foreign}"
        );
    }
}
