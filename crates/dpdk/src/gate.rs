// SPDX-License-Identifier: Apache-2.0
//! Keeps drivers from taking memory away under a thread that is sending or receiving.
//!
//! When the peer of a memif port ends, DPDK's interrupt thread marks the port as not connected and unmaps its
//! rings at once (memif_disconnect of drivers/net/memif, DPDK 22.11 and later). The driver checks the mark at the
//! beginning of a burst only: a thread that was preempted after that check goes on in unmapped memory, which ends
//! the process. On a busy machine that is no rare event.
//!
//! Between the mark and the unmapping the driver calls `rte_intr_callback_unregister`. The shim stands in for that
//! function, and waits here until every thread that was in a burst has come out. Who enters later sees the mark.
//! For threads that send and receive this costs two plain stores a burst: the barrier that makes their stores
//! visible in time is paid for by the interrupt thread (membarrier(2)).

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use nix::libc;

use crate::sys;

/// The gate of one queue: odd while its thread is in a burst. A line of its own, since that thread writes it often.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Gate(AtomicU32);

/// Says that a thread is in a burst, for as long as it lives.
pub(crate) struct Inside<'gate>(&'gate Gate);

static GATES: Mutex<Vec<Weak<Gate>>> = Mutex::new(Vec::new());

/// A burst takes microseconds and a thread that is kept from its CPU comes back within this, or the machine is lost.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_micros(20);
/// Longer than any store stays in a store buffer, where the kernel has no membarrier.
const SETTLE: Duration = Duration::from_millis(1);

// linux/membarrier.h.
const MEMBARRIER_CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        let gate = Arc::default();
        let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|gate| gate.strong_count() > 0);
        gates.push(Arc::downgrade(&gate));
        gate
    }

    /// Called by the one thread that has the queue.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Inside<'_> {
        let epoch = self.0.load(Ordering::Relaxed);
        self.0.store(epoch.wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        Inside(self)
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        let epoch = self.0.0.load(Ordering::Relaxed);
        self.0.0.store(epoch.wrapping_add(1), Ordering::Release);
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Has the interrupt thread wait at the gates from now on.
pub(crate) fn install() {
    membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    // SAFETY: the hook is a function without preconditions; called once, before there are ports.
    if unsafe { sys::qw_hook_unregister(Some(wait_for_all)) } != 1 {
        tracing::warn!(
            "this program was linked so that DPDK's drivers don't wait for forwarding threads: a memif peer that ends may end this process too"
        );
    }
}

/// Returns when every thread that was in a burst has come out of it.
extern "C" fn wait_for_all() {
    if !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        std::thread::sleep(SETTLE);
    }
    let gates: Vec<Arc<Gate>> = GATES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .filter_map(Weak::upgrade)
        .collect();
    let deadline = Instant::now() + PATIENCE;
    for gate in gates {
        let seen = gate.0.load(Ordering::Acquire);
        while seen % 2 == 1 && gate.0.load(Ordering::Acquire) == seen {
            if Instant::now() >= deadline {
                tracing::warn!("a thread has not come out of a burst for {PATIENCE:?}");
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread::spawn;

    #[test]
    fn drivers_come_this_way() {
        // SAFETY: as in `install`.
        assert_eq!(unsafe { sys::qw_hook_unregister(Some(wait_for_all)) }, 1);
    }

    #[test]
    fn waits_for_who_is_inside_and_not_for_who_comes_later() {
        let (gate, other) = (Gate::new(), Gate::new());
        wait_for_all();
        let inside = gate.enter();
        let (done, is_done) = mpsc::channel();
        let waiter = spawn(move || {
            wait_for_all();
            done.send(()).unwrap();
        });
        // However long one looks: nothing comes while a thread is inside.
        assert!(is_done.recv_timeout(Duration::from_millis(50)).is_err());
        // One that went out and is in again is not waited for.
        drop(inside);
        let _again = gate.enter();
        is_done.recv_timeout(Duration::from_secs(20)).unwrap();
        waiter.join().unwrap();
        drop(other);
    }
}
