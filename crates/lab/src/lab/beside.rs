// SPDX-License-Identifier: Apache-2.0
//! Cases whose device comes up elsewhere: what is around it, first the partition that keeps everything else away, then, once it is
//! up, its neighbours.

use std::path::PathBuf;

use quietwire_host::CpuList;
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::TasksOnUndo;
use quietwire_host::partition::Plan;

use super::Lab;
use crate::error::LabError;
use crate::neighbours::NeighbourSpec;

/// A case that is begun, and whose device is to come up.
#[derive(Debug)]
#[must_use = "its device is to come up"]
pub struct Begun {
    /// Every setting and command so far, in order.
    pub commands: Vec<String>,
    /// The CPU set that the device's processes are to be in; none where nothing is isolated.
    pub device_set: Option<Cpuset>,
    directory: PathBuf,
    tag: String,
}

impl Lab {
    /// Begins a case whose device has these CPUs: applies its partition, if any.
    ///
    /// # Errors
    /// What did not come about; all of it is undone then.
    pub fn begin_beside(
        &mut self,
        partition: Option<&Plan>,
        cpus: &CpuList,
    ) -> Result<Begun, LabError> {
        self.begin()?;
        let begun = self.around(partition, cpus);
        self.or_leave(begun)
    }

    fn around(&mut self, partition: Option<&Plan>, cpus: &CpuList) -> Result<Begun, LabError> {
        let (directory, tag) = self.make_room()?;
        let mut commands = Vec::new();
        let tasks = TasksOnUndo::Kill;
        let isolated = partition.map(|plan| self.isolate(plan, cpus, &tag, tasks, &mut commands));
        Ok(Begun {
            device_set: isolated.transpose()?,
            commands,
            directory,
            tag,
        })
    }

    /// Starts the neighbours of such a case, if any, now that its device is up. What comes back is every setting and command.
    ///
    /// # Errors
    /// What did not come up; everything around the device is undone then.
    pub fn join_beside(
        &mut self,
        begun: Begun,
        neighbours: Option<&NeighbourSpec>,
    ) -> Result<Vec<String>, LabError> {
        let Begun {
            mut commands,
            directory,
            tag,
            ..
        } = begun;
        let started = match neighbours {
            Some(spec) => self.start_neighbours(spec, &directory, &tag, &mut commands),
            None => Ok(()),
        };
        self.or_leave(started.map(|()| commands))
    }

    /// The outcome; where it is an error, nothing is left around the device.
    pub(super) fn or_leave<T>(&mut self, outcome: Result<T, LabError>) -> Result<T, LabError> {
        if outcome.is_err()
            && let Err(also) = self.leave()
        {
            tracing::error!("{also}");
        }
        outcome
    }
}
