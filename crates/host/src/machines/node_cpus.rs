// SPDX-License-Identifier: Apache-2.0
//! Format in which the kernel shows the CPUs of a NUMA node.

use crate::CpuList;

/// Format in which the kernel shows the CPUs of a NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeCpus {
    /// List (`cpulist`).
    #[default]
    List,
    /// Mask only (`cpumap`).
    Mask,
    /// Not shown.
    Hidden,
}

impl NodeCpus {
    /// Returns the name of the file in the node's directory, and its text.
    pub(super) fn file(self, cpus: &CpuList) -> Option<(&'static str, String)> {
        match self {
            Self::List => Some(("cpulist", cpus.to_string())),
            Self::Mask => {
                let mask = cpus.to_mask();
                Some(("cpumap", mask.trim_start_matches("0x").to_owned()))
            }
            Self::Hidden => None,
        }
    }
}
