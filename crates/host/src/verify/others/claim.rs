// SPDX-License-Identifier: Apache-2.0
//! CPUs in the configuration of another program.

use crate::CpuList;

/// Required CPUs of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedCpus {
    /// Forwarding CPUs only.
    Forwarding,
    /// Guests' CPUs only.
    Guests,
    /// No isolated CPU.
    NotIsolated,
    /// At least all isolated CPUs.
    AllIsolated,
}

/// CPUs in a file of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProgramCpus {
    pub(super) name: &'static str,
    pub(super) file: String,
    pub(super) what: String,
    /// `None` if the text is not a valid CPU set.
    pub(super) cpus: Option<CpuList>,
    pub(super) wanted: ExpectedCpus,
    pub(super) remedy: &'static str,
}
