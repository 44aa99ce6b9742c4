// SPDX-License-Identifier: Apache-2.0
//! Short descriptions of changes and of the results of undoing them.

use std::fmt;

use super::{Change, UndoOutcome};

impl fmt::Display for Change {
    /// Describes what undoing the change does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileWritten { path, former, .. } => {
                let former: Vec<&str> = former.trim().lines().map(str::trim).collect();
                write!(f, "{} back to '{}'", path.display(), former.join(" "))
            }
            Self::DirectoryCreated { path } => write!(f, "directory {}", path.display()),
            Self::CpusetCreated { path, .. } => write!(f, "CPU set {}", path.display()),
            Self::GroupCreated { path } => write!(f, "group {}", path.display()),
            Self::NotCreated { path } => {
                write!(f, "directory {} of another program", path.display())
            }
            Self::ControllerEnabled { path } => {
                write!(f, "cpuset controller in {}", path.display())
            }
            Self::AffinitiesNoted { tasks } => write!(f, "CPUs of {} tasks", tasks.len()),
            Self::AffinitiesSet { tasks } => write!(f, "CPUs of {} tasks", tasks.len()),
            Self::TasksMoved { tasks, to } => {
                write!(f, "{} tasks out of {}", tasks.len(), to.display())
            }
            Self::NamespaceCreated { path } => write!(f, "namespace {}", path.display()),
            Self::ProcessStarted { process, command } => {
                let program = command.split_whitespace().next().unwrap_or_default();
                write!(f, "process {} ({program})", process.pid)
            }
            Self::DevicePrepared { restore, .. } => {
                write!(f, "device, restored by `{}`", restore.join(" "))
            }
            Self::DriverChanged { device, former, .. } => {
                write!(f, "{} back to {former}", device.display())
            }
            Self::Unreadable { line, text } => {
                write!(f, "damaged line {line} of the journal, '{text}'")
            }
        }
    }
}

impl fmt::Display for UndoOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restored => f.write_str("undone"),
            Self::AlreadyGone => f.write_str("already gone"),
            Self::ChangedSince(why) => write!(f, "LEFT ALONE, changed since: {why}"),
            Self::Failed(why) => write!(f, "FAILED: {why}"),
            Self::Unreadable(why) | Self::NotTried(why) => write!(f, "NOT UNDONE: {why}"),
        }
    }
}
