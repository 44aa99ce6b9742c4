// SPDX-License-Identifier: Apache-2.0
//! CPU sets: who may run where. Version 1 (cpuset(7)) and version 2 (Documentation/admin-guide/cgroup-v2.rst) of
//! the kernel's control groups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::CpuList;
use crate::journal::{Change, Journal, TasksOnUndo};
use crate::process::ProcessId;

/// Which interface the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy of its own for cpuset.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// Why CPU sets could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CpusetError {
    /// No hierarchy has the controller.
    #[error(
        "this machine has no cpuset controller: neither /proc/self/mounts shows a version 1 mount of it nor has a version 2 mount it in cgroup.controllers; `mount -t cgroup -o cpuset cpuset DIRECTORY` may give one"
    )]
    Unavailable,
    /// A file of it could not be read or written.
    #[error("CPU set {}: {what}: {cause}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
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
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Which interface.
    pub version: Version,
}

/// A CPU set that was made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpuset {
    /// Its directory.
    pub path: PathBuf,
}

/// What came of confining the rest of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    /// Tasks moved (version 1) or groups limited (version 2).
    pub moved: usize,
    /// Kernel threads that are bound to their CPU and stay.
    pub bound: usize,
}

impl Cpusets {
    /// Finds the hierarchy in `/proc/self/mounts` below `root`. A version 2 mount counts when it has the controller.
    ///
    /// # Errors
    /// [`CpusetError`].
    pub fn find(root: &Path) -> Result<Self, CpusetError> {
        let path = root.join("proc/self/mounts");
        let mounts = fs::read_to_string(&path).map_err(io_error(&path, "reading the mounts"))?;
        let mut unified = None;
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, mount, kind, options, ..] = fields.as_slice() else {
                continue;
            };
            let mount = root.join(mount.trim_start_matches('/'));
            match *kind {
                "cgroup" if options.split(',').any(|option| option == "cpuset") => {
                    return Ok(Self {
                        mount,
                        version: Version::V1,
                    });
                }
                "cgroup2" => unified = Some(mount),
                _ => {}
            }
        }
        let mount = unified.ok_or(CpusetError::Unavailable)?;
        let controllers = fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
        if controllers.split_whitespace().any(|name| name == "cpuset") {
            return Ok(Self {
                mount,
                version: Version::V2,
            });
        }
        Err(CpusetError::Unavailable)
    }

    /// Makes a CPU set below the top.
    ///
    /// # Errors
    /// [`CpusetError::Io`]; nothing is left behind that the journal does not name.
    pub fn create(
        &self,
        journal: &mut Journal,
        name: &str,
        cpus: &CpuList,
        tasks: TasksOnUndo,
    ) -> Result<Cpuset, CpusetError> {
        self.enable(journal)?;
        let path = self.mount.join(name);
        journal
            .record(&Change::CpusetCreated {
                path: path.clone(),
                tasks,
            })
            .map_err(io_error(&path, "writing the journal"))?;
        fs::create_dir(&path).map_err(io_error(&path, "making it"))?;
        if self.version == Version::V1 {
            // A version 1 set without memory nodes takes no tasks.
            let nodes = fs::read_to_string(self.mount.join("cpuset.mems"))
                .map_err(io_error(&self.mount, "reading its memory nodes"))?;
            let mems = path.join("cpuset.mems");
            fs::write(&mems, nodes.trim()).map_err(io_error(&mems, "writing its memory nodes"))?;
        }
        let file = path.join("cpuset.cpus");
        fs::write(&file, cpus.to_string()).map_err(io_error(&file, "writing its CPUs"))?;
        Ok(Cpuset { path })
    }

    fn enable(&self, journal: &mut Journal) -> Result<(), CpusetError> {
        if self.version == Version::V1 {
            return Ok(());
        }
        let path = self.mount.join("cgroup.subtree_control");
        let enabled =
            fs::read_to_string(&path).map_err(io_error(&path, "reading the controllers"))?;
        if enabled.split_whitespace().any(|name| name == "cpuset") {
            return Ok(());
        }
        journal
            .record(&Change::ControllerEnabled { path: path.clone() })
            .map_err(io_error(&path, "writing the journal"))?;
        fs::write(&path, "+cpuset").map_err(io_error(&path, "enabling the controller"))
    }

    /// Keeps everything that is not in a CPU set of ours to `cpus`. Version 1: the tasks of the top set move to a
    /// set `name`; those in foreign sets stay where somebody put them. Version 2: every other group below the top
    /// is limited.
    ///
    /// # Errors
    /// [`CpusetError::Io`].
    pub fn confine_rest(
        &self,
        journal: &mut Journal,
        name: &str,
        cpus: &CpuList,
        ours: &[&Cpuset],
    ) -> Result<Confined, CpusetError> {
        match self.version {
            Version::V1 => {
                let rest = self.create(journal, name, cpus, TasksOnUndo::Return)?;
                move_tasks(&self.mount, &rest.path)
            }
            Version::V2 => self.limit_groups(journal, cpus, ours),
        }
    }

    fn limit_groups(
        &self,
        journal: &mut Journal,
        cpus: &CpuList,
        ours: &[&Cpuset],
    ) -> Result<Confined, CpusetError> {
        self.enable(journal)?;
        let mut confined = Confined::default();
        let entries = fs::read_dir(&self.mount).map_err(io_error(&self.mount, "listing it"))?;
        for entry in entries {
            let path = entry.map_err(io_error(&self.mount, "listing it"))?.path();
            let file = path.join("cpuset.cpus");
            if !file.exists() || ours.iter().any(|set| set.path == path) {
                continue;
            }
            crate::settings::write(journal, &file, &cpus.to_string())
                .map_err(io_error(&file, "writing its CPUs"))?;
            confined.moved += 1;
        }
        Ok(confined)
    }
}

