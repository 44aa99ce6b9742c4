// SPDX-License-Identifier: Apache-2.0
//! CPU sets of a partition. Version 1: one set for all processes that were in no set, one for the data plane, one for each
//! guest and neighbour, and no load balancing across isolated CPUs. Version 2: one group for the data plane, which is a separate
//! partition if the plan has separate service CPUs, and none of its CPUs for other groups.

use std::io;
use std::path::PathBuf;

use super::outcome::{Difference, Outcome, failed};
use super::setting::{Kind, Setting};
use super::target::Target;
use crate::CpuList;
use crate::cpuset::{self, Cpusets, GUESTS, Version};
use crate::files::{named, text};
use crate::journal::same::same;
use crate::journal::{Change, Journal, TasksOnUndo};
use crate::partition::{Plan, Role};
use crate::settings;

/// Prefix of the names of quietwire's CPU sets.
pub(crate) const PREFIX: &str = "quietwire-";

/// File with the controllers that are enabled for the children of a group (version 2).
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// File with the state of a group as a partition (version 2).
const PARTITION: &str = "cpuset.cpus.partition";

/// A CPU set to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetStep {
    path: PathBuf,
    top: Cpusets,
    /// Files and their planned text, in order.
    files: Vec<(&'static str, String)>,
    /// Whether all processes that are in no set move to this set.
    takes_rest: bool,
    is_live: bool,
}

/// Returns the CPU sets of the plan, and a setting that follows them.
pub(super) fn steps(target: &Target<'_>, plan: &Plan) -> (Vec<SetStep>, Option<Setting>) {
    let Ok(top) = Cpusets::find_in(target.files, &target.root) else {
        return (Vec::new(), None);
    };
    if plan.housekeeping.is_empty() || plan.isolated().is_empty() {
        return (Vec::new(), None);
    }
    match top.version {
        Version::V1 => first_version(target, plan, &top),
        Version::V2 => (second_version(target, plan, &top), None),
    }
}

/// Returns the CPUs for unbound work queues. With version 2, they have no CPU of the data plane's partition: the kernel removes the CPUs of
/// isolated partitions from the mask of work queues (Linux 6.7, workqueue_unbound_exclude_cpumask in kernel/workqueue.c), and shows it
/// without them.
pub(super) fn unbound_cpus(target: &Target<'_>, plan: &Plan) -> CpuList {
    let top = Cpusets::find_in(target.files, &target.root);
    let is_second = top.is_ok_and(|top| top.version == Version::V2);
    let host = host_cpus(plan);
    if is_second && !plan.isolated().is_empty() && !host.is_empty() {
        host
    } else {
        plan.housekeeping.clone()
    }
}

/// Returns the CPUs of service and control threads.
fn own_cpus(plan: &Plan) -> CpuList {
    plan.cpus(Role::Service).union(&plan.cpus(Role::Control))
}

/// Returns the CPUs of the host's groups (version 2). The kernel refuses a partition whose CPUs are in the list of another group.
fn host_cpus(plan: &Plan) -> CpuList {
    if own_cpus(plan).is_empty() {
        plan.housekeeping.clone()
    } else {
        plan.housekeeping.difference(&data_plane(plan))
    }
}

fn data_plane(plan: &Plan) -> CpuList {
    [Role::Forwarding, Role::Idle, Role::Control, Role::Service]
        .into_iter()
        .fold(CpuList::new(), |cpus, role| cpus.union(&plan.cpus(role)))
}

