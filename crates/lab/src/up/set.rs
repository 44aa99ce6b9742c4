// SPDX-License-Identifier: Apache-2.0
//! CPU set of a lab whose CPUs a partition isolates.

use std::fs;
use std::path::Path;
use std::thread;

use quietwire_host::CpuList;
use quietwire_host::cpuset::{Cpuset, Cpusets};
use quietwire_host::journal::TasksOnUndo;
use quietwire_host::threads::{allowed_cpus, online_cpus, set_affinity};

use super::options::UpOptions;
use super::registry::Claim;
use crate::error::{LabError, io_error};
use crate::isolation::Applied;
use crate::topology::Role;

/// Returns the requested set. Without one, creates a set for the lab if this process's set lacks some of its CPUs and a plan
/// assigned these; otherwise returns `None`.
///
/// # Errors
/// [`LabError::Cpus`] for CPUs that are isolated from this process, [`LabError::OtherPartition`] if they are isolated only for the
/// duration of a measurement.
pub(super) fn of_lab(options: &UpOptions, claim: &mut Claim) -> Result<Option<Cpuset>, LabError> {
    if options.set.is_some() {
        return Ok(options.set.clone());
    }
    let wanted = wanted(options);
    let missing = wanted.difference(&reachable()?);
    if missing.is_empty() {
        return Ok(None);
    }
    Applied::check_no_other()?;
    if !options.by_plan {
        return Err(LabError::Cpus(format!(
            "CPU {missing} is not in the CPU set of this process, probably because a partition isolates it (see `quietwire partition status`); take CPUs by its plan with --plan FILE, or other ones with --cpus"
        )));
    }
    let name = format!("{}-lab", claim.tag());
    let sets = Cpusets::find(Path::new("/"))?;
    let set = sets.create(claim.journal(), &name, &wanted, TasksOnUndo::Kill)?;
    keep_isolated(&set)?;
    let has = effective(&set)?;
    let missing = wanted.difference(&has);
    if missing.is_empty() {
        return Ok(Some(set));
    }
    Err(LabError::Cpus(format!(
        "a CPU set beside those of the partition cannot have CPU {missing} (cpuset v2, cpuset.cpus.partition); choose others with --cpus"
    )))
}

/// Returns the CPUs of all processes that the lab starts.
fn wanted(options: &UpOptions) -> CpuList {
    let elements = options.graph.elements.iter().zip(&options.cpus.elements);
    let started = elements.filter(|(element, _)| element.role != Role::Tester);
    started.fold(options.cpus.rest.clone(), |all, (_, cpus)| all.union(cpus))
}

/// Returns the CPUs that this process's CPU set allows, regardless of its affinity: the kernel keeps those CPUs of an affinity
/// list that the set has (cpuset(7)). A separate thread queries it, so that no other thread moves.
fn reachable() -> Result<CpuList, LabError> {
    let root = Path::new("/");
    let io = |cause| io_error(Path::new("/proc/self/status"), "looking for its CPUs")(cause);
    let online = online_cpus(root).map_err(|error| io(std::io::Error::other(error)))?;
    let asked = thread::spawn(move || {
        let own = nix::unistd::gettid().as_raw();
        set_affinity(own, &online).map(|()| allowed_cpus(Path::new("/"), own))
    });
    let allowed = asked.join().map_err(|_| {
        io(std::io::Error::other(
            "the thread that queries them has exited",
        ))
    })?;
    Ok(allowed.map_err(io)?.unwrap_or_default())
}

/// Turns off load balancing of a set. Overlapping sets with load balancing would merge isolated and other CPUs into one
/// scheduling domain (cpusets.rst of the kernel, version 1).
fn keep_isolated(set: &Cpuset) -> Result<(), LabError> {
    let path = set.path.join("cpuset.sched_load_balance");
    if !path.exists() {
        return Ok(());
    }
    fs::write(&path, "0").map_err(io_error(&path, "turning load balancing off"))
}

/// Returns the CPUs that the kernel grants a set.
fn effective(set: &Cpuset) -> Result<CpuList, LabError> {
    let files = ["cpuset.effective_cpus", "cpuset.cpus.effective"];
    let mut files = files.map(|name| set.path.join(name)).into_iter();
    let path = files
        .find(|path| path.exists())
        .unwrap_or_else(|| set.path.join("cpuset.cpus"));
    let invalid = |cause| std::io::Error::new(std::io::ErrorKind::InvalidData, cause);
    fs::read_to_string(&path)
        .and_then(|text| text.trim().parse().map_err(invalid))
        .map_err(io_error(&path, "reading its CPUs"))
}
