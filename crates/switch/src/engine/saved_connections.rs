// SPDX-License-Identifier: Apache-2.0
//! Connections that outlive a restart: as records to a client, and back.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use quietwire_tables::connections::{
    ConnectionFilter, SAVED_OCTETS, SAVED_VERSION, SavedConnection,
};

use super::Engine;
use super::connections::ENTRIES_AN_ORDER;
use super::pages::{from_position, paged};
use crate::connection_file::RECORDS_MAX;
use crate::error::SwitchError;
use crate::forward::{ConnectionQuery, ConnectionTotals, RestoreCounts, Transfer};
use crate::report::{RestoredConnectionsReport, SavedConnectionsReport};

fn wrong(what: String) -> SwitchError {
    SwitchError::Config {
        location: "connections".to_owned(),
        what,
    }
}

pub(super) fn query_of(transfer: Transfer, from: u32) -> Box<ConnectionQuery> {
    Box::new(ConnectionQuery {
        filter: ConnectionFilter::default(),
        is_flush: false,
        from: Some(from),
        budget: ENTRIES_AN_ORDER,
        list: Vec::new(),
        external: Vec::new(),
        removed: 0,
        transfer,
        totals: ConnectionTotals::default(),
    })
}

/// Reads the records of a request.
fn records_of(version: u16, records: &str) -> Result<Vec<SavedConnection>, SwitchError> {
    if version != SAVED_VERSION {
        return Err(wrong(format!(
            "saved connections of version {version} cannot be restored (this switch reads version {SAVED_VERSION})"
        )));
    }
    let octets = BASE64
        .decode(records)
        .map_err(|error| wrong(format!("saved connections are not base64: {error}")))?;
    let (records, rest) = octets.as_chunks::<SAVED_OCTETS>();
    if !rest.is_empty() || records.len() > RECORDS_MAX {
        return Err(wrong(format!(
            "{} octets are not up to {RECORDS_MAX} saved connections of {SAVED_OCTETS} octets",
            octets.len()
        )));
    }
    let records = records.iter().copied();
    Ok(records.map(SavedConnection::from_octets).collect())
}

impl Engine {
    /// Returns a page of connections as records, from position `from` on.
    ///
    /// # Errors
    /// Those of [`Self::connections`].
    pub(crate) fn save_connections(
        &mut self,
        from: u32,
    ) -> Result<SavedConnectionsReport, SwitchError> {
        let totals = self.connection_totals()?;
        let tables = paged(totals.iter().map(|(cpu, one)| (*cpu, one.max_entries)));
        let mut left = from_position(&tables, from);
        let mut octets = Vec::new();
        let mut next = None;
        if let Some((table, start)) = left.next() {
            let transfer = Transfer::Save(Vec::with_capacity(RECORDS_MAX));
            let query = self.query_connections(table.cpu, query_of(transfer, start))?;
            if let Transfer::Save(list) = &query.transfer {
                for saved in list {
                    octets.extend_from_slice(saved.octets());
                }
            }
            next = match query.from {
                Some(position) => table.base.checked_add(position),
                None => left.next().map(|(table, _)| table.base),
            };
        }
        Ok(SavedConnectionsReport {
            version: SAVED_VERSION,
            records: BASE64.encode(octets),
            next,
        })
    }

    /// Adds saved connections.
    ///
    /// # Errors
    /// Those of [`Self::connections`]; [`SwitchError::Config`] for records of another version, or too many.
    pub(crate) fn restore_connections(
        &mut self,
        version: u16,
        records: &str,
    ) -> Result<RestoredConnectionsReport, SwitchError> {
        let list = records_of(version, records)?;
        let mut sum = RestoreCounts::default();
        for (cpu, list) in self.by_owner(list)? {
            let transfer = Transfer::Restore(list, RestoreCounts::default());
            let query = self.query_connections(cpu, query_of(transfer, 0))?;
            if let Transfer::Restore(_, counts) = &query.transfer {
                sum.add(counts);
            }
        }
        Ok(RestoredConnectionsReport {
            restored: sum.restored,
            known: sum.known,
            full: sum.full,
            invalid: sum.invalid,
        })
    }

    /// Divides records among the forwarding CPUs that own their connections. One that is no connection's goes to the first CPU, which counts it.
    fn by_owner(
        &mut self,
        list: Vec<SavedConnection>,
    ) -> Result<BTreeMap<u32, Vec<SavedConnection>>, SwitchError> {
        // Without connection tracking, this is an error.
        self.connection_totals()?;
        Ok(self.by_owner_cpu(list, |owners, saved| owners.of_saved(saved).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_another_version_or_length_are_refused() {
        let one = BASE64.encode([0u8; SAVED_OCTETS]);
        assert_eq!(records_of(SAVED_VERSION, &one).unwrap().len(), 1);
        assert!(records_of(SAVED_VERSION, "").unwrap().is_empty());
        let error = records_of(SAVED_VERSION + 1, &one).unwrap_err().to_string();
        let expected = format!("reads version {SAVED_VERSION}");
        assert!(error.contains(&expected), "{error}");
        let long = BASE64.encode(vec![0u8; (RECORDS_MAX + 1) * SAVED_OCTETS]);
        let odd = BASE64.encode([0u8; SAVED_OCTETS + 1]);
        for text in ["?", long.as_str(), odd.as_str()] {
            assert!(records_of(SAVED_VERSION, text).is_err());
        }
    }
}
