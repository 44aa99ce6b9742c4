// SPDX-License-Identifier: Apache-2.0
//! A bridge as the control and the service thread see it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::fdb::{Fdb, Key};

/// A bridge's name and tables.
#[derive(Clone, Debug)]
pub(crate) struct BridgeView {
    pub(crate) name: String,
    pub(crate) fdb: Arc<Fdb>,
    pub(crate) ageing_s: u32,
    /// Addresses forgotten.
    pub(crate) aged: Arc<AtomicU64>,
}

impl BridgeView {
    /// Forgets the addresses on a port.
    pub(crate) fn forget_port(&self, port: u16, now_s: u32) {
        let there = self.fdb.snapshot(now_s).filter(|entry| entry.port == port);
        let keys: Vec<Key> = there.map(|entry| Key::of(entry.address)).collect();
        for key in keys {
            self.fdb.remove(key);
        }
    }
}