impl Cpuset {
    /// The file that takes processes, by number.
    #[must_use]
    pub fn processes_file(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Tasks in it.
    ///
    /// # Errors
    /// [`CpusetError::Io`].
    pub fn processes(&self) -> Result<Vec<i32>, CpusetError> {
        processes(&self.path).map_err(io_error(&self.path, "listing its processes"))
    }
}

fn processes(path: &Path) -> io::Result<Vec<i32>> {
    Ok(fs::read_to_string(path.join("cgroup.procs"))?
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect())
}

/// Processes that fork while they are moved need another look.
const LOOKS_MAX: usize = 5;

/// Moves the processes of one set to another.
fn move_tasks(from: &Path, to: &Path) -> Result<Confined, CpusetError> {
    let file = to.join("cgroup.procs");
    let mut confined = Confined::default();
    for _ in 0..LOOKS_MAX {
        let (mut moved, mut bound) = (0, 0);
        for pid in processes(from).map_err(io_error(from, "listing its processes"))? {
            match fs::write(&file, pid.to_string()) {
                Ok(()) => moved += 1,
                // ESRCH: it ended meanwhile. EINVAL: a kernel thread bound to its CPU.
                Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32) => {}
                Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINVAL as i32) => {
                    bound += 1
                }
                Err(cause) => {
                    return Err(CpusetError::Io {
                        path: file,
                        what: "moving a process to it",
                        cause,
                    });
                }
            }
        }
        confined.moved += moved;
        confined.bound = bound;
        if moved == 0 {
            break;
        }
    }
    Ok(confined)
}

/// How long the tasks of a set may take to leave it.
const EMPTY_DEADLINE: Duration = Duration::from_secs(10);

