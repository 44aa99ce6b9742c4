// SPDX-License-Identifier: Apache-2.0
//! Errors of the bench.

use quietwire_base::Fault;
use quietwire_host::threads::ReadError;
use quietwire_host::{CpuId, CpuList};
use quietwire_lab::LabError;
use quietwire_lab::topology::TopologyError;
use quietwire_monitor::MonitorError;
use quietwire_tester::TesterError;

/// The reason why a bench is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum LabBenchError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// DPDK, for the tester.
    #[error(transparent)]
    Dpdk(#[from] quietwire_dpdk::Error),
    /// The tester.
    #[error(transparent)]
    Tester(#[from] TesterError),
    /// The monitor.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// A file of the kernel.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A CPU that the study names and the machine lacks.
    #[error("CPU {cpu} of {role} is not online (online: {online}; change {key} in the study file)")]
    Offline {
        /// The CPU.
        cpu: CpuId,
        /// The role of the CPU.
        role: &'static str,
        /// The key in the study file.
        key: &'static str,
        /// The online CPUs.
        online: CpuList,
    },
    /// A device that the lab does not start, and a tester without ports.
    #[error(
        "the lab does not start the study's device (switch = \"other\" in [device]), and the tester has no ports (add ports to [tester], or choose a tester with --tester)"
    )]
    NoPorts,
    /// An invalid port of the tester.
    #[error("[tester] ports: {0}")]
    BadPort(String),
    /// Applications through a device that the lab does not start.
    #[error(
        "[application] requires a device that the lab starts, and switch is \"other\" in [device] (remove the section, or choose another switch)"
    )]
    ApplicationsOutside,
    /// A case that this machine does not support.
    #[error("the case is unavailable on this machine: {0}")]
    Unavailable(String),
    /// An invalid topology.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The device is running and forwards nothing.
    #[error("device started, but some ports sent no frame within {waited_s} s")]
    NotThrough {
        /// Duration of the attempt, seconds.
        waited_s: u64,
    },
    /// Applications could not communicate through the device.
    #[error("applications: {0}")]
    Application(String),
    /// A call out of order.
    #[error("no case is up for the requested trial")]
    NoCase,
}

impl LabBenchError {
    /// Returns true if the error does not belong to one case: a change was not undone, another process uses the machine, or calls are out
    /// of order.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::NoCase
                | Self::Lab(
                    LabError::Undo(_)
                        | LabError::Busy { .. }
                        | LabError::OtherPartition { .. }
                        | LabError::Apply(_)
                )
        )
    }

    /// Returns true if the only reason is a stop request.
    pub(super) fn is_interruption(&self) -> bool {
        matches!(
            self,
            Self::Lab(LabError::Aborted) | Self::Tester(TesterError::Aborted)
        )
    }

    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Lab(error) => error.fault(),
            Self::Dpdk(error) => error.fault(),
            Self::Tester(error) => error.fault(),
            Self::Offline { .. }
            | Self::NoPorts
            | Self::BadPort(_)
            | Self::ApplicationsOutside
            | Self::Topology(_) => Fault::BadInput,
            Self::Unavailable(_) => Fault::MissingPrerequisite,
            Self::Monitor(_)
            | Self::Read(_)
            | Self::NotThrough { .. }
            | Self::Application(_)
            | Self::NoCase => Fault::Failed,
        }
    }
}
