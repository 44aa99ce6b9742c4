// SPDX-License-Identifier: Apache-2.0
//! Monitors around a trial: they start before it and stop after it. They require no tester, so that a benchmark can measure their cost
//! without one.

use quietwire_host::CpuList;
use quietwire_lab::{Intensity, NeighbourSample};
use quietwire_monitor::{
    Edge, EventCounters, ExitSampler, SystemCallCounters, SystemCallSampler, UncoreCounters,
};
use quietwire_tester::{DevicePoint, TrialResult};

use super::LabBenchError;
use super::cycle_sampler::{CycleReadings, CycleSampler};
use super::device::MonitoredDevice;
use super::snapshot::{DeviceSnapshot, TrialSamples, activity};
use crate::activity::TrialActivity;
use crate::file::CaseMonitors;

/// Objects that the monitors watch during a trial. They also watch this process, which is the tester.
#[derive(Clone, Copy, Debug)]
pub struct MonitorTarget<'a> {
    /// The device; none if another program has started it.
    pub device: Option<MonitoredDevice<'a>>,
    /// The neighbours, if there are any.
    pub neighbours: Option<&'a NeighbourSample>,
    /// CPUs of threads that sample: neither the tester nor forwarding threads use them.
    pub sampler_cpus: &'a CpuList,
    /// Monitors that run.
    pub monitors: CaseMonitors,
}

impl MonitorTarget<'_> {
    fn snapshot(&self, edge: Edge) -> Result<DeviceSnapshot, LabBenchError> {
        let edge = self.monitors.is_all().then_some(edge);
        DeviceSnapshot::take(self.device, self.neighbours, edge)
    }
}

/// Monitors of the trials of a case. Counters of system calls stay open from trial to trial.
#[derive(Debug, Default)]
pub struct TrialMonitors {
    calls: Option<SystemCallCounters>,
}

impl TrialMonitors {
    /// Starts the monitors of a trial that takes `duration_s` seconds. Without monitors, only the cycles of the device are read.
    ///
    /// # Errors
    /// [`LabBenchError::Monitor`] if the kernel's counters of CPU time cannot be read. A monitor that the machine does not offer is none.
    pub fn start<'a>(
        &'a mut self,
        target: MonitorTarget<'a>,
        duration_s: f64,
    ) -> Result<RunningMonitors<'a>, LabBenchError> {
        let before = target.snapshot(Edge::Start)?;
        // The record of the machine has the reason for a missing sampler or counter.
        self.calls = before.count_calls(self.calls.take()).ok();
        let cpus = target.sampler_cpus;
        let sampled = || before.sample_calls(cpus).ok();
        let sampler = self.calls.is_none().then(sampled).flatten();
        let counters = before.count_events().ok();
        let uncore = before.count_uncore().ok();
        let exits = before.sample_exits().ok();
        let watched = target.device.filter(|_| target.monitors.is_all());
        let reader = watched.and_then(MonitoredDevice::cycle_reader);
        let cycles = reader.and_then(|reader| CycleSampler::start(reader, cpus, duration_s));
        Ok(RunningMonitors {
            target,
            before,
            calls: &mut self.calls,
            sampler,
            counters,
            uncore,
            exits,
            cycles,
        })
    }
}

/// Running monitors of a trial. They stop when they are dropped.
pub struct RunningMonitors<'a> {
    target: MonitorTarget<'a>,
    before: DeviceSnapshot,
    calls: &'a mut Option<SystemCallCounters>,
    sampler: Option<SystemCallSampler>,
    counters: Option<EventCounters>,
    uncore: Option<UncoreCounters>,
    exits: Option<ExitSampler>,
    cycles: Option<CycleSampler>,
}

