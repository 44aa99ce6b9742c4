// SPDX-License-Identifier: Apache-2.0
//! Isolation cases, which are data: `cases.toml`.

use std::fmt;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

const CASES: &str = include_str!("cases.toml");

/// One thing that isolates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationPart {
    /// Each thread of the device keeps to the CPUs of its role.
    Pinned,
    /// Everything else keeps off the forwarding CPUs.
    Isolated,
    /// The other threads of the forwarding cores run nothing.
    IdleSiblings,
    /// The forwarding CPUs have ways of the last-level cache to themselves (Intel CAT and its likes).
    Cache,
    /// Neighbours and other processes have a limit of memory bandwidth (Intel MBA and its likes).
    Bandwidth,
    /// The forwarding CPUs are SST-BF's cores of high priority.
    BaseFrequency,
    /// Every CPU runs at the processor's nominal frequency.
    NominalFrequency,
    /// Each port is a virtual function of its own (SR-IOV).
    VirtualFunctions,
}

impl fmt::Display for IsolationPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pinned => "pinned",
            Self::Isolated => "isolated",
            Self::IdleSiblings => "idle-siblings",
            Self::Cache => "cache",
            Self::Bandwidth => "bandwidth",
            Self::BaseFrequency => "base-frequency",
            Self::NominalFrequency => "nominal-frequency",
            Self::VirtualFunctions => "virtual-functions",
        })
    }
}

/// A case of isolation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IsolationCase {
    /// Its name, as it is chosen by.
    pub name: String,
    /// What it does.
    pub about: String,
    /// Everything that it is made of.
    pub parts: Vec<IsolationPart>,
    /// Beside those, as many as the machine has, one at least.
    #[serde(default)]
    pub where_there: Vec<IsolationPart>,
}

#[derive(Debug, Default, Deserialize)]
struct Cases {
    case: Vec<IsolationCase>,
}

/// All cases there are.
pub fn isolation_cases() -> &'static [IsolationCase] {
    // It is part of the program; a test reads it, and nothing else can be wrong with it.
    static ALL: LazyLock<Cases> = LazyLock::new(|| toml::from_str(CASES).unwrap_or_default());
    &ALL.case
}

impl IsolationCase {
    /// The case of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        isolation_cases().iter().find(|case| case.name == name)
    }

    /// Whether it has this part on every machine.
    #[must_use]
    pub fn has(&self, part: IsolationPart) -> bool {
        self.parts.contains(&part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_are_those_that_are_documented() {
        let names: Vec<&str> = isolation_cases().iter().map(|case| &*case.name).collect();
        assert_eq!(
            names,
            [
                "none",
                "pinned",
                "isolated",
                "sibling-idle",
                "rdt-cat",
                "rdt-cat-mba",
                "nominal-frequency",
                "sst-bf",
                "sr-iov",
                "full"
            ]
        );
        for case in isolation_cases() {
            // What isolates a CPU is for the thread that is pinned to it.
            let is_pinned = case.has(IsolationPart::Pinned);
            assert!(case.parts.is_empty() || is_pinned, "{case:?}");
            let more = case.parts.len() > 1;
            assert_eq!(case.has(IsolationPart::Isolated), more, "{case:?}");
        }
        assert_eq!(IsolationCase::named("rdt"), None);
    }
}
