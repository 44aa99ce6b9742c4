// SPDX-License-Identifier: Apache-2.0
//! What a file of another program says of CPUs.

use crate::CpuList;

/// What a program's CPUs are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Forwarding CPUs only.
    Forwarding,
    /// Guests' CPUs only.
    Guests,
    /// No isolated CPU.
    NotIsolated,
    /// All isolated CPUs at least.
    AllIsolated,
}

/// CPUs in a file of another program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) name: &'static str,
    pub(super) file: String,
    pub(super) what: String,
    /// None where the text is no set of CPUs.
    pub(super) cpus: Option<CpuList>,
    pub(super) wanted: Wanted,
    pub(super) remedy: &'static str,
}
