// SPDX-License-Identifier: Apache-2.0
//! System calls of forwarding threads, counted by name with the tracepoints of the kernel (Documentation/trace/events.rst), if tracefs is
//! mounted and readable. The kernel counts; nothing is read while frames are forwarded. The counters of a tracepoint take some
//! milliseconds to close, so they stay open for several trials of the same threads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use perf_event::Builder;
use perf_event::events::Tracepoint;
use serde::{Deserialize, Serialize};

use super::perf_events::{Running, reason};
use super::system_calls::names_of_calls;
use crate::files::value;
use crate::monitor::{Offer, Unavailable};

/// Name of the monitor.
const NAME: &str = "system_call_counts";
/// Places of tracefs.
const PLACES: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
/// Tracepoint of every system call.
const ALL: &str = "raw_syscalls/sys_enter";
/// Most threads whose calls are counted. Each has a counter, and thereby a file, for each name.
const THREADS_MAX: usize = 16;
/// Name of calls that have no counter of their own.
const OTHERS: &str = SystemCallCounts::OTHERS;

/// System calls of one forwarding thread during a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCallCounts {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: i32,
    /// Number of calls by name; `others` for all calls without a name here. Calls that were not made are left out.
    pub calls: BTreeMap<String, u64>,
}

impl SystemCallCounts {
    /// Name of all calls without a name of their own.
    pub const OTHERS: &'static str = "others";
}

/// Starts a counter of a tracepoint, given by its number, for a thread.
type Start<'a> = &'a dyn Fn(i32, u64) -> io::Result<Box<dyn Running>>;

/// Starts a counter of a tracepoint, given by its number, for a thread.
pub(super) fn count_tracepoint(tid: i32, id: u64) -> io::Result<Box<dyn Running>> {
    let mut builder = Builder::new(Tracepoint::with_id(id));
    builder
        .observe_pid(tid)
        .any_cpu()
        .include_kernel()
        .include_hv();
    let mut counter = builder.build()?;
    counter.enable()?;
    Ok(Box::new(counter))
}

/// Counters of one thread.
struct CountedThread {
    pid: u32,
    tid: i32,
    all: Box<dyn Running>,
    named: Vec<(&'static str, Box<dyn Running>)>,
    /// Counts at the last reading, by name; that of all calls under [`OTHERS`]. Counters that could not be read have none.
    last: BTreeMap<&'static str, u64>,
}

/// Counters of the system calls of several threads, which run until they are dropped.
pub struct SystemCallCounters {
    threads: Vec<CountedThread>,
}

impl fmt::Debug for SystemCallCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.threads.len();
        f.debug_struct("SystemCallCounters")
            .field("threads", &threads)
            .finish()
    }
}

/// Returns the directory of the tracepoints, if it has one of this name.
pub(super) fn tracepoints_with(root: &Path, name: &str) -> Option<PathBuf> {
    let mut places = PLACES.iter().map(|place| root.join(place).join("events"));
    places.find(|directory| directory.join(name).join("id").exists())
}

/// Returns the directory of the tracepoints of system calls.
fn tracepoints(root: &Path) -> Result<PathBuf, Unavailable> {
    tracepoints_with(root, ALL).ok_or_else(|| {
        Unavailable(
            "tracefs is not mounted, not readable or without tracepoints of system calls"
                .to_owned(),
        )
    })
}

/// Returns whether this machine counts system calls: those of this thread.
#[must_use]
pub fn system_call_offer(root: &Path) -> Offer {
    let own = tracepoints(root).and_then(|directory| {
        let id = number(&directory, ALL)?;
        count_tracepoint(0, id).map_err(|error| Unavailable(reason(&error)))
    });
    Offer {
        monitor: NAME.to_owned(),
        unavailable: own.err().map(|reason| reason.0),
    }
}

