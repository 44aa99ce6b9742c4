// SPDX-License-Identifier: Apache-2.0
//! Any contents of rings of our own, as a back end may leave them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = quietwire_vhost::fuzz::fuzz_driver_ring(input);
});
