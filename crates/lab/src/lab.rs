// SPDX-License-Identifier: Apache-2.0
//! A running lab: one at a time on a machine, with one case at a time in it. A case is a topology that runs as the device, and its
//! environment: a partition, neighbours.

mod cards;
mod case;
mod external;
mod running;

use std::path::{Path, PathBuf};

use quietwire_base::LockFile;
use quietwire_base::storage::Disk;
use quietwire_host::CpuList;
use quietwire_host::cpuset::{Cpuset, Cpusets};
use quietwire_host::journal::{Change, Journal, TasksOnUndo, UndoOutcome};
use quietwire_host::partition::Plan;
use quietwire_host::settings;

use crate::clean;
use crate::error::{LabError, io_error};
use crate::isolation::{Applied, running_machine};
use crate::neighbours::{Intensity, NeighbourSample, Neighbours};
use crate::state_directory::{
    LAB_JOURNAL, LAB_PREFIX, MARKER, judge, lock, make_directory, undo_journal, undo_own_journal,
};
use crate::up::UpLab;

pub use case::Case;
pub use external::{DeviceCommand, ExternalDevice};

/// Size of a huge page, MiB.
const HUGE_PAGE_MIB: u64 = 2;

/// Settings of a lab.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Directory of its state, for this and for later processes.
    pub state_directory: PathBuf,
    /// The `quietwire` program, for its switch.
    pub program: PathBuf,
}

/// The running case.
#[derive(Debug)]
struct Running {
    journal: Journal,
    /// A directory of the case.
    directory: PathBuf,
    /// Prefix of names that is unique on this machine.
    tag: String,
    /// The CPU set of the device's processes; `None` if no work is excluded from its CPUs.
    set: Option<Cpuset>,
    device: Option<UpLab>,
    neighbours: Option<Neighbours>,
    partition: Option<Applied>,
}

impl Running {
    /// Returns the number of frames that the device has received from neighbours.
    fn received_from_neighbours(&self) -> Result<u64, LabError> {
        self.device
            .as_ref()
            .map_or(Ok(0), UpLab::received_from_neighbours)
    }
}

/// A running lab. Dropping it undoes everything.
#[derive(Debug)]
pub struct Lab {
    options: LabOptions,
    directory: PathBuf,
    journal: Option<Journal>,
    cases: u32,
    running: Option<Running>,
    // Released last.
    _lock: LockFile,
}

impl Lab {
    /// Starts an empty lab. The leftovers of an earlier lab are undone first.
    ///
    /// # Errors
    /// [`LabError::Busy`] if another lab is running, [`LabError::Io`].
    pub fn open(options: LabOptions) -> Result<Self, LabError> {
        let state = &options.state_directory;
        make_directory(&Disk, state)?;
        let held = lock(state)?;
        let left = clean::leftovers(&Disk, state, &held)?;
        if !left.undone.is_empty() {
            tracing::warn!(
                "undid {} changes of an earlier lab that was killed",
                left.undone.len()
            );
        }
        for (change, outcome) in left.failures() {
            match outcome {
                UndoOutcome::ChangedSince(reason) => {
                    tracing::warn!(
                        "left unchanged, because another program has changed it: {change:?}: {reason}"
                    );
                }
                UndoOutcome::Unreadable(reason) => tracing::warn!("{change}: {reason}"),
                _ => return Err(LabError::Undo(format!("{change:?}: {outcome:?}"))),
            }
        }
        let directory = state.join(format!("{}{}", LAB_PREFIX, std::process::id()));
        make_directory(&Disk, &directory)?;
        let path = directory.join(LAB_JOURNAL);
        let mut journal = Journal::open(&path).map_err(io_error(&path, "making the journal"))?;
        journal
            .record(&Change::DirectoryCreated {
                path: directory.clone(),
            })
            .map_err(io_error(&path, "writing the journal"))?;
        Ok(Self {
            options,
            directory,
            journal: Some(journal),
            cases: 0,
            running: None,
            _lock: held,
        })
    }