impl RunningMonitors<'_> {
    /// Stops the monitors and returns what they observed.
    ///
    /// # Errors
    /// As [`TrialMonitors::start`].
    pub fn stop(mut self) -> Result<Observation, LabBenchError> {
        let cycles = self.cycles.map(CycleSampler::finish);
        let left_out = self.counters.as_ref().and_then(EventCounters::left_out);
        let exits = self.exits.as_mut();
        let calls = self.calls.as_mut();
        let meanwhile = TrialSamples {
            anomalies: left_out.into_iter().collect(),
            perf_events: self.counters.map(EventCounters::finish).unwrap_or_default(),
            uncore: self.uncore.map(UncoreCounters::finish).unwrap_or_default(),
            exit_reasons: exits.map(ExitSampler::stop).unwrap_or_default(),
            system_calls: self
                .sampler
                .map(SystemCallSampler::finish)
                .unwrap_or_default(),
            system_call_counts: calls
                .map(SystemCallCounters::since_last)
                .unwrap_or_default(),
        };
        Ok(Observation {
            after: self.target.snapshot(Edge::End)?,
            before: self.before,
            meanwhile,
            cycles,
        })
    }
}

/// Observations of the monitors during a trial.
pub struct Observation {
    before: DeviceSnapshot,
    after: DeviceSnapshot,
    meanwhile: TrialSamples,
    cycles: Option<CycleReadings>,
}

impl Observation {
    /// Returns the work of the device over the time of a trial; none if its cycles were not sampled.
    pub(super) fn device_points(&self, result: &TrialResult) -> Option<Vec<DevicePoint>> {
        self.cycles.as_ref().map(|cycles| cycles.points(result))
    }

    /// Returns the activity of machine and device, and of the neighbours if there are any. `device` is the watched device.
    #[must_use]
    pub fn activity(
        self,
        device: Option<MonitoredDevice<'_>>,
        neighbours: Option<Intensity>,
    ) -> TrialActivity {
        let edges = (&self.before, &self.after);
        activity(device, edges, neighbours, self.meanwhile)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::thread;

    use quietwire_lab::RunningSwitch;

    use super::super::device::SwitchProcess;
    use super::*;

    /// Answers as a switch that has received another frame at each request, in 100 cycles, until a client sends nothing.
    fn serve(listener: &UnixListener) {
        for (frames, stream) in (1_u64..).zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            let cycles = 100 * frames;
            let answer = match request.trim() {
                "" => return,
                r#"{"show":"ports"}"# => "[]".to_owned(),
                _ => format!(
                    r#"{{"uptime_s":1.5,"hz":2,"threads":[{{"cpu":1,"steps":[{{"step":"receive","cycles":{cycles},"bursts":1,"frames":{frames}}}]}}],"queues":[]}}"#
                ),
            };
            writeln!(stream, r#"{{"ok":{answer}}}"#).unwrap();
        }
    }

    #[test]
    fn a_switch_that_the_lab_did_not_start_has_its_cycles_and_with_monitors_its_view() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("switch.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let served = thread::spawn(move || serve(&listener));
        let process = SwitchProcess {
            pid: std::process::id(),
            switch: RunningSwitch::find(&socket, &[]).unwrap(),
        };
        let device = Some(MonitoredDevice::Switch(&process));
        let no_cpus = CpuList::default();
        let mut monitors = TrialMonitors::default();
        for kind in [CaseMonitors::All, CaseMonitors::None] {
            let target = MonitorTarget {
                device,
                neighbours: None,
                sampler_cpus: &no_cpus,
                monitors: kind,
            };
            let observed = monitors.start(target, 0.5).unwrap().stop().unwrap();
            assert!(observed.cycles.is_none());
            let activity = observed.activity(device, None);
            assert_eq!(activity.machine.is_some(), kind.is_all());
            let element = &activity.elements[0];
            let counted = element.counted.as_ref().unwrap();
            assert!(counted.frames > 0);
            assert_eq!(counted.cycles, 100 * counted.frames);
            assert_eq!(element.own_view.is_some(), kind.is_all());
        }
        drop(UnixStream::connect(&socket).unwrap());
        served.join().unwrap();
    }
}
