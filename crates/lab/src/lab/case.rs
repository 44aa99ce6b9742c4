// SPDX-License-Identifier: Apache-2.0
//! The steps of a case: first the isolation of its device, then the device, which is a topology, then its neighbours.

use std::path::Path;

use quietwire_host::CpuList;
use quietwire_host::cpuset::{Confined, Cpuset, Cpusets};
use quietwire_host::inventory::Inventory;
use quietwire_host::journal::TasksOnUndo;
use quietwire_host::partition::Plan;
use quietwire_host::roles::Roles;

use super::{Lab, Running, being_entered};
use crate::error::LabError;
use crate::neighbours::{Entrance, NeighbourContext, NeighbourSpec, Neighbours};
use crate::up::{UpLab, UpOptions};

/// CPUs of a case.
#[derive(Clone, Debug)]
pub struct Case {
    /// CPUs of the device.
    pub roles: Roles,
    /// CPUs of everything except the device; `None` for an unpartitioned machine.
    pub rest_cpus: Option<CpuList>,
    /// Instead of that: the partition of an isolation case.
    pub partition: Option<Plan>,
}

/// A case whose device is not started yet.
#[derive(Debug)]
#[must_use = "the device of the case is not started yet"]
pub struct ExternalCase {
    /// Every setting and command so far, in order.
    pub commands: Vec<String>,
    /// Outcome of confining other work, if it was confined.
    pub confined: Option<Confined>,
}

impl Lab {
    /// Begins a case: excludes other work from its device's CPUs, if requested.
    ///
    /// # Errors
    /// The step that failed; the case is undone then.
    pub fn begin(&mut self, case: &Case) -> Result<ExternalCase, LabError> {
        self.open_case()?;
        let external = self.apply_external(case);
        self.or_leave(external)
    }

    fn apply_external(&mut self, case: &Case) -> Result<ExternalCase, LabError> {
        if case.rest_cpus.is_some() || case.partition.is_some() {
            let machine = Inventory::read(Path::new("/"));
            case.roles.validate(&machine)?;
        }
        let mut external = ExternalCase {
            commands: Vec::new(),
            confined: None,
        };
        let mut set = None;
        if let Some(rest_cpus) = &case.rest_cpus {
            set = Some(self.confine(case, rest_cpus, &mut external)?);
        }
        if let Some(plan) = &case.partition {
            let (cpus, tasks) = (case.roles.all(), TasksOnUndo::Kill);
            set = Some(self.isolate(plan, &cpus, tasks, &mut external.commands)?);
        }
        being_entered(&mut self.running)?.set = set;
        Ok(external)
    }

    /// Confines everything except the device to these CPUs. Returns the device's CPU set.
    fn confine(
        &mut self,
        case: &Case,
        rest_cpus: &CpuList,
        external: &mut ExternalCase,
    ) -> Result<Cpuset, LabError> {
        let shared = rest_cpus.intersection(&case.roles.forwarding);
        if !shared.is_empty() {
            return Err(LabError::Cpus(format!(
                "CPU {shared} is a forwarding CPU and is left to the rest of the machine, too; a partition gives it to one of them"
            )));
        }
        let Running { journal, tag, .. } = being_entered(&mut self.running)?;
        let sets = Cpusets::find(Path::new("/"))?;
        let (name, cpus) = (format!("{tag}-device"), case.roles.all());
        let set = sets.create(journal, &name, &cpus, TasksOnUndo::Kill)?;
        let commands = &mut external.commands;
        commands.push(format!("cpuset {} = {cpus}", set.path.display()));
        let seen = sets.confine_rest(journal, &format!("{tag}-rest"), rest_cpus, &[&set])?;
        commands.push(format!("cpuset of everything else = {rest_cpus}"));
        if seen.foreign > 0 {
            let left = format!(
                "{} processes in CPU sets of others may use other CPUs still",
                seen.foreign
            );
            tracing::warn!("{left}");
            commands.push(left);
        }
        external.confined = Some(seen);
        Ok(set)
    }

    /// Starts the device of the begun case, in its CPU set.
    ///
    /// # Errors
    /// The part that did not start; the whole case is undone then.
    pub fn bring_up(&mut self, options: &UpOptions) -> Result<&UpLab, LabError> {
        let up = self.device_up(options);
        let up = self.or_leave(up)?;
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
        self.or_leave(started)
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
    pub(super) fn or_leave<T>(&mut self, outcome: Result<T, LabError>) -> Result<T, LabError> {
        if outcome.is_err()
            && let Err(also) = self.leave()
        {
            tracing::error!("{also}");
        }
        outcome
    }
}
