// SPDX-License-Identifier: Apache-2.0
//! Counters of the device.

use serde::{Deserialize, Serialize};

use crate::frame::MAGIC;

/// Counters of the device for one trial. They cover the frames of the counted part only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// By the tester port that sent the frames.
    pub directions: [Tally; 2],
    /// When the device sent its last frame, nanoseconds since the Unix epoch; 0 if it sent none.
    pub last_sent_unix_ns: u64,
}

/// Counters of one direction.
///
/// Each frame received is counted in exactly one of `forwarded`, `lost`, `damaged`, `unrecognisable`, `misdirected` and
/// `unsent`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Frames received.
    pub received: u64,
    /// Frames sent to the opposite port, copies not included. Their octets behind the Ethernet header are unchanged.
    pub forwarded: u64,
    /// Frames dropped.
    pub lost: u64,
    /// Second copies sent to the opposite port.
    pub copies: u64,
    /// The largest distance of a copy from the newest frame sent before it, frames.
    pub copy_distance_max: u64,
    /// Frames of `forwarded` that were sent after a later one (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Frames of `forwarded` of which a bit of the Ethernet header was flipped.
    pub ethernet_changes: u64,
    /// Frames sent to the opposite port with a flipped bit behind the Ethernet header, other than in the magic number.
    pub damaged: u64,
    /// Frames sent to the opposite port with a flipped bit in the magic number of the signature.
    pub unrecognisable: u64,
    /// Frames sent back to the port that sent them.
    pub misdirected: u64,
    /// Stalls.
    pub stalls: u64,
    /// Frames that the device could not send before the trial was over.
    pub unsent: u64,
    /// Time from the time stamp in a frame of `forwarded` to the moment when the device sent it, nanoseconds: the smallest.
    pub latency_min_ns: u64,
    /// The largest.
    pub latency_max_ns: u64,
    /// The sum.
    pub latency_sum_ns: u64,
}

/// Effect of a flipped bit on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DamageEffect {
    /// The octet is in the Ethernet header, which no checksum covers.
    Ethernet,
    /// The octet is in the magic number, without which a frame is not the tester's.
    Magic,
    /// A checksum covers the octet.
    Checked,
}

/// Octets of the Ethernet header.
const ETHERNET: usize = 14;

impl DamageEffect {
    /// Returns the harm of a changed octet in a frame whose signature is at `place`.
    pub(super) fn of(octet: usize, place: usize) -> Self {
        if octet < ETHERNET {
            Self::Ethernet
        } else if (place..place.saturating_add(MAGIC.len())).contains(&octet) {
            Self::Magic
        } else {
            Self::Checked
        }
    }
}

impl Ledger {
    /// Returns the sum of one figure over both directions.
    pub(super) fn sum(&self, figure: fn(&Tally) -> u64) -> u64 {
        self.directions.iter().map(figure).sum()
    }

    /// Returns the mean latency of the forwarded frames, nanoseconds.
    pub(super) fn latency_mean_ns(&self) -> u64 {
        let sum = self.sum(|tally| tally.latency_sum_ns);
        sum.checked_div(self.sum(|tally| tally.forwarded))
            .unwrap_or(0)
    }

    /// Returns the smallest latency of the forwarded frames, nanoseconds; 0 if there are none.
    pub(super) fn latency_min_ns(&self) -> u64 {
        let tallies = self.directions.iter().filter(|tally| tally.forwarded > 0);
        tallies.map(|tally| tally.latency_min_ns).min().unwrap_or(0)
    }

    /// Returns the largest latency of the forwarded frames, nanoseconds; 0 if there are none.
    pub(super) fn latency_max_ns(&self) -> u64 {
        let tallies = self.directions.iter();
        tallies.map(|tally| tally.latency_max_ns).max().unwrap_or(0)
    }
}

impl Tally {
    /// Returns the frames that the tally accounts for. They are the frames received, unless the device lost count.
    pub(super) fn accounted(&self) -> u64 {
        [
            self.forwarded,
            self.lost,
            self.damaged,
            self.unrecognisable,
            self.misdirected,
            self.unsent,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harm_depends_on_the_octet() {
        let harms = [0, 13, 14, 41, 42, 43, 44, 59].map(|octet| DamageEffect::of(octet, 42));
        use DamageEffect::{Checked, Ethernet, Magic};
        assert_eq!(
            harms,
            [
                Ethernet, Ethernet, Checked, Checked, Magic, Magic, Checked, Checked
            ]
        );
    }

    #[test]
    fn figures_are_of_both_directions() {
        let tally = |forwarded, min, max, sum| Tally {
            forwarded,
            latency_min_ns: min,
            latency_max_ns: max,
            latency_sum_ns: sum,
            ..Tally::default()
        };
        let mut ledger = Ledger {
            directions: [tally(3, 10, 30, 60), tally(1, 40, 40, 40)],
            last_sent_unix_ns: 0,
        };
        let latency = |ledger: &Ledger| {
            (
                ledger.latency_min_ns(),
                ledger.latency_mean_ns(),
                ledger.latency_max_ns(),
            )
        };
        assert_eq!(latency(&ledger), (10, 25, 40));
        assert_eq!(ledger.sum(|tally| tally.forwarded), 4);
        ledger.directions[0] = Tally::default();
        assert_eq!(latency(&ledger), (40, 40, 40));
        assert_eq!(latency(&Ledger::default()), (0, 0, 0));
    }
}
