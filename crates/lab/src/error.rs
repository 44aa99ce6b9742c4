// SPDX-License-Identifier: Apache-2.0
//! Errors of the lab.

use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::{Fault, LockError, LockOwner};
use quietwire_host::cpuset::CpusetError;
use quietwire_host::roles::RolesError;
use quietwire_host::vfio::BindError;

use crate::unavailable::Unavailable;

/// An error of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Another lab is running.
    #[error(
        "another lab is up ({owner}), and two would disturb each other (wait until it ends, or stop it)"
    )]
    Busy {
        /// The process that runs it.
        owner: LockOwner,
    },
    /// Another lab isolates CPUs, and did not end within the timeout.
    #[error(
        "another lab isolates CPUs of this machine ({owner}), and two would disturb each other (wait until it ends, or stop it)"
    )]
    OtherPartition {
        /// Its process.
        owner: LockOwner,
    },
    /// Labs are running whose CPUs an isolation case would take.
    #[error(
        "an isolation case would take CPUs from labs that are up: {0} (stop them with `quietwire lab down NAME`)"
    )]
    LabsUp(String),
    /// A partition is applied that does not belong to the lab.
    #[error(
        "a partition is applied to this machine already (`quietwire partition status` shows it), and an isolation case would change it (undo it with `quietwire partition rollback`)"
    )]
    Partitioned,
    /// A partition could not be applied or rolled back.
    #[error(transparent)]
    Apply(#[from] quietwire_host::apply::ApplyError),
    /// An isolation case could not be applied.
    #[error("cannot isolate CPUs: {0}")]
    Isolation(String),
    /// A lab of this name is running.
    #[error(
        "lab '{name}' is already up, started by {owner} (use another name with --name, or stop it with `quietwire lab down {name}`)"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The process that runs it.
        owner: LockOwner,
    },
    /// A network card that cannot be bound to `vfio-pci`.
    #[error(transparent)]
    Card(#[from] BindError),
    /// An element that this machine does not support.
    #[error("{name}: {reason}")]
    Unavailable {
        /// Name of the element.
        name: String,
        /// The reason.
        reason: Unavailable,
    },
    /// A command that failed.
    #[error("`{command}` failed: {printed}")]
    Command {
        /// The command.
        command: String,
        /// Its output.
        printed: String,
    },
    /// An invalid topology.
    #[error("{0}")]
    Topology(String),
    /// A file or directory.
    #[error("{}: {what}: {cause}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The error of the system.
        cause: io::Error,
    },
    /// An error of CPU sets.
    #[error(transparent)]
    Cpuset(#[from] CpusetError),
    /// The activity of processes cannot be determined.
    #[error(transparent)]
    Monitor(#[from] quietwire_monitor::MonitorError),
    /// A program is not installed.
    #[error("{program} is not installed (run `apt-get install {package}` or scripts/setup)")]
    MissingProgram {
        /// The program.
        program: String,
        /// Debian's package.
        package: &'static str,
    },
    /// The device under test did not start.
    #[error("the device '{name}' {what}. Its last output:\n{log}\n(the command was: {command})")]
    Device {
        /// Its name.
        name: String,
        /// The failure.
        what: String,
        /// The end of its log.
        log: String,
        /// The command that started it.
        command: String,
    },
    /// A device that the lab does not start could not be prepared.
    #[error("cannot prepare the device: `{command}` {what}. Its last output:\n{printed}")]
    Prepare {
        /// The command.
        command: String,
        /// The failure.
        what: String,
        /// The end of its output.
        printed: String,
    },
    /// Neighbours did not start.
    #[error("the neighbours {what}. Their last output:\n{log}\n(the command was: {command})")]
    Neighbours {
        /// The failure.
        what: String,
        /// The end of their log.
        log: String,
        /// The command that started them.
        command: String,
    },
    /// An invalid guest.
    #[error("{0}")]
    GuestSpec(String),
    /// A guest did not start, or died.
    #[error(
        "the guest '{name}' {what}. Its console's last lines:\n{console}\n(the command was: {command})"
    )]
    Guest {
        /// Its name.
        name: String,
        /// The failure.
        what: String,
        /// The end of its console's log.
        console: String,
        /// The command that started it.
        command: String,
    },
    /// The agent in a guest failed at a request.
    #[error("the agent in the guest '{name}': {what}")]
    Agent {
        /// The guest's name.
        name: String,
        /// The failure.
        what: String,
    },
    /// The image that guests boot could not be built.
    #[error("cannot build the image of guests: {printed}")]
    Image {
        /// The output of the build.
        printed: String,
        /// True if the machine lacks a prerequisite.
        is_lacking: bool,
    },
    /// KVM was requested, but no guest boots under it.
    #[error(
        "guests cannot run under KVM on this machine: {0} (use the accelerator 'software' or 'auto')"
    )]
    NoKvm(String),
    /// Options that stress-ng does not accept.
    #[error(
        "[neighbours] stressors: stress-ng does not accept `{stressors}`: {printed} (`stress-ng --help` lists its options)"
    )]
    Stressors {
        /// All options.
        stressors: String,
        /// The output of stress-ng.
        printed: String,
    },
    /// A network namespace that does not exist.
    #[error(
        "network namespace '{0}' does not exist (create it with `ip netns add {0}`; `ip netns list` lists all)"
    )]
    NoNamespace(String),
    /// iperf3 failed.
    #[error("iperf3 failed: {printed}\n(the command was: {command})")]
    Iperf {
        /// Its output.
        printed: String,
        /// The command that started it.
        command: String,
    },
    /// An invalid request for iperf3.
    #[error("{0}")]
    BadIperf(String),
    /// The run was interrupted.
    #[error("interrupted")]
    Aborted,
    /// The state directory is not a directory.
    #[error("the state directory {} is not a directory (use another one with --state-directory)", .0.display())]
    NoDirectory(PathBuf),
    /// Huge pages that would leave too little memory for other programs.
    #[error(
        "{wanted_mib} MiB of huge pages are more than half of the {available_mib} MiB of memory that are available (set a smaller huge-pages-mib)"
    )]
    Memory {
        /// Requested memory.
        wanted_mib: u64,
        /// Available memory.
        available_mib: u64,
    },
    /// CPUs that leave none for another role.
    #[error("{0}")]
    Cpus(String),
    /// CPUs that do not fit their roles.
    #[error(transparent)]
    Roles(#[from] RolesError),
    /// A start that failed, with changes that could not be undone.
    #[error("{cause}\n{left}")]
    NotUndone {
        /// The reason why the start failed.
        cause: Box<LabError>,
        /// The changes.
        left: Box<LabError>,
    },
    /// A change of a case could not be undone.
    #[error("some changes could not be undone: {0} (`quietwire lab clean` tries again)")]
    Undo(String),
}

