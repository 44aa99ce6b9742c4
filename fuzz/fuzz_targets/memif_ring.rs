// SPDX-License-Identifier: Apache-2.0
//! Any contents of a memif ring.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = quietwire_memif::fuzz::fuzz_ring(input);
});
