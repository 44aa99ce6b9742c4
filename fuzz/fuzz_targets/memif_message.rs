// SPDX-License-Identifier: Apache-2.0
//! Any message of a memif peer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = quietwire_memif::fuzz::fuzz_message(input);
});
