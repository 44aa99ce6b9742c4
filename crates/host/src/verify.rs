// SPDX-License-Identifier: Apache-2.0
//! Whether the machine is as its plan has it: what is set up, and what really ran where. Never writes. Each check passes,
//! fails, or cannot tell, with the file, what was expected there, what was seen, and what to do.

mod affinity;
mod boot;
mod classes;
mod controllers;
mod cpusets;
mod domains;
mod interrupts;
mod live;
mod memory;
mod metrics;
mod others;
mod power;
mod siblings;
mod steering;
#[cfg(test)]
mod tests;
mod work_queues;

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::partition::{Plan, Role};
use crate::tasks::{self, Task};
use crate::{CpuId, CpuList};

pub use live::{Line, PerCpu, Sample, ThreadSample, live_checks};
pub use metrics::exposition;

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is as it should be.
    Pass,
    /// It is not.
    Fail,
    /// The machine does not say, or not to this user.
    CannotTell,
}

impl Verdict {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, the same in every run.
    pub name: &'static str,
    /// What it came to.
    pub verdict: Verdict,
    /// The file or files looked at.
    pub file: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub seen: String,
    /// What to do; none when there is nothing to be done.
    pub remedy: Option<String>,
}

impl Check {
    fn new(
        name: &'static str,
        file: impl Into<String>,
        expected: impl Into<String>,
        seen: impl Into<String>,
        is_fine: bool,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict: if is_fine {
                Verdict::Pass
            } else {
                Verdict::Fail
            },
            file: file.into(),
            expected: expected.into(),
            seen: seen.into(),
            remedy: (!is_fine).then(|| remedy.into()),
        }
    }

    fn cannot_tell(
        name: &'static str,
        file: impl Into<String>,
        expected: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict: Verdict::CannotTell,
            file: file.into(),
            expected: expected.into(),
            seen: why.into(),
            remedy: None,
        }
    }
}

/// What stands in `seen` of a file that is not there or cannot be read.
const UNREADABLE: &str = "it is not there or cannot be read";
/// What to do about most that applying does.
const APPLY: &str = "quietwire partition apply --config FILE";
/// Things of a kind that are named; of more only the number is told.
const NAMED_MAX: usize = 5;

/// A machine that is looked at, with its plan.
pub(crate) struct Machine<'a> {
    root: &'a Path,
    plan: &'a Plan,
    isolated: CpuList,
    forwarding: CpuList,
    tasks: Vec<Task>,
}

impl<'a> Machine<'a> {
    fn read(root: &'a Path, plan: &'a Plan) -> Self {
        Self {
            root,
            plan,
            isolated: plan.isolated(),
            forwarding: plan.cpus(Role::Forwarding),
            tasks: tasks::all(root),
        }
    }

    /// A file's text without the blanks around it.
    fn text(&self, below: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(below)).ok()?;
        Some(text.trim_matches([' ', '\n', '\t', '\0']).to_owned())
    }

    fn value<T: FromStr>(&self, below: &str) -> Option<T> {
        self.text(below)?.parse().ok()
    }

    /// A set of CPUs in the kernel's mask form.
    fn mask(&self, below: &str) -> Option<CpuList> {
        format!("0x{}", self.text(below)?).parse().ok()
    }

    /// Names in a directory, in order.
    fn names(&self, below: &str) -> Vec<String> {
        let listed = fs::read_dir(self.root.join(below)).into_iter().flatten();
        let mut names: Vec<String> = listed
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }

    fn role(&self, cpu: CpuId) -> Option<Role> {
        self.plan.group_of(cpu).map(|group| group.role)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// A file's name on the machine itself, wherever its files are looked at.
    fn shown(&self, path: &Path) -> String {
        let below = path.strip_prefix(self.root).unwrap_or(path);
        Path::new("/").join(below).display().to_string()
    }

    /// A set of CPUs in a file that is to have none of the isolated ones.
    fn keeps_off(
        &self,
        name: &'static str,
        file: &str,
        cpus: Option<CpuList>,
        remedy: &str,
    ) -> Check {
        let expected = format!("none of the isolated CPUs {}", self.isolated);
        match cpus {
            None => Check::cannot_tell(name, format!("/{file}"), expected, UNREADABLE),
            Some(cpus) => {
                let both = cpus.intersection(&self.isolated);
                let is_fine = both.is_empty();
                let seen = if is_fine {
                    format!("CPUs {cpus}")
                } else {
                    format!("CPUs {cpus}, with {both} of the isolated ones")
                };
                Check::new(name, format!("/{file}"), expected, seen, is_fine, remedy)
            }
        }
    }
}

/// The first few of many, and how many more there are.
fn some_of(names: &[String]) -> String {
    let first = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    let more = names.len().saturating_sub(NAMED_MAX);
    let first = first.join(", ");
    if more == 0 {
        first
    } else {
        format!("{first} and {more} more")
    }
}

/// Everything that can be told at once, of the machine whose files are below `root`.
#[must_use]
pub fn static_checks(root: &Path, plan: &Plan) -> Vec<Check> {
    let machine = Machine::read(root, plan);
    let subjects: [fn(&Machine<'_>) -> Vec<Check>; 13] = [
        boot::checks,
        siblings::checks,
        interrupts::checks,
        work_queues::checks,
        steering::checks,
        domains::checks,
        cpusets::checks,
        affinity::checks,
        memory::checks,
        power::checks,
        classes::checks,
        controllers::checks,
        others::checks,
    ];
    subjects
        .iter()
        .flat_map(|checks| checks(&machine))
        .collect()
}
