// SPDX-License-Identifier: Apache-2.0
//! CPU affinity of threads that may run on isolated CPUs, which are for forwarding threads and guests only.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::ProcessId;

use super::outcome::Difference;
use super::target::Target;
use crate::CpuList;
use crate::journal::{Change, Journal, TaskChange};
use crate::partition::{Plan, Role};
use crate::tasks::is_bound;
use crate::tasks::{self, Task, is_data_plane_thread};

/// Moves threads to other CPUs, if the CPU sets, which are created before, do not keep them off the isolated CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStep {
    plan: Plan,
}

/// Returns the step that moves non-forwarding threads of data planes to the service CPUs, and all other threads off the
/// isolated CPUs. Threads that are bound to one CPU stay, because another program or the kernel bound them.
pub(super) fn step(target: &Target<'_>, plan: &Plan) -> Option<ThreadStep> {
    let is_wanted = target.is_live() && !plan.housekeeping.is_empty();
    is_wanted.then(|| ThreadStep { plan: plan.clone() })
}

fn changes_now(plan: &Plan) -> Vec<TaskChange> {
    let tasks = tasks::all(Path::new("/"));
    changes(plan, &tasks, |task| {
        (!is_bound(task.tid))
            .then(|| ProcessId::of(task.tid))
            .flatten()
    })
}

fn changes(
    plan: &Plan,
    tasks: &[Task],
    movable: impl Fn(&Task) -> Option<ProcessId>,
) -> Vec<TaskChange> {
    let isolated = plan.isolated();
    let service = plan.cpus(Role::Service).union(&plan.cpus(Role::Control));
    let planes: Vec<i32> = tasks
        .iter()
        .filter(|task| task.forwards_for.is_some())
        .map(|task| task.pid)
        .collect();
    let change = |task: &Task| {
        let is_alone = task.cpus.len() == 1;
        let may_not = task.cpus.intersection(&isolated);
        if task.forwards_for.is_some() || may_not.is_empty() || (is_alone && task.is_kernel) {
            return None;
        }
        let is_of_plane = planes.contains(&task.pid) || is_data_plane_thread(&task.name);
        // Virtual CPUs of guests are pinned to the guests' CPUs.
        if is_alone && !is_of_plane {
            return None;
        }
        let rest = task.cpus.difference(&isolated);
        let new: CpuList = if is_of_plane && !service.is_empty() {
            service.clone()
        } else if rest.is_empty() {
            plan.housekeeping.clone()
        } else {
            rest
        };
        Some(TaskChange {
            task: movable(task)?,
            former: task.cpus.clone(),
            new,
        })
    };
    tasks.iter().filter_map(change).collect()
}

impl ThreadStep {
    pub(super) fn difference(&self) -> Option<Difference> {
        let changes = changes_now(&self.plan);
        let first = changes.first()?;
        Some(Difference {
            place: PathBuf::from("threads"),
            now: format!(
                "{} threads may run on isolated CPUs, for example thread {} on CPUs {}",
                changes.len(),
                first.task.pid,
                first.former
            ),
            wanted: "only forwarding threads and guests".to_owned(),
        })
    }

    pub(super) fn make(&self, journal: &mut Journal) -> io::Result<()> {
        let make = |changes: Vec<TaskChange>| {
            journal.record(&Change::AffinitiesSet {
                tasks: changes.clone(),
            })?;
            changes.iter().try_for_each(move_thread)
        };
        in_passes(
            || changes_now(&self.plan),
            make,
            || std::thread::sleep(PAUSE),
        )
    }
}

/// Maximum number of passes over the threads of the machine.
const PASSES_MAX: u32 = 4;
/// Time between two passes.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes the listed changes, then those of threads that have started since, until there are none, in at most [`PASSES_MAX`] passes. A
/// kernel thread that the kernel starts for a new control group, such as `psimon`, may run on all CPUs at first.
fn in_passes(
    mut list: impl FnMut() -> Vec<TaskChange>,
    mut make: impl FnMut(Vec<TaskChange>) -> io::Result<()>,
    mut pause: impl FnMut(),
) -> io::Result<()> {
    for pass in 0..PASSES_MAX {
        if pass > 0 {
            pause();
        }
        let changes = list();
        if changes.is_empty() {
            break;
        }
        make(changes)?;
    }
    Ok(())
}

