// SPDX-License-Identifier: Apache-2.0
//! Events outside of the cores during a trial (perf_event_open(2)): memory controllers, links between packages and PCIe, if the kernel has
//! drivers for their units. The kernel names the events, and states scale and unit
//! (Documentation/ABI/testing/sysfs-bus-event_source-devices-events). The counters run in the hardware; nothing is read while frames are
//! forwarded.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use perf_event::Builder;
use perf_event::events::Dynamic;
use quietwire_host::CpuList;
use serde::{Deserialize, Serialize};

use super::perf_events::{Running, reason};
use crate::files::{names, text, value};
use crate::monitor::{Offer, Unavailable};

/// Name of the monitor.
const NAME: &str = "uncore";
const DIRECTORY: &str = "sys/bus/event_source/devices";
/// Beginnings of the names of units, and what they count.
const UNITS: [(&str, UncoreKind); 6] = [
    ("uncore_imc", UncoreKind::Memory),
    ("amd_umc", UncoreKind::Memory),
    ("uncore_upi", UncoreKind::Interconnect),
    ("uncore_qpi", UncoreKind::Interconnect),
    ("uncore_iio", UncoreKind::Pcie),
    ("uncore_pcie", UncoreKind::Pcie),
];
/// Most counters of a machine. Events whose counters exceed it are left out, each as a whole.
const COUNTERS_MAX: usize = 512;

/// Kind of a unit outside of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UncoreKind {
    /// Memory controllers.
    Memory,
    /// Links between packages: UPI, QPI.
    Interconnect,
    /// PCIe.
    Pcie,
}

impl UncoreKind {
    /// Returns the name.
    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Interconnect => "interconnect",
            Self::Pcie => "pcie",
        }
    }
}

/// Events of one kind during a trial, summed over all units of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UncoreEvents {
    /// Kind of the units.
    pub kind: UncoreKind,
    /// The kernel's name of the event, such as `cas_count_read`.
    pub event: String,
    /// Number of events, multiplied by the kernel's scale.
    pub value: f64,
    /// Unit of the value, such as `MiB`; empty for a number of events.
    pub unit: String,
}

/// A running counter of one unit.
struct UncoreCounter {
    kind: UncoreKind,
    event: String,
    scale: f64,
    unit: String,
    counter: Box<dyn Running>,
}

/// Counters of all units, which run until they are dropped.
pub struct UncoreCounters {
    counters: Vec<UncoreCounter>,
    /// Kinds and names of events without counters on all units, and the reasons.
    left_out: Vec<(UncoreKind, String, String)>,
}

/// Starts a counter of an event of a unit, given by its directory, for the package of a CPU.
type Start<'a> = &'a dyn Fn(&Path, &str, u32) -> io::Result<Box<dyn Running>>;

fn start(unit: &Path, event: &str, cpu: u32) -> io::Result<Box<dyn Running>> {
    let mut builder = Dynamic::builder(unit)?;
    builder.event(event)?;
    // Fields that the event does not set are zero.
    let unset: Vec<String> = builder.params().map(str::to_owned).collect();
    for field in &unset {
        builder.field(field, 0)?;
    }
    let cpu = usize::try_from(cpu).map_err(io::Error::other)?;
    let mut builder = Builder::new(builder.build()?);
    // Units outside of the cores do not distinguish user space, kernel and hypervisor.
    builder.any_pid().one_cpu(cpu).include_kernel().include_hv();
    let mut counter = builder.build()?;
    counter.enable()?;
    Ok(Box::new(counter))
}

/// Returns whether this machine offers events outside of the cores, and the events that are left out.
#[must_use]
pub fn uncore_offers(root: &Path) -> Vec<Offer> {
    offers(UncoreCounters::start(root))
}

fn offers(started: Result<UncoreCounters, Unavailable>) -> Vec<Offer> {
    let offer = |monitor: String, unavailable: Option<String>| Offer {
        monitor,
        unavailable,
    };
    match started {
        Err(reason) => vec![offer(NAME.to_owned(), Some(reason.0))],
        Ok(counters) => {
            let left_out = counters.left_out.into_iter();
            let left_out = left_out.map(|(kind, event, reason)| {
                offer(format!("{NAME} {} {event}", kind.name()), Some(reason))
            });
            std::iter::once(offer(NAME.to_owned(), None))
                .chain(left_out)
                .collect()
        }
    }
}

