// SPDX-License-Identifier: Apache-2.0
//! Samples of the machine, the device and the neighbours, and requests of procedures to the device.

use std::collections::BTreeMap;
use std::path::Path;

use quietwire_host::CpuList;
use quietwire_lab::{CycleCount, Intensity, Lab, NeighbourSample};
use quietwire_monitor::{
    Activity, CpuEvents, Edge, EventCounters, ExitReasons, ExitSampler, Owner, Snapshot,
    SystemCallCounters, SystemCallCounts, SystemCallSampler, SystemCallSamples, Unavailable,
    UncoreCounters, UncoreEvents, Watched,
};

use super::LabBenchError;
use super::device::MonitoredDevice;
use super::elements::{self, OwnViews};
use crate::activity::TrialActivity;
use crate::executor::Device;

/// A sample of the machine and the device.
pub(super) struct DeviceSnapshot {
    /// None in a case without monitors.
    machine: Option<Snapshot>,
    cycles: BTreeMap<String, CycleCount>,
    views: OwnViews,
}

/// Maximum number of threads of neighbours that are stored with a trial.
const NEIGHBOUR_THREADS_MAX: usize = 32;

impl DeviceSnapshot {
    /// Takes a sample of the device, unless another program has started it, the tester and the neighbours, at a side of a trial. Without
    /// monitors, `edge` is none, and only the cycles of the device are read.
    pub(super) fn take(
        device: Option<MonitoredDevice<'_>>,
        at_work: Option<&NeighbourSample>,
        edge: Option<Edge>,
    ) -> Result<Self, LabBenchError> {
        let Some(edge) = edge else {
            return Ok(Self {
                machine: None,
                cycles: device.map(MonitoredDevice::cycles).unwrap_or_default(),
                views: OwnViews::new(),
            });
        };
        // Some programs are queried by another program, whose time does not belong to the trial.
        let views = || device.map(MonitoredDevice::own_views).unwrap_or_default();
        let at_start = (edge == Edge::Start).then(views);
        let cycles = device.map(MonitoredDevice::cycles).unwrap_or_default();
        let elements = device.map(MonitoredDevice::elements).unwrap_or_default();
        let pids = elements.into_iter().flat_map(|element| element.pids);
        let mut watched: Vec<Watched> = pids.map(|pid| Watched::of(pid, Owner::Device)).collect();
        watched.push(Watched::of(std::process::id(), Owner::Tester));
        let neighbours = at_work.map(NeighbourSample::pids).unwrap_or_default();
        let neighbours = neighbours.iter();
        watched.extend(neighbours.map(|pid| Watched::of(*pid, Owner::Neighbour)));
        Ok(Self {
            machine: Some(Snapshot::take_all(Path::new("/"), &watched, edge)?),
            cycles,
            views: at_start.unwrap_or_else(views),
        })
    }

    fn machine(&self) -> Result<&Snapshot, Unavailable> {
        let machine = self.machine.as_ref();
        machine.ok_or_else(|| Unavailable("the case has no monitors".to_owned()))
    }

    /// Returns the counters of the system calls of the forwarding threads, from now on: those of an earlier trial, if it had the same
    /// threads.
    pub(super) fn count_calls(
        &self,
        earlier: Option<SystemCallCounters>,
    ) -> Result<SystemCallCounters, Unavailable> {
        let threads = self.machine()?.forwarding_threads();
        match earlier.filter(|counters| counters.are_of(&threads)) {
            Some(mut counters) => {
                // Calls between the trials do not count.
                counters.since_last();
                Ok(counters)
            }
            None => SystemCallCounters::start(Path::new("/"), &threads),
        }
    }

    /// Starts to sample the system calls of the forwarding threads, on these CPUs.
    pub(super) fn sample_calls(&self, cpus: &CpuList) -> Result<SystemCallSampler, Unavailable> {
        let threads = self.machine()?.forwarding_threads();
        SystemCallSampler::start(Path::new("/"), &threads, cpus)
    }

    /// Starts to sample the exits of the virtual CPUs of the device.
    pub(super) fn sample_exits(&self) -> Result<ExitSampler, Unavailable> {
        let virtual_cpus = self.machine()?.virtual_cpus();
        ExitSampler::start(Path::new("/"), &virtual_cpus)
    }

    /// Starts to count events outside of the cores.
    pub(super) fn count_uncore(&self) -> Result<UncoreCounters, Unavailable> {
        self.machine()?;
        UncoreCounters::start(Path::new("/"))
    }

    /// Starts to count events of the forwarding CPUs.
    pub(super) fn count_events(&self) -> Result<EventCounters, Unavailable> {
        EventCounters::start(&self.machine()?.forwarding_cpus())
    }
}

/// Returns the device of the lab's case.
pub(super) struct LabDevice<'a>(pub(super) &'a mut Lab);

impl Device for LabDevice<'_> {
    fn restart(&mut self) -> Result<(), String> {
        self.0.restart_device().map_err(|error| error.to_string())
    }

    fn forget(&mut self) -> Option<Result<(), String>> {
        let forgotten = self.0.forget_addresses();
        Some(forgotten.map_err(|error| error.to_string()))
    }
}

/// Samples that were taken while a trial ran.
#[derive(Debug, Default)]
pub(super) struct TrialSamples {
    pub(super) system_calls: Vec<SystemCallSamples>,
    pub(super) system_call_counts: Vec<SystemCallCounts>,
    pub(super) perf_events: Vec<CpuEvents>,
    pub(super) uncore: Vec<UncoreEvents>,
    pub(super) exit_reasons: Vec<ExitReasons>,
    /// Sentences about samples that are not complete.
    pub(super) anomalies: Vec<String>,
}

/// Returns the work of machine and device between two samples, with the activity of neighbours if there are any.
pub(super) fn activity(
    device: Option<MonitoredDevice<'_>>,
    (before, after): (&DeviceSnapshot, &DeviceSnapshot),
    neighbours: Option<Intensity>,
    meanwhile: TrialSamples,
) -> TrialActivity {
    let machine = before.machine.as_ref().zip(after.machine.as_ref());
    let machine = machine.map(|(before, after)| {
        let mut activity = Activity::between(before, after);
        activity.keep_busiest_neighbours(NEIGHBOUR_THREADS_MAX);
        activity.system_calls = meanwhile.system_calls;
        activity.system_call_counts = meanwhile.system_call_counts;
        activity.perf_events = meanwhile.perf_events;
        activity.uncore = meanwhile.uncore;
        activity.guest_exit_reasons = meanwhile.exit_reasons;
        activity.anomalies.extend(meanwhile.anomalies);
        activity
    });
    let unknown = Activity::default();
    let known = machine.as_ref().unwrap_or(&unknown);
    let cycles = (&before.cycles, &after.cycles);
    let hz = quietwire_dpdk::cycles::hz();
    let elements = device.map(MonitoredDevice::elements).unwrap_or_default();
    let mut elements = elements::activity_of(&elements, cycles, known, hz);
    for element in &mut elements {
        element.set_own_view(&before.views, &after.views);
    }
    TrialActivity {
        machine,
        elements,
        neighbours,
    }
}
