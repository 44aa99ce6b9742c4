// SPDX-License-Identifier: Apache-2.0
//! CPU sets that may use isolated CPUs (cpuset(7); kernel documentation: admin-guide/cgroup-v2.rst).

use std::path::{Path, PathBuf};

use super::check::{APPLY, Check, UNREADABLE, some_of};
use super::machine::Machine;
use super::remedy::set_file;
use crate::CpuList;
use crate::cpuset::{Cpusets, GUESTS, Version, child_sets, processes};
use crate::partition::Role;

/// Maximum depth of nested sets that are checked.
const DEPTH_MAX: usize = 8;

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let Ok(sets) = Cpusets::find(machine.root) else {
        return vec![Check::unknown(
            "cpu-sets",
            "/proc/self/mounts",
            "CPU sets that keep other processes off the isolated CPUs",
            "no control group hierarchy has the cpuset controller",
        )];
    };
    let mut checks = vec![foreign_sets(machine, &sets)];
    match sets.version {
        Version::V1 => checks.push(balance(machine, &sets)),
        Version::V2 => {
            checks.extend(partition(machine, &sets));
            checks.push(exclusive(machine, &sets));
        }
    }
    checks
}

/// Checks for sets (version 1) whose CPUs the scheduler balances. One such set is enough for its CPUs to be balanced,
/// whatever other sets have. The kernel never balances CPUs that are isolated on its command line.
fn balance(machine: &Machine<'_>, sets: &Cpusets) -> Check {
    let name = "cpu-set-balance";
    let files = format!(
        "{}/**/cpuset.sched_load_balance",
        machine.shown(&sets.mount)
    );
    let started = machine.value::<CpuList>("sys/devices/system/cpu/isolated");
    let isolated = machine.isolated.difference(&started.unwrap_or_default());
    let expected = format!("0 in every set that contains any of the isolated CPUs {isolated}");
    let (mut wrong, mut actual) = (Vec::new(), 0_usize);
    let mut remedy = CpusetRemedy::default();
    for set in below(&sets.mount) {
        let Some(balanced) = read(&set.join("cpuset.sched_load_balance")) else {
            continue;
        };
        actual = actual.saturating_add(1);
        let both = cpus_in(sets, &set).intersection(&isolated);
        // A set with no CPU or one CPU has nothing to balance.
        if balanced == "1" && !both.is_empty() && cpus_in(sets, &set).len() > 1 {
            wrong.push(format!("{} (CPUs {both})", named(sets, &set)));
            if set == sets.mount || is_ours(&set) {
                remedy.is_applied = true;
            } else {
                remedy.by(
                    &named(sets, &set),
                    set_file(machine, &set, "cpuset.sched_load_balance", "0"),
                );
            }
        }
    }
    if actual == 0 {
        return Check::unknown(name, files, expected, UNREADABLE);
    }
    let is_fine = wrong.is_empty();
    let reported = if is_fine {
        format!("{actual} sets, none of which balances isolated CPUs")
    } else {
        some_of(&wrong)
    };
    remedy.check(name, files, expected, reported, is_fine)
}

/// Checks for isolated CPUs that another set (version 2) claims exclusively: a partition of quietwire cannot contain them.
fn exclusive(machine: &Machine<'_>, sets: &Cpusets) -> Check {
    let name = "cpu-set-exclusive";
    let allowed = machine.isolated.difference(&machine.plan.cpus(Role::Guest));
    let files = format!("{}/**/cpuset.cpus.exclusive", machine.shown(&sets.mount));
    let expected = format!("only quietwire's sets with the isolated CPUs {allowed}");
    let (mut wrong, mut remedy) = (Vec::new(), CpusetRemedy::default());
    for set in below(&sets.mount).into_iter().filter(|set| !is_ours(set)) {
        let claimed = read(&set.join("cpuset.cpus.exclusive"));
        let claimed: Option<CpuList> = claimed.and_then(|cpus| cpus.parse().ok());
        let claimed = claimed.unwrap_or_default();
        let both = claimed.intersection(&allowed);
        if !both.is_empty() {
            let rest = claimed.difference(&allowed).to_string();
            wrong.push(format!("{} (CPUs {both})", named(sets, &set)));
            remedy.by(
                &named(sets, &set),
                set_file(machine, &set, "cpuset.cpus.exclusive", &rest),
            );
        }
    }
    let is_fine = wrong.is_empty();
    let reported = if is_fine {
        "none".to_owned()
    } else {
        some_of(&wrong)
    };
    remedy.check(name, files, expected, reported, is_fine)
}

/// Remedy for sets: applying the plan, or one command for each set that applying does not change.
#[derive(Default)]
struct CpusetRemedy {
    is_applied: bool,
    sets: Vec<String>,
    commands: Vec<String>,
}

impl CpusetRemedy {
    fn by(&mut self, set: &str, command: String) {
        self.sets.push(set.to_owned());
        // A set cannot have CPUs that its parent lacks, so the commands for child sets come first.
        self.commands.insert(0, command);
    }

    fn check(
        mut self,
        name: &'static str,
        files: String,
        expected: String,
        actual: String,
        is_fine: bool,
    ) -> Check {
        let mut texts = Vec::new();
        if self.is_applied {
            texts.push(APPLY.to_owned());
            self.commands.insert(0, APPLY.to_owned());
        }
        if !self.sets.is_empty() {
            texts.push(format!(
                "`apply` does not change the sets of other programs: change {}",
                some_of(&self.sets)
            ));
        }
        Check::new(name, files, expected, actual, is_fine, texts.join("; "))
            .with_commands(self.commands)
    }
}

