// SPDX-License-Identifier: Apache-2.0
//! resctrl groups: a class of service each, with its CPUs, tasks and monitoring data.

use std::io;
use std::path::Path;

use quietwire_base::ProcessId;

use super::Resctrl;
use super::schemata::Schemata;
use crate::CpuList;
use crate::files::{Files, named, text};
use crate::journal::{Change, Journal, TaskPlace};
use crate::noted::Noted;

/// Directories of resctrl that are not groups.
const NO_GROUPS: [&str; 3] = ["info", "mon_groups", "mon_data"];

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name. Empty for the default group.
    pub name: String,
    /// Its allocation.
    pub schemata: Schemata,
    /// CPUs whose tasks are in the group, unless a task is assigned to another group.
    pub cpus: CpuList,
    /// Tasks that are assigned to the group.
    pub tasks: Vec<i32>,
}

/// Monitoring data of one group in one domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Monitor {
    /// The kernel's name of the domain (`mon_L3_00`).
    pub domain: String,
    /// Cache occupancy, octets.
    pub occupancy: Option<u64>,
    /// Memory traffic since the creation of the group, octets.
    pub memory_total: Option<u64>,
    /// Memory traffic to the local node, octets.
    pub memory_local: Option<u64>,
}

/// Reads a file of a group. In a recorded tree, a new group has no files.
fn read_or_empty(files: &dyn Files, path: &Path) -> io::Result<String> {
    match files.read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(named(path)),
    }
}

impl Resctrl {
    /// Returns all groups, the default group first.
    ///
    /// # Errors
    /// Error of the operating system, or invalid schemata.
    pub fn groups(&self, files: &dyn Files) -> io::Result<Vec<Group>> {
        let mut groups = vec![self.read_group(files, "")?];
        for name in files.list(&self.mount)? {
            let directory = self.mount.join(&name);
            let is_directory = files.is_directory(&directory).map_err(named(&directory))?;
            if is_directory && !NO_GROUPS.contains(&name.as_str()) {
                groups.push(self.read_group(files, &name)?);
            }
        }
        Ok(groups)
    }

