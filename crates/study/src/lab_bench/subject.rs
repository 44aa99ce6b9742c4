// SPDX-License-Identifier: Apache-2.0
//! What is measured: quietwire's switch alone, or a topology; and what it did meanwhile.

use std::collections::BTreeMap;
use std::path::Path;

use quietwire_lab::{AtWork, CycleCount, Entered, Lab};
use quietwire_monitor::{Activity, Snapshot};
use quietwire_tester::account::{DeviceCounts, DeviceLayout, PortAt};

use super::LabBenchError;
use super::elements::{self, Element};
use super::topology::{self, UpDevice};
use crate::activity::TrialActivity;
use crate::executor::Device;

/// What is measured.
#[derive(Debug)]
pub(super) enum Subject {
    /// quietwire's switch alone, which the lab starts thread by thread.
    Alone(Box<Entered>),
    /// Anything else.
    Topology(Box<UpDevice>),
}

impl Subject {
    fn elements(&self) -> Vec<Element> {
        match self {
            Self::Alone(entered) => topology::alone(entered.device_pid),
            Self::Topology(device) => device.elements(),
        }
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        let elements = self.elements().into_iter();
        elements.flat_map(|element| element.pids).collect()
    }

    /// What forwarding has cost since it started, of those that count it.
    pub(super) fn cycles(&self, lab: &Lab) -> BTreeMap<String, CycleCount> {
        match self {
            Self::Alone(_) => {
                let told = lab
                    .cycles()
                    .map(|count| (topology::ALONE.to_owned(), count));
                told.into_iter().collect()
            }
            Self::Topology(device) => device.cycles(),
        }
    }

    /// Counters of its elements.
    pub(super) fn frames(&self, lab: &Lab) -> DeviceCounts {
        match self {
            Self::Alone(_) => lab.frames(topology::ALONE),
            Self::Topology(device) => device.frames(),
        }
    }

    /// How its ports are joined to each other and to the tester's.
    pub(super) fn layout(&self) -> DeviceLayout {
        match self {
            Self::Alone(entered) => alone(entered.tester_uris.len()),
            Self::Topology(device) => device.layout(),
        }
    }

    /// An error when a part of it died.
    pub(super) fn check(&mut self, lab: &mut Lab) -> Result<(), LabBenchError> {
        lab.check()?;
        match self {
            Self::Alone(_) => Ok(()),
            Self::Topology(device) => device.check(),
        }
    }
}

/// The switch alone with so many ports. Of three the last one sees what is flooded, and nothing is joined in pairs.
fn alone(ports: usize) -> DeviceLayout {
    let at = |index: usize| PortAt::new(topology::ALONE, &format!("p{index}"));
    DeviceLayout {
        at_tester: (0..ports).map(|index| Some(at(index))).collect(),
        links: Vec::new(),
        joins: if ports == 2 {
            vec![[at(0), at(1)]]
        } else {
            Vec::new()
        },
    }
}

/// The machine and the device at an instant.
pub(super) struct Look {
    pub(super) machine: Snapshot,
    pub(super) cycles: BTreeMap<String, CycleCount>,
}

impl Look {
    pub(super) fn take(subject: &Subject, lab: &Lab) -> Result<Self, LabBenchError> {
        let cycles = subject.cycles(lab);
        let watched = [subject.pids(), vec![std::process::id()]].concat();
        Ok(Self {
            machine: Snapshot::take(Path::new("/"), &watched)?,
            cycles,
        })
    }
}

/// quietwire's switch alone, which is up.
pub(super) struct LabDevice<'a> {
    pub(super) lab: &'a mut Lab,
    pub(super) entered: &'a mut Entered,
}

impl Device for LabDevice<'_> {
    fn restart(&mut self) -> Result<(), String> {
        self.entered.device_pid = self
            .lab
            .restart_device()
            .map_err(|error| error.to_string())?;
        Ok(())
    }

    fn forget(&mut self) -> Option<Result<(), String>> {
        let forgotten = self.lab.forget_addresses();
        Some(forgotten.map_err(|error| error.to_string()))
    }
}

/// Any other: what only quietwire's switch alone is asked for, was refused when the file was checked.
pub(super) struct NotAlone;

const NOT_ALONE: &str = "only quietwire's switch alone can be asked for that";

impl Device for NotAlone {
    fn restart(&mut self) -> Result<(), String> {
        Err(NOT_ALONE.to_owned())
    }

    fn forget(&mut self) -> Option<Result<(), String>> {
        Some(Err(NOT_ALONE.to_owned()))
    }
}

/// What the machine and the device did, with how hard the neighbours worked where there were any.
pub(super) fn told(
    lab: &Lab,
    subject: &Subject,
    (before, after): (&Look, &Look),
    at_work: Option<AtWork>,
) -> Result<TrialActivity, LabBenchError> {
    let activity = Activity::between(&before.machine, &after.machine);
    let cycles = (&before.cycles, &after.cycles);
    let hz = quietwire_dpdk::cycles::hz();
    let elements = elements::activity_of(&subject.elements(), cycles, &activity, hz);
    let neighbours = at_work
        .map(|at_work| lab.intensity_since(&at_work))
        .transpose()?;
    Ok(TrialActivity {
        machine: Some(activity),
        elements,
        neighbours,
    })
}
