// SPDX-License-Identifier: Apache-2.0
//! How the kernel shows the CPUs of a NUMA node.

use crate::CpuList;

/// How the kernel shows the CPUs of a NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeCpus {
    /// As a list (`cpulist`).
    #[default]
    List,
    /// As a mask only (`cpumap`).
    Mask,
    /// Not at all.
    Hidden,
}

impl NodeCpus {
    /// The file in the node's directory, and what is in it.
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
