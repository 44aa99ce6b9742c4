// SPDX-License-Identifier: Apache-2.0
//! Random numbers of simulated devices in tests. `mlrsearch/tests/oracle.py` has the same ones.

/// Returns a pseudo-random number in \[0, 1) for a seed and an index (SplitMix64's mixer).
pub(crate) fn chance(seed: u64, index: u64) -> f64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
