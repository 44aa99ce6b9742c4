// SPDX-License-Identifier: Apache-2.0
//! A lab that is up: one at a time on a machine, with one case at a time in it.

mod beside;
mod running;

use std::path::{Path, PathBuf};

use quietwire_base::{Deadline, LockFile};
use quietwire_host::CpuList;
use quietwire_host::cpuset::{Confined, Cpuset, Cpusets};
use quietwire_host::inventory::Inventory;
use quietwire_host::journal::{Change, Journal, TasksOnUndo, Undone};
use quietwire_host::partition::Plan;
use quietwire_host::settings;
use quietwire_tester::account::DeviceCounts;

use crate::adapters::{NEIGHBOUR_PORTS, Places, quietwire::Quietwire};
use crate::clean;
use crate::counts::PATIENCE;
use crate::cycles::CycleCount;
use crate::device::{Device, DeviceSpec};
use crate::error::{LabError, io_error};
use crate::isolation::{Applied, running_machine};
use crate::neighbours::{AtWork, Entrance, Intensity, NeighbourSpec, Neighbours, Surroundings};
use crate::state_directory::{
    LAB_JOURNAL, LAB_PREFIX, MARKER, judge, lock, make_directory, undo_journal, undo_own_journal,
};
use crate::thread::DeviceThread;

pub use beside::Begun;

/// Size of a huge page, MiB.
const HUGE_PAGE_MIB: u64 = 2;

/// How a lab is to be brought up.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Where it keeps its state, for this and for later processes.
    pub state_directory: PathBuf,
    /// The `quietwire` program, for its switch.
    pub program: PathBuf,
}

/// One case: a device, its neighbours, and who may run where.
#[derive(Clone, Debug)]
pub struct Case {
    /// The device.
    pub device: DeviceSpec,
    /// Its neighbours, if any.
    pub neighbours: Option<NeighbourSpec>,
    /// Everything but the device is kept to these CPUs; none for an unpartitioned machine.
    pub rest_cpus: Option<CpuList>,
    /// In place of that: the partition of an isolation case.
    pub partition: Option<Plan>,
}

/// What a case came up as.
#[derive(Clone, Debug)]
pub struct Entered {
    /// URIs at which the tester finds the device's ports.
    pub tester_uris: Vec<String>,
    /// Every command and setting, in order, for the record.
    pub commands: Vec<String>,
    /// The device's process.
    pub device_pid: u32,
    /// The device's threads.
    pub threads: Vec<DeviceThread>,
    /// What came of confining the rest, where it was.
    pub confined: Option<Confined>,
}

#[derive(Debug)]
struct Running {
    journal: Journal,
    device: Option<Device>,
    /// What the device was started from, for a restart.
    origin: Option<(DeviceSpec, Option<Cpuset>)>,
    neighbours: Option<Neighbours>,
    partition: Option<Applied>,
}

impl Running {
    /// Frames that the device has got from neighbours.
    fn received_from_neighbours(&self) -> Result<u64, LabError> {
        self.device
            .as_ref()
            .map_or(Ok(0), Device::received_from_neighbours)
    }
}

