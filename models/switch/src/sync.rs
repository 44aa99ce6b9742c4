// SPDX-License-Identifier: Apache-2.0
//! Locks and rings of the line, made of loom's parts, and defects to plant into them.

use std::cell::Cell;
use std::collections::VecDeque;

pub(crate) use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::AtomicUsize;
pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
pub(crate) use std::sync::TryLockError;
pub(crate) use std::sync::atomic::Ordering;

thread_local! {
    /// True if replies are passed without release and acquisition.
    static WEAK_REPLIES: Cell<bool> = const { Cell::new(false) };
}

/// Weakens the ring of replies, or restores it.
pub(crate) fn weaken_replies(are_weak: bool) {
    WEAK_REPLIES.set(are_weak);
}

fn order(order: Ordering) -> Ordering {
    if WEAK_REPLIES.get() {
        Ordering::Relaxed
    } else {
        order
    }
}

/// A ring between two threads.
#[derive(Debug)]
struct Ring<T> {
    /// Numbers of values written and read.
    written: AtomicUsize,
    read: AtomicUsize,
    is_abandoned: AtomicBool,
    /// The values.
    values: std::sync::Mutex<VecDeque<T>>,
}

/// The end that writes.
#[derive(Debug)]
pub(crate) struct Producer<T>(Arc<Ring<T>>);

/// The end that reads.
#[derive(Debug)]
pub(crate) struct Consumer<T>(Arc<Ring<T>>);

/// Creates a ring of replies.
pub(crate) fn channel<T>() -> (Producer<T>, Consumer<T>) {
    let ring = Arc::new(Ring {
        written: AtomicUsize::new(0),
        read: AtomicUsize::new(0),
        is_abandoned: AtomicBool::new(false),
        values: std::sync::Mutex::default(),
    });
    (Producer(Arc::clone(&ring)), Consumer(ring))
}

impl<T> Producer<T> {
    pub(crate) fn push(&mut self, value: T) -> Result<(), T> {
        let ring = &self.0;
        let written = ring.written.load(Ordering::Relaxed);
        let is_full = written - ring.read.load(order(Ordering::Acquire)) == 4;
        assert!(!is_full, "no space for a reply");
        ring.values.lock().unwrap().push_back(value);
        ring.written.store(written + 1, order(Ordering::Release));
        Ok(())
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.0.is_abandoned.store(true, Ordering::Release);
    }
}

impl<T> Consumer<T> {
    pub(crate) fn pop(&mut self) -> Result<T, ()> {
        let ring = &self.0;
        let read = ring.read.load(Ordering::Relaxed);
        if ring.written.load(order(Ordering::Acquire)) == read {
            return Err(());
        }
        let value = ring.values.lock().unwrap().pop_front();
        ring.read.store(read + 1, order(Ordering::Release));
        Ok(value.unwrap())
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.is_abandoned.load(Ordering::Acquire)
    }
}

/// Calls `found` twice, with a chance for the other thread in between.
pub(crate) fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> Option<T> {
    found().or_else(|| {
        loom::thread::yield_now();
        found()
    })
}
