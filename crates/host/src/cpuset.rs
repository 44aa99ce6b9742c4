// SPDX-License-Identifier: Apache-2.0
//! CPU sets in version 1 (cpuset(7)) and version 2 (Documentation/admin-guide/cgroup-v2.rst) of the kernel's control groups.

mod residents;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use quietwire_base::ProcessId;

use crate::CpuList;
use crate::files::{Disk, Files, is_absent, named, text};
use crate::journal::{Change, Journal, TaskAffinity, TasksOnUndo};
use crate::proc;
use crate::tasks::is_bound;
use crate::threads::allowed_cpus;

pub use residents::Residents;

/// Control group of libvirt's guests. libvirt manages their CPUs.
pub(crate) const GUESTS: &str = "machine.slice";

/// Version of the control group interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A separate hierarchy for cpuset.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// Errors of CPU sets.
#[derive(Debug, thiserror::Error)]
pub enum CpusetError {
    /// No hierarchy has the controller.
    #[error(
        "this machine has no cpuset controller: /proc/self/mounts has no version 1 mount of it, and no version 2 mount has it in cgroup.controllers (try `mount -t cgroup -o cpuset cpuset DIRECTORY`)"
    )]
    Unavailable,
    /// A file could not be read or written.
    #[error("CPU set {}: {what}: {cause}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Failed operation.
        what: &'static str,
        /// Error of the operating system.
        cause: io::Error,
    },
}

fn io_error(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> CpusetError {
    move |cause| CpusetError::Io {
        path: path.to_owned(),
        what,
        cause,
    }
}

/// The hierarchy of CPU sets of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpusets {
    /// Mount point.
    pub mount: PathBuf,
    /// Version of the interface.
    pub version: Version,
}

/// A CPU set that quietwire created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpuset {
    /// Its directory.
    pub path: PathBuf,
}

impl Cpusets {
    /// Finds the hierarchy in `/proc/self/mounts` below `root`. A version 2 mount is used if it has the
    /// cpuset controller.
    ///
    /// # Errors
    /// [`CpusetError`].
    pub fn find(root: &Path) -> Result<Self, CpusetError> {
        Self::find_in(&Disk, root)
    }

    /// Finds the hierarchy like [`Self::find`], with the caller's file access.
    pub(crate) fn find_in(files: &dyn Files, root: &Path) -> Result<Self, CpusetError> {
        let path = root.join("proc/self/mounts");
        let mounts = files
            .read(&path)
            .map_err(io_error(&path, "reading the mounts"))?;
        let mut unified = None;
        for mount in proc::mounts(&mounts) {
            let point = root.join(mount.point.trim_start_matches('/'));
            match mount.kind.as_str() {
                "cgroup" if mount.has("cpuset") => {
                    return Ok(Self {
                        mount: point,
                        version: Version::V1,
                    });
                }
                "cgroup2" => unified = Some(point),
                _ => {}
            }
        }
        let mount = unified.ok_or(CpusetError::Unavailable)?;
        let controllers = text(files, &mount.join("cgroup.controllers")).unwrap_or_default();
        if is_enabled(&controllers) {
            return Ok(Self {
                mount,
                version: Version::V2,
            });
        }
        Err(CpusetError::Unavailable)
    }

    /// Creates a CPU set below the root set.
    ///
    /// # Errors
    /// [`CpusetError::Io`]. The journal contains all changes up to then.
    pub fn create(
        &self,
        journal: &mut Journal,
        name: &str,
        cpus: &CpuList,
        tasks: TasksOnUndo,
    ) -> Result<Cpuset, CpusetError> {
        self.enable(&Disk, journal)?;
        let path = self.mount.join(name);
        let change = Change::CpusetCreated {
            path: path.clone(),
            tasks,
        };
        journal
            .create(&change, || fs::create_dir(&path))
            .map_err(io_error(&path, "creating the directory"))?;
        if self.version == Version::V1 {
            // A version 1 set without memory nodes accepts no tasks.
            let nodes = fs::read_to_string(self.mount.join("cpuset.mems"))
                .map_err(io_error(&self.mount, "reading its memory nodes"))?;
            let mems = path.join("cpuset.mems");
            fs::write(&mems, nodes.trim()).map_err(io_error(&mems, "writing its memory nodes"))?;
        }
        let file = path.join("cpuset.cpus");
        fs::write(&file, cpus.to_string()).map_err(io_error(&file, "writing its CPUs"))?;
        Ok(Cpuset { path })
    }

    pub(crate) fn enable(
        &self,
        files: &dyn Files,
        journal: &mut Journal,
    ) -> Result<(), CpusetError> {
        if self.version == Version::V1 {
            return Ok(());
        }
        let path = self.mount.join("cgroup.subtree_control");
        let enabled = files
            .read(&path)
            .map_err(io_error(&path, "reading the controllers"))?;
        if is_enabled(&enabled) {
            return Ok(());
        }
        journal
            .record(&Change::ControllerEnabled { path: path.clone() })
            .map_err(io_error(&path, "writing the journal"))?;
        files
            .write(&path, "+cpuset")
            .map_err(io_error(&path, "enabling the controller"))
    }

