// SPDX-License-Identifier: Apache-2.0
//! What a run sends, and when.

use crate::pacer::Pace;

/// What is looked at beside the counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Watch {
    /// Nothing.
    Nothing,
    /// When those frames were sent that were lost, from so long after the start on, for so long.
    Losses {
        /// Seconds.
        from_s: f64,
        /// Seconds.
        length_s: f64,
    },
    /// When no frames came. Links may come and go.
    Silence,
}

/// What ports send, and what is looked at beside the counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// How frames are spaced, for each port that sends.
    pub(crate) pace: Pace,
    /// Which ports send.
    pub(crate) senders: Senders,
    /// Which addresses their frames have.
    pub(crate) addressing: Addressing,
    /// What is looked at.
    pub(crate) watch: Watch,
}

/// Which ports send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Senders {
    /// The first so many.
    First(usize),
    /// This one.
    Only(usize),
}

/// Which MAC addresses frames have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressing {
    /// Those that the trial asks for.
    AsAsked,
    /// From each of so many, to one. The other port of the pair tells the device its own address before.
    FromMany(u32),
    /// From one, to each of so many.
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

impl Course {
    /// Offers a load from the first ports.
    pub(crate) fn of_load(pace: Pace, ports: usize) -> Self {
        Self {
            pace,
            senders: Senders::First(ports),
            addressing: Addressing::AsAsked,
            watch: Watch::Nothing,
        }
    }
}
