// SPDX-License-Identifier: Apache-2.0
//! Trial parameters shared with other modules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Frame sizes offered in a trial, in octets with FCS (RFC 2544, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameSizes {
    /// Every frame has this size: 64 to 9000 octets with FCS.
    Fixed(u16),
    /// Simple IMIX: 64, 594 and 1518 octets in the ratio 7:4:1. [`FrameSizes::genome`] returns their order.
    Imix,
}

/// Transmitting ports of the tester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// The first port transmits, the second receives.
    OneWay,
    /// The second port transmits, the first receives.
    Reverse,
    /// Both ports transmit and receive at the same time. Rates are sums over both.
    Both,
}

/// Start of the latency of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyStart {
    /// When the frame was sent. Percentiles that frames sent late could change are unknown.
    #[default]
    Sent,
    /// When the frame was due, even if the tester sent it later. The latency includes the delay of the tester, so percentiles are upper
    /// bounds of those of the device, and frames sent late do not make them unknown. At a constant rate only; under other loads as
    /// [`LatencyStart::Sent`].
    Due,
}

impl LatencyStart {
    // Serde requires a reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(super) fn is_sent(&self) -> bool {
        *self == Self::Sent
    }
}

/// IP version of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpVersion {
    /// IPv4.
    #[default]
    #[serde(rename = "4")]
    V4,
    /// IPv6. The header is 20 octets longer, so frames have at least 84 octets with FCS.
    #[serde(rename = "6")]
    V6,
}

impl Directions {
    /// Returns the index of the port that transmits; `None` if both do.
    #[must_use]
    pub const fn sender(self) -> Option<usize> {
        match self {
            Self::OneWay => Some(0),
            Self::Reverse => Some(1),
            Self::Both => None,
        }
    }
}

impl IpVersion {
    /// Returns the smallest frame that holds all headers and the tester's signature, octets with FCS.
    #[must_use]
    pub fn frame_size_min(self) -> u16 {
        match self {
            Self::V4 => 64,
            Self::V6 => 84,
        }
    }
}

impl FrameSizes {
    /// Returns the largest frame, octets with FCS.
    #[must_use]
    pub fn largest(self) -> u16 {
        self.pattern().into_iter().max().unwrap_or(0)
    }

    /// Returns the smallest frame, octets with FCS.
    #[must_use]
    pub fn smallest(self) -> u16 {
        self.pattern().into_iter().min().unwrap_or(0)
    }

    /// Returns the order of a mix in the notation of RFC 6985; `None` if all frames have the same size.
    #[must_use]
    pub fn genome(self) -> Option<&'static str> {
        match self {
            Self::Fixed(_) => None,
            Self::Imix => Some("CUSTOM IMIX - aAaaAagaAaAa, A = 594"),
        }
    }

    /// Returns the sizes with FCS, the smallest first, and the number of frames of each in one round of the pattern.
    #[must_use]
    pub fn composition(self) -> BTreeMap<u16, u32> {
        let mut counts = BTreeMap::<u16, u32>::new();
        for size in self.pattern() {
            let count = counts.entry(size).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }

    /// Returns the sizes with FCS in transmit order. IMIX is interleaved, not sent in runs.
    pub(crate) fn pattern(self) -> Vec<u16> {
        match self {
            Self::Fixed(size) => vec![size],
            Self::Imix => vec![64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64],
        }
    }
}

/// Highest rate of a trial, frames per second, above the rate of any link (64-byte frames at 6.7 Tbit/s).
pub const OFFERED_RATE_PPS_MAX: f64 = 1e10;

/// Largest number of destination MAC addresses of one transmitting port.
pub const MAC_ADDRESSES_MAX: u32 = 1 << 24;

/// Largest number of IP destinations of a port. With IPv4 they are /24 networks from 16.0.0.0 to 47.255.255.0, with IPv6 /48 networks
/// from 3fff:: to 3fff:1f:ffff::. The destinations of the second port of a pair follow, up to 79.255.255.0 and 3fff:3f:ffff::.
pub const DESTINATIONS_MAX: u32 = 1 << 21;

/// Smallest and largest frame, octets with FCS.
pub(super) const FRAME_SIZES: std::ops::RangeInclusive<u16> = 64..=9000;