fn move_thread(change: &TaskChange) -> io::Result<()> {
    let TaskChange { task, new, .. } = change;
    match crate::threads::set_affinity(task.pid, new) {
        // The kernel binds a worker that it has just started: only the kernel chooses its CPUs from then on.
        Err(_) if is_bound(task.pid) => Ok(()),
        Err(error) if task.is_alive() => {
            // A CPU set may keep them off the isolated CPUs by now, which is sufficient.
            let now = crate::threads::allowed_cpus(Path::new("/"), task.pid);
            match now.is_some_and(|now| !now.difference(new).is_empty()) {
                true => Err(io::Error::new(
                    error.kind(),
                    format!("cannot move thread {} to CPUs {new}: {error}", task.pid),
                )),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::Group;
    use crate::partition::parts;
    use crate::tasks::DataPlane;

    fn task(tid: i32, pid: i32, name: &str, cpus: &str) -> Task {
        Task {
            pid,
            tid,
            name: name.to_owned(),
            cpus: cpus.parse().unwrap(),
            is_kernel: false,
            voluntary_switches: 0,
            involuntary_switches: 0,
            forwards_for: tasks::forwards_for(name, ""),
        }
    }

    fn group(role: Role, cpus: &str) -> Group {
        parts::group(role, role.name(), cpus)
    }

    fn change(tid: i32) -> TaskChange {
        TaskChange {
            task: ProcessId {
                pid: tid,
                start_time: 1,
                boot: None,
            },
            former: "0-3".parse().unwrap(),
            new: "0-1".parse().unwrap(),
        }
    }

    #[test]
    fn threads_that_start_meanwhile_are_moved_in_a_bounded_number_of_passes() {
        let passes = |lists: &[&[i32]]| {
            let (mut lists, mut pauses, mut moved) = (lists.iter(), 0, Vec::new());
            let made = in_passes(
                || {
                    // A further thread starts before each further pass.
                    let tids = lists.next().copied().unwrap_or(&[99]);
                    tids.iter().copied().map(change).collect()
                },
                |changes| {
                    moved.push(changes.iter().map(|one| one.task.pid).collect::<Vec<i32>>());
                    Ok(())
                },
                || pauses += 1,
            );
            made.unwrap();
            (moved, pauses)
        };
        assert_eq!(passes(&[&[]]), (vec![], 0));
        assert_eq!(passes(&[&[1, 2], &[]]), (vec![vec![1, 2]], 1));
        let (moved, pauses) = passes(&[&[1, 2], &[3], &[]]);
        assert_eq!((moved, pauses), (vec![vec![1, 2], vec![3]], 2));
        // Threads start faster than they are moved.
        let (moved, _) = passes(&[&[1]]);
        assert_eq!(moved, [vec![1], vec![99], vec![99], vec![99]]);
        let failed = in_passes(
            || vec![change(1)],
            |_| Err(io::ErrorKind::PermissionDenied.into()),
            || {},
        );
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn threads_that_do_not_forward_leave_the_isolated_cpus() {
        let plan = Plan {
            groups: vec![
                group(Role::Host, "0"),
                group(Role::Service, "1"),
                group(Role::Forwarding, "2-3"),
            ],
            housekeeping: "0-1".parse().unwrap(),
            ..Plan::default()
        };
        let tasks = [
            task(10, 10, "dpdk-testpmd", "0-3"),
            task(11, 10, "dpdk-worker2", "2"),
            task(12, 10, "dpdk-intr", "2"),
            task(20, 20, "bash", "0-3"),
            task(21, 21, "cron", "2-3"),
            task(22, 22, "sshd", "0"),
            task(23, 23, "CPU 0/KVM", "3"),
        ];
        assert_eq!(tasks[1].forwards_for, Some(DataPlane::Dpdk));
        let id = |task: &Task| {
            Some(ProcessId {
                pid: task.tid,
                start_time: 1,
                boot: None,
            })
        };
        let observed: Vec<(i32, String)> = changes(&plan, &tasks, id)
            .into_iter()
            .map(|change| (change.task.pid, change.new.to_string()))
            .collect();
        let wanted = [(10, "1"), (12, "1"), (20, "0-1"), (21, "0-1")];
        let wanted = wanted.map(|(tid, cpus)| (tid, cpus.to_owned()));
        assert_eq!(observed, wanted);
    }
}