/// Returns the number of a tracepoint.
pub(super) fn number(directory: &Path, name: &str) -> Result<u64, Unavailable> {
    let file = directory.join(name).join("id");
    value(&file).ok_or_else(|| Unavailable(format!("{name} has no readable number")))
}

impl CountedThread {
    fn start(
        directory: &Path,
        (pid, tid): (u32, i32),
        start: Start<'_>,
    ) -> Result<Self, Unavailable> {
        let open = |id: u64| start(tid, id).map_err(|error| Unavailable(reason(&error)));
        let all = open(number(directory, ALL)?)?;
        let mut named = Vec::new();
        for name in names_of_calls() {
            // Not every architecture has every call.
            if let Ok(id) = number(directory, &format!("syscalls/sys_enter_{name}")) {
                named.push((name, open(id)?));
            }
        }
        let mut found = Self {
            pid,
            tid,
            all,
            named,
            last: BTreeMap::new(),
        };
        found.last = found.read();
        Ok(found)
    }

    /// Reads all counters. Those that cannot be read are left out.
    fn read(&mut self) -> BTreeMap<&'static str, u64> {
        let named = self
            .named
            .iter_mut()
            .map(|(name, counter)| (*name, counter));
        let all = named.chain([(OTHERS, &mut self.all)]);
        all.filter_map(|(name, counter)| Some((name, counter.read().ok()?.count)))
            .collect()
    }

    /// Returns the calls since the last reading. Names whose counter could not be read at both times are left out, and then also calls
    /// without a name.
    fn since_last(&mut self) -> SystemCallCounts {
        let now = self.read();
        let increase = |name: &'static str| -> Option<u64> {
            let then = self.last.get(name)?;
            Some(now.get(name)?.saturating_sub(*then))
        };
        let names = self.named.iter().map(|(name, _)| *name);
        let named: Vec<(&'static str, Option<u64>)> =
            names.map(|name| (name, increase(name))).collect();
        let sum: Option<u64> = named.iter().map(|(_, count)| *count).sum();
        let others = increase(OTHERS).zip(sum);
        let others = others.map(|(all, sum)| all.saturating_sub(sum));
        let calls = named.into_iter().chain([(OTHERS, others)]);
        let calls = calls
            .filter_map(|(name, count)| Some((name.to_owned(), count.filter(|it| *it > 0)?)))
            .collect();
        self.last = now;
        SystemCallCounts {
            pid: self.pid,
            tid: self.tid,
            calls,
        }
    }
}

impl SystemCallCounters {
    /// Starts counters of threads, each given by process and thread ID. The tracepoints are listed below `root`.
    ///
    /// # Errors
    /// [`Unavailable`]: there are no threads or too many, tracefs is not readable, or the kernel refuses the counters.
    pub fn start(root: &Path, threads: &[(u32, i32)]) -> Result<Self, Unavailable> {
        Self::start_by(root, threads, &count_tracepoint)
    }

    fn start_by(
        root: &Path,
        threads: &[(u32, i32)],
        start: Start<'_>,
    ) -> Result<Self, Unavailable> {
        if threads.is_empty() {
            return Err(Unavailable("there is no forwarding thread".to_owned()));
        }
        if threads.len() > THREADS_MAX {
            return Err(Unavailable(format!(
                "there are more than {THREADS_MAX} forwarding threads"
            )));
        }
        let directory = tracepoints(root)?;
        let counted = threads
            .iter()
            .map(|thread| CountedThread::start(&directory, *thread, start));
        Ok(Self {
            threads: counted.collect::<Result<_, _>>()?,
        })
    }

    /// Returns true if the counters are those of these threads, in this order.
    #[must_use]
    pub fn are_of(&self, threads: &[(u32, i32)]) -> bool {
        let own = self.threads.iter().map(|thread| (thread.pid, thread.tid));
        own.eq(threads.iter().copied())
    }

