// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: each accepts any octets as a file of traffic or a capture, and must end without a panic.

use std::collections::BTreeMap;
use std::path::Path;

use quietwire_base::fuzz::{check, planted};

use crate::traffic::{Capture, Genome, SEQUENCE_MAX, Traffic};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Parses any octets as a capture (pcap or pcapng). Its frames have permitted sizes and ascending times.
fn fuzz_capture(octets: &[u8]) -> bool {
    let Ok(capture) = Capture::parse(octets) else {
        return false;
    };
    assert!(capture.frames() > 0 && capture.times_ns().is_sorted());
    assert!((64..=9000).contains(&capture.frame_size_largest()));
    let frames = (0..capture.frames()).filter_map(|index| capture.frame(index));
    assert_eq!(
        frames.filter(|frame| capture.holds(frame)).count(),
        capture.frames()
    );
    planted("tester-capture", || {
        capture.frames() > 2 && capture.times_ns().last() > Some(&3_600_000_000_000)
    });
    true
}

#[test]
fn capture() {
    check(CRATE, "tester-capture", fuzz_capture);
}

/// Parses any text as a genome of frame sizes (RFC 6985). All sizes are permitted.
fn fuzz_genome(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let custom = BTreeMap::from([('A', 100), ('Z', 9000)]);
    let Ok(genome) = Genome::new(text, Some(1518), custom) else {
        return false;
    };
    let sizes = genome.sizes();
    assert!(!sizes.is_empty() && sizes.len() <= SEQUENCE_MAX);
    assert!(sizes.iter().all(|size| (64..=9000).contains(size)));
    planted("tester-genome", || {
        sizes.len() > 20 && sizes.contains(&9000) && sizes.contains(&100)
    });
    true
}

#[test]
fn genome() {
    check(CRATE, "tester-genome", fuzz_genome);
}

/// Parses any text as a traffic file (TOML). What is accepted can be stored, and is the same when it is read back.
fn fuzz_traffic(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let traffic = match Traffic::parse(text, Path::new("fuzz.toml")) {
        Ok(traffic) => traffic,
        Err(error) => {
            assert!(error.to_string().starts_with("fuzz.toml:"), "{error}");
            return false;
        }
    };
    assert!(traffic.flow_count() > 0 && traffic.frame_size_min() >= 64);
    let again = serde_json::to_string(&traffic).map(|stored| serde_json::from_str(&stored).ok());
    assert_eq!(again.ok().flatten().as_ref(), Some(&traffic));
    planted("tester-traffic", || traffic.flow_count() > 200_000);
    true
}

#[test]
fn traffic() {
    check(CRATE, "tester-traffic", fuzz_traffic);
}
