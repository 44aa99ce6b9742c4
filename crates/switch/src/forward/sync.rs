// SPDX-License-Identifier: Apache-2.0
//! Atomics, locks and rings between the control thread and a forwarding thread. Models replace this module.

use std::time::Duration;

use quietwire_base::Deadline;
use rtrb::RingBuffer;

pub(super) use rtrb::{Consumer, Producer};
pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Number of replies that have space: one for the order under way, and some to spare.
const REPLIES: usize = 4;
/// Timeout for the lock of the slot. The other side holds it for a few instructions.
const LOCK: Duration = Duration::from_millis(100);
pub(super) const PAUSE: Duration = Duration::from_micros(20);

/// Creates a ring of replies.
pub(super) fn channel<T>() -> (Producer<T>, Consumer<T>) {
    RingBuffer::new(REPLIES)
}

/// Waits until `found` returns a value; `None` after the timeout.
pub(super) fn wait_for<T>(found: impl FnMut() -> Option<T>) -> Option<T> {
    Deadline::after(LOCK).poll(PAUSE, found)
}