/// Removes a CPU set: its tasks are ended, or go to the set above.
pub(crate) fn remove(path: &Path, tasks: TasksOnUndo) -> io::Result<()> {
    let parent = path.parent().map(Path::to_owned).unwrap_or_default();
    let began = Instant::now();
    loop {
        // A directory that is gone ends this with NotFound, which is what was wanted.
        let inside = processes(path)?;
        for pid in &inside {
            match tasks {
                TasksOnUndo::Kill if ProcessId::of(*pid).is_some() => {
                    // It may have ended since.
                    let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
                }
                TasksOnUndo::Kill => {}
                TasksOnUndo::Return => {
                    let _ = fs::write(parent.join("cgroup.procs"), pid.to_string());
                }
            }
        }
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() >= EMPTY_DEADLINE => {
                return Err(io::Error::new(
                    error.kind(),
                    format!("{} still has processes {inside:?}: {error}", path.display()),
                ));
            }
            Err(_) => sleep(Duration::from_millis(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::journal::{self, Undone};
    use crate::process::wait_until;

    fn allowed(pid: u32) -> String {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    }

    #[test]
    fn a_real_set_holds_its_process_and_goes_without_trace() {
        let sets = Cpusets::find(Path::new("/")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = Journal::open(&path).unwrap();
        let name = format!("quietwire-test-{}", std::process::id());
        let cpus: CpuList = "0".parse().unwrap();
        let kept = sets
            .create(
                &mut journal,
                &format!("{name}-kept"),
                &cpus,
                TasksOnUndo::Return,
            )
            .unwrap();
        let killed = sets
            .create(
                &mut journal,
                &format!("{name}-killed"),
                &cpus,
                TasksOnUndo::Kill,
            )
            .unwrap();
        let mut children: Vec<_> = (0..2)
            .map(|_| Command::new("sleep").arg("60").spawn().unwrap())
            .collect();
        let before = allowed(children[0].id());
        for (set, child) in [&kept, &killed].iter().zip(&children) {
            fs::write(set.processes_file(), child.id().to_string()).unwrap();
            assert_eq!(allowed(child.id()), "0");
            assert_eq!(
                set.processes().unwrap(),
                [i32::try_from(child.id()).unwrap()]
            );
        }
        for round in 0..2 {
            for (change, outcome) in journal::undo(&journal::read(&path).unwrap()) {
                let wanted = if round == 0 {
                    Undone::Restored
                } else {
                    Undone::AlreadyGone
                };
                assert_eq!(outcome, wanted, "{change:?}");
            }
        }
        assert!(!kept.path.exists() && !killed.path.exists());
        assert_eq!(allowed(children[0].id()), before);
        assert!(wait_until(Duration::from_secs(5), || children[1]
            .try_wait()
            .unwrap()
            .is_some()));
        children[0].kill().unwrap();
        children[0].wait().unwrap();
    }

    fn unified(controllers: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let mount = root.path().join("sys/fs/cgroup");
        for group in ["system.slice", "user.slice"] {
            fs::create_dir_all(mount.join(group)).unwrap();
            fs::write(mount.join(group).join("cpuset.cpus"), "\n").unwrap();
        }
        fs::write(mount.join("cgroup.controllers"), controllers).unwrap();
        fs::write(mount.join("cgroup.subtree_control"), "cpu memory\n").unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(
            root.path().join("proc/self/mounts"),
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        )
        .unwrap();
        root
    }

    #[test]
    fn version_two_limits_the_other_groups_and_gives_them_back() {
        let root = unified("cpu cpuset memory\n");
        let sets = Cpusets::find(root.path()).unwrap();
        assert_eq!(sets.version, Version::V2);
        let path = root.path().join("journal");
        let mut journal = Journal::open(&path).unwrap();
        let confined = sets
            .confine_rest(&mut journal, "rest", &"0,2".parse().unwrap(), &[])
            .unwrap();
        assert_eq!(confined, Confined { moved: 2, bound: 0 });
        let slice = sets.mount.join("system.slice/cpuset.cpus");
        assert_eq!(fs::read_to_string(&slice).unwrap(), "0,2");
        assert_eq!(
            fs::read_to_string(sets.mount.join("cgroup.subtree_control")).unwrap(),
            "+cpuset"
        );
        let _ = journal::undo(&journal::read(&path).unwrap());
        assert_eq!(fs::read_to_string(&slice).unwrap(), "\n");
        assert_eq!(
            fs::read_to_string(sets.mount.join("cgroup.subtree_control")).unwrap(),
            "-cpuset"
        );
    }

    #[test]
    fn a_machine_without_the_controller_is_told_so() {
        let root = unified("cpu memory\n");
        assert!(matches!(
            Cpusets::find(root.path()),
            Err(CpusetError::Unavailable)
        ));
    }
}
