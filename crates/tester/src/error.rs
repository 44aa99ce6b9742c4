// SPDX-License-Identifier: Apache-2.0
//! Why a trial could not be run at all. A trial that ran and in which the tester failed is not an
//! error but a result marked invalid.

use quietwire_base::Fault;

use crate::traffic::ReplayError;

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub enum TesterError {
    /// A port or a thread could not be had.
    #[error(transparent)]
    Dpdk(#[from] quietwire_dpdk::Error),
    /// The trial asks for something that makes no sense.
    #[error("the trial cannot be run: {0}")]
    BadTrial(String),
    /// A capture cannot be sent.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A peer did not connect in time.
    #[error(
        "no link on {ports} after {waited_s} s: is the device under test running, and does it use the other role on the same socket?"
    )]
    NoLink {
        /// The ports without link.
        ports: String,
        /// How long was waited, seconds.
        waited_s: f64,
    },
    /// Nothing that was offered in a calibration came back.
    #[error(
        "none of {offered} frames came back: a calibration needs ports that are connected with each other, without a device between"
    )]
    NoLoop {
        /// Frames offered.
        offered: u64,
    },
    /// The run was aborted from outside.
    #[error("the trial was aborted")]
    Aborted,
    /// A tester thread could not be made or ended badly.
    #[error("a tester thread failed: {0}")]
    Thread(String),
    /// The generator has no such ability.
    #[error("this traffic generator cannot {what}; choose another method or another generator")]
    CannotDo {
        /// What it cannot do.
        what: &'static str,
    },
    /// TRex did not answer, or not as it should.
    #[error("TRex: {0}")]
    Trex(String),
    /// The device could not be restarted.
    #[error("the device could not be restarted: {0}")]
    Restart(String),
    /// The device of the self-test failed.
    #[error("the device of the self-test failed: {0}")]
    SelfTestDevice(String),
    /// Results could not be put together.
    #[error("the result could not be put together: {0}")]
    Result(String),
}

impl TesterError {
    /// Whose fault it is.
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