/// Returns the names of the events of a unit. Files with a dot describe an event.
fn events(unit: &Path) -> Vec<String> {
    let mut names = names(&unit.join("events"));
    names.retain(|name| !name.contains('.'));
    names
}

/// Returns a CPU of each package, on which the counters of a unit are started.
fn cpus(unit: &Path) -> Vec<u32> {
    let list = value::<CpuList>(&unit.join("cpumask")).unwrap_or_default();
    let cpus: Vec<u32> = list.iter().map(|cpu| cpu.0).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

impl UncoreCounter {
    /// Starts a counter of an event of a unit, for the package of a CPU.
    ///
    /// # Errors
    /// Why the kernel does not count the event.
    fn start(
        (kind, event): (UncoreKind, &str),
        (unit, cpu): &(PathBuf, u32),
        start: Start<'_>,
    ) -> Result<Self, String> {
        let counter = start(unit, event, *cpu).map_err(|error| reason(&error))?;
        Ok(Self {
            kind,
            scale: value(&unit.join(format!("events/{event}.scale"))).unwrap_or(1.0),
            unit: text(&unit.join(format!("events/{event}.unit"))).unwrap_or_default(),
            event: event.to_owned(),
            counter,
        })
    }
}

impl UncoreCounters {
    /// Starts counters of all events of all units that the kernel has below `root`.
    ///
    /// # Errors
    /// [`Unavailable`]: the machine offers none.
    pub fn start(root: &Path) -> Result<Self, Unavailable> {
        Self::start_by(root, &start)
    }

    fn start_by(root: &Path, start: Start<'_>) -> Result<Self, Unavailable> {
        let directory = root.join(DIRECTORY);
        let mut wanted: BTreeMap<(UncoreKind, String), Vec<(PathBuf, u32)>> = BTreeMap::new();
        for name in names(&directory) {
            let known = UNITS.iter().find(|(prefix, _)| name.starts_with(prefix));
            let Some((_, kind)) = known else {
                continue;
            };
            let unit = directory.join(&name);
            let cpus = cpus(&unit);
            for event in events(&unit) {
                let places = cpus.iter().map(|cpu| (unit.clone(), *cpu));
                wanted.entry((*kind, event)).or_default().extend(places);
            }
        }
        let mut counters = Vec::new();
        let mut left_out = Vec::new();
        for ((kind, event), places) in wanted {
            // A sum over some of the units would look like that over all.
            let started = if counters.len().saturating_add(places.len()) > COUNTERS_MAX {
                Err(format!("all events have more than {COUNTERS_MAX} counters"))
            } else {
                let own = places
                    .iter()
                    .map(|place| UncoreCounter::start((kind, event.as_str()), place, start));
                own.collect::<Result<Vec<_>, _>>()
            };
            match started {
                Ok(started) => counters.extend(started),
                Err(reason) => left_out.push((kind, event, reason)),
            }
        }
        if counters.is_empty() {
            let first = left_out.into_iter().next().map(|(_, _, reason)| reason);
            let none = || format!("the kernel has no /{DIRECTORY}/uncore_*");
            return Err(Unavailable(first.unwrap_or_else(none)));
        }
        Ok(Self { counters, left_out })
    }

    /// Stops counting and returns the events, in the order of their kinds and names. Events that a counter did not count are left out.
    #[must_use]
    pub fn finish(self) -> Vec<UncoreEvents> {
        let mut sums: BTreeMap<(UncoreKind, String, String), Option<f64>> = BTreeMap::new();
        for mut one in self.counters {
            let count = one.counter.read().ok();
            let count = count.and_then(|reading| reading.estimate());
            let key = (one.kind, one.event, one.unit);
            let sum = sums.entry(key).or_insert(Some(0.0));
            *sum = sum
                .zip(count)
                .map(|(sum, count)| sum + count as f64 * one.scale);
        }
        let events = sums.into_iter();
        events
            .filter_map(|((kind, event, unit), value)| {
                Some(UncoreEvents {
                    kind,
                    event,
                    value: value?,
                    unit,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::perf_events::Reading;
    use super::*;
    use crate::tests::Machine;

    struct Fixed(u64);

    impl Running for Fixed {
        fn read(&mut self) -> io::Result<Reading> {
            Ok(Reading {
                count: self.0,
                enabled_ns: 1000,
                running_ns: 500,
            })
        }
    }

    /// Returns a machine of two packages with two memory controllers, a link and a unit of another kind.
    fn machine() -> Machine {
        let mut machine = Machine::default().with(&format!("{DIRECTORY}/msr/type"), "9\n");
        for (unit, event) in [
            ("uncore_imc_0", "cas_count_read"),
            ("uncore_imc_1", "cas_count_read"),
            ("uncore_upi_0", "txl_flits"),
            ("uncore_cha_0", "clockticks"),
        ] {
            let directory = format!("{DIRECTORY}/{unit}");
            machine = machine
                .with(&format!("{directory}/type"), "4000000000\n")
                .with(&format!("{directory}/cpumask"), "0,28\n")
                .with(&format!("{directory}/format/event"), "config:0-7\n")
                .with(&format!("{directory}/format/edge"), "config:18\n")
                .with(&format!("{directory}/events/{event}"), "event=0x04\n");
        }
        for controller in [0, 1] {
            let read = format!("{DIRECTORY}/uncore_imc_{controller}/events/cas_count_read");
            machine = machine
                .with(&format!("{read}.scale"), "6.103515625e-5\n")
                .with(&format!("{read}.unit"), "MiB\n");
        }
        machine
    }

    #[test]
    fn events_are_summed_over_units_and_packages_with_scale_and_unit() {
        let start = |unit: &Path, _: &str, cpu: u32| -> io::Result<Box<dyn Running>> {
            assert!([0, 28].contains(&cpu) && unit.join("type").exists());
            // Each counted half of the time.
            Ok(Box::new(Fixed(8192)))
        };
        let counters = UncoreCounters::start_by(machine().root(), &start);
        let found = counters.unwrap().finish();
        let memory = UncoreEvents {
            kind: UncoreKind::Memory,
            event: "cas_count_read".to_owned(),
            value: 4.0,
            unit: "MiB".to_owned(),
        };
        let link = UncoreEvents {
            kind: UncoreKind::Interconnect,
            event: "txl_flits".to_owned(),
            value: 4.0 * 8192.0,
            unit: String::new(),
        };
        assert_eq!(found, [memory, link]);
    }

    #[test]
    fn events_without_counters_on_all_units_are_left_out_and_named() {
        let mut machine = machine();
        for number in 0..300 {
            let event = format!("{DIRECTORY}/uncore_iio_0/events/event_{number:03}");
            machine = machine.with(&event, "event=0x01\n");
        }
        let machine = machine.with(&format!("{DIRECTORY}/uncore_iio_0/cpumask"), "0,28\n");
        let start = |unit: &Path, _: &str, cpu: u32| -> io::Result<Box<dyn Running>> {
            if unit.ends_with("uncore_imc_1") && cpu == 28 {
                return Err(io::Error::from_raw_os_error(nix::libc::ENODEV));
            }
            Ok(Box::new(Fixed(1)))
        };
        let counters = UncoreCounters::start_by(machine.root(), &start).unwrap();
        let found: Vec<String> = UncoreCounters::start_by(machine.root(), &start)
            .unwrap()
            .finish()
            .into_iter()
            .map(|one| one.event)
            .collect();
        // Two counters of the link, and two of each further event.
        assert_eq!(found.len(), COUNTERS_MAX / 2);
        assert_eq!(found[..2], ["txl_flits", "event_000"]);
        let offers = offers(Ok(counters));
        assert_eq!(offers[0].unavailable, None);
        assert_eq!(offers[1].monitor, "uncore memory cas_count_read");
        let last = offers.last().unwrap();
        assert_eq!(last.monitor, "uncore pcie event_299");
        assert!(last.unavailable.as_ref().unwrap().contains("more than 512"));
        assert_eq!(offers.len(), 1 + 1 + 301 - COUNTERS_MAX / 2);
    }

    #[test]
    fn a_machine_without_units_has_a_reason() {
        let none = uncore_offers(Machine::default().root());
        assert_eq!(none.len(), 1);
        assert!(none[0].unavailable.as_ref().unwrap().contains("uncore_*"));
        // The kernel has no unit of this type, but the event is read from its files.
        let recorded = machine();
        let unit = recorded.root().join(DIRECTORY).join("uncore_imc_0");
        let error = start(&unit, "cas_count_read", 0).err().unwrap();
        assert!(error.raw_os_error().is_some(), "{error}");
        let missing = start(&unit, "no_such_event", 0).err().unwrap();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        // This machine offers them or explains why not.
        let own = uncore_offers(Path::new("/"));
        assert!(own.iter().all(|one| one.unavailable.as_deref() != Some("")));
    }
}
