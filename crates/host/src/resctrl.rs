// SPDX-License-Identifier: Apache-2.0
//! Classes of service for the last level cache and memory bandwidth: Intel RDT, AMD QoS and Arm MPAM, through the kernel's
//! resctrl (Documentation/filesystems/resctrl.rst).

mod check;
#[cfg(any(test, feature = "machines"))]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "a substitute for tests, which may panic"
)]
pub mod fake;
mod groups;
mod info;
mod schemata;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::files::{Files, text};
use crate::proc;

pub use groups::{Group, Monitor};
pub use info::{BandwidthInfo, CacheInfo, Info, MonitorInfo};
pub use schemata::{Schemata, SchemataError};

/// Usual mount point of resctrl.
pub const MOUNT: &str = "sys/fs/resctrl";

/// The resctrl file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resctrl {
    /// Mount point.
    pub mount: PathBuf,
}

impl Resctrl {
    /// Finds resctrl below `root`: the mount point in `/proc/self/mounts`, or the usual one. `None` if it is not mounted.
    #[must_use]
    pub fn find(files: &dyn Files, root: &Path) -> Option<Self> {
        let mounts = text(files, &root.join("proc/self/mounts")).unwrap_or_default();
        let mounted = proc::mounts(&mounts)
            .find(|mount| mount.kind == "resctrl")
            .map(|mount| root.join(mount.point.trim_start_matches('/')));
        let mount = mounted.unwrap_or_else(|| root.join(MOUNT));
        text(files, &mount.join("schemata"))?;
        Some(Self { mount })
    }

    /// Returns the limits of the kernel and the processor.
    #[must_use]
    pub fn info(&self, files: &dyn Files) -> Info {
        Info::read(files, &self.mount.join("info"))
    }

    /// Returns the directory of a group. The default group has no name.
    #[must_use]
    pub fn group(&self, name: &str) -> PathBuf {
        if name.is_empty() {
            self.mount.clone()
        } else {
            self.mount.join(name)
        }
    }

    /// Returns the kernel's reason for its last refusal (`info/last_cmd_status`).
    #[must_use]
    pub fn last_refusal(&self, files: &dyn Files) -> Option<String> {
        text(files, &self.mount.join("info/last_cmd_status")).filter(|status| status != "ok")
    }
}
