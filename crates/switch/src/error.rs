// SPDX-License-Identifier: Apache-2.0
//! Errors of the switch and their exit codes.

use std::path::PathBuf;

use quietwire_base::Fault;
use quietwire_host::privileges::PrivilegeError;

/// An error of the switch.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// Invalid configuration. `location` is a command-line option, or file, line and key.
    #[error("{location}: {what}")]
    Config {
        /// Source location of the setting.
        location: String,
        /// The problem and its cure.
        what: String,
    },
    /// The configuration file cannot be read.
    #[error("cannot read the configuration {}: {cause}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        cause: String,
    },
    /// The machine lacks a required resource.
    #[error("{0}")]
    MissingPrerequisite(String),
    /// An error of DPDK or of a port.
    #[error(transparent)]
    Dpdk(#[from] quietwire_dpdk::Error),
    /// An error in the kernel's files about CPUs and threads.
    #[error(transparent)]
    Threads(#[from] quietwire_host::threads::ReadError),
    /// The rights of the process cannot be reduced.
    #[error(transparent)]
    Privileges(#[from] quietwire_host::privileges::PrivilegeError),
    /// The control socket cannot be created or used.
    #[error("control socket {}: {what}", path.display())]
    ControlSocket {
        /// Path of the socket.
        path: PathBuf,
        /// The problem and its cure.
        what: String,
        /// Category of the error.
        fault: Fault,
    },
    /// A running switch replied with an error.
    #[error("the switch on {} refused the request: {what}", path.display())]
    Answer {
        /// Path of its control socket.
        path: PathBuf,
        /// Its message.
        what: String,
        /// Category of the error, by the switch.
        fault: Fault,
    },
    /// A thread of the switch could not be started, or ended unexpectedly.
    #[error("thread {name}: {what}")]
    Thread {
        /// Its name.
        name: String,
        /// The problem.
        what: String,
    },
}

impl SwitchError {
    /// Returns the category of the error, which determines the exit code.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Config { .. } | Self::Unreadable { .. } => Fault::BadInput,
            Self::MissingPrerequisite(_) => Fault::MissingPrerequisite,
            Self::Privileges(PrivilegeError::NoSuchUser(_) | PrivilegeError::NotAUser(_)) => {
                Fault::BadInput
            }
            Self::Dpdk(error) => error.fault(),
            Self::ControlSocket { fault, .. } | Self::Answer { fault, .. } => *fault,
            Self::Privileges(_) | Self::Threads(_) | Self::Thread { .. } => Fault::Failed,
        }
    }
}
