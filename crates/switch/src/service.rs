// SPDX-License-Identifier: Apache-2.0
//! The service thread: the coarse clock, and forgetting addresses that have aged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use crate::fdb::Fdb;
use crate::forward::Shared;

/// Time between two turns.
const TURN: Duration = Duration::from_millis(100);
/// Buckets of each table looked at in a turn: a table of 65536 entries in half a second, one of a million in six.
const BUCKETS_A_TURN: usize = 8192;

/// A table, and how far the sweep has come.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) fdb: Arc<Fdb>,
    pub(crate) aged: Arc<AtomicU64>,
    next: usize,
}

impl Sweep {
    pub(crate) fn new(fdb: Arc<Fdb>, aged: Arc<AtomicU64>) -> Self {
        Self { fdb, aged, next: 0 }
    }

    fn turn(&mut self, now_s: u32) {
        let removed = self.fdb.sweep(self.next, BUCKETS_A_TURN, now_s);
        self.aged.fetch_add(u64::from(removed), Ordering::Relaxed);
        self.next += BUCKETS_A_TURN;
        if self.next >= self.fdb.buckets() {
            self.next = 0;
        }
    }
}

/// Runs until it is told to stop.
pub(crate) fn run(sweeps: &mut [Sweep], shared: &Shared, started: Instant) {
    while !shared.stop.load(Ordering::Relaxed) {
        let now_s = started.elapsed().as_secs() as u32;
        shared.now_s.store(now_s, Ordering::Relaxed);
        for sweep in &mut *sweeps {
            sweep.turn(now_s);
        }
        park_timeout(TURN);
    }
}
