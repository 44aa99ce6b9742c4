// SPDX-License-Identifier: Apache-2.0
//! Labels of connections, beside their entries, and bits of marks.

use super::super::ct_bits::{LabelBits, MarkBits};
use super::super::entry::Entry;
use super::super::settings::SettingsError;
use super::{Connection, Tracker};
use crate::arena::zeroed;

/// Returns the label of the entry at a position, 0 if it has none.
#[inline(always)]
pub(super) fn label_of(labels: Option<&[u128]>, index: u32, entry: &Entry) -> u128 {
    if !entry.is_labelled() {
        return 0;
    }
    let label = labels.and_then(|labels| labels.get(index as usize));
    label.copied().unwrap_or(0)
}

impl Tracker {
    /// Allocates labels, without which no connection has one. Takes 16 octets more for each connection.
    ///
    /// # Errors
    /// [`SettingsError::Memory`].
    pub fn allow_labels(&mut self) -> Result<(), SettingsError> {
        let mut labels = zeroed::<u128>(self.entries.len())?;
        // The kernel provides the pages now, and not when packets arrive.
        labels.fill(0);
        self.labels = Some(labels);
        Ok(())
    }

    /// Returns the label of a connection; 0 if it has none, or has ended.
    #[inline]
    #[must_use]
    pub fn label(&self, connection: Connection) -> u128 {
        let entry = self.entry(connection);
        entry.map_or(0, |entry| self.label_at(connection.index, entry))
    }

    /// Returns the label of the entry at a position.
    #[inline]
    pub(in super::super) fn label_at(&self, index: u32, entry: &Entry) -> u128 {
        label_of(self.labels.as_deref(), index, entry)
    }

    /// Sets bits of the label of a connection. Returns false if the connection has ended, or if there are no labels.
    pub fn set_label(&mut self, connection: Connection, bits: LabelBits) -> bool {
        let Some(entry) = self.entry(connection) else {
            return false;
        };
        let former = self.label_at(connection.index, entry);
        let label = bits.set_in(former);
        if label == former {
            return self.labels.is_some();
        }
        let is_set = self.put_label(connection.index, label);
        if is_set {
            self.note_change(connection.index);
        }
        is_set
    }

    /// Sets bits of the mark of a connection. Returns false if the connection has ended.
    pub fn set_mark_bits(&mut self, connection: Connection, bits: MarkBits) -> bool {
        let Some(entry) = self.entry(connection) else {
            return false;
        };
        let mark = bits.set_in(entry.mark);
        mark == entry.mark || self.set_mark(connection, mark)
    }

    /// Gives an entry a label, without a change for a standby. Returns false if there are no labels.
    pub(super) fn put_label(&mut self, index: u32, label: u128) -> bool {
        let Some(labels) = &mut self.labels else {
            return false;
        };
        let place = labels.get_mut(index as usize);
        let entry = self.entries.get_mut(index as usize);
        let (Some(place), Some(entry)) = (place, entry) else {
            return false;
        };
        if label != 0 || entry.is_labelled() {
            *place = label;
            entry.set_labelled();
        }
        true
    }
}
