// SPDX-License-Identifier: Apache-2.0
//! Any text as a description of traffic or a genome, and any octets as a capture: they are read or refused, and whatever is
//! read is of the sizes that frames may have, can be stored, and is the same when it comes back.
#![no_main]

use std::collections::BTreeMap;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use quietwire_tester::traffic::{Capture, Genome, SEQUENCE_MAX, Traffic};

fuzz_target!(|octets: &[u8]| {
    let Some((choice, rest)) = octets.split_first() else {
        return;
    };
    if choice % 3 == 0 {
        if let Ok(capture) = Capture::parse(rest) {
            assert!(capture.frames() > 0 && capture.times_ns().is_sorted());
            assert!((64..=9000).contains(&capture.frame_size_largest()));
            for index in 0..capture.frames() {
                let frame = capture.frame(index).expect("it has as many");
                assert!(capture.holds(frame));
            }
        }
        return;
    }
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    if choice % 3 == 1 {
        let custom = BTreeMap::from([('A', 100), ('Z', 9000)]);
        if let Ok(genome) = Genome::new(text, Some(1518), custom) {
            let sizes = genome.sizes();
            assert!(!sizes.is_empty() && sizes.len() <= SEQUENCE_MAX);
            assert!(sizes.iter().all(|size| (64..=9000).contains(size)));
        }
        return;
    }
    if let Ok(traffic) = Traffic::parse(text, Path::new("fuzz.toml")) {
        assert!(traffic.flow_count() > 0 && traffic.frame_size_min() >= 64);
        let stored = serde_json::to_string(&traffic).expect("it can be stored");
        let again: Traffic = serde_json::from_str(&stored).expect("it can be read back");
        assert_eq!(again, traffic);
    }
});
