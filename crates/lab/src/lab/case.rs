// SPDX-License-Identifier: Apache-2.0
//! The steps of a case: first the isolation of its device, then the device, which is a topology, then its neighbours.

use std::path::Path;

use quietwire_host::cpuset::Cpusets;
use quietwire_host::inventory::Inventory;
use quietwire_host::journal::TasksOnUndo;
use quietwire_host::partition::Plan;
use quietwire_host::roles::Roles;

use super::{Lab, being_entered};
use crate::error::LabError;
use crate::neighbours::{Entrance, NeighbourContext, NeighbourSpec, Neighbours};
use crate::up::{UpLab, UpOptions};

/// CPUs of a case.
#[derive(Clone, Debug)]
pub struct Case {
    /// CPUs of the device.
    pub roles: Roles,
    /// Partition of its isolation case; `None` for an unpartitioned machine.
    pub partition: Option<Plan>,
}

impl Lab {
    /// Begins a case: excludes other work from its device's CPUs, if requested. Returns every setting and command.
    ///
    /// # Errors
    /// The step that failed; the case is undone then.
    pub fn begin(&mut self, case: &Case) -> Result<Vec<String>, LabError> {
        self.open_case()?;
        let commands = self.apply_partition(case);
        self.leave_on_error(commands)
    }

    fn apply_partition(&mut self, case: &Case) -> Result<Vec<String>, LabError> {
        let mut commands = Vec::new();
        if let Some(plan) = &case.partition {
            case.roles.validate(&Inventory::read(Path::new("/")))?;
            let cpus = case.roles.all();
            let set = self.isolate(plan, &cpus, TasksOnUndo::Kill, &mut commands)?;
            being_entered(&mut self.running)?.set = Some(set);
        }
        Ok(commands)
    }

    /// Starts the device of the begun case, in its CPU set.
    ///
    /// # Errors
    /// The part that did not start; the whole case is undone then.
    pub fn bring_up(&mut self, options: &UpOptions) -> Result<&UpLab, LabError> {
        let up = self.device_up(options);
        let up = self.leave_on_error(up)?;
        let running = being_entered(&mut self.running)?;
        Ok(running.device.insert(up))
    }

    fn device_up(&mut self, options: &UpOptions) -> Result<UpLab, LabError> {
        let running = being_entered(&mut self.running)?;
        UpLab::up(&UpOptions {
            set: running.set.clone(),
            ..options.clone()
        })
    }

    /// Starts neighbours of the device. Returns every setting and command.
    ///
    /// # Errors
    /// The neighbour that did not start; the whole case is undone then.
    pub fn start_neighbours(&mut self, spec: &NeighbourSpec) -> Result<Vec<String>, LabError> {
        let started = self.neighbours_up(spec);
        self.leave_on_error(started)
    }

    fn neighbours_up(&mut self, spec: &NeighbourSpec) -> Result<Vec<String>, LabError> {
        let running = being_entered(&mut self.running)?;
        let sets = Cpusets::find(Path::new("/"))?;
        let set = sets.create(
            &mut running.journal,
            &format!("{}-neighbours", running.tag),
            &spec.cpus,
            TasksOnUndo::Kill,
        )?;
        let mut commands = vec![format!("cpuset {} = {}", set.path.display(), spec.cpus)];
        let device = running.device.as_ref();
        let around = NeighbourContext {
            directory: &running.directory,
            program: &self.options.program,
            set: &set,
            class: running
                .partition
                .as_ref()
                .and_then(|applied| applied.neighbours_tasks.as_deref()),
            entrance: device.and_then(|device| Entrance::by(&device.neighbour_sockets())),
        };
        let received = || device.map_or(Ok(0), UpLab::received_from_neighbours);
        let started = Neighbours::start(&mut running.journal, spec, &around, received)?;
        commands.extend(started.commands());
        running.neighbours = Some(started);
        Ok(commands)
    }

    /// Returns the outcome; an error undoes the whole case.
    pub(super) fn leave_on_error<T>(
        &mut self,
        outcome: Result<T, LabError>,
    ) -> Result<T, LabError> {
        if outcome.is_err()
            && let Err(also) = self.leave()
        {
            tracing::error!("{also}");
        }
        outcome
    }
}