    fn own_journal(&mut self) -> Result<&mut Journal, LabError> {
        self.journal
            .as_mut()
            .ok_or_else(|| LabError::Undo("the lab is down".to_owned()))
    }

    /// Reserves free 2 MiB pages for as long as the lab runs; returns the number of free pages, which may be smaller.
    ///
    /// # Errors
    /// [`LabError::Memory`] if too little memory would be left for the rest of the machine, [`LabError::Io`].
    pub fn reserve_huge_pages(&mut self, pages: u64) -> Result<u64, LabError> {
        let free = settings::huge_pages_free()
            .map_err(io_error(Path::new(settings::HUGE_PAGES), "reading"))?;
        let available_mib = settings::memory_available_mib()
            .map_err(io_error(Path::new(settings::MEMORY), "reading"))?;
        // The kernel would take all free memory, from every process.
        let more_mib = pages.saturating_sub(free).saturating_mul(HUGE_PAGE_MIB);
        if more_mib > available_mib / 2 {
            return Err(LabError::Memory {
                wanted_mib: more_mib,
                available_mib,
            });
        }
        settings::reserve_huge_pages(self.own_journal()?, pages).map_err(io_error(
            Path::new(settings::HUGE_PAGES),
            "reserving huge pages",
        ))
    }

    /// Allows real-time threads on `tester` to run without a pause while the lab runs: otherwise the kernel stops them for 50 ms of each
    /// second, which looks like loss.
    ///
    /// # Errors
    /// [`LabError::Cpus`] if no other CPU would be left for the rest of the machine, [`LabError::Io`].
    pub fn allow_realtime(&mut self, tester: &CpuList, online: &CpuList) -> Result<(), LabError> {
        if online.difference(tester).is_empty() {
            return Err(LabError::Cpus(format!(
                "the tester would use all CPUs ({online}) at real-time priority (use fewer CPUs, or set realtime = false)"
            )));
        }
        let path = Path::new(settings::REALTIME_RUNTIME);
        settings::write(self.own_journal()?, path, "-1")
            .map_err(io_error(path, "letting real-time threads run"))?;
        Ok(())
    }

    /// Opens a case, with no more than its journal and its directory.
    fn open_case(&mut self) -> Result<(), LabError> {
        self.leave()?;
        self.cases = self.cases.saturating_add(1);
        let directory = self.directory.join(format!("case-{:04}", self.cases));
        let path = directory.with_extension("jsonl");
        let journal = Journal::open(&path).map_err(io_error(&path, "making the journal"))?;
        let running = self.running.insert(Running {
            journal,
            directory: directory.clone(),
            tag: format!("quietwire-{}-{}", std::process::id(), self.cases),
            set: None,
            device: None,
            neighbours: None,
            partition: None,
        });
        let change = Change::DirectoryCreated {
            path: directory.clone(),
        };
        let made = running
            .journal
            .record(&change)
            .map_err(io_error(&directory, "writing the journal"))
            .and_then(|()| make_directory(&Disk, &directory));
        self.leave_on_error(made)
    }

    /// Applies a partition for the case. Returns the CPU set of its device, which has these CPUs. `tasks` decides what happens to tasks in
    /// a set that the partition does not have.
    fn isolate(
        &mut self,
        plan: &Plan,
        cpus: &CpuList,
        tasks: TasksOnUndo,
        commands: &mut Vec<String>,
    ) -> Result<Cpuset, LabError> {
        let name = format!("case-{:04}{MARKER}", self.cases);
        let marker = self.directory.join(name);
        let running = being_entered(&mut self.running)?;
        let applied = running
            .partition
            .insert(Applied::apply(&running_machine(), plan, &marker)?);
        commands.extend(applied.settings.iter().cloned());
        match &applied.device_set {
            Some(set) => Ok(set.clone()),
            None => Ok(Cpusets::find(Path::new("/"))?.create(
                &mut running.journal,
                &format!("{}-device", running.tag),
                cpus,
                tasks,
            )?),
        }
    }

    /// Returns the device of the running case, once it has started.
    #[must_use]
    pub fn device(&self) -> Option<&UpLab> {
        self.running.as_ref()?.device.as_ref()
    }