    /// Journals the CPU affinity of tasks of the root set that may not use all CPUs: kernels before 6.2 lose it when a task
    /// moves to another set and back.
    pub(crate) fn note_affinities(&self, journal: &mut Journal) -> Result<(), CpusetError> {
        let (list, all) = match self.version {
            Version::V1 => ("tasks", "cpuset.effective_cpus"),
            Version::V2 => ("cgroup.threads", "cpuset.cpus.effective"),
        };
        let path = self.mount.join(list);
        let text = fs::read_to_string(&path).map_err(io_error(&path, "listing its tasks"))?;
        let path = self.mount.join(all);
        let all: CpuList = fs::read_to_string(&path)
            .map_err(io_error(&path, "reading its CPUs"))?
            .parse()
            .map_err(invalid(&path))?;
        let tasks: Vec<TaskAffinity> = text
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .filter(|tid| !is_bound(*tid))
            .filter_map(|tid| {
                // `None` if the task has ended since.
                let (task, cpus) = (ProcessId::of(tid)?, allowed_cpus(Path::new("/"), tid)?);
                (cpus != all).then_some(TaskAffinity { task, cpus })
            })
            .collect();
        if tasks.is_empty() {
            return Ok(());
        }
        journal
            .record(&Change::AffinitiesNoted { tasks })
            .map_err(io_error(journal.path(), "writing the journal"))
    }
}

/// Returns whether a list of controllers contains cpuset. In a tree of plain files, it is as it was written: `+cpuset`.
pub(crate) fn is_enabled(controllers: &str) -> bool {
    let mut names = controllers.split_whitespace();
    names.any(|name| name.strip_prefix('+').unwrap_or(name) == "cpuset")
}

/// Returns the direct child sets of a set.
pub(crate) fn child_sets(top: &Path) -> io::Result<Vec<PathBuf>> {
    let mut sets = Vec::new();
    for name in Disk.list(top)? {
        let path = top.join(name);
        match Disk.read(&path.join("cpuset.cpus")) {
            Err(error) if is_absent(&error) => {}
            found => {
                found?;
                sets.push(path);
            }
        }
    }
    Ok(sets)
}

fn invalid(path: &Path) -> impl FnOnce(crate::cpu::CpuListError) -> CpusetError {
    move |error| CpusetError::Io {
        path: path.to_owned(),
        what: "reading its CPUs",
        cause: io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

impl Cpuset {
    /// Returns the file to which PIDs are written to move processes.
    #[must_use]
    pub fn processes_file(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Returns the processes in the set.
    ///
    /// # Errors
    /// [`CpusetError::Io`].
    pub fn processes(&self) -> Result<Vec<i32>, CpusetError> {
        processes(&self.path).map_err(io_error(&self.path, "listing its processes"))
    }
}

pub(crate) fn processes(path: &Path) -> io::Result<Vec<i32>> {
    processes_in(&Disk, path)
}

fn processes_in(files: &dyn Files, path: &Path) -> io::Result<Vec<i32>> {
    Ok(files
        .read(&path.join("cgroup.procs"))?
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect())
}

/// Maximum number of passes: processes may fork while they are moved.
const LOOKS_MAX: usize = 5;

/// Moves the processes of one set to another. Kernel threads that are bound to their CPU stay.
pub(crate) fn move_tasks(from: &Path, to: &Path) -> Result<(), CpusetError> {
    let file = to.join("cgroup.procs");
    for _ in 0..LOOKS_MAX {
        let mut has_moved = false;
        for pid in processes(from).map_err(io_error(from, "listing its processes"))? {
            match fs::write(&file, pid.to_string()) {
                Ok(()) => has_moved = true,
                Err(error) if is_left_in_place(&error) => {}
                Err(cause) => {
                    return Err(CpusetError::Io {
                        path: file,
                        what: "moving a process to the set",
                        cause,
                    });
                }
            }
        }
        if !has_moved {
            break;
        }
    }
    Ok(())
}

/// Returns true if a process has ended (ESRCH), or is a kernel thread that is bound to its CPU (EINVAL).
fn is_left_in_place(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::ESRCH | Errno::EINVAL))
}

/// Kills a process, if it is still in the set.
fn kill_in(files: &dyn Files, path: &Path, pid: i32) -> io::Result<()> {
    let handle = ProcessId::of(pid).map(ProcessId::handle).transpose()?;
    // Read again with the handle open: the number may belong to another process by now.
    match handle.flatten() {
        Some(handle) if processes_in(files, path)?.contains(&pid) => handle.kill(),
        _ => Ok(()),
    }
}

/// Timeout for the tasks of a set to leave it.
const EMPTY_DEADLINE: Duration = Duration::from_secs(10);

/// Removes a CPU set. Its tasks are killed or move to the parent set.
pub(crate) fn remove(files: &dyn Files, path: &Path, tasks: TasksOnUndo) -> io::Result<()> {
    let parent = path.parent().map(Path::to_owned).unwrap_or_default();
    let began = Instant::now();
    loop {
        // NotFound means that the directory is already gone.
        let inside = match processes_in(files, path) {
            // A recorded tree with plain files, not the kernel's file system.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && files.is_directory(path)? =>
            {
                return files.remove_directory(path);
            }
            inside => inside?,
        };
        for pid in &inside {
            match tasks {
                TasksOnUndo::Kill => kill_in(files, path, *pid)?,
                TasksOnUndo::Return => {
                    // A process that stays keeps the directory, which is reported.
                    let _ = files.write(&parent.join("cgroup.procs"), &pid.to_string());
                }
            }
        }
        match files.remove_directory(path) {
            Ok(()) => return Ok(()),
            // The kernel refuses to remove a set with processes (EBUSY).
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && began.elapsed() < EMPTY_DEADLINE =>
            {
                sleep(Duration::from_millis(10));
            }
            Err(error) if inside.is_empty() => return Err(named(path)(error)),
            Err(error) => {
                return Err(io::Error::new(
                    error.kind(),
                    format!("{} still has processes {inside:?}: {error}", path.display()),
                ));
            }
        }
    }
}
