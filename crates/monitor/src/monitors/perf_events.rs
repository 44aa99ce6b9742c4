// SPDX-License-Identifier: Apache-2.0
//! Events of CPUs during a trial (perf_event_open(2)): those that the processor counts, if it or its hypervisor shows its counters, and those
//! that the kernel counts. The counters run in the kernel; nothing is read while frames are forwarded.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use nix::libc;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
use perf_event::{Builder, Counter};
use serde::{Deserialize, Serialize};

use super::l2_misses;
use crate::monitor::{Offer, Unavailable};

/// Name of the monitor, before the name of an event.
const NAME: &str = "perf_events";
/// Most CPUs that are counted, the first ones.
const CPUS_MAX: usize = 256;

/// Events of one CPU during a trial, of all its threads, in user space and in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuEvents {
    /// The CPU.
    pub cpu: u32,
    /// Number of events, by name. If the processor has fewer counters than there are events, they take turns, and the numbers are estimates.
    pub events: BTreeMap<String, u64>,
    /// Smallest share of the time in which an event was counted, 0 to 1: 1 if all numbers are exact.
    pub counted_ratio: f64,
}

/// Source of an event.
#[derive(Clone, Debug)]
enum Source {
    Hardware(Hardware),
    Cache(Cache),
    Software(Software),
    /// Misses of the L2 cache, by vendor and model of the processor.
    L2Misses,
}

/// Returns the misses of reads in a cache.
const fn misses(which: CacheId) -> Source {
    Source::Cache(Cache {
        which,
        operation: CacheOp::READ,
        result: CacheResult::MISS,
    })
}

/// All events, with the names of perf-list(1) for those that it has on every machine.
const EVENTS: [(&str, Source); 13] = [
    ("cycles", Source::Hardware(Hardware::CPU_CYCLES)),
    ("instructions", Source::Hardware(Hardware::INSTRUCTIONS)),
    ("branch-misses", Source::Hardware(Hardware::BRANCH_MISSES)),
    (
        "cache-references",
        Source::Hardware(Hardware::CACHE_REFERENCES),
    ),
    ("cache-misses", Source::Hardware(Hardware::CACHE_MISSES)),
    ("L1-dcache-load-misses", misses(CacheId::L1D)),
    ("l2-misses", Source::L2Misses),
    ("LLC-load-misses", misses(CacheId::LL)),
    ("dTLB-load-misses", misses(CacheId::DTLB)),
    ("iTLB-load-misses", misses(CacheId::ITLB)),
    (
        "context-switches",
        Source::Software(Software::CONTEXT_SWITCHES),
    ),
    ("cpu-migrations", Source::Software(Software::CPU_MIGRATIONS)),
    ("page-faults", Source::Software(Software::PAGE_FAULTS)),
];

/// State of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) count: u64,
    /// Time since the counter was started, nanoseconds.
    pub(crate) enabled_ns: u64,
    /// Part of it in which it counted, nanoseconds.
    pub(crate) running_ns: u64,
}

impl Reading {
    /// Returns the number of events in the whole time; `None` if the counter never ran.
    pub(crate) fn estimate(self) -> Option<u64> {
        // A product of two `u64` fits.
        let whole = u128::from(self.count).saturating_mul(u128::from(self.enabled_ns));
        let estimate = whole.checked_div(u128::from(self.running_ns))?;
        u64::try_from(estimate).ok()
    }

    /// Returns the share of the time in which it counted.
    fn ratio(self) -> f64 {
        if self.enabled_ns == 0 {
            return 1.0;
        }
        self.running_ns as f64 / self.enabled_ns as f64
    }
}

/// A running counter, as a trait so that tests have others than those of this machine.
pub(crate) trait Running: Send {
    fn read(&mut self) -> io::Result<Reading>;
}

impl Running for Counter {
    fn read(&mut self) -> io::Result<Reading> {
        let read = self.read_count_and_time()?;
        Ok(Reading {
            count: read.count,
            enabled_ns: read.time_enabled,
            running_ns: read.time_running,
        })
    }
}

/// Starts a counter of an event on a CPU.
fn start(cpu: u32, source: &Source) -> io::Result<Box<dyn Running>> {
    let cpu = usize::try_from(cpu).map_err(io::Error::other)?;
    let mut builder = match source {
        Source::Hardware(event) => Builder::new(*event),
        Source::Cache(event) => Builder::new(event.clone()),
        Source::Software(event) => Builder::new(*event),
        Source::L2Misses => Builder::new(l2_misses::event()?),
    };
    builder.any_pid().one_cpu(cpu).include_kernel().include_hv();
    let mut counter = builder.build()?;
    counter.enable()?;
    Ok(Box::new(counter))
}

/// Explains why the kernel does not count an event.
pub(crate) fn reason(error: &io::Error) -> String {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::PermissionDenied, _) => {
            "counting events of a CPU requires root or CAP_PERFMON".to_owned()
        }
        (_, Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL)) => {
            "the processor, or its hypervisor, does not show this counter".to_owned()
        }
        (_, Some(libc::ENOSYS)) => "the kernel has no perf_event_open".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns whether this machine offers each event.
#[must_use]
pub fn event_offers() -> Vec<Offer> {
    offers(&start)
}

/// Starts a counter of an event on a CPU.
type Start<'a> = &'a dyn Fn(u32, &Source) -> io::Result<Box<dyn Running>>;

fn offers(start: Start<'_>) -> Vec<Offer> {
    let offer = |(name, source): &(&str, Source)| Offer {
        monitor: format!("{NAME} {name}"),
        unavailable: start(0, source).err().map(|error| reason(&error)),
    };
    EVENTS.iter().map(offer).collect()
}

