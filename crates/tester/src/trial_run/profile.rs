// SPDX-License-Identifier: Apache-2.0
//! Frames and observations of a run.

use crate::pacer::Pace;

/// Observation in addition to the counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Watch {
    /// Nothing.
    Nothing,
    /// Send times of lost frames, from `from_s` after the start on, for `length_s`.
    Losses {
        /// Seconds.
        from_s: f64,
        /// Seconds.
        length_s: f64,
    },
    /// Times without received frames. Links may go down and up.
    Silence,
}

/// Transmission of the ports, and the observation in addition to the counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialProfile {
    /// Spacing of frames on each sending port.
    pub(crate) pace: Pace,
    /// The sending ports.
    pub(crate) senders: Senders,
    /// The MAC addresses of their frames.
    pub(crate) addressing: Addressing,
    /// The observation.
    pub(crate) watch: Watch,
}

/// The sending ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Senders {
    /// The first ports, this many.
    First(usize),
    /// A single port, by its index.
    Only(usize),
}

/// MAC addresses of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressing {
    /// The addresses of the trial.
    AsAsked,
    /// From each of this many addresses to one. The other port of the pair first sends a frame, so that the device learns its address.
    FromMany(u32),
    /// From one address to each of this many.
    ToMany(u32),
}

impl Senders {
    pub(crate) fn has(self, port: usize) -> bool {
        match self {
            Self::First(count) => port < count,
            Self::Only(one) => port == one,
        }
    }

    pub(crate) fn count(self) -> usize {
        match self {
            Self::First(count) => count,
            Self::Only(_) => 1,
        }
    }
}

impl TrialProfile {
    /// Creates the course of a load from these ports.
    pub(crate) fn of_load(pace: Pace, senders: Senders) -> Self {
        Self {
            pace,
            senders,
            addressing: Addressing::AsAsked,
            watch: Watch::Nothing,
        }
    }
}
