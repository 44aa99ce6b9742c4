// SPDX-License-Identifier: Apache-2.0
//! Files of saved connections, for a planned restart: `quietwire switch connections save` and `restore`.
//!
//! A file has a header, blocks and an end, each with a CRC-32C behind it. All numbers are in network order:
//!
//! | part | contents |
//! |---|---|
//! | header | eight octets `QWCONNS` and a line feed, version and length of the records (16 bits each), Unix time in seconds (64 bits) |
//! | block | number of its records, 1 to [`RECORDS_MAX`] (32 bits), the records |
//! | end | 0 (32 bits), number of all records (64 bits) |
//!
//! A file that is damaged, longer or shorter, or that has a record which no connection can have, is refused as a whole.

// Octets from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod transfer;

use std::io::{self, ErrorKind, Read, Write};

use quietwire_base::crc32c;
use quietwire_tables::connections::{ENTRIES_MAX, SAVED_OCTETS, SAVED_VERSION, SavedConnection};

pub use transfer::{Restored, restore, save};
pub(crate) use transfer::{replace, wrong};

/// Maximum number of records of a block, and of a request to the switch.
pub const RECORDS_MAX: usize = 256;

const MAGIC: [u8; 8] = *b"QWCONNS\n";
const HEADER: usize = 24;
const CRC: usize = 4;

/// Error of reading a file.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionFileError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Io(#[from] io::Error),
    /// The file is of another kind.
    #[error("not a file of saved connections")]
    Foreign,
    /// The records have another version.
    #[error(
        "saved connections of version {0} cannot be read (this program reads version {SAVED_VERSION})"
    )]
    Version(u16),
    /// The file has been changed or cut off.
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
}

/// Writes a file.
#[derive(Debug)]
pub struct ConnectionFileWriter<W> {
    out: W,
    total: u64,
}

fn with_crc(mut octets: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&octets);
    octets.extend(crc.to_be_bytes());
    octets
}

/// Returns the length of records as a file has it.
fn record_octets() -> [u8; 2] {
    u16::try_from(SAVED_OCTETS)
        .unwrap_or(u16::MAX)
        .to_be_bytes()
}

impl<W: Write> ConnectionFileWriter<W> {
    /// Begins a file with the Unix time of its contents, seconds.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(mut out: W, saved_at_s: u64) -> io::Result<Self> {
        let mut header = MAGIC.to_vec();
        header.extend(SAVED_VERSION.to_be_bytes());
        header.extend(record_octets());
        header.extend(saved_at_s.to_be_bytes());
        out.write_all(&with_crc(header))?;
        Ok(Self { out, total: 0 })
    }

    /// Writes connections.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write(&mut self, connections: &[SavedConnection]) -> io::Result<()> {
        for part in connections.chunks(RECORDS_MAX) {
            let count = u32::try_from(part.len()).unwrap_or(u32::MAX);
            let mut block = count.to_be_bytes().to_vec();
            for connection in part {
                block.extend_from_slice(connection.octets());
            }
            self.out.write_all(&with_crc(block))?;
            self.total = self.total.saturating_add(u64::from(count));
        }
        Ok(())
    }

    /// Ends the file. Returns the output and the number of connections.
    ///
    /// # Errors
    /// Those of the output.
    pub fn end(mut self) -> io::Result<(W, u64)> {
        let mut end = 0u32.to_be_bytes().to_vec();
        end.extend(self.total.to_be_bytes());
        self.out.write_all(&with_crc(end))?;
        self.out.flush()?;
        Ok((self.out, self.total))
    }
}

/// Reads a file, block by block.
#[derive(Debug)]
pub struct ConnectionFileReader<R> {
    input: R,
    saved_at_s: u64,
    total: u64,
    has_ended: bool,
}

/// Takes octets from the front.
fn take<const N: usize>(octets: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = octets.split_first_chunk()?;
    *octets = rest;
    Some(*field)
}

/// Splits the CRC from octets and compares it.
fn checked(octets: &[u8]) -> Result<&[u8], ConnectionFileError> {
    match octets.split_last_chunk::<CRC>() {
        Some((contents, crc)) if crc32c(contents).to_be_bytes() == *crc => Ok(contents),
        _ => Err(ConnectionFileError::Damaged("a checksum is wrong")),
    }
}

