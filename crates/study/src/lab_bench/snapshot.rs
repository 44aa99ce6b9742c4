// SPDX-License-Identifier: Apache-2.0
//! Samples of the machine, the device and the neighbours, and requests of procedures to the device.

use std::collections::BTreeMap;
use std::path::Path;

use quietwire_lab::up::UpLab;
use quietwire_lab::{CycleCount, Lab, NeighbourSample};
use quietwire_monitor::{Activity, Snapshot};

use super::LabBenchError;
use super::elements;
use super::topology;
use crate::activity::TrialActivity;
use crate::executor::Device;

/// A sample of the machine and the device.
pub(super) struct DeviceSnapshot {
    machine: Snapshot,
    cycles: BTreeMap<String, CycleCount>,
}

impl DeviceSnapshot {
    pub(super) fn take(device: &UpLab) -> Result<Self, LabBenchError> {
        let cycles = device.cycles();
        let elements = topology::elements(device.state()).into_iter();
        let mut watched: Vec<u32> = elements.flat_map(|element| element.pids).collect();
        watched.push(std::process::id());
        Ok(Self {
            machine: Snapshot::take(Path::new("/"), &watched)?,
            cycles,
        })
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

/// Returns the work of machine and device between two samples, with the activity of neighbours if there are any.
pub(super) fn activity(
    lab: &Lab,
    device: &UpLab,
    (before, after): (&DeviceSnapshot, &DeviceSnapshot),
    at_work: Option<NeighbourSample>,
) -> Result<TrialActivity, LabBenchError> {
    let activity = Activity::between(&before.machine, &after.machine);
    let cycles = (&before.cycles, &after.cycles);
    let hz = quietwire_dpdk::cycles::hz();
    let elements = topology::elements(device.state());
    let elements = elements::activity_of(&elements, cycles, &activity, hz);
    let neighbours = at_work
        .map(|at_work| lab.intensity_since(&at_work))
        .transpose()?;
    Ok(TrialActivity {
        machine: Some(activity),
        elements,
        neighbours,
    })
}
