// SPDX-License-Identifier: Apache-2.0
//! Tests of rings against a slow and simple driver.

mod ahead;
mod guest;
mod receive;
mod restart;
mod rules;
mod transmit;

use proptest::prelude::*;

use guest::{ACCESS_PLATFORM, CSUM, EVENT_INDEX, INDIRECT, LOG_ALL, MERGEABLE, PACKED, VERSION_1};

/// Features and size of a queue.
fn kinds() -> impl Strategy<Value = (u64, u16)> {
    let bits = [
        INDIRECT,
        EVENT_INDEX,
        VERSION_1,
        ACCESS_PLATFORM,
        PACKED,
        MERGEABLE,
        LOG_ALL,
        CSUM,
    ];
    let features = proptest::sample::subsequence(bits.to_vec(), 0..=bits.len())
        .prop_map(|bits| bits.into_iter().sum::<u64>());
    (features, 0..8_u32, 4..256_u16).prop_map(|(features, power, any)| match features & PACKED {
        0 => (features, 1 << power),
        _ => (features, any),
    })
}

/// Returns the octets of a frame that differs from others.
fn frame(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let octet = |_| {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(seed | 1);
        (state >> 56) as u8
    };
    (0..len).map(octet).collect()
}

/// Returns lengths that add up to `total`: the given ones, then the remainder.
fn cut(total: usize, lengths: &[usize]) -> Vec<usize> {
    let mut left = total;
    let mut pieces = Vec::new();
    for length in lengths {
        let piece = (*length).min(left);
        if piece > 0 {
            pieces.push(piece);
        }
        left -= piece;
    }
    if left > 0 {
        pieces.push(left);
    }
    pieces
}
