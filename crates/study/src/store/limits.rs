// SPDX-License-Identifier: Apache-2.0
//! Limits of reading a store. Another program may have written the file, and a table whose pages refer to each other has rows without end.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use quietwire_base::Deadline;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, Statement};

/// Time from opening a store to the last query, with the evaluation of the results in between.
const TIME: Duration = Duration::from_secs(600);
/// Steps of SQLite's virtual machine between two checks of the limits.
const STEPS_A_CHECK: u16 = 1000;
/// Octets of the files for each check: a row has at least ten octets, and a report takes fewer than a hundred steps for it.
const OCTETS_A_CHECK: u64 = 10;
/// Checks in addition, for small stores.
const CHECKS_MIN: u64 = 10_000;
/// Octets of rows for each octet of the files: a report reads each row once.
const OCTETS_PER_OCTET: u64 = 8;
/// Octets of rows in addition, for small stores.
const OCTETS_MIN: u64 = 1 << 20;
/// Octets of a row in addition to its texts and blobs.
const ROW_OCTETS: u64 = 8;

/// Limits of everything that is read from a store between its opening and its closing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Time.
    pub(super) time: Duration,
    /// Checks, each after [`STEPS_A_CHECK`] steps of SQLite's virtual machine.
    pub(super) checks: u64,
    /// Octets of all rows.
    pub(super) octets: u64,
}

impl Limits {
    /// Returns the limits of a store, from the lengths of its files.
    pub(super) fn of(files: &[PathBuf]) -> Self {
        let length = |file: &PathBuf| std::fs::metadata(file).map_or(0, |metadata| metadata.len());
        let octets = files.iter().map(length).fold(0, u64::saturating_add);
        Self {
            time: TIME,
            checks: octets.div_ceil(OCTETS_A_CHECK).saturating_add(CHECKS_MIN),
            octets: octets
                .saturating_mul(OCTETS_PER_OCTET)
                .saturating_add(OCTETS_MIN),
        }
    }

    /// Makes SQLite interrupt the statements of a connection beyond the limits of time and steps.
    pub(super) fn apply(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let deadline = Deadline::after(self.time);
        let mut left = self.checks;
        let is_over = move || {
            left = left.saturating_sub(1);
            left == 0 || deadline.has_passed()
        };
        connection.progress_handler(i32::from(STEPS_A_CHECK), Some(is_over))
    }
}

/// Octets of rows that may still be read from a store.
#[derive(Debug)]
pub(super) struct Budget(Cell<u64>);

impl Budget {
    pub(super) fn new(limits: &Limits) -> Self {
        Self(Cell::new(limits.octets))
    }

    /// Subtracts a row. Returns false if it exceeds the budget, which is used up from then on.
    pub(super) fn spend(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let left = self.0.get().checked_sub(octets_of(row)?);
        self.0.set(left.unwrap_or(0));
        Ok(left.is_some())
    }
}

fn octets_of(row: &Row<'_>) -> rusqlite::Result<u64> {
    let statement: &Statement<'_> = row.as_ref();
    let mut octets = ROW_OCTETS;
    for column in 0..statement.column_count() {
        let length = match row.get_ref(column)? {
            ValueRef::Text(octets) | ValueRef::Blob(octets) => octets.len(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
        };
        octets = octets.saturating_add(length as u64);
    }
    Ok(octets)
}
