// SPDX-License-Identifier: Apache-2.0
//! Any contents of a guest's rings.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = quietwire_vhost::fuzz::fuzz_device_ring(input);
});
