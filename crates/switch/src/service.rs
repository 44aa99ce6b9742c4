// SPDX-License-Identifier: Apache-2.0
//! The service thread: coarse clock, ageing of addresses, and punted packets of the router.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use crate::bridge_view::BridgeView;
use crate::forward::{Doze, Shared};
use crate::layer3::SharedLayer3;
use quietwire_tables::fdb::Fdb;

/// Interval between two turns.
const TURN: Duration = Duration::from_millis(100);
/// Interval between two polls for punted packets, while there are some and while there are none. It polls because a forwarding thread makes
/// no system call to wake another, unless the idle strategy requires it.
const PAUSE_BUSY: Duration = Duration::from_micros(20);
const PAUSE_IDLE: Duration = Duration::from_micros(500);
/// Interval between two polls for neighbour timers, ms, while punted packets wake the thread. The shortest of these timers is a second,
/// and with 10 ms the thread takes more than 1 % of a CPU on some virtual machines.
const PAUSE_ASLEEP_MS: u8 = 50;
/// Buckets of each table swept per turn: a table of 65536 entries in half a second, one of a million in six.
const BUCKETS_A_TURN: usize = 8192;

/// A table and the progress of its sweep.
#[derive(Debug)]
struct Sweep {
    fdb: Arc<Fdb>,
    aged: Arc<AtomicU64>,
    next: usize,
}

/// Tables that the service thread maintains. The control thread changes the list; forwarding threads never take the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Housekeeping(Arc<Mutex<Vec<Sweep>>>);

impl Housekeeping {
    /// Replaces the list of bridges. A sweep in progress continues.
    pub(crate) fn set(&self, bridges: &[BridgeView]) {
        let mut sweeps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sweeps.retain(|sweep| bridges.iter().any(|one| Arc::ptr_eq(&one.fdb, &sweep.fdb)));
        for bridge in bridges {
            if !sweeps
                .iter()
                .any(|sweep| Arc::ptr_eq(&bridge.fdb, &sweep.fdb))
            {
                sweeps.push(Sweep {
                    fdb: Arc::clone(&bridge.fdb),
                    aged: Arc::clone(&bridge.aged),
                    next: 0,
                });
            }
        }
    }

    fn turn(&self, now_s: u32) {
        let mut sweeps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for sweep in &mut *sweeps {
            sweep.turn(now_s);
        }
    }
}

impl Sweep {
    fn turn(&mut self, now_s: u32) {
        let removed = self.fdb.sweep(self.next, BUCKETS_A_TURN, now_s);
        self.aged.fetch_add(u64::from(removed), Ordering::Relaxed);
        self.next = self.next.saturating_add(BUCKETS_A_TURN);
        if self.next >= self.fdb.buckets() {
            self.next = 0;
        }
    }
}

/// Runs until the stop flag is set. With a sleep state, forwarding threads wake the thread.
pub(crate) fn run(
    housekeeping: &Housekeeping,
    layer3: &SharedLayer3,
    (shared, doze): (&Shared, Option<&Doze>),
    started: Instant,
) {
    let mut turned: Option<Instant> = None;
    while !shared.stop.load(Ordering::Relaxed) {
        if turned.is_none_or(|turned| turned.elapsed() >= TURN) {
            turned = Some(Instant::now());
            let now_s = u32::try_from(started.elapsed().as_secs()).unwrap_or(u32::MAX);
            shared.now_s.store(now_s, Ordering::Relaxed);
            housekeeping.turn(now_s);
            shared.log.print();
        }
        let mut router = layer3.lock();
        let has_interfaces = router.has_interfaces();
        let is_busy = has_interfaces && router.turn();
        let serves_threads_only = router.serves_threads_only();
        drop(router);
        match doze {
            _ if !has_interfaces => park_timeout(TURN),
            _ if is_busy => park_timeout(PAUSE_BUSY),
            Some(doze) if serves_threads_only => sleep(doze, layer3),
            _ => park_timeout(PAUSE_IDLE),
        }
    }
}

/// Sleeps until a forwarding thread punts a packet, or for some time.
fn sleep(doze: &Doze, layer3: &SharedLayer3) {
    doze.bell().fall_asleep();
    // Packets that were punted before do not wake the thread.
    let is_busy = layer3.lock().turn();
    if !is_busy {
        doze.wait(PAUSE_ASLEEP_MS);
    }
    doze.bell().wake_up();
}
