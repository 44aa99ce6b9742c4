// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets of the memif protocol, each for a short while.

use std::time::Duration;

use quietwire_base::fuzz::{Outcome, check_for};
use quietwire_memif::fuzz;

/// Sessions and rings have more states than the parser of a file.
const DURATION: Duration = Duration::from_secs(2);

fn check<O: Outcome>(name: &str, target: impl Fn(&[u8]) -> O) {
    check_for(DURATION, env!("CARGO_MANIFEST_DIR"), name, target);
}

#[test]
fn messages() {
    check("memif-message", fuzz::fuzz_message);
}

#[test]
fn sessions() {
    check("memif-session", fuzz::fuzz_session);
}

#[test]
fn rings() {
    check("memif-ring", fuzz::fuzz_ring);
}
