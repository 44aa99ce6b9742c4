// SPDX-License-Identifier: Apache-2.0
//! Errors that prevent a trial. A failure of the tester during a trial is not an error: it makes the result invalid.

use std::path::PathBuf;

use quietwire_base::Fault;

use crate::traffic::ReplayError;

/// Error that prevents a trial.
#[derive(Debug, thiserror::Error)]
pub enum TesterError {
    /// A port or a thread cannot be set up.
    #[error(transparent)]
    Dpdk(#[from] quietwire_dpdk::Error),
    /// The parameters of the trial are invalid.
    #[error("the trial cannot be run: {0}")]
    BadTrial(String),
    /// A capture cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A peer did not connect in time.
    #[error(
        "no link on {ports} after {waited_s} s (check that the device under test runs and uses the other role on the same socket)"
    )]
    NoLink {
        /// The ports without link.
        ports: String,
        /// The wait, seconds.
        waited_s: f64,
    },
    /// No frame offered in a calibration came back.
    #[error(
        "none of {offered} frames came back (connect the ports to each other, without a device between them)"
    )]
    NoLoop {
        /// Frames offered.
        offered: u64,
    },
    /// The abort flag was set.
    #[error("the trial was aborted")]
    Aborted,
    /// A tester thread could not be started, or it failed.
    #[error("a tester thread failed: {0}")]
    Thread(String),
    /// The generator does not support the operation.
    #[error("this traffic generator cannot {what} (use another method or another generator)")]
    CannotDo {
        /// The operation.
        what: &'static str,
    },
    /// TRex did not reply, or its reply is malformed.
    #[error("TRex: {0}")]
    Trex(String),
    /// The device cannot be restarted.
    #[error("cannot restart the device: {0}")]
    Restart(String),
    /// The time stamps of a trial cannot be written.
    #[error("cannot write the time stamps to {}: {error}", path.display())]
    TimeStamps {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The self-test's device failed.
    #[error("the self-test's device failed: {0}")]
    SelfTestDevice(String),
    /// The result cannot be computed.
    #[error("cannot compute the result: {0}")]
    Result(String),
}

impl TesterError {
    /// Returns whether the input or the system is at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Dpdk(error) => error.fault(),
            Self::BadTrial(_) | Self::NoLoop { .. } | Self::Replay(_) | Self::CannotDo { .. } => {
                Fault::BadInput
            }
            _ => Fault::Failed,
        }
    }
}
