// SPDX-License-Identifier: Apache-2.0
//! Any order of messages of a vhost-user back end.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = quietwire_vhost::fuzz::fuzz_frontend_session(input);
});
