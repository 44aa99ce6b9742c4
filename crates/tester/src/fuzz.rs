// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: each accepts any octets as a file of traffic or a capture, and must end without a panic.

use std::collections::BTreeMap;
use std::path::Path;

use quietwire_base::fuzz::{check, planted};

use crate::connections::{Connections, feed_segments};
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

/// Parses any text as a description of conversations (TOML). What is accepted has at least one kind of them.
fn fuzz_connections(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let connections = match Connections::parse(text, Path::new("fuzz.toml")) {
        Ok(connections) => connections,
        Err(error) => {
            assert!(error.to_string().starts_with("fuzz.toml:"), "{error}");
            return false;
        }
    };
    assert!(connections.first_fault().is_none() && !connections.mix.is_empty());
    assert!(connections.frame_size_max() <= 9000);
    planted("tester-connections", || {
        connections.open_max > 1_000_000 && connections.mix.len() > 2
    });
    true
}

#[test]
fn connections() {
    check(CRATE, "tester-connections", fuzz_connections);
}

/// Reads any octets as TCP segments, and feeds them to the end of a connection.
fn fuzz_segments(octets: &[u8]) -> bool {
    let segments = feed_segments(octets);
    planted("tester-segments", || {
        let options = segments.iter().map(|segment| segment.options);
        let mut larger = options.filter(|options| options.segment_max > Some(40_000));
        larger.any(|options| options.shift.is_some() && options.permits_sack)
    });
    !segments.is_empty()
}

#[test]
fn segments() {
    check(CRATE, "tester-segments", fuzz_segments);
}