impl LabError {
    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Apply(error) => error.fault(),
            Self::Roles(RolesError::Unknown) => Fault::MissingPrerequisite,
            Self::Cpus(_)
            | Self::NoNamespace(_)
            | Self::NameTaken { .. }
            | Self::Topology(_)
            | Self::BadIperf(_)
            | Self::GuestSpec(_)
            | Self::Roles(_)
            | Self::Stressors { .. }
            | Self::NoDirectory(_) => Fault::BadInput,
            Self::Cpuset(CpusetError::Unavailable)
            | Self::MissingProgram { .. }
            | Self::NoKvm(_)
            | Self::Image {
                is_lacking: true, ..
            }
            | Self::Unavailable { .. }
            | Self::Card(BindError::Refused { .. })
            | Self::Partitioned
            | Self::Memory { .. } => Fault::MissingPrerequisite,
            // The user has chosen the state directory.
            Self::Io { cause, .. } if cause.kind() == io::ErrorKind::NotADirectory => {
                Fault::BadInput
            }
            // The user is not root.
            Self::Io { cause, .. } | Self::Cpuset(CpusetError::Io { cause, .. })
                if cause.kind() == io::ErrorKind::PermissionDenied =>
            {
                Fault::MissingPrerequisite
            }
            _ => Fault::Failed,
        }
    }
}

impl From<LockError> for LabError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Busy { owner, .. } => Self::Busy { owner },
            LockError::Io { path, what, cause } => Self::Io { path, what, cause },
        }
    }
}

pub(crate) fn io_error(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> LabError {
    move |cause| LabError::Io {
        path: path.to_owned(),
        what,
        cause,
    }
}