    /// Returns the device for changes, as [`Self::device`].
    pub fn device_mut(&mut self) -> Option<&mut UpLab> {
        self.running.as_mut()?.device.as_mut()
    }

    /// Returns a sample of the neighbours of the running case, for a later comparison; `None` without neighbours.
    ///
    /// # Errors
    /// [`LabError::Monitor`], [`LabError::Cpuset`], [`LabError::Device`].
    pub fn neighbours_at_work(&self) -> Result<Option<NeighbourSample>, LabError> {
        let Some(running) = &self.running else {
            return Ok(None);
        };
        let neighbours = running.neighbours.as_ref();
        neighbours
            .map(|neighbours| neighbours.at_work(|| running.received_from_neighbours()))
            .transpose()
    }

    /// Returns the activity of the neighbours of the running case since a sample.
    ///
    /// # Errors
    /// [`LabError::Monitor`], [`LabError::Device`].
    pub fn intensity_since(&self, then: &NeighbourSample) -> Result<Intensity, LabError> {
        let running = self.running.as_ref().filter(|_| then.has_network());
        let received = running.map(Running::received_from_neighbours).transpose()?;
        then.intensity(received)
    }

    /// Returns an error if the device or the neighbours of the running case died.
    ///
    /// # Errors
    /// [`LabError::Device`], [`LabError::Neighbours`].
    pub fn check(&mut self) -> Result<(), LabError> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        running.device.as_mut().map_or(Ok(()), UpLab::check)?;
        running
            .neighbours
            .as_mut()
            .map_or(Ok(()), Neighbours::check)
    }

    /// Kills the running case's device, which is a single switch, and starts it again (RFC 6201, a software reset).
    ///
    /// # Errors
    /// [`LabError::Device`] if it does not start again, [`LabError::Undo`] if no case is running.
    pub fn restart_device(&mut self) -> Result<(), LabError> {
        self.device_mut().ok_or_else(no_device)?.restart()
    }

    /// Flushes the address table of the running case's device.
    ///
    /// # Errors
    /// [`LabError::Device`] if the device refuses, [`LabError::Undo`] if no case is running.
    pub fn forget_addresses(&self) -> Result<(), LabError> {
        self.device().ok_or_else(no_device)?.forget_addresses()
    }

    /// Undoes the running case, if any.
    ///
    /// # Errors
    /// [`LabError::Undo`] with the changes that could not be undone; [`LabError::Device`] if the device could not be stopped.
    pub fn leave(&mut self) -> Result<(), LabError> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        let neighbours = running.neighbours.as_mut().map_or(Ok(()), Neighbours::stop);
        let device = running.device.take().map_or(Ok(()), UpLab::down);
        let undone = undo(&running.journal);
        let partition = running.partition.take();
        let taken_back = partition.map_or(Ok(()), |applied| applied.take_back(&running_machine()));
        neighbours.and(device).and(undone).and(taken_back)
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// As [`Self::leave`].
    pub fn down(mut self) -> Result<(), LabError> {
        self.take_down()
    }

    /// Releases the lab and leaves all changes to another process, which undoes them by their journals ([`clean::clean`]).
    pub(crate) fn leave_behind(mut self) {
        self.running = None;
        self.journal = None;
    }

    fn take_down(&mut self) -> Result<(), LabError> {
        let case = self.leave();
        let own = self.journal.take().map_or(Ok(()), |journal| {
            judge(undo_own_journal(&Disk, journal.path())?)
        });
        case.and(own)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            tracing::error!("{error}");
        }
    }
}

fn being_entered(running: &mut Option<Running>) -> Result<&mut Running, LabError> {
    let none = || LabError::Undo("no case is being entered".to_owned());
    running.as_mut().ok_or_else(none)
}

fn undo(journal: &Journal) -> Result<(), LabError> {
    judge(undo_journal(&Disk, journal.path())?)
}

fn no_device() -> LabError {
    LabError::Undo("no case is up, so no device supports this request".to_owned())
}
