// SPDX-License-Identifier: Apache-2.0
//! Counts of denied system calls, by thread and by task. A signal handler writes them.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use nix::unistd::gettid;

use super::names::name_of;
use super::task::Task;

/// Most threads with an entry: all threads that have a task, and all others with denied calls.
const THREADS_MAX: usize = 512;
/// Thread number of a free entry.
const FREE: i64 = 0;

/// Denied system calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// Number of calls.
    pub calls: u64,
    /// The last one: its name, or its number if the name is unknown.
    pub last: Option<String>,
}

/// A count, and the number of the last call.
struct Count {
    calls: AtomicU64,
    last: AtomicI64,
}

impl Count {
    const fn new() -> Self {
        Self {
            calls: AtomicU64::new(0),
            last: AtomicI64::new(0),
        }
    }

    fn add(&self, number: i64) {
        self.last.store(number, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Release);
    }

    fn read(&self) -> Denied {
        let calls = self.calls.load(Ordering::Acquire);
        let number = self.last.load(Ordering::Relaxed);
        let name = || name_of(number).map_or_else(|| number.to_string(), str::to_owned);
        Denied {
            calls,
            last: (calls > 0).then(name),
        }
    }
}

/// A thread.
struct Entry {
    /// Its number in the kernel.
    tid: AtomicI64,
    /// Its task ([`Task::index`]). Threads without an entry of their own inherited the filter of a control thread.
    task: AtomicUsize,
    count: Count,
}

static ENTRIES: [Entry; THREADS_MAX] = [const {
    Entry {
        tid: AtomicI64::new(FREE),
        task: AtomicUsize::new(Task::Control.index()),
        count: Count::new(),
    }
}; THREADS_MAX];

static TASKS: [Count; Task::ALL.len()] = [const { Count::new() }; Task::ALL.len()];

impl Entry {
    /// Returns the entry of a thread, which is a free one if the thread has none. `None` if all entries are in use.
    fn of(tid: i64) -> Option<&'static Self> {
        let known = ENTRIES
            .iter()
            .find(|entry| entry.tid.load(Ordering::Acquire) == tid);
        known.or_else(|| {
            ENTRIES.iter().find(|entry| {
                let claimed =
                    entry
                        .tid
                        .compare_exchange(FREE, tid, Ordering::AcqRel, Ordering::Relaxed);
                claimed.is_ok()
            })
        })
    }

    /// Forgets the counts of an earlier thread with the same number.
    fn reset(&self, task: Task) {
        self.task.store(task.index(), Ordering::Relaxed);
        self.count.calls.store(0, Ordering::Relaxed);
    }
}

/// The entry of the thread that created it, until it is dropped.
#[derive(Debug)]
pub(super) struct Registration(i64);

impl Registration {
    /// Registers the calling thread. `None` if all entries are in use: its calls are then counted as those of a control thread.
    pub(super) fn new(task: Task) -> Option<Self> {
        let tid = i64::from(gettid().as_raw());
        Entry::of(tid)?.reset(task);
        Some(Self(tid))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(entry) = Entry::of(self.0) {
            entry.reset(Task::Control);
            entry.tid.store(FREE, Ordering::Release);
        }
    }
}

/// Counts a denied call. Async-signal-safe.
pub(super) fn count(tid: i64, number: i64) {
    let entry = Entry::of(tid);
    let task = entry.map_or(Task::Control.index(), |entry| {
        entry.task.load(Ordering::Relaxed)
    });
    if let Some(count) = TASKS.get(task) {
        count.add(number);
    }
    if let Some(entry) = entry {
        entry.count.add(number);
    }
}

/// Returns the calls of a running thread of this process that were denied.
#[must_use]
pub fn of_thread(tid: i32) -> Denied {
    let tid = i64::from(tid);
    let mut entries = ENTRIES.iter();
    let entry = entries.find(|entry| entry.tid.load(Ordering::Acquire) == tid);
    entry.map(|entry| entry.count.read()).unwrap_or_default()
}

/// Returns the calls that were denied to all threads of a task since the start of the process.
#[must_use]
pub fn of_task(task: Task) -> Denied {
    TASKS.get(task.index()).map(Count::read).unwrap_or_default()
}
