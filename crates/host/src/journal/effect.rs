// SPDX-License-Identifier: Apache-2.0
//! Changes of a journal that are in effect. A change was recorded before it was made, so the last one may never have been made, and others
//! may have been undone since.

use std::path::Path;

use super::same::same;
use super::{Change, TaskAffinity, TaskChange};
use crate::cpuset::is_enabled;
use crate::files::{Files, is_absent};
use crate::pci_driver::{PciDevice, STEP_MAX, read_setting};
use crate::threads::allowed_cpus;

/// Splits changes into those in effect and the others. Of several changes of a file, the first stands for all: its former text is the
/// original one.
pub(crate) fn split_by_effect(
    files: &dyn Files,
    changes: Vec<Change>,
) -> (Vec<Change>, Vec<Change>) {
    let mut firsts: Vec<Change> = Vec::new();
    for change in changes {
        let is_repeated = matches!(&change, Change::FileWritten { path, .. } if firsts.iter().any(
            |first| matches!(first, Change::FileWritten { path: file, .. } if file == path)
        ));
        if !is_repeated {
            firsts.push(change);
        }
    }
    firsts
        .into_iter()
        .partition(|change| is_in_effect(files, change))
}

fn is_in_effect(files: &dyn Files, change: &Change) -> bool {
    match change {
        // A file that exists and cannot be read may contain the new text.
        Change::FileWritten { path, former, .. } => match read_setting(files, path, STEP_MAX) {
            Ok(now) => !same(path, &now, former),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        },
        Change::DirectoryCreated { path }
        | Change::CpusetCreated { path, .. }
        | Change::GroupCreated { path } => files.is_directory(path).unwrap_or(true),
        Change::NotCreated { .. } => false,
        Change::NamespaceCreated { path } => path.exists(),
        Change::ControllerEnabled { path } => files
            .read(path)
            .map_or_else(|error| !is_absent(&error), |enabled| is_enabled(&enabled)),
        Change::AffinitiesNoted { tasks } => tasks
            .iter()
            .any(|TaskAffinity { task, cpus }| task.is_alive() && has_other_cpus(task.pid, cpus)),
        Change::AffinitiesSet { tasks } => {
            tasks.iter().any(|TaskChange { task, former, .. }| {
                task.is_alive() && has_other_cpus(task.pid, former)
            })
        }
        Change::TasksMoved { tasks, to } => {
            let inside = match files.read(to) {
                Err(error) if !is_absent(&error) => return true,
                read => read.unwrap_or_default(),
            };
            tasks.iter().any(|place| {
                let is_it = |line: &str| line.trim().parse() == Ok(place.task.pid);
                place.task.is_alive() && inside.lines().any(is_it)
            })
        }
        Change::ProcessStarted { process, .. } => process.is_alive(),
        Change::DriverChanged { device, former, .. } => {
            match PciDevice::new(files, device).state() {
                Ok(now) => now != *former,
                Err(error) => error.kind() != std::io::ErrorKind::NotFound,
            }
        }
        // Only the command that restores the device knows.
        Change::DevicePrepared { .. } | Change::Unreadable { .. } => true,
    }
}

fn has_other_cpus(tid: i32, cpus: &crate::CpuList) -> bool {
    allowed_cpus(Path::new("/"), tid).is_some_and(|now| now != *cpus)
}
