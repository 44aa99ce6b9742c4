// SPDX-License-Identifier: Apache-2.0
//! The CPU set of a lab whose CPUs a partition keeps others off.

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

/// The set that was asked for; otherwise one of the lab's own where that of this process does not have all of its CPUs and a plan
/// gave it those; otherwise none.
///
/// # Errors
/// [`LabError::Cpus`] for CPUs that are isolated from it, [`LabError::OtherPartition`] where they are so only for as long as
/// something is measured.
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
            "CPU {missing} is kept from this process by its CPU set, as a partition does, which `quietwire partition status` shows; take CPUs by its plan with --plan FILE, or other ones with --cpus"
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

/// CPUs of what the lab starts.
fn wanted(options: &UpOptions) -> CpuList {
    let elements = options.graph.elements.iter().zip(&options.cpus.elements);
    let started = elements.filter(|(element, _)| element.role != Role::Tester);
    started.fold(options.cpus.rest.clone(), |all, (_, cpus)| all.union(cpus))
}

/// CPUs that the CPU set of this process lets it use, whatever it was pinned to: the kernel leaves those of a list that the set has
/// (cpuset(7)). Asked for by a thread of its own, so that no other moves.
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
            "the thread that was to ask for them ended",
        ))
    })?;
    Ok(allowed.map_err(io)?.unwrap_or_default())
}

/// Overlapping sets with load balancing would make one domain of the scheduler's of isolated CPUs and others (cpusets.rst of the
/// kernel, version 1).
fn keep_isolated(set: &Cpuset) -> Result<(), LabError> {
    let path = set.path.join("cpuset.sched_load_balance");
    if !path.exists() {
        return Ok(());
    }
    fs::write(&path, "0").map_err(io_error(&path, "turning load balancing off"))
}

/// CPUs that the kernel gives to a set.
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
