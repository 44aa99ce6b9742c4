// SPDX-License-Identifier: Apache-2.0
//! Running processes that move to a CPU set temporarily.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::ProcessId;

use super::{Cpuset, CpusetError, Cpusets, GUESTS, Version, io_error};
use crate::journal::{Change, Journal, TaskAffinity, TaskPlace};
use crate::threads::{allowed_cpus, set_affinity, threads_of};

const PROCESSES: &str = "cgroup.procs";

/// Processes with their CPU sets, and their threads with their CPU affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residents {
    processes: Vec<TaskPlace>,
    threads: Vec<TaskAffinity>,
}

impl Cpusets {
    /// Returns the directory of a process's CPU set. `None` if the process has ended.
    #[must_use]
    pub fn set_of(&self, root: &Path, pid: i32) -> Option<PathBuf> {
        let text = fs::read_to_string(root.join(format!("proc/{pid}/cgroup"))).ok()?;
        // Lines are ID:CONTROLLERS:PATH (cgroups(7)).
        let path = text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_it = match self.version {
                Version::V1 => controllers.split(',').any(|name| name == "cpuset"),
                Version::V2 => controllers.is_empty(),
            };
            is_it.then_some(path)
        })?;
        Some(self.mount.join(path.trim_start_matches('/')))
    }

    /// Journals the CPU sets of processes, and the CPUs of their threads, before a partition moves or restricts them. Leaves out
    /// processes in separate CPU sets, which a partition does not change.
    ///
    /// # Errors
    /// [`CpusetError::Io`] if the journal cannot be written.
    pub fn note_residents(
        &self,
        journal: &mut Journal,
        pids: &[i32],
    ) -> Result<Residents, CpusetError> {
        let root = Path::new("/");
        let mut residents = Residents::default();
        for pid in pids {
            let (Some(task), Some(set)) = (ProcessId::of(*pid), self.set_of(root, *pid)) else {
                continue;
            };
            if !self.is_confinable(&set) {
                continue;
            }
            let former = set.join(PROCESSES);
            residents.processes.push(TaskPlace { task, former });
            let threads = u32::try_from(*pid)
                .ok()
                .and_then(|pid| threads_of(root, pid).ok())
                .unwrap_or_default();
            residents
                .threads
                .extend(threads.into_iter().filter_map(|thread| {
                    Some(TaskAffinity {
                        task: ProcessId::of(thread.tid)?,
                        cpus: thread.cpus,
                    })
                }));
        }
        if !residents.threads.is_empty() {
            let tasks = residents.threads.clone();
            journal
                .record(&Change::AffinitiesNoted { tasks })
                .map_err(io_error(journal.path(), "writing the journal"))?;
        }
        Ok(residents)
    }

    /// Returns whether a partition moves or restricts the processes of a set.
    fn is_confinable(&self, set: &Path) -> bool {
        match self.version {
            Version::V1 => set == self.mount,
            Version::V2 => !set.starts_with(self.mount.join(GUESTS)),
        }
    }
}

impl Cpuset {
    /// Moves processes to this set until the journal is undone. Restores the CPU of threads that had only one.
    ///
    /// # Errors
    /// [`CpusetError::Io`] if a process or a thread cannot be moved.
    pub fn receive(&self, journal: &mut Journal, residents: &Residents) -> Result<(), CpusetError> {
        if residents.processes.is_empty() {
            return Ok(());
        }
        let file = self.processes_file();
        journal
            .record(&Change::TasksMoved {
                tasks: residents.processes.clone(),
                to: file.clone(),
            })
            .map_err(io_error(journal.path(), "writing the journal"))?;
        for place in &residents.processes {
            match fs::write(&file, place.task.pid.to_string()) {
                Err(error) if place.task.is_alive() => {
                    return Err(io_error(&file, "moving a process to the set")(error));
                }
                _ => {}
            }
        }
        for TaskAffinity { task, cpus } in &residents.threads {
            let now = allowed_cpus(Path::new("/"), task.pid);
            if cpus.len() != 1 || now.as_ref() == Some(cpus) {
                continue;
            }
            match set_affinity(task.pid, cpus) {
                Err(error) if task.is_alive() => {
                    let cause = io::Error::new(
                        error.kind(),
                        format!("cannot move thread {} to CPU {cpus}: {error}", task.pid),
                    );
                    return Err(io_error(&self.path, "restoring a thread's CPU")(cause));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(version: Version) -> Cpusets {
        Cpusets {
            mount: PathBuf::from("/sys/fs/cgroup"),
            version,
        }
    }

    #[test]
    fn the_set_of_a_process_is_that_of_its_hierarchy() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let file = root.path().join("proc/7/cgroup");
        fs::write(&file, "9:cpu,cpuacct:/a\n5:cpuset:/mine\n0::/user.slice\n").unwrap();
        let of = |version, pid| sets(version).set_of(root.path(), pid);
        assert_eq!(of(Version::V1, 7), Some("/sys/fs/cgroup/mine".into()));
        assert_eq!(of(Version::V2, 7), Some("/sys/fs/cgroup/user.slice".into()));
        fs::write(&file, "5:cpuset:/\n").unwrap();
        let top = of(Version::V1, 7).unwrap();
        assert_eq!(top, Path::new("/sys/fs/cgroup"));
        assert_eq!(of(Version::V2, 7), None);
        assert_eq!(of(Version::V1, 8), None);
    }

    #[test]
    fn only_processes_that_a_partition_displaces_are_moved() {
        let is_confinable = |version, path: &str| sets(version).is_confinable(Path::new(path));
        assert!(is_confinable(Version::V1, "/sys/fs/cgroup"));
        assert!(!is_confinable(Version::V1, "/sys/fs/cgroup/docker/1"));
        assert!(is_confinable(Version::V2, "/sys/fs/cgroup"));
        assert!(is_confinable(Version::V2, "/sys/fs/cgroup/system.slice/a"));
        assert!(!is_confinable(
            Version::V2,
            "/sys/fs/cgroup/machine.slice/a"
        ));
    }
}
