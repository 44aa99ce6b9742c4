// SPDX-License-Identifier: Apache-2.0
//! The table of isolation cases.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A part of isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationPart {
    /// Each thread of the device keeps to the CPUs of its role.
    Pinned,
    /// Everything else is excluded from the forwarding CPUs.
    Isolated,
    /// The sibling threads of the forwarding cores run nothing.
    IdleSiblings,
    /// The forwarding CPUs have exclusive ways of the last-level cache (Intel CAT and similar).
    Cache,
    /// Neighbours and other processes have a memory bandwidth limit (Intel MBA and similar).
    Bandwidth,
    /// The forwarding CPUs are SST-BF's cores of high priority.
    BaseFrequency,
    /// Every CPU runs at the processor's nominal frequency.
    NominalFrequency,
    /// Each port is its own virtual function (SR-IOV).
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

/// An isolation case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsolationCase {
    /// Name in study files.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    /// Mandatory parts. With cache, the classes are those of the published allocation: on 11 ways 0x7ff for the operating system, 0x7f0 for
    /// forwarding, 0x3 for neighbours, 0xc for other processes.
    pub parts: &'static [IsolationPart],
    /// Optional parts: as many as the machine supports, at least one.
    pub if_available: &'static [IsolationPart],
}

/// All cases. A wrong number of them does not compile.
const CASES: &[IsolationCase] = &[
    IsolationCase {
        name: "none",
        about: "the scheduler places the device's threads, and everything else, on any CPU",
        parts: &[],
        if_available: &[],
    },
    IsolationCase {
        name: "pinned",
        about: "each thread of the device keeps to the CPUs of its role; other work may use them as well",
        parts: &[IsolationPart::Pinned],
        if_available: &[],
    },
    IsolationCase {
        name: "isolated",
        about: "as pinned, and everything else is excluded from the forwarding CPUs",
        parts: &[IsolationPart::Pinned, IsolationPart::Isolated],
        if_available: &[],
    },
    IsolationCase {
        name: "sibling-idle",
        about: "as isolated, and the other threads of the forwarding cores run nothing",
        parts: &[
            IsolationPart::Pinned,
            IsolationPart::Isolated,
            IsolationPart::IdleSiblings,
        ],
        if_available: &[],
    },
    IsolationCase {
        name: "rdt-cat",
        about: "as isolated, with exclusive ways of the last-level cache for the forwarding CPUs",
        parts: &[
            IsolationPart::Pinned,
            IsolationPart::Isolated,
            IsolationPart::Cache,
        ],
        if_available: &[],
    },
    IsolationCase {
        name: "rdt-cat-mba",
        about: "as isolated, with the published classes: cache ways 0x7ff, 0x7f0, 0x3, 0xc of 11; bandwidth 100, 100, 10, 10 %",
        parts: &[
            IsolationPart::Pinned,
            IsolationPart::Isolated,
            IsolationPart::Cache,
            IsolationPart::Bandwidth,
        ],
        if_available: &[],
    },
    IsolationCase {
        name: "nominal-frequency",
        about: "as isolated, and every core is set to the processor's nominal frequency",
        parts: &[
            IsolationPart::Pinned,
            IsolationPart::Isolated,
            IsolationPart::NominalFrequency,
        ],
        if_available: &[],
    },
    IsolationCase {
        name: "sst-bf",
        about: "as isolated, and the forwarding CPUs are cores of high priority at their base frequency",
        parts: &[
            IsolationPart::Pinned,
            IsolationPart::Isolated,
            IsolationPart::BaseFrequency,
        ],
        if_available: &[],
    },
    IsolationCase {
        name: "sr-iov",
        about: "as isolated, and each port is a virtual function of its own",
        parts: &[
            IsolationPart::Pinned,
            IsolationPart::Isolated,
            IsolationPart::VirtualFunctions,
        ],
        if_available: &[],
    },
    IsolationCase {
        name: "full",
        about: "as isolated, with all further means that the machine supports, at least one",
        parts: &[IsolationPart::Pinned, IsolationPart::Isolated],
        if_available: &[
            IsolationPart::IdleSiblings,
            IsolationPart::Cache,
            IsolationPart::Bandwidth,
            IsolationPart::BaseFrequency,
            IsolationPart::VirtualFunctions,
        ],
    },
];

/// Returns all cases.
#[must_use]
pub fn isolation_cases() -> &'static [IsolationCase] {
    CASES
}

impl IsolationCase {
    /// Returns the case of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        isolation_cases().iter().find(|case| case.name == name)
    }

    /// Returns true if the case has this part on every machine.
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
        let names: Vec<&str> = isolation_cases().iter().map(|case| case.name).collect();
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
            // The part that isolates a CPU requires a thread that is pinned to it.
            let is_pinned = case.has(IsolationPart::Pinned);
            assert!(case.parts.is_empty() || is_pinned, "{case:?}");
            let more = case.parts.len() > 1;
            assert_eq!(case.has(IsolationPart::Isolated), more, "{case:?}");
        }
        assert_eq!(IsolationCase::named("rdt"), None);
    }
}
