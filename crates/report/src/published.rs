// SPDX-License-Identifier: Apache-2.0
//! Published figures that a noisy-neighbours study stands beside, and which of its cases answer to them.

use quietwire_study::{Case, NeighboursIn};

/// One published configuration, in percent of the quiet one.
pub(crate) struct Published {
    /// Its name.
    pub(crate) configuration: &'static str,
    /// Throughput.
    pub(crate) throughput: &'static str,
    /// Mean round trip.
    pub(crate) mean_round_trip: &'static str,
    /// The case of a study that answers to it.
    pub(crate) answers: fn(&Case) -> bool,
    /// Why there may be none.
    pub(crate) otherwise: &'static str,
}

/// An edge platform beside noisy neighbours: 2x Xeon Gold 6230, 10 GbE, KubeOVN with the kernel's Open vSwitch,
/// Kubernetes 1.18; Linux `stress` on every core; TCP by iPerf in messages of 128 kB and larger, five minutes; an echo
/// for the round trip.
pub(crate) const EDGE: [Published; 4] = [
    Published {
        configuration: "quiet",
        throughput: "100\u{202f}%",
        mean_round_trip: "100\u{202f}%",
        answers: |case| case.neighbours == NeighboursIn::None,
        otherwise: "not in this study",
    },
    Published {
        configuration: "noisy",
        throughput: "about 60\u{202f}%",
        mean_round_trip: "160\u{202f}%",
        answers: |case| case.neighbours == NeighboursIn::Everywhere && !case.is_pinned(),
        otherwise: "not in this study",
    },
    Published {
        configuration: "noisy, cores pinned",
        throughput: "68\u{202f}%",
        mean_round_trip: "120\u{202f}%",
        answers: |case| case.neighbours != NeighboursIn::None && case.is_pinned(),
        otherwise: "not in this study",
    },
    Published {
        configuration: "noisy, cores pinned, SR-IOV",
        throughput: "118\u{202f}% (line rate)",
        mean_round_trip: "98 to 99\u{202f}%",
        answers: |_| false,
        otherwise: "unavailable on this machine",
    },
];