fn first_version(
    target: &Target<'_>,
    plan: &Plan,
    top: &Cpusets,
) -> (Vec<SetStep>, Option<Setting>) {
    let nodes = text(target.files, &top.mount.join("cpuset.mems")).unwrap_or_default();
    let set = |name: &str, cpus: CpuList, is_balanced: bool, takes_rest: bool| {
        let balance = if is_balanced { "1" } else { "0" };
        SetStep {
            path: top.mount.join(format!("{PREFIX}{name}")),
            top: top.clone(),
            // A set without memory nodes accepts no tasks.
            files: vec![
                ("cpuset.mems", nodes.clone()),
                ("cpuset.cpus", cpus.to_string()),
                ("cpuset.sched_load_balance", balance.to_owned()),
            ],
            takes_rest,
            is_live: target.is_live(),
        }
    };
    // Control and service share the host's CPUs if they have no separate ones.
    let shared = if plan.cpus(Role::Service).is_empty() {
        plan.housekeeping.clone()
    } else {
        CpuList::new()
    };
    let mut steps = Vec::new();
    let data_plane = data_plane(plan).union(&shared);
    if !data_plane.is_empty() {
        steps.push(set("data-plane", data_plane, false, false));
    }
    for group in &plan.groups {
        let is_isolated = group.role.is_isolated();
        if matches!(group.role, Role::Guest | Role::Neighbour) {
            steps.push(set(&group.name, group.cpus.clone(), !is_isolated, false));
        }
    }
    let host = plan.cpus(Role::Host);
    let host = if host.is_empty() {
        plan.housekeeping.clone()
    } else {
        host
    };
    steps.push(set("host", host, true, true));
    // Last: disable balancing across all CPUs when the sets that balance their own CPUs exist.
    let last = Setting {
        path: top.mount.join("cpuset.sched_load_balance"),
        value: "0".to_owned(),
        kind: Kind::Plain,
    };
    (steps, Some(last))
}

fn second_version(target: &Target<'_>, plan: &Plan, top: &Cpusets) -> Vec<SetStep> {
    let own = own_cpus(plan);
    let set = |path: PathBuf, files: Vec<(&'static str, String)>| SetStep {
        path,
        top: top.clone(),
        files,
        takes_rest: false,
        is_live: target.is_live(),
    };
    let (data_plane, kept) = if own.is_empty() {
        let shared = data_plane(plan).union(&plan.housekeeping);
        (shared, plan.isolated())
    } else {
        let separate = data_plane(plan);
        let kept = plan.isolated().union(&separate);
        (separate, kept)
    };
    let kept = kept.union(&plan.cpus(Role::Neighbour));
    let host = host_cpus(plan);
    let mut steps = Vec::new();
    for other in groups(target, top) {
        let now: CpuList = text(target.files, &other.join("cpuset.cpus"))
            .and_then(|cpus| cpus.parse().ok())
            .unwrap_or_default();
        // An empty list means all CPUs of the parent group.
        let wanted = if now.is_empty() {
            host.clone()
        } else {
            now.difference(&kept)
        };
        if !wanted.is_empty() {
            steps.push(set(other, vec![("cpuset.cpus", wanted.to_string())]));
        }
    }
    let path = top.mount.join(format!("{PREFIX}data-plane"));
    let state = if own.is_empty() { "member" } else { "isolated" };
    let files = vec![
        ("cpuset.cpus", data_plane.to_string()),
        (PARTITION, state.to_owned()),
    ];
    steps.push(set(path, files));
    steps
}

/// Returns the groups below the root, except those of guests and of quietwire. They have no file `cpuset.cpus` if the controller is not
/// enabled for them yet.
fn groups(target: &Target<'_>, top: &Cpusets) -> Vec<PathBuf> {
    let names = target.files.list(&top.mount).unwrap_or_default();
    names
        .into_iter()
        .filter(|name| name != GUESTS && !name.starts_with(PREFIX))
        .map(|name| top.mount.join(name))
        .filter(|path| target.files.is_directory(path).unwrap_or_default())
        .collect()
}

impl SetStep {
    pub(super) fn places(&self, _target: &Target<'_>) -> Vec<PathBuf> {
        if self.is_ours() {
            vec![self.path.clone()]
        } else {
            let files = self.files.iter().map(|(file, _)| self.path.join(file));
            files.collect()
        }
    }