impl<R: Read> ConnectionFileReader<R> {
    /// Begins to read a file.
    ///
    /// # Errors
    /// [`ConnectionFileError`].
    pub fn new(mut input: R) -> Result<Self, ConnectionFileError> {
        let mut header = [0; HEADER];
        match input.read_exact(&mut header) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(ConnectionFileError::Foreign);
            }
            read => read?,
        }
        let mut fields = &header[..];
        if take(&mut fields) != Some(MAGIC) {
            return Err(ConnectionFileError::Foreign);
        }
        checked(&header)?;
        let version = take(&mut fields).map_or(0, u16::from_be_bytes);
        if version != SAVED_VERSION || take(&mut fields) != Some(record_octets()) {
            return Err(ConnectionFileError::Version(version));
        }
        Ok(Self {
            input,
            saved_at_s: take(&mut fields).map_or(0, u64::from_be_bytes),
            total: 0,
            has_ended: false,
        })
    }

    /// Returns the Unix time of the contents, seconds.
    pub const fn saved_at_s(&self) -> u64 {
        self.saved_at_s
    }

    /// Returns the number of connections read so far.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Reads octets that must be there.
    fn read(&mut self, octets: &mut [u8]) -> Result<(), ConnectionFileError> {
        match self.input.read_exact(octets) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(ConnectionFileError::Damaged("it ends too early"))
            }
            read => Ok(read?),
        }
    }

    /// Returns the connections of the next block; `None` at the end.
    ///
    /// # Errors
    /// [`ConnectionFileError`].
    pub fn next_block(&mut self) -> Result<Option<Vec<SavedConnection>>, ConnectionFileError> {
        if self.has_ended {
            return Ok(None);
        }
        let mut count = [0; 4];
        self.read(&mut count)?;
        let number = usize::try_from(u32::from_be_bytes(count)).unwrap_or(usize::MAX);
        if number == 0 {
            self.read_end()?;
            return Ok(None);
        }
        if number > RECORDS_MAX {
            return Err(ConnectionFileError::Damaged("a block is too long"));
        }
        let octets = number.saturating_mul(SAVED_OCTETS).saturating_add(CRC);
        let mut block = count.to_vec();
        block.resize(count.len().saturating_add(octets), 0);
        let (_, contents) = block.split_at_mut(count.len());
        self.read(contents)?;
        let mut records = checked(&block)?;
        // The number of records.
        let _: Option<[u8; 4]> = take(&mut records);
        let (records, _) = records.as_chunks::<SAVED_OCTETS>();
        let connections: Vec<SavedConnection> = records
            .iter()
            .map(|octets| SavedConnection::from_octets(*octets))
            .collect();
        if !connections.iter().all(SavedConnection::is_valid) {
            return Err(ConnectionFileError::Damaged(
                "a record is not a valid connection",
            ));
        }
        self.total = self.total.saturating_add(connections.len() as u64);
        if self.total > u64::from(ENTRIES_MAX) {
            return Err(ConnectionFileError::Damaged(
                "it has more connections than any switch",
            ));
        }
        Ok(Some(connections))
    }

    /// Reads the end behind its first field.
    fn read_end(&mut self) -> Result<(), ConnectionFileError> {
        let mut end = [0; 4 + 8 + CRC];
        let (_, rest) = end.split_at_mut(4);
        self.read(rest)?;
        let contents = checked(&end)?;
        let total = contents.last_chunk().copied().map(u64::from_be_bytes);
        if total != Some(self.total) {
            return Err(ConnectionFileError::Damaged("connections are missing"));
        }
        if self.input.read(&mut [0])? != 0 {
            return Err(ConnectionFileError::Damaged("data follows its end"));
        }
        self.has_ended = true;
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Reads a whole file: its time and its connections.
    pub(crate) fn read_all(
        octets: &[u8],
    ) -> Result<(u64, Vec<SavedConnection>), ConnectionFileError> {
        let mut reader = ConnectionFileReader::new(octets)?;
        let mut list = Vec::new();
        while let Some(block) = reader.next_block()? {
            list.extend(block);
        }
        Ok((reader.saved_at_s(), list))
    }

    /// Writes a whole file.
    pub(crate) fn written(connections: &[SavedConnection], saved_at_s: u64) -> Vec<u8> {
        let mut writer = ConnectionFileWriter::new(Vec::new(), saved_at_s).unwrap();
        writer.write(connections).unwrap();
        let (octets, total) = writer.end().unwrap();
        assert_eq!(total, connections.len() as u64);
        octets
    }

    /// Returns a connection of UDP between 10.0.0.1, port N, and 10.0.0.2, port 53.
    fn connection(port: u16) -> SavedConnection {
        let mut octets = [0; SAVED_OCTETS];
        octets[12..16].copy_from_slice(&[10, 0, 0, 1]);
        octets[28..32].copy_from_slice(&[10, 0, 0, 2]);
        octets[32..34].copy_from_slice(&port.to_be_bytes());
        octets[35] = 53;
        octets[38..40].copy_from_slice(&[17, 9]);
        octets[51] = 30;
        SavedConnection::from_octets(octets)
    }

    #[test]
    fn files_are_read_as_they_are_written() {
        for count in [0, 1, 255, 256, 257, 1000] {
            let list: Vec<SavedConnection> = (1..=count).map(connection).collect();
            assert!(list.iter().all(SavedConnection::is_valid));
            let (saved_at_s, read) = read_all(&written(&list, 1_800_000_000)).unwrap();
            assert_eq!((saved_at_s, read), (1_800_000_000, list));
        }
    }

    #[test]
    fn every_changed_octet_and_every_other_length_is_found() {
        let list = [connection(1), connection(2)];
        let file = written(&list, 7);
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x10;
            assert!(read_all(&changed).is_err(), "octet {at}");
            assert!(read_all(&file[..at]).is_err(), "length {at}");
        }
        let longer = [&file[..], &[0]].concat();
        let error = read_all(&longer).unwrap_err().to_string();
        assert!(error.contains("data follows its end"), "{error}");
    }

    #[test]
    fn errors_have_their_cause() {
        let file = written(&[connection(1)], 7);
        let error = |octets: &[u8]| read_all(octets).unwrap_err().to_string();
        assert!(error(b"").contains("not a file of saved connections"));
        assert!(error(&[b'#'; 100]).contains("not a file of saved connections"));
        let mut other = file.clone();
        other[9] = 3;
        let header = with_crc(other[..20].to_vec());
        other[..24].copy_from_slice(&header);
        assert!(error(&other).contains("version 3"), "{}", error(&other));
        assert!(error(&file[..30]).contains("ends too early"));
        // A block that another program wrote: right checksums, wrong contents.
        let impossible = SavedConnection::from_octets([0xff; SAVED_OCTETS]);
        assert!(error(&written(&[impossible], 7)).contains("not a valid connection"));
        let too_long = [&file[..24], &[0, 0, 1, 1]].concat();
        assert!(error(&too_long).contains("too long"));
        let missing = [&file[..24], &file[file.len() - 16..]].concat();
        assert!(error(&missing).contains("connections are missing"));
    }
}