/// Returns whether applying changes the CPUs of a set's processes: in version 1 it moves processes of the root set, in
/// version 2 it restricts the groups below the root, except that of guests.
fn applying_changes(sets: &Cpusets, set: &Path) -> bool {
    match sets.version {
        Version::V1 => set == sets.mount,
        Version::V2 => {
            set.parent() == Some(&sets.mount) && set.file_name().is_none_or(|name| name != GUESTS)
        }
    }
}

/// Returns the CPUs of a set without `taken`, or the housekeeping CPUs if none are left.
fn cpus_without(machine: &Machine<'_>, sets: &Cpusets, set: &Path, taken: &CpuList) -> String {
    let rest = cpus_in(sets, set).difference(taken);
    if rest.is_empty() {
        machine.plan.housekeeping.to_string()
    } else {
        rest.to_string()
    }
}

fn is_ours(set: &Path) -> bool {
    let name = set.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with(crate::apply::SET_PREFIX))
}

/// Returns the root set and all sets below it, up to [`DEPTH_MAX`].
fn below(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut looking = vec![(top.to_owned(), 0_usize)];
    while let Some((set, depth)) = looking.pop() {
        if depth < DEPTH_MAX {
            let below = child_sets(&set).unwrap_or_default();
            let depth = depth.saturating_add(1);
            looking.extend(below.into_iter().map(|set| (set, depth)));
        }
        found.push(set);
    }
    found.sort_unstable();
    found
}

fn named(sets: &Cpusets, set: &Path) -> String {
    format!(
        "/{}",
        set.strip_prefix(&sets.mount).unwrap_or(set).display()
    )
}

fn effective(sets: &Cpusets) -> &'static str {
    match sets.version {
        Version::V1 => "cpuset.effective_cpus",
        Version::V2 => "cpuset.cpus.effective",
    }
}

/// Returns the CPUs that tasks of a set may use.
fn cpus_in(sets: &Cpusets, set: &Path) -> CpuList {
    let cpus = read(&set.join(effective(sets))).or_else(|| read(&set.join("cpuset.cpus")));
    cpus.and_then(|cpus| cpus.parse().ok()).unwrap_or_default()
}

fn read(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Checks for sets whose processes may use isolated CPUs, except the sets of quietwire and guests.
fn foreign_sets(machine: &Machine<'_>, sets: &Cpusets) -> Check {
    let name = "cpu-sets";
    let files = format!("{}/**/{}", machine.shown(&sets.mount), effective(sets));
    let allowed = machine.isolated.difference(&machine.plan.cpus(Role::Guest));
    let expected = format!("only quietwire's sets with processes on the isolated CPUs {allowed}");
    let (mut wrong, mut actual) = (Vec::new(), 0_usize);
    let mut remedy = CpusetRemedy::default();
    for set in below(&sets.mount) {
        // Sets below a set of quietwire belong to it. Directories above the mount point are not sets, whatever their names.
        let within = set.strip_prefix(&sets.mount).unwrap_or(&set);
        if within.ancestors().any(is_ours) {
            continue;
        }
        let Ok(inside) = processes(&set) else {
            continue;
        };
        actual = actual.saturating_add(1);
        let both = cpus_in(sets, &set).intersection(&allowed);
        if both.is_empty() {
            continue;
        }
        // Kernel threads that are bound to their CPUs stay in the root set.
        let inside = inside.iter().filter(|pid| is_free(machine, **pid)).count();
        if inside > 0 {
            let name = named(sets, &set);
            wrong.push(format!("{name} ({inside} processes, CPUs {both})"));
            if applying_changes(sets, &set) {
                remedy.is_applied = true;
            } else {
                let cpus = cpus_without(machine, sets, &set, &allowed);
                remedy.by(&name, set_file(machine, &set, "cpuset.cpus", &cpus));
            }
        }
    }
    if actual == 0 {
        return Check::unknown(name, files, expected, UNREADABLE);
    }
    let is_fine = wrong.is_empty();
    let reported = if is_fine {
        "none".to_owned()
    } else {
        some_of(&wrong)
    };
    remedy.check(name, files, expected, reported, is_fine)
}

fn is_free(machine: &Machine<'_>, pid: i32) -> bool {
    let task = machine.tasks.iter().find(|task| task.tid == pid);
    task.is_some_and(|task| !task.is_kernel)
}

/// Checks the state of partitions (version 2).
fn partition(machine: &Machine<'_>, sets: &Cpusets) -> Vec<Check> {
    let mut checks = Vec::new();
    for set in child_sets(&sets.mount).unwrap_or_default() {
        let file = set.join("cpuset.cpus.partition");
        let Some(state) = read(&file).filter(|state| state != "member") else {
            continue;
        };
        checks.push(Check::new(
            "cpu-set-partition",
            machine.shown(&file),
            "isolated or root",
            &state,
            !state.contains("invalid"),
            "see the kernel's reason in brackets; remove the partition's CPUs from cpuset.cpus.exclusive of other sets",
        ));
    }
    checks
}
