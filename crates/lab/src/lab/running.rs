// SPDX-License-Identifier: Apache-2.0
//! Cases whose device another program started: its processes are in the case's partition until the case ends.

use std::path::Path;

use quietwire_host::CpuList;
use quietwire_host::cpuset::Cpusets;
use quietwire_host::journal::TasksOnUndo;
use quietwire_host::partition::Plan;

use super::{Lab, being_entered};
use crate::error::LabError;

impl Lab {
    /// Begins a case with a partition around running processes. They move into its CPU set with these CPUs, and back when the case ends.
    /// Returns every setting and command.
    ///
    /// # Errors
    /// The step that failed; the case is undone then.
    pub(crate) fn begin_isolation(
        &mut self,
        partition: &Plan,
        cpus: &CpuList,
        pids: &[i32],
    ) -> Result<Vec<String>, LabError> {
        self.open_case()?;
        let external = self.isolate_host(partition, cpus, pids);
        self.leave_on_error(external)
    }

    fn isolate_host(
        &mut self,
        partition: &Plan,
        cpus: &CpuList,
        pids: &[i32],
    ) -> Result<Vec<String>, LabError> {
        let sets = Cpusets::find(Path::new("/"))?;
        let journal = &mut being_entered(&mut self.running)?.journal;
        let residents = sets.note_residents(journal, pids)?;
        let mut commands = Vec::new();
        let set = self.isolate(partition, cpus, TasksOnUndo::Return, &mut commands)?;
        let journal = &mut being_entered(&mut self.running)?.journal;
        set.receive(journal, &residents)?;
        commands.push(format!(
            "processes {pids:?} to the CPU set {}",
            set.path.display()
        ));
        Ok(commands)
    }
}
