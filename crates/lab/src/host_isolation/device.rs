// SPDX-License-Identifier: Apache-2.0
//! CPUs of a device that runs already: the CPUs of its pinned and busy threads.

use std::path::Path;
use std::time::Duration;

use quietwire_host::CpuList;
use quietwire_host::tasks;
use quietwire_monitor::{Activity, Snapshot};

use crate::error::LabError;

/// Time for which threads are observed.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Minimum share of the time that a busy thread runs. Other threads may use its CPU meanwhile.
const BUSY: f64 = 0.25;

/// Returns the CPUs of all threads of these processes that are pinned to one CPU, and that are busy or have the name of a forwarding
/// thread.
///
/// # Errors
/// [`LabError::Monitor`] if the processes cannot be observed.
pub(super) fn busy_cpus(pids: &[u32]) -> Result<CpuList, LabError> {
    if pids.is_empty() {
        return Ok(CpuList::new());
    }
    let root = Path::new("/");
    let before = Snapshot::take(root, pids)?;
    std::thread::sleep(POLL_INTERVAL);
    let activity = Activity::between(&before, &Snapshot::take(root, pids)?);
    let busy: Vec<i32> = activity
        .threads
        .iter()
        .filter(|thread| thread.cpu_time_s >= BUSY * POLL_INTERVAL.as_secs_f64())
        .map(|thread| thread.tid)
        .collect();
    let is_of_device = |task: &tasks::Task| {
        u32::try_from(task.pid).is_ok_and(|pid| pids.contains(&pid))
            && task.cpus.len() == 1
            && (task.forwards_for.is_some() || busy.contains(&task.tid))
    };
    Ok(tasks::all(root)
        .iter()
        .filter(|task| is_of_device(task))
        .fold(CpuList::new(), |cpus, task| cpus.union(&task.cpus)))
}

/// Returns the processes with a thread that is pinned to some of these CPUs, without kernel threads.
pub(super) fn processes_on(cpus: &CpuList) -> Vec<i32> {
    let mut pids: Vec<i32> = tasks::all(Path::new("/"))
        .iter()
        .filter(|task| !task.is_kernel && task.cpus.difference(cpus).is_empty())
        .map(|task| task.pid)
        .collect();
    pids.dedup();
    pids
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use quietwire_base::testing::KillOnDrop;
    use quietwire_base::wait_until;
    use quietwire_host::threads::online_cpus;

    use super::*;

    fn pinned(cpu: &str, script: &str) -> KillOnDrop {
        let mut command = Command::new("taskset");
        command.args(["-c", cpu, "sh", "-c", script]);
        KillOnDrop(command.stdin(Stdio::null()).spawn().unwrap())
    }

    #[test]
    fn a_pinned_busy_thread_reports_its_cpu_and_an_idle_one_does_not() {
        const DEADLINE: Duration = Duration::from_secs(60);
        let online = online_cpus(Path::new("/")).unwrap();
        let cpu = online.iter().next_back().unwrap().to_string();
        let wanted: CpuList = cpu.parse().unwrap();
        let busy = pinned(&cpu, "while :; do :; done");
        let idle = pinned(&cpu, "exec sleep 600");
        let pid = busy.0.id();
        // A busy machine may delay the thread.
        assert!(wait_until(DEADLINE, || busy_cpus(&[pid]).unwrap() == wanted));
        assert!(processes_on(&wanted).contains(&pid.try_into().unwrap()));
        assert_eq!(busy_cpus(&[idle.0.id()]).unwrap(), CpuList::new());
        assert_eq!(busy_cpus(&[]).unwrap(), CpuList::new());
    }
}
