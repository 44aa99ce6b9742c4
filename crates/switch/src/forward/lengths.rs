// SPDX-License-Identifier: Apache-2.0
//! Lengths of the frames of a burst, for counters.

use quietwire_dpdk::Burst;
use quietwire_packet::ETHERNET_HEADER_LENGTH;

/// Returns the octets of a burst and the number of frames shorter than an Ethernet header.
#[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
#[inline(always)]
pub(super) fn measure(burst: &Burst) -> (u64, u64) {
    let (mut octets, mut short) = (0, 0);
    for length in burst.lengths() {
        octets += u64::from(length);
        short += u64::from((length as usize) < ETHERNET_HEADER_LENGTH);
    }
    (octets, short)
}
