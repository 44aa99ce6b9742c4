// SPDX-License-Identifier: Apache-2.0
//! The tables that replication reads and changes: those of all forwarding threads.

use std::time::Duration;

use super::wire::{Digests, Limits, Message};
use crate::error::SwitchError;
use crate::forward::ApplyCounts;

/// Interval at which each side looks for changes of its settings. A comparison formats all of them.
pub(super) const COMPARE: Duration = Duration::from_secs(1);

/// Position in all tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the table.
    pub(crate) table: usize,
    /// Position in the table.
    pub(crate) from: u32,
    /// Identifies the tables: another list of tables has other numbers.
    pub(crate) list: u64,
}

/// The tables of connections and mappings.
pub(crate) trait Tables {
    /// Returns the settings that must be equal on both switches.
    fn digests(&self) -> Digests;

    /// Returns the limits of the tables. A standby reports those that are lower than those of the active switch.
    fn limits(&self) -> Limits;

    /// Appends messages with changes since the last call. Returns the number of changes that were lost: if there are some, the standby
    /// requires all entries. The first call begins to note changes.
    ///
    /// # Errors
    /// A thread does not reply.
    fn changes(&mut self, messages: &mut Vec<Message>) -> Result<u64, SwitchError>;

    /// Appends messages with entries from a position on, or from the first table on if the tables are no longer those of the position.
    /// Returns the position to continue from; `None` at the end.
    ///
    /// # Errors
    /// A thread does not reply.
    fn page(
        &mut self,
        from: Position,
        messages: &mut Vec<Message>,
    ) -> Result<Option<Position>, SwitchError>;

    /// Notes no further changes.
    ///
    /// # Errors
    /// A thread does not reply.
    fn end(&mut self) -> Result<(), SwitchError>;

    /// Applies the changes of a message.
    ///
    /// # Errors
    /// A thread does not reply.
    fn apply(&mut self, message: Message) -> Result<ApplyCounts, SwitchError>;
}
