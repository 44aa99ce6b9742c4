// SPDX-License-Identifier: Apache-2.0
//! Noisy neighbours at ordinary priority, in their own CPU set: stress-ng, in a process, in a container or in a guest, and a tester that
//! sends through the device under test.

mod guest;
mod intensity;
mod kinds;
mod network;
mod placement;
mod spec;
mod stress;

use quietwire_base::Deadline;
use quietwire_host::CpuList;
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::Journal;

use crate::error::LabError;

use guest::InGuest;
pub use intensity::{Intensity, NeighbourSample};
pub use kinds::{NeighbourKind, neighbour_kinds};
pub use placement::Placement;
pub(crate) use placement::siblings;
pub(crate) use spec::{Entrance, NeighbourContext};
pub use spec::{NeighbourPlace, NeighbourSpec, NetworkNeighbour};
use spec::{POLL_INTERVAL, UP_DEADLINE};
use stress::Worker;

impl NeighbourSpec {
    /// Checks whether such neighbours are available, without starting any, so that missing programs and misspelt options are reported
    /// before the first case is measured.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`], [`LabError::Stressors`].
    pub fn check(&self) -> Result<(), LabError> {
        if self.stressors.is_empty() {
            return stress::require_setters();
        }
        stress::check(&self.stressors, self.place)
    }
}

/// Running neighbours.
#[derive(Debug)]
pub(crate) struct Neighbours {
    workers: Vec<Worker>,
    guest: Option<InGuest>,
    set: Cpuset,
    cpus: CpuList,
    has_network: bool,
}

impl Neighbours {
    pub(crate) fn start(
        journal: &mut Journal,
        spec: &NeighbourSpec,
        around: &NeighbourContext<'_>,
        received: impl Fn() -> Result<u64, LabError>,
    ) -> Result<Self, LabError> {
        let mut neighbours = Self {
            workers: Vec::new(),
            guest: None,
            set: around.set.clone(),
            cpus: spec.cpus.clone(),
            has_network: spec.network.is_some(),
        };
        if let Some(network) = &spec.network {
            let worker = network.start(journal, &spec.cpus, around)?;
            neighbours.workers.push(worker);
            neighbours.wait("sent nothing through the device", || Ok(received()? > 0))?;
        }
        if spec.stressors.is_empty() {
            return Ok(neighbours);
        }
        if spec.place == NeighbourPlace::Guest {
            neighbours.guest = Some(InGuest::start(journal, spec, around)?);
            return Ok(neighbours);
        }
        let before = around.set.processes()?.len();
        let worker = Worker::stress_ng(journal, spec, around)?;
        let alone = before.saturating_add(worker.processes_at_rest());
        neighbours.workers.push(worker);
        // stress-ng itself only waits: it is at work once it has children.
        let set = around.set;
        neighbours.wait("were not running", || Ok(set.processes()?.len() > alone))?;
        Ok(neighbours)
    }

    /// Waits until they are at work.
    fn wait(
        &mut self,
        lack: &str,
        is_at_work: impl Fn() -> Result<bool, LabError>,
    ) -> Result<(), LabError> {
        let Some(worker) = self.workers.last_mut() else {
            return Ok(());
        };
        let outcome = Deadline::after(UP_DEADLINE).poll(POLL_INTERVAL, || match is_at_work() {
            Ok(true) => Some(Ok(())),
            Ok(false) => worker.check("ended at once").err().map(Err),
            Err(error) => Some(Err(error)),
        });
        let late = || Err(worker.failed(format!("{lack} in {} s", UP_DEADLINE.as_secs())));
        outcome.unwrap_or_else(late)
    }

    /// Returns the commands that started them.
    pub(crate) fn commands(&self) -> Vec<String> {
        let workers = self.workers.iter().map(Worker::command);
        workers
            .chain(self.guest.iter().flat_map(InGuest::commands))
            .collect()
    }

    /// Returns a sample of all neighbours. `received` is the number of frames that the device has received from them so far.
    pub(crate) fn at_work(
        &self,
        received: impl FnOnce() -> Result<u64, LabError>,
    ) -> Result<NeighbourSample, LabError> {
        let tasks = self.set.processes()?.into_iter();
        let pids = tasks.filter_map(|pid| u32::try_from(pid).ok()).collect();
        let received = self.has_network.then(received).transpose()?;
        NeighbourSample::look(pids, &self.cpus, received)
    }

    /// Returns an error if one of them has ended.
    pub(crate) fn check(&mut self) -> Result<(), LabError> {
        for worker in &mut self.workers {
            worker.check("died")?;
        }
        self.guest.as_mut().map_or(Ok(()), InGuest::check)
    }

    /// Stops them; those that do not end by themselves are killed with their CPU set.
    pub(crate) fn stop(&mut self) -> Result<(), LabError> {
        let mut outcome = Ok(());
        for worker in &mut self.workers {
            outcome = outcome.and(worker.stop());
        }
        let guest = self.guest.as_mut().map_or(Ok(()), InGuest::stop);
        outcome.and(guest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(stressors: &str, place: NeighbourPlace) -> NeighbourSpec {
        NeighbourSpec {
            stressors: vec![stressors.to_owned()],
            place,
            network: None,
            cpus: CpuList::new(),
        }
    }

    #[test]
    fn options_of_stress_ng_are_tried_before_they_are_used() {
        for place in [NeighbourPlace::Process, NeighbourPlace::Container] {
            spec("--cpu 1 --cpu-method sqrt", place).check().unwrap();
            let error = spec("--no-such-stressor 1", place).check().unwrap_err();
            assert_eq!(error.fault(), quietwire_base::Fault::BadInput);
            let text = error.to_string();
            assert!(
                text.contains("no-such-stressor") && !text.contains('\n'),
                "{text}"
            );
        }
    }
}