/// A lab that is up. Dropped, it undoes everything.
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
    /// Brings up an empty lab. What an earlier one left behind is undone first.
    ///
    /// # Errors
    /// [`LabError::Busy`] when another is up, [`LabError::Io`].
    pub fn open(options: LabOptions) -> Result<Self, LabError> {
        let state = &options.state_directory;
        make_directory(state)?;
        let held = lock(state)?;
        let left = clean::leftovers(state, &held)?;
        if !left.undone.is_empty() {
            tracing::warn!(
                "an earlier lab had left {} changes behind; they were undone",
                left.undone.len()
            );
        }
        for (change, outcome) in left.failures() {
            if let Undone::ChangedSince(why) = outcome {
                tracing::warn!("left as it is, since another changed it: {change:?}: {why}");
            } else {
                return Err(LabError::Undo(format!("{change:?}: {outcome:?}")));
            }
        }
        let directory = state.join(format!("{}{}", LAB_PREFIX, std::process::id()));
        make_directory(&directory)?;
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

    /// Sees to it that so many 2 MiB pages are free while the lab is up; gives how many are, maybe fewer.
    ///
    /// # Errors
    /// [`LabError::Memory`] when the rest of the machine would be left without, [`LabError::Io`].
    pub fn reserve_huge_pages(&mut self, pages: u64) -> Result<u64, LabError> {
        let free = settings::huge_pages_free()
            .map_err(io_error(Path::new(settings::HUGE_PAGES), "reading"))?;
        let available_mib = settings::memory_available_mib()
            .map_err(io_error(Path::new(settings::MEMORY), "reading"))?;
        // The kernel would take all that it can get, from everybody.
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

    /// Lets real-time threads on `tester` run without a pause while the lab is up: the kernel stops them for 50 ms of
    /// each second otherwise, which looks like loss.
    ///
    /// # Errors
    /// [`LabError::Cpus`] when no other CPU would be left to the rest of the machine, [`LabError::Io`].
    pub fn allow_realtime(&mut self, tester: &CpuList, online: &CpuList) -> Result<(), LabError> {
        if online.difference(tester).is_empty() {
            return Err(LabError::Cpus(format!(
                "the tester would have all CPUs ({online}) at real-time priority and the machine none; leave one CPU, or set realtime = false"
            )));
        }
        let path = Path::new(settings::REALTIME_RUNTIME);
        settings::write(self.own_journal()?, path, "-1")
            .map_err(io_error(path, "letting real-time threads run"))?;
        Ok(())
    }

    /// Brings up a case.
    ///
    /// # Errors
    /// What did not come up; all of it is undone then.
    pub fn enter(&mut self, case: &Case) -> Result<Entered, LabError> {
        self.begin()?;
        let entered = self.build(case);
        if entered.is_err()
            && let Err(error) = self.leave()
        {
            tracing::error!("{error}");
        }
        entered
    }

    /// Begins a case: nothing of it is there yet but its journal.
    fn begin(&mut self) -> Result<(), LabError> {
        self.leave()?;
        self.cases += 1;
        let path = self.directory.join(format!("case-{:04}.jsonl", self.cases));
        let journal = Journal::open(&path).map_err(io_error(&path, "making the journal"))?;
        self.running = Some(Running {
            journal,
            device: None,
            origin: None,
            neighbours: None,
            partition: None,
        });
        Ok(())
    }

    /// The case's directory, and how names begin that nobody else on this machine uses.
    fn make_room(&mut self) -> Result<(PathBuf, String), LabError> {
        let directory = self.directory.join(format!("case-{:04}", self.cases));
        let tag = format!("quietwire-{}-{}", std::process::id(), self.cases);
        let change = Change::DirectoryCreated {
            path: directory.clone(),
        };
        being_entered(&mut self.running)?
            .journal
            .record(&change)
            .map_err(io_error(&directory, "writing the journal"))?;
        make_directory(&directory)?;
        Ok((directory, tag))
    }

    fn start_neighbours(
        &mut self,
        spec: &NeighbourSpec,
        directory: &Path,
        tag: &str,
        commands: &mut Vec<String>,
    ) -> Result<(), LabError> {
        let Running {
            journal,
            device,
            partition,
            neighbours,
            ..
        } = being_entered(&mut self.running)?;
        let sets = Cpusets::find(Path::new("/"))?;
        let set = sets.create(
            journal,
            &format!("{tag}-neighbours"),
            &spec.cpus,
            TasksOnUndo::Kill,
        )?;
        commands.push(format!("cpuset {} = {}", set.path.display(), spec.cpus));
        let around = Surroundings {
            directory,
            program: &self.options.program,
            set: &set,
            class: partition
                .as_ref()
                .and_then(|applied| applied.neighbours_tasks.as_deref()),
            entrance: device
                .as_ref()
                .and_then(|device| Entrance::by(&device.places.neighbour_sockets)),
        };
        let received = || {
            let device = device.as_ref();
            device.map_or(Ok(0), Device::received_from_neighbours)
        };
        let started = Neighbours::start(journal, spec, &around, received)?;
        commands.extend(started.commands());
        *neighbours = Some(started);
        Ok(())
    }

    /// Applies a partition for the case; the CPU set that its device is to be in, whose CPUs these are. `tasks` says what
    /// becomes of those in a set that the partition has not.
    fn isolate(
        &mut self,
        plan: &Plan,
        cpus: &CpuList,
        tag: &str,
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
                &format!("{tag}-device"),
                cpus,
                tasks,
            )?),
        }
    }

    fn build(&mut self, case: &Case) -> Result<Entered, LabError> {
        let (directory, tag) = self.make_room()?;
        let running = being_entered(&mut self.running)?;
        let journal = &mut running.journal;
        if case.device.pinned || case.rest_cpus.is_some() || case.partition.is_some() {
            let machine = Inventory::read(Path::new("/"));
            case.device.roles().validate(&machine)?;
        }
        let mut commands = Vec::new();
        let mut confined = None;
        let mut device_set = None;
        if let Some(rest_cpus) = &case.rest_cpus {
            let sets = Cpusets::find(Path::new("/"))?;
            let set = device_cpuset(&sets, journal, &tag, case, rest_cpus)?;
            commands.push(format!(
                "cpuset {} = {}",
                set.path.display(),
                case.device.roles().all()
            ));
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
            confined = Some(seen);
            device_set = Some(set);
        }
        if let Some(plan) = &case.partition {
            let cpus = case.device.roles().all();
            let tasks = TasksOnUndo::Kill;
            device_set = Some(self.isolate(plan, &cpus, &tag, tasks, &mut commands)?);
        }
        let running = being_entered(&mut self.running)?;
        let journal = &mut running.journal;
        let places = Places {
            sockets: (0..case.device.ports)
                .map(|port| directory.join(format!("p{port}.sock")))
                .collect(),
            neighbour_sockets: match case.neighbours.as_ref().and_then(|it| it.network.as_ref()) {
                Some(_) => NEIGHBOUR_PORTS
                    .map(|port| directory.join(format!("{port}.sock")))
                    .to_vec(),
                None => Vec::new(),
            },
            directory: directory.clone(),
        };
        let adapter = Box::new(Quietwire {
            program: self.options.program.clone(),
        });
        let device = running.device.insert(Device::start(
            journal,
            adapter,
            &case.device,
            places,
            device_set.as_ref(),
        )?);
        commands.push(device.command.join(" "));
        running.origin = Some((case.device.clone(), device_set));
        let mut entered = Entered {
            tester_uris: device.places.tester_uris(),
            commands: Vec::new(),
            device_pid: device.pid(),
            threads: device.threads()?,
            confined,
        };
        if let Some(spec) = &case.neighbours {
            self.start_neighbours(spec, &directory, &tag, &mut commands)?;
        }
        entered.commands = commands;
        Ok(entered)
    }

    /// A look at the neighbours of the running case, to tell later how hard they worked since; none where there are none.
    ///
    /// # Errors
    /// [`LabError::Monitor`], [`LabError::Cpuset`], [`LabError::Device`].
    pub fn neighbours_at_work(&self) -> Result<Option<AtWork>, LabError> {
        let Some(running) = &self.running else {
            return Ok(None);
        };
        let neighbours = running.neighbours.as_ref();
        neighbours
            .map(|neighbours| neighbours.at_work(|| running.received_from_neighbours()))
            .transpose()
    }

    /// How hard the neighbours of the running case worked since a look at them.
    ///
    /// # Errors
    /// [`LabError::Monitor`], [`LabError::Device`].
    pub fn intensity_since(&self, then: &AtWork) -> Result<Intensity, LabError> {
        let running = self.running.as_ref().filter(|_| then.has_network());
        let received = running.map(Running::received_from_neighbours).transpose()?;
        then.intensity(received)
    }

    /// An error when the device or the neighbours of the running case died.
    ///
    /// # Errors
    /// [`LabError::Device`], [`LabError::Neighbours`].
    pub fn check(&mut self) -> Result<(), LabError> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        if let Some(device) = &mut running.device
            && !device.is_running()
        {
            return Err(device.died());
        }
        running
            .neighbours
            .as_mut()
            .map_or(Ok(()), Neighbours::check)
    }

    /// Kills the running case's device and starts it again (RFC 6201, a software reset); gives its new process.
    ///
    /// # Errors
    /// [`LabError::Device`] when it does not come up again, [`LabError::Undo`] when no case is up.
    pub fn restart_device(&mut self) -> Result<u32, LabError> {
        let no_case =
            || LabError::Undo("no case is up, whose device could be restarted".to_owned());
        let running = self.running.as_mut().ok_or_else(no_case)?;
        let (Some(device), Some((spec, set))) = (&mut running.device, &running.origin) else {
            return Err(no_case());
        };
        device.restart(&mut running.journal, spec, set.as_ref())?;
        Ok(device.pid())
    }

    /// Empties the address table of the running case's device.
    ///
    /// # Errors
    /// [`LabError::Device`] when it refuses, [`LabError::Undo`] when no case is up.
    pub fn forget_addresses(&self) -> Result<(), LabError> {
        self.running
            .as_ref()
            .and_then(|running| running.device.as_ref())
            .ok_or_else(|| LabError::Undo("no case is up".to_owned()))?
            .forget_addresses()
    }

    /// What forwarding has cost the running case's device since it started.
    ///
    /// # Errors
    /// Why it does not tell.
    pub fn cycles(&self) -> Result<CycleCount, String> {
        self.running
            .as_ref()
            .and_then(|running| running.device.as_ref())
            .ok_or("no case is up")?
            .cycles()
    }

    /// Counters of frames of the running case's device, as an element of this name. A deadline of 2 s holds.
    #[must_use]
    pub fn frames(&self, name: &str) -> DeviceCounts {
        let running = self.running.as_ref();
        let device = running.and_then(|running| running.device.as_ref());
        let frames = match device {
            Some(device) => device.frames(Deadline::after(PATIENCE)),
            None => Err("no case is up".to_owned()),
        };
        DeviceCounts {
            elements: [(name.to_owned(), frames)].into(),
        }
    }

    /// Counters of the running case's device.
    ///
    /// # Errors
    /// [`LabError::Device`].
    pub fn counters(&self) -> Result<Option<serde_json::Value>, LabError> {
        self.running
            .as_ref()
            .and_then(|running| running.device.as_ref())
            .map(Device::counters)
            .transpose()
    }

    /// Undoes the running case, if any.
    ///
    /// # Errors
    /// [`LabError::Undo`] with what could not be undone; [`LabError::Device`] when the device had to be killed.
    pub fn leave(&mut self) -> Result<(), LabError> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        let neighbours = running.neighbours.as_mut().map_or(Ok(()), Neighbours::stop);
        let device = running.device.as_mut().map_or(Ok(()), Device::stop);
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

    fn take_down(&mut self) -> Result<(), LabError> {
        let case = self.leave();
        let own = self
            .journal
            .take()
            .map_or(Ok(()), |journal| judge(undo_own_journal(journal.path())?));
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
    judge(undo_journal(journal.path())?)
}

fn device_cpuset(
    sets: &Cpusets,
    journal: &mut Journal,
    tag: &str,
    case: &Case,
    rest_cpus: &CpuList,
) -> Result<Cpuset, LabError> {
    let shared = rest_cpus.intersection(&case.device.forwarding_cpus);
    if !shared.is_empty() {
        return Err(LabError::Cpus(format!(
            "CPU {shared} is a forwarding CPU and is left to the rest of the machine, too; a partition gives it to one of them"
        )));
    }
    Ok(sets.create(
        journal,
        &format!("{tag}-device"),
        &case.device.roles().all(),
        TasksOnUndo::Kill,
    )?)
}
