// SPDX-License-Identifier: Apache-2.0
//! The verified machine and its plan.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use quietwire_base::read_regular;

use super::check::{Check, UNREADABLE};
use crate::files::{Disk, TEXT_MAX, is_read_only};
use crate::partition::{Plan, Role};
use crate::pci_driver::{STEP_MAX, read_setting};
use crate::tasks::{self, Task};
use crate::{CpuId, CpuList};

/// A machine and its plan.
pub(crate) struct Machine<'a> {
    pub(super) root: &'a Path,
    pub(super) plan: &'a Plan,
    pub(super) isolated: CpuList,
    pub(super) forwarding: CpuList,
    pub(super) tasks: Vec<Task>,
    /// Timeout for files that wait for a change of a device.
    pub(super) timeout: Duration,
}

impl<'a> Machine<'a> {
    pub(super) fn read(root: &'a Path, plan: &'a Plan) -> Self {
        Self {
            root,
            plan,
            isolated: plan.isolated(),
            forwarding: plan.cpus(Role::Forwarding),
            tasks: tasks::all(root),
            timeout: STEP_MAX,
        }
    }

    /// Returns a file's text without surrounding whitespace.
    pub(super) fn text(&self, below: &str) -> Option<String> {
        let text = read_setting(&Disk, &self.root.join(below), self.timeout).ok()?;
        Some(text.trim_matches([' ', '\n', '\t', '\0']).to_owned())
    }

    /// Returns the text of another program's file without surrounding whitespace. `None` for what is not a regular file: another user than
    /// root may own the file or its directory, and the reader of a FIFO would wait without end.
    pub(super) fn program_text(&self, below: &str) -> Option<String> {
        let octets = read_regular(&self.path(below), TEXT_MAX).ok()?;
        let text = String::from_utf8(octets).ok()?;
        Some(text.trim().to_owned())
    }

    pub(super) fn value<T: FromStr>(&self, below: &str) -> Option<T> {
        self.text(below)?.parse().ok()
    }

    /// Reads a file with a CPU set in the kernel's mask form.
    pub(super) fn mask(&self, below: &str) -> Option<CpuList> {
        format!("0x{}", self.text(below)?).parse().ok()
    }

    /// Returns the names in a directory, in order.
    pub(super) fn names(&self, below: &str) -> Vec<String> {
        let listed = fs::read_dir(self.root.join(below)).into_iter().flatten();
        let mut names: Vec<String> = listed
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }

    pub(super) fn role(&self, cpu: CpuId) -> Option<Role> {
        self.plan.group_of(cpu).map(|group| group.role)
    }

    /// Returns whether only the kernel can set an interrupt's affinity.
    pub(super) fn is_fixed_interrupt(&self, irq: &str) -> bool {
        is_read_only(&self.path(&format!("proc/irq/{irq}/smp_affinity_list")))
    }

    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// Returns a file's name on the machine itself, without the root under which its files are read.
    pub(super) fn shown(&self, path: &Path) -> String {
        let below = path.strip_prefix(self.root).unwrap_or(path);
        Path::new("/").join(below).display().to_string()
    }

    /// Checks that a file's CPU set contains no isolated CPU.
    pub(super) fn keeps_off(
        &self,
        name: &'static str,
        file: &str,
        cpus: Option<CpuList>,
        remedy: &str,
    ) -> Check {
        let expected = format!("none of the isolated CPUs {}", self.isolated);
        match cpus {
            None => Check::unknown(name, format!("/{file}"), expected, UNREADABLE),
            Some(cpus) => {
                let both = cpus.intersection(&self.isolated);
                let is_fine = both.is_empty();
                let actual = if is_fine {
                    format!("CPUs {cpus}")
                } else {
                    format!("CPUs {cpus}, including the isolated CPUs {both}")
                };
                Check::new(name, format!("/{file}"), expected, actual, is_fine, remedy)
            }
        }
    }
}
