// SPDX-License-Identifier: Apache-2.0
//! Work of a device's elements during a trial: cycles, if elements count them, and CPU time.

use std::collections::BTreeMap;

use quietwire_lab::topology::{Program, Role};
use quietwire_lab::{CycleCount, OwnView};
use quietwire_monitor::Activity;
use serde::{Deserialize, Serialize};

/// An element of a device, for sampling.
#[derive(Clone, Debug)]
pub(super) struct Element {
    /// Its name.
    pub(super) name: String,
    /// Its role.
    pub(super) role: Role,
    /// Its place among the network functions of its chain, if it is one.
    pub(super) function: Option<FunctionPlace>,
    /// Its processes.
    pub(super) pids: Vec<u32>,
    /// CPUs on which the kernel does its work; `None` if processes do it.
    pub(super) kernel_cpus: Option<Vec<u32>>,
}

/// Place of a network function in its chain. Chains in parallel have the same functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionPlace {
    /// Its position among the functions of its chain, from 1.
    pub position: usize,
    /// Its program.
    pub program: Program,
}

/// Work of an element during a trial. Stored with the trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ElementActivity {
    /// Its name: `S` for the switch.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its place among the network functions of its chain, if it is one. None in stores of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionPlace>,
    /// Cost of forwarding, if the element counts it.
    pub counted: Option<CycleCount>,
    /// CPU time of its processes' threads, or, for an element of the kernel, time in softirqs on its CPUs. Seconds.
    pub cpu_time_s: f64,
    /// True if the kernel does its work.
    pub is_kernels: bool,
    /// Number of CPUs on which the kernel does its work. None for an element of processes, and in stores of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_cpus: Option<usize>,
    /// Ticks of the time stamp counter per second.
    pub tsc_hz: u64,
    /// Counters of its program about its own work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_view: Option<OwnView>,
    /// Why the program's own view is unavailable, as a clause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_view_unavailable: Option<String>,
}

/// Views of all elements by name, or why they are unavailable.
pub(super) type OwnViews = BTreeMap<String, Result<OwnView, String>>;

impl ElementActivity {
    /// Sets the program's own view of the time between two samples.
    pub(super) fn set_own_view(&mut self, before: &OwnViews, after: &OwnViews) {
        let increase = match (before.get(&self.name), after.get(&self.name)) {
            (Some(Ok(before)), Some(Ok(after))) => after
                .since(before)
                .ok_or_else(|| "its counters restarted during the trial".to_owned()),
            (Some(Err(reason)), _) | (_, Some(Err(reason))) => Err(reason.clone()),
            // It did not exist at both times.
            _ => return,
        };
        match increase {
            Ok(view) => self.own_view = Some(view),
            Err(reason) => self.own_view_unavailable = Some(reason),
        }
    }
}

/// Returns the work of elements between two samples.
pub(super) fn activity_of(
    elements: &[Element],
    (before, after): (&BTreeMap<String, CycleCount>, &BTreeMap<String, CycleCount>),
    machine: &Activity,
    tsc_hz: u64,
) -> Vec<ElementActivity> {
    let of_element = |element: &Element| {
        let counted = || after.get(&element.name)?.since(before.get(&element.name)?);
        let of_threads = || {
            let threads = machine.threads.iter();
            let own = threads.filter(|thread| element.pids.contains(&thread.pid));
            own.map(|thread| thread.cpu_time_s).sum()
        };
        let of_softirqs = |cpus: &Vec<u32>| {
            let own = machine.cpus.iter().filter(|cpu| cpus.contains(&cpu.cpu));
            own.map(|cpu| cpu.softirq_s).sum()
        };
        ElementActivity {
            name: element.name.clone(),
            role: element.role,
            function: element.function,
            counted: counted(),
            cpu_time_s: element
                .kernel_cpus
                .as_ref()
                .map_or_else(of_threads, of_softirqs),
            is_kernels: element.kernel_cpus.is_some(),
            kernel_cpus: element.kernel_cpus.as_ref().map(Vec::len),
            tsc_hz,
            own_view: None,
            own_view_unavailable: None,
        }
    };
    elements.iter().map(of_element).collect()
}

#[cfg(test)]
mod tests {
    use quietwire_lab::PartView;
    use quietwire_monitor::{CpuActivity, ThreadActivity};

    use super::*;

    #[test]
    fn elements_are_reported_by_their_processes_or_by_what_the_kernel_did_for_them() {
        let thread = |pid, cpu_time_s| ThreadActivity {
            pid,
            tid: 1,
            name: "t".to_owned(),
            cpu: 1,
            cpu_time_s,
            ..ThreadActivity::default()
        };
        let cpu = |cpu, softirq_s| CpuActivity {
            cpu,
            softirq_s,
            ..CpuActivity::default()
        };
        let machine = Activity {
            elapsed_s: 1.0,
            cpus: vec![cpu(0, 0.5), cpu(1, 0.25)],
            threads: vec![thread(7, 0.5), thread(7, 0.25), thread(8, 1.0)],
            ..Activity::default()
        };
        let element = |name: &str, kernel_cpus| Element {
            name: name.to_owned(),
            role: Role::Switch,
            function: None,
            pids: vec![7],
            kernel_cpus,
        };
        let count = |cycles, frames| CycleCount {
            cycles,
            frames,
            threads: vec![cycles],
            bursts: frames,
            input_cycles: None,
        };
        let look = |cycles, frames| BTreeMap::from([("S".to_owned(), count(cycles, frames))]);
        let reported = activity_of(
            &[element("S", None), element("K", Some(vec![1]))],
            (&look(100, 10), &look(300, 20)),
            &machine,
            5,
        );
        assert_eq!(reported[0].counted, Some(count(200, 10)));
        assert_eq!(
            (reported[0].cpu_time_s, reported[0].is_kernels),
            (0.75, false)
        );
        assert_eq!(reported[1].counted, None);
        let [before, after] = [3, 10].map(|calls| {
            let part = PartView {
                counters: BTreeMap::from([("calls".to_owned(), calls)]),
                ..PartView::default()
            };
            OwnView {
                parts: BTreeMap::from([("worker".to_owned(), part)]),
                ..OwnView::default()
            }
        });
        let views = |view| BTreeMap::from([("S".to_owned(), view)]);
        let mut counted = reported[0].clone();
        counted.set_own_view(&views(Ok(before.clone())), &views(Ok(after.clone())));
        let view = counted.own_view.unwrap();
        assert_eq!(view.parts["worker"].counters["calls"], 7);
        let refused = |before, after| {
            let mut element = reported[0].clone();
            element.set_own_view(&views(before), &views(after));
            (element.own_view, element.own_view_unavailable.unwrap())
        };
        let (none, reason) = refused(Ok(after), Ok(before.clone()));
        assert!(
            none.is_none() && reason.contains("restarted during"),
            "{reason}"
        );
        let (none, reason) = refused(Ok(before), Err("it is not installed".to_owned()));
        assert!(
            none.is_none() && reason == "it is not installed",
            "{reason}"
        );
        assert_eq!(
            (reported[1].cpu_time_s, reported[1].is_kernels),
            (0.25, true)
        );
        assert_eq!(
            (reported[0].kernel_cpus, reported[1].kernel_cpus),
            (None, Some(1))
        );
    }
}
