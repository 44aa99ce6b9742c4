// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets of the memif protocol, each for a short while.
//!
//! The planted faults of sessions and rings require inputs longer than each of the corpus, which therefore cannot lead to them.

use std::time::Duration;

use quietwire_base::fuzz::{Outcome, check_for, planted};
use quietwire_memif::fuzz;
use quietwire_memif::message::Message;

/// Sessions and rings have more states than the parser of a file.
const DURATION: Duration = Duration::from_secs(2);
/// Octets of the longest input of the corpus.
const SESSION_LONGEST: usize = 753;

fn check<O: Outcome>(name: &str, target: impl Fn(&[u8]) -> O) {
    check_for(DURATION, env!("CARGO_MANIFEST_DIR"), name, target);
}

#[test]
fn messages() {
    check("memif-message", |octets| {
        let message = fuzz::fuzz_message(octets);
        // Rings of the corpus have one entry.
        planted(
            "memif-message",
            || matches!(message, Some(Message::AddRing { place, .. }) if place.log2_size >= 8),
        );
        message.is_some()
    });
}

#[test]
fn sessions() {
    check("memif-session", |octets| {
        let depth = fuzz::fuzz_session(octets);
        planted("memif-session", || {
            let (regions, rings) = depth.server;
            octets.len() > SESSION_LONGEST && regions > 1 && rings > 1
        });
        depth.was_server_connected() || depth.was_client_connected
    });
}

#[test]
fn rings() {
    check("memif-ring", |octets| {
        let depth = fuzz::fuzz_ring(octets);
        // No input of the corpus has rings of this size.
        planted("memif-ring", || depth.slots == 64 && depth.chained > 0);
        depth.frames > 0
    });
}
