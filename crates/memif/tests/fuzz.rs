// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets of the memif protocol, each for a short while.

use std::path::Path;

use quietwire_base::fuzz::run;
use quietwire_memif::fuzz;

fn corpus(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(name)
}

#[test]
fn messages() {
    assert!(run("memif-message", &corpus("message"), fuzz::fuzz_message) > 100);
}

#[test]
fn sessions() {
    assert!(run("memif-session", &corpus("session"), fuzz::fuzz_session) > 100);
}

#[test]
fn rings() {
    assert!(run("memif-ring", &corpus("ring"), fuzz::fuzz_ring) > 10);
}