/// A counter with the name of its event.
type Named = (&'static str, Box<dyn Running>);

/// Counters of events, which run until they are dropped.
pub struct EventCounters {
    cpus: Vec<(u32, Vec<Named>)>,
    /// Number of further CPUs.
    not_counted: usize,
}

impl EventCounters {
    /// Starts counters of all events that the machine offers, on these CPUs.
    ///
    /// # Errors
    /// [`Unavailable`]: the machine offers none.
    pub fn start(cpus: &[u32]) -> Result<Self, Unavailable> {
        Self::start_by(cpus, &start)
    }

    fn start_by(cpus: &[u32], start: Start<'_>) -> Result<Self, Unavailable> {
        let mut first = None;
        let mut counters = Vec::new();
        for cpu in cpus.iter().take(CPUS_MAX) {
            let mut own = Vec::new();
            for (name, source) in &EVENTS {
                match start(*cpu, source) {
                    Ok(counter) => own.push((*name, counter)),
                    Err(error) => {
                        first.get_or_insert_with(|| reason(&error));
                    }
                }
            }
            counters.push((*cpu, own));
        }
        if counters.iter().all(|(_, own)| own.is_empty()) {
            let none = || "there is no forwarding CPU".to_owned();
            return Err(Unavailable(first.unwrap_or_else(none)));
        }
        Ok(Self {
            cpus: counters,
            not_counted: cpus.len().saturating_sub(CPUS_MAX),
        })
    }

    /// Returns a sentence about the CPUs that are not counted, if there are some.
    #[must_use]
    pub fn left_out(&self) -> Option<String> {
        let (counted, others) = (self.cpus.len(), self.not_counted);
        (others > 0).then(|| {
            format!(
                "{NAME} has the events of {counted} of {} forwarding CPUs",
                counted.saturating_add(others)
            )
        })
    }

    /// Stops counting and returns the events by CPU. Events that no counter ran for are left out.
    #[must_use]
    pub fn finish(self) -> Vec<CpuEvents> {
        let of_cpu = |(cpu, counters): (u32, Vec<Named>)| {
            let mut found = CpuEvents {
                cpu,
                events: BTreeMap::new(),
                counted_ratio: 1.0,
            };
            for (name, mut counter) in counters {
                let Ok(reading) = counter.read() else {
                    continue;
                };
                if let Some(count) = reading.estimate() {
                    found.events.insert(name.to_owned(), count);
                    found.counted_ratio = found.counted_ratio.min(reading.ratio());
                }
            }
            found
        };
        self.cpus.into_iter().map(of_cpu).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Reading);

    impl Running for Fixed {
        fn read(&mut self) -> io::Result<Reading> {
            Ok(self.0)
        }
    }

    /// Opens events of a machine that shows software events only, and one hardware event that counted half of the time.
    fn small(cpu: u32, source: &Source) -> io::Result<Box<dyn Running>> {
        let reading = |running_ns| Reading {
            count: 100 * (u64::from(cpu) + 1),
            enabled_ns: 1000,
            running_ns,
        };
        match source {
            Source::Software(_) => Ok(Box::new(Fixed(reading(1000)))),
            Source::Hardware(event) if *event == Hardware::CPU_CYCLES => {
                Ok(Box::new(Fixed(reading(500))))
            }
            // It never had a turn.
            Source::Hardware(event) if *event == Hardware::INSTRUCTIONS => {
                Ok(Box::new(Fixed(reading(0))))
            }
            _ => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    #[test]
    fn events_are_counted_by_cpu_and_estimated_if_they_took_turns() {
        let counters = EventCounters::start_by(&[0, 3], &small).unwrap();
        let found = counters.finish();
        assert_eq!(found.len(), 2);
        let events = &found[1].events;
        assert_eq!((found[1].cpu, found[1].counted_ratio), (3, 0.5));
        assert_eq!(events["cycles"], 800);
        assert_eq!(events["page-faults"], 400);
        assert_eq!(events.len(), 4);
    }

    #[test]
    fn cpus_beyond_the_maximum_are_reported() {
        let cpus: Vec<u32> = (0..300).collect();
        let counters = EventCounters::start_by(&cpus, &small).unwrap();
        let sentence = counters.left_out().unwrap();
        assert!(sentence.contains("256 of 300"), "{sentence}");
        assert_eq!(counters.finish().len(), CPUS_MAX);
        let all = EventCounters::start_by(&cpus[..CPUS_MAX], &small).unwrap();
        assert_eq!(all.left_out(), None);
    }

    #[test]
    fn every_event_is_offered_or_has_a_reason() {
        let offers = offers(&small);
        let of = |name: &str| {
            let mut all = offers.iter();
            all.find(|one| one.monitor == format!("perf_events {name}"))
                .unwrap()
        };
        assert_eq!(of("cycles").unavailable, None);
        let missing = of("dTLB-load-misses").unavailable.as_deref().unwrap();
        assert!(missing.contains("does not show"), "{missing}");
        let denied = |_: u32, _: &Source| -> io::Result<Box<dyn Running>> {
            Err(ErrorKind::PermissionDenied.into())
        };
        let reason = EventCounters::start_by(&[0], &denied).err().unwrap();
        assert!(reason.0.contains("CAP_PERFMON"), "{reason}");
        assert!(EventCounters::start_by(&[], &small).is_err());
        // This machine offers each event or explains why not.
        let own = event_offers();
        assert_eq!(own.len(), EVENTS.len());
        assert!(own.iter().all(|one| one.unavailable.as_deref() != Some("")));
    }
}