    fn read_group(&self, files: &dyn Files, name: &str) -> io::Result<Group> {
        let directory = self.group(name);
        let read = |file: &str| read_or_empty(files, &directory.join(file));
        let invalid = |file: &str, why: String| {
            let path = directory.join(file);
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {why}", path.display()),
            )
        };
        Ok(Group {
            name: name.to_owned(),
            schemata: read("schemata")?
                .parse()
                .map_err(|error: super::SchemataError| invalid("schemata", error.to_string()))?,
            cpus: read("cpus_list")?
                .parse()
                .map_err(|error: crate::cpu::CpuListError| {
                    invalid("cpus_list", error.to_string())
                })?,
            tasks: read("tasks")?
                .lines()
                .filter_map(|line| line.trim().parse().ok())
                .collect(),
        })
    }

    /// Returns the monitoring data of a group by domain. Empty if the processor does not support monitoring.
    #[must_use]
    pub fn monitor(&self, files: &dyn Files, group: &str) -> Vec<Monitor> {
        let directory = self.group(group).join("mon_data");
        let domains = files.list(&directory).unwrap_or_default();
        let number = |path: &Path| text(files, path)?.parse().ok();
        domains
            .into_iter()
            .map(|domain| {
                let directory = directory.join(&domain);
                Monitor {
                    occupancy: number(&directory.join("llc_occupancy")),
                    memory_total: number(&directory.join("mbm_total_bytes")),
                    memory_local: number(&directory.join("mbm_local_bytes")),
                    domain,
                }
            })
            .collect()
    }

    /// Creates a group unless it exists. Returns whether it was created.
    ///
    /// # Errors
    /// Error of the operating system. ENOSPC if the processor has no more classes.
    pub fn create(&self, files: &dyn Files, journal: &mut Journal, name: &str) -> io::Result<bool> {
        let path = self.group(name);
        if files.is_directory(&path).map_err(named(&path))? {
            return Ok(false);
        }
        let change = Change::GroupCreated { path: path.clone() };
        let make = || files.make_directory(&path).map_err(named(&path));
        let made = journal.create(&change, make);
        made.map_err(|error| self.explained(files, error))?;
        Ok(true)
    }

    /// Journals and writes schemata. Undoing restores only the resources and domains that they name. Returns whether anything
    /// was written.
    ///
    /// # Errors
    /// Error of the operating system.
    pub fn set_schemata(
        &self,
        files: &dyn Files,
        journal: &mut Journal,
        group: &str,
        wanted: &Schemata,
    ) -> io::Result<bool> {
        let path = self.group(group).join("schemata");
        // Without all limits, another value would be journaled than the one that the kernel makes of it.
        let noted = Noted::new(files);
        let rounded = wanted.rounded(&self.info(&noted));
        if let Some((unreadable, error)) = noted.take().into_iter().next() {
            return Err(named(&unreadable)(error));
        }
        let now = read_or_empty(files, &path)?;
        let former: Schemata = now.parse().map_err(io::Error::other)?;
        let former = former.restricted_to(wanted);
        if former == rounded {
            return Ok(false);
        }
        journal.record(&Change::FileWritten {
            path: path.clone(),
            former: former.to_string(),
            new: rounded.to_string(),
        })?;
        let written = files.write(&path, &wanted.to_string());
        written.map_err(|error| self.explained(files, named(&path)(error)))?;
        Ok(true)
    }

    /// Sets the CPUs of a group. CPUs of other groups except the default group are removed from them first, so undoing restores
    /// them. Returns whether anything was written.
    ///
    /// # Errors
    /// Error of the operating system.
    pub fn set_cpus(
        &self,
        files: &dyn Files,
        journal: &mut Journal,
        group: &str,
        cpus: &CpuList,
    ) -> io::Result<bool> {
        for other in self.groups(files)? {
            let left = other.cpus.difference(cpus);
            if other.name != group && !other.name.is_empty() && left != other.cpus {
                let path = self.group(&other.name).join("cpus_list");
                let former = other.cpus.to_string();
                self.write(files, journal, &path, former, left.to_string())?;
            }
        }
        let path = self.group(group).join("cpus_list");
        let former = read_or_empty(files, &path)?;
        if former.parse().as_ref() == Ok(cpus) {
            return Ok(false);
        }
        self.write(files, journal, &path, former, cpus.to_string())?;
        Ok(true)
    }

    /// Assigns tasks to a group, which applies to them on every CPU. Returns the number of moved tasks, without those that have
    /// ended.
    ///
    /// # Errors
    /// Error of the operating system.
    pub fn move_tasks(
        &self,
        files: &dyn Files,
        journal: &mut Journal,
        group: &str,
        tasks: &[ProcessId],
    ) -> io::Result<usize> {
        let to = self.group(group).join("tasks");
        let groups = self.groups(files)?;
        let of = |pid: i32| groups.iter().find(|group| group.tasks.contains(&pid));
        let moving: Vec<TaskPlace> = tasks
            .iter()
            .filter_map(|task| {
                let now = of(task.pid)?;
                (now.name != group).then(|| TaskPlace {
                    task: *task,
                    former: self.group(&now.name).join("tasks"),
                })
            })
            .collect();
        if moving.is_empty() {
            return Ok(0);
        }
        journal.record(&Change::TasksMoved {
            tasks: moving.clone(),
            to: to.clone(),
        })?;
        let mut moved: usize = 0;
        for TaskPlace { task, .. } in moving {
            match files.write(&to, &format!("{}\n", task.pid)) {
                Ok(()) => moved = moved.saturating_add(1),
                Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32) => {}
                Err(error) => return Err(self.explained(files, named(&to)(error))),
            }
        }
        Ok(moved)
    }

    fn write(
        &self,
        files: &dyn Files,
        journal: &mut Journal,
        path: &Path,
        mut former: String,
        mut new: String,
    ) -> io::Result<()> {
        // The kernel accepts complete lines only.
        for text in [&mut former, &mut new] {
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        journal.record(&Change::FileWritten {
            path: path.to_owned(),
            former,
            new: new.clone(),
        })?;
        let written = files.write(path, &new).map_err(named(path));
        written.map_err(|error| self.explained(files, error))
    }

    /// Adds the kernel's reason to an error.
    fn explained(&self, files: &dyn Files, error: io::Error) -> io::Error {
        match self.last_refusal(files) {
            Some(why) => {
                io::Error::new(error.kind(), format!("{error}: the kernel reports '{why}'"))
            }
            None => error,
        }
    }
}
