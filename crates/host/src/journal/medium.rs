// SPDX-License-Identifier: Apache-2.0
//! The file of a journal, as a trait, so tests can let every write fail.

use std::fs::File;
use std::io::{self, Write};

/// Appends to a file that survives a power failure.
pub(super) trait Medium: Send {
    /// Returns the length, octets.
    fn length(&self) -> io::Result<u64>;

    /// Writes at the end. After an error, any part may have been written.
    fn append(&mut self, octets: &[u8]) -> io::Result<()>;

    /// Removes everything after the first `length` octets.
    fn truncate(&mut self, length: u64) -> io::Result<()>;

    /// Returns when contents and length are on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl Medium for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        self.write_all(octets)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
