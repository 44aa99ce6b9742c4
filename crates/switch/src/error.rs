// SPDX-License-Identifier: Apache-2.0
//! What can go wrong, and whose fault it is.

use std::path::PathBuf;

use quietwire_base::Fault;

/// An error of the switch.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The configuration asks for something that makes no sense. `place` is an option of the command line, or file,
    /// line and key.
    #[error("{place}: {what}")]
    Config {
        /// Where it was said.
        place: String,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// The configuration file cannot be read.
    #[error("the configuration {} could not be read: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: String,
    },
    /// The machine does not have what was asked for.
    #[error("{0}")]
    Lacks(String),
    /// DPDK, or a port.
    #[error(transparent)]
    Dpdk(#[from] quietwire_dpdk::Error),
    /// The kernel's files about CPUs and threads.
    #[error(transparent)]
    Threads(#[from] quietwire_host::threads::ReadError),
    /// The control socket cannot be made or used.
    #[error("control socket {}: {what}", path.display())]
    ControlSocket {
        /// The socket.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
        /// Whose fault that is.
        fault: Fault,
    },
    /// A running switch answered with an error.
    #[error("the switch on {} answered: {what}", path.display())]
    Answer {
        /// Its control socket.
        path: PathBuf,
        /// Its words.
        what: String,
    },
    /// A thread of the switch could not be made, or ended before it was told to.
    #[error("thread {name}: {what}")]
    Thread {
        /// Its name.
        name: String,
        /// What happened.
        what: String,
    },
}

impl SwitchError {
    /// Whose fault it is, which decides the exit code.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Config { .. } | Self::Unreadable { .. } => Fault::BadInput,
            Self::Lacks(_) => Fault::Lacks,
            Self::Dpdk(error) => error.fault(),
            Self::ControlSocket { fault, .. } => *fault,
            Self::Threads(_) | Self::Answer { .. } | Self::Thread { .. } => Fault::Failed,
        }
    }
}