    /// Returns the calls of each thread since this function was last called, or since the start.
    pub fn since_last(&mut self) -> Vec<SystemCallCounts> {
        let threads = self.threads.iter_mut();
        threads.map(CountedThread::since_last).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::perf_events::Reading;
    use super::*;
    use crate::tests::Machine;

    /// Number of calls at which no counter can be read.
    const UNREADABLE: u64 = u64::MAX;

    /// A counter whose count is the number of its tracepoint times that of all calls so far.
    struct Steady(u64, Arc<AtomicU64>);

    impl Running for Steady {
        fn read(&mut self) -> io::Result<Reading> {
            let calls = self.1.load(Ordering::Relaxed);
            if calls == UNREADABLE {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(Reading {
                count: self.0 * calls,
                enabled_ns: 1,
                running_ns: 1,
            })
        }
    }

    fn machine() -> Machine {
        let events = "sys/kernel/tracing/events";
        Machine::default()
            .with(&format!("{events}/{ALL}/id"), "10\n")
            .with(&format!("{events}/syscalls/sys_enter_read/id"), "2\n")
            .with(&format!("{events}/syscalls/sys_enter_futex/id"), "3\n")
    }

    #[test]
    fn calls_are_counted_by_name_between_two_readings() {
        let calls = Arc::new(AtomicU64::new(7));
        let start = |tid: i32, id: u64| -> io::Result<Box<dyn Running>> {
            assert_eq!(tid, 8);
            Ok(Box::new(Steady(id, Arc::clone(&calls))))
        };
        let threads = [(7, 8)];
        let counters = SystemCallCounters::start_by(machine().root(), &threads, &start);
        let mut counters = counters.unwrap();
        assert!(counters.are_of(&threads) && !counters.are_of(&[]) && !counters.are_of(&[(7, 9)]));
        assert!(counters.since_last()[0].calls.is_empty());
        calls.store(9, Ordering::Relaxed);
        let found = counters.since_last();
        assert_eq!((found.len(), found[0].pid, found[0].tid), (1, 7, 8));
        let wanted = [("futex", 6), ("others", 10), ("read", 4)];
        let wanted = wanted.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(found[0].calls, BTreeMap::from(wanted));
    }

    #[test]
    fn calls_before_a_failed_reading_count_in_no_later_interval() {
        let calls = Arc::new(AtomicU64::new(7));
        let start = |_: i32, id: u64| -> io::Result<Box<dyn Running>> {
            Ok(Box::new(Steady(id, Arc::clone(&calls))))
        };
        let counters = SystemCallCounters::start_by(machine().root(), &[(7, 8)], &start);
        let mut counters = counters.unwrap();
        let mut after = |count: u64| {
            calls.store(count, Ordering::Relaxed);
            let found = counters.since_last().remove(0).calls;
            found.get("read").copied()
        };
        assert_eq!(after(9), Some(4));
        assert_eq!(after(UNREADABLE), None);
        assert_eq!(after(1000), None);
        assert_eq!(after(1001), Some(2));
    }

    #[test]
    fn counters_that_cannot_start_have_a_reason() {
        let denied = |_: i32, _: u64| -> io::Result<Box<dyn Running>> {
            Err(io::ErrorKind::PermissionDenied.into())
        };
        let recorded = machine();
        let start = |root: &Path, threads: &[(u32, i32)]| {
            let started = SystemCallCounters::start_by(root, threads, &denied);
            started.err().unwrap().0
        };
        assert!(start(recorded.root(), &[(7, 8)]).contains("CAP_PERFMON"));
        assert!(start(recorded.root(), &[]).contains("no forwarding thread"));
        let many: Vec<(u32, i32)> = (0..17).map(|tid| (7, tid)).collect();
        assert!(start(recorded.root(), &many).contains("more than 16"));
        let none = Machine::default();
        assert!(start(none.root(), &[(7, 8)]).contains("tracefs"));
        // This machine counts them or explains why not.
        let offer = system_call_offer(Path::new("/"));
        assert_ne!(offer.unavailable.as_deref(), Some(""));
    }
}
