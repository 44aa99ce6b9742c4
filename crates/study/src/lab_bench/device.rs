// SPDX-License-Identifier: Apache-2.0
//! Devices whose work the monitors read: a topology of the lab, or a switch that the lab did not start.

use std::collections::BTreeMap;
use std::time::Duration;

use quietwire_lab::topology::Role;
use quietwire_lab::up::UpLab;
use quietwire_lab::{CycleCount, CycleReader, RunningSwitch};

use super::elements::{Element, OwnViews};
use super::topology;

/// Name of the only element of a switch that the lab did not start.
const SWITCH: &str = "switch";
/// Time that it has to report its cycles.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A running quietwire switch that the lab did not start.
#[derive(Clone, Debug)]
pub struct SwitchProcess {
    /// Process ID.
    pub pid: u32,
    /// Its control socket.
    pub switch: RunningSwitch,
}

impl SwitchProcess {
    fn element(&self) -> Element {
        Element {
            name: SWITCH.to_owned(),
            role: Role::Switch,
            function: None,
            pids: vec![self.pid],
            kernel_cpus: None,
        }
    }

    fn cycles(&self) -> BTreeMap<String, CycleCount> {
        match self.switch.cycle_reader().read(TIMEOUT) {
            Ok(count) => BTreeMap::from([(SWITCH.to_owned(), count)]),
            Err(reason) => {
                tracing::debug!("the switch does not report its cycles: {reason}");
                BTreeMap::new()
            }
        }
    }

    fn own_views(&self) -> OwnViews {
        BTreeMap::from([(SWITCH.to_owned(), self.switch.own_view())])
    }
}

/// A device whose work the monitors read.
#[derive(Clone, Copy, Debug)]
pub enum MonitoredDevice<'a> {
    /// A running topology of the lab.
    Lab(&'a UpLab),
    /// A switch that the lab did not start.
    Switch(&'a SwitchProcess),
}

impl MonitoredDevice<'_> {
    /// Returns its elements.
    pub(super) fn elements(self) -> Vec<Element> {
        match self {
            Self::Lab(lab) => topology::elements(lab.state()),
            Self::Switch(process) => vec![process.element()],
        }
    }

    /// Returns the forwarding cycles of each element that counts them, by name.
    pub(super) fn cycles(self) -> BTreeMap<String, CycleCount> {
        match self {
            Self::Lab(lab) => lab.cycles(),
            Self::Switch(process) => process.cycles(),
        }
    }

    /// Reads what each element counts about its own work.
    pub(super) fn own_views(self) -> OwnViews {
        match self {
            Self::Lab(lab) => lab.own_views(),
            Self::Switch(process) => process.own_views(),
        }
    }

    /// Returns a reader of the forwarding cycles, for a thread of its own; none if reading them starts a program.
    pub(super) fn cycle_reader(self) -> Option<CycleReader> {
        match self {
            Self::Lab(lab) => lab.cycle_reader(),
            Self::Switch(process) => Some(process.switch.cycle_reader()),
        }
    }
}
