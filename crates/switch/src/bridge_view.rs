// SPDX-License-Identifier: Apache-2.0
//! A bridge as the control and the service thread see it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::bridge::BridgeTables;
use crate::fdb::{Fdb, Key, Selection, StaticError};

/// A bridge's name and tables.
#[derive(Clone, Debug)]
pub(crate) struct BridgeView {
    pub(crate) name: String,
    pub(crate) fdb: Arc<Fdb>,
    pub(crate) ageing_s: u32,
    /// Addresses forgotten.
    pub(crate) aged: Arc<AtomicU64>,
    pub(crate) tables: Arc<BridgeTables>,
    /// Static entries that are set, and their ports.
    pub(crate) statics: BTreeSet<(Key, u16)>,
}

impl BridgeView {
    /// Forgets what was learned on a port.
    pub(crate) fn forget_port(&self, port: u16) {
        self.fdb.flush(Selection {
            port: Some(port),
            vlan: None,
        });
    }

    /// Sets these static entries and no others.
    ///
    /// # Errors
    /// [`StaticError`] when they do not fit, though nothing learned is in the table any more.
    pub(crate) fn set_statics(&mut self, wanted: BTreeSet<(Key, u16)>) -> Result<(), StaticError> {
        for (key, _) in self.statics.difference(&wanted) {
            self.fdb.remove(*key);
        }
        for (key, port) in &wanted {
            if let Err(StaticError::Full { .. }) = self.fdb.set_static(*key, *port) {
                self.fdb.flush(Selection::default());
                self.fdb.set_static(*key, *port)?;
            }
        }
        self.statics = wanted;
        Ok(())
    }
}