    fn is_ours(&self) -> bool {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX))
    }

    /// Returns false if another program could disable the controller below the root (version 2). systemd does so when its units change and
    /// none of them requires the controller. The kernel refuses this while a group below the root has enabled it for its children.
    fn keeps_controller(&self, target: &Target<'_>) -> bool {
        if self.top.version == Version::V1 || !self.is_ours() {
            return true;
        }
        let enabled = text(target.files, &self.path.join(SUBTREE_CONTROL)).unwrap_or_default();
        cpuset::is_enabled(&enabled)
    }

    pub(super) fn difference(&self, target: &Target<'_>) -> Option<Difference> {
        let mut now = Vec::new();
        let mut wanted = Vec::new();
        let is_missing = match target.files.is_directory(&self.path) {
            Ok(is_there) => !is_there,
            Err(error) => {
                now.push(error.to_string());
                true
            }
        };
        if is_missing && now.is_empty() {
            now.push("missing".to_owned());
        }
        for (file, value) in &self.files {
            let path = self.path.join(file);
            let held = text(target.files, &path).unwrap_or_default();
            if !same(&path, &held, value) {
                if !is_missing {
                    now.push(format!("{file} '{held}'"));
                }
                wanted.push(format!("{file} '{value}'"));
            }
        }
        if !is_missing && !self.keeps_controller(target) {
            now.push(format!("{SUBTREE_CONTROL} without cpuset"));
            wanted.push(format!("{SUBTREE_CONTROL} with cpuset"));
        }
        let left = self.left_behind();
        if left > 0 {
            now.push(format!("{left} processes in no CPU set"));
            wanted.push("no processes outside of CPU sets".to_owned());
        }
        (!wanted.is_empty()).then(|| Difference {
            place: self.path.clone(),
            now: now.join(", "),
            wanted: wanted.join(", "),
        })
    }

    /// Returns the number of processes that have not moved to this set yet, without kernel threads that cannot be moved.
    fn left_behind(&self) -> usize {
        if !self.takes_rest || !self.is_live {
            return 0;
        }
        let inside = cpuset::processes(&self.top.mount).unwrap_or_default();
        let movable = |pid: &&i32| !crate::tasks::is_bound(**pid) && **pid != KTHREADD;
        inside.iter().filter(movable).count()
    }

    pub(super) fn make(&self, target: &Target<'_>, journal: &mut Journal) -> Outcome {
        match self.write(target, journal) {
            Ok(()) => self.check_current(target),
            Err(error) => failed(&error),
        }
    }

    fn write(&self, target: &Target<'_>, journal: &mut Journal) -> io::Result<()> {
        let enabled = self.top.enable(target.files, journal);
        enabled.map_err(io::Error::other)?;
        if self.takes_rest && self.is_live {
            self.top
                .note_affinities(journal)
                .map_err(io::Error::other)?;
        }
        let is_directory = target.files.is_directory(&self.path);
        let is_new = !is_directory.map_err(named(&self.path))?;
        if is_new {
            let change = Change::CpusetCreated {
                path: self.path.clone(),
                tasks: TasksOnUndo::Return,
            };
            journal.create(&change, || {
                let made = target.files.make_directory(&self.path);
                made.map_err(named(&self.path))
            })?;
        }
        for (file, value) in &self.files {
            let path = self.path.join(file);
            if is_new {
                // Removing the directory removes the file.
                let written = target.files.write(&path, value);
                written.map_err(named(&path))?;
            } else {
                settings::write_in(target.files, journal, &path, value)?;
            }
        }
        if !self.keeps_controller(target) {
            // Removing the directory undoes this.
            let path = self.path.join(SUBTREE_CONTROL);
            let written = target.files.write(&path, "+cpuset");
            written.map_err(named(&path))?;
        }
        if self.takes_rest && self.is_live {
            let moved = cpuset::move_tasks(&self.top.mount, &self.path);
            moved.map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Reads a partition's state: the kernel accepts a partition that it cannot create, and reports the error on reading.
    fn check_current(&self, target: &Target<'_>) -> Outcome {
        let now = text(target.files, &self.path.join(PARTITION)).unwrap_or_default();
        let is_other = |(file, state): &(&str, String)| *file == PARTITION && *state != now;
        if self.files.iter().any(is_other) {
            return Outcome::Failed {
                reason: format!("{PARTITION} contains '{now}'"),
            };
        }
        Outcome::Done
    }
}

/// PID of kthreadd, the parent of all kernel threads.
const KTHREADD: i32 = 2;
