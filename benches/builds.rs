// SPDX-License-Identifier: Apache-2.0
//! Two builds of the switch in turns: this one, and another whose binary `QUIETWIRE_OTHER_BUILD` names.
//!
//! What counting cycles costs, for one:
//!
//! ```text
//! cargo build --release --features without-cycles --target-dir target/without-cycles
//! QUIETWIRE_OTHER_BUILD=$PWD/target/without-cycles/release/quietwire cargo bench -p quietwire --bench builds
//! ```
//!
//! One forwarding CPU, 64-byte frames one way over memif. The tester is that of this build for both. Wants root and a quiet
//! machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};

use common::switch::{Kind, Switch};
use common::{Load, Machine, Options, QUIETWIRE, Spread};

const ROUNDS: u32 = 9;

/// What is forwarded: name, options of the switch, options of the tester.
const CASES: [(&str, &[&str], &[&str]); 3] = [
    ("cross-connect", &["--cross-connect", "p0,p1"], &[]),
    (
        "bridge, 2 MAC addresses",
        &["--bridge", "br0=p0,p1"],
        &["--mac-addresses", "1"],
    ),
    (
        "bridge, 20,000 MAC addresses",
        &["--bridge", "br0=p0,p1"],
        &["--mac-addresses", "10000"],
    ),
];

#[derive(Debug, serde::Serialize)]
struct Row {
    case: &'static str,
    build: &'static str,
    forwarded_pps: Spread,
    /// Median of the rounds' ratios of this build to the other.
    ratio: Option<Spread>,
}

fn main() {
    let options = Options::read();
    let Some(other) = std::env::var_os("QUIETWIRE_OTHER_BUILD").map(PathBuf::from) else {
        eprintln!(
            "builds: QUIETWIRE_OTHER_BUILD names no binary to compare with; nothing was measured"
        );
        return;
    };
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let mut runs = 0;
    let mut rows = Vec::new();
    for (case, switch_options, tester_options) in CASES {
        if !options.wants(case) {
            continue;
        }
        let mut rate = |binary: &Path| {
            runs += 1;
            let directory = directory.path().join(runs.to_string());
            let switch = Switch::of_build(binary, &directory, Kind::Memif, 2, switch_options);
            Load {
                ports: [0, 1].map(|port| switch.tester_uri(port)),
                seconds: options.seconds(),
                more: tester_options,
            }
            .rate()
        };
        let (mut this, mut that, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds(ROUNDS) {
            that.push(rate(&other));
            this.push(rate(Path::new(QUIETWIRE)));
            ratios.push(this[this.len() - 1] / that[that.len() - 1]);
        }
        rows.push(Row {
            case,
            build: "other",
            forwarded_pps: Spread::of(&that),
            ratio: None,
        });
        rows.push(Row {
            case,
            build: "this",
            forwarded_pps: Spread::of(&this),
            ratio: Some(Spread::of(&ratios)),
        });
    }
    if options.json {
        let document = serde_json::json!({
            "bench": "builds",
            "run": common::circumstances(&options, ROUNDS),
            "rows": rows,
        });
        println!("{document:#}");
        return;
    }
    println!(
        "| 64 B, one-way | build | forwarded, Mpps: median | min | max | to the other: median of rounds |"
    );
    println!("|---|---|---|---|---|---|");
    for row in rows {
        let ratio = row
            .ratio
            .map_or_else(String::new, |ratio| format!("{:.3}", ratio.median));
        println!(
            "| {} | {} | {} | {ratio} |",
            row.case,
            row.build,
            row.forwarded_pps.mpps()
        );
    }
}
