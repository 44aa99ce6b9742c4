// SPDX-License-Identifier: Apache-2.0
//! Files of `--timestamps`, read by scapy.

use std::collections::BTreeMap;
use std::process::Command;

use quietwire_study::Store;
use serde_json::Value;

use super::Workspace;

/// Prints start of the trial, port, sequence number, interface and time of each packet.
const READ: &str = r"
import struct, sys
from scapy.utils import RawPcapNgReader
for data, meta in RawPcapNgReader(sys.argv[1]):
    assert meta.tsresol == 10**9 and meta.linktype == 147, meta
    trial, port, sequence = struct.unpack('>QII', data)
    assert meta.comments == [f'port {port} sequence {sequence}'.encode()], meta
    print(trial, port, sequence, meta.ifname.decode(), meta.tshigh << 32 | meta.tslow)
";

/// Transmit and receive times, nanoseconds, by start of the trial, port and sequence number.
type Frames = BTreeMap<(u64, u64, u64), BTreeMap<String, u64>>;

fn read(path: &str) -> Frames {
    let python =
        std::env::var("QUIETWIRE_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_owned());
    let output = Command::new(python)
        .args(["-c", READ, path])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "QUIETWIRE_PYTHON must name a Python with scapy (`make test` sets it): {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut frames = Frames::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let frame = frames.entry((number(0), number(1), number(2))).or_default();
        frame.insert(words[3].to_owned(), number(4));
    }
    frames
}

/// Samples, smallest, mean and largest value.
type Figures = (usize, i64, f64, i64);

fn figures(values: &[i64]) -> Figures {
    let sum: i64 = values.iter().sum();
    (
        values.len(),
        values.iter().min().copied().unwrap_or(0),
        sum as f64 / values.len().max(1) as f64,
        values.iter().max().copied().unwrap_or(0),
    )
}

/// Returns IPDV and PDV of a trial's streams (RFC 5481), computed from the times.
fn of_file(frames: &Frames, trial: u64) -> [Figures; 2] {
    let mut delays: BTreeMap<u64, BTreeMap<u64, i64>> = BTreeMap::new();
    for ((_, port, sequence), times) in frames.iter().filter(|((of, ..), _)| *of == trial) {
        let sent = times["transmit"];
        if let Some(received) = times.get("receive") {
            let delay = (received - sent).cast_signed();
            delays.entry(*port).or_default().insert(*sequence, delay);
        }
    }
    let (mut ipdv, mut pdv) = (Vec::new(), Vec::new());
    for delays in delays.values() {
        let min = delays.values().min().unwrap();
        pdv.extend(delays.values().map(|delay| delay - min));
        let pairs = delays.iter().filter_map(|(sequence, delay)| {
            let before = delays.get(&sequence.checked_sub(1)?)?;
            Some(delay - before)
        });
        ipdv.extend(pairs);
    }
    [figures(&ipdv), figures(&pdv)]
}

/// Returns IPDV and PDV of the low-rate streams of a result.
fn of_result(result: &Value) -> [Figures; 2] {
    ["ipdv", "pdv"].map(|name| {
        let figures = &result["low_rate"]["variation"][name];
        let number = |key: &str| figures[key].as_i64().unwrap();
        (
            usize::try_from(number("samples")).unwrap(),
            number("min_ns"),
            figures["mean_ns"].as_f64().unwrap(),
            number("max_ns"),
        )
    })
}

fn assert_equal(of_file: [Figures; 2], of_result: [Figures; 2]) {
    for (file, result) in of_file.into_iter().zip(of_result) {
        assert_eq!((file.0, file.1, file.3), (result.0, result.1, result.3));
        assert!((file.2 - result.2).abs() < 1e-3, "{file:?} {result:?}");
    }
}

#[test]
fn time_stamps_have_the_variation_of_the_result() {
    let workspace = Workspace::new();
    let ports = workspace.loop_ports();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let file = workspace.path("times.pcapng");
    let file = file.to_str().unwrap();
    // A trial that the machine disturbs has time stamps as well, so its validity does not matter.
    let output = workspace
        .quietwire(&["generate", "--json", "--rate", "20k", "--low-rate", "1k"])
        .args(["--duration", "300ms", "--warm-up", "50ms", "--no-huge"])
        .args(["--timestamps", file, "--isolation", "none"])
        .args(&ports)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    let result: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{printed}"));
    let frames = read(file);
    let offered = result["low_rate"]["offered_frames"].as_u64().unwrap();
    assert!(offered > 100, "{result}");
    assert_eq!(frames.len() as u64, offered);
    let started = result["started_unix_ns"].as_u64().unwrap();
    assert_equal(of_file(&frames, started), of_result(&result));

    // The same holds for each trial of a store.
    let store = workspace.path("trials.sqlite");
    let output = workspace
        .quietwire(&["measure", "loss-sweep", "--timestamps", file, "--store"])
        .arg(&store)
        .args(["--set", "loads-percent=[50]", "--max-rate-pps", "50k"])
        .args(["--duration", "1s", "--warm-up", "50ms", "--no-huge"])
        .args(["--isolation", "none"])
        .args(&ports)
        .output()
        .unwrap();
    let frames = read(file);
    let results = Store::open_to_read(&store).unwrap().results().unwrap();
    let trials: Vec<Value> = results
        .trials()
        .map(|(_, trial)| serde_json::to_value(&trial.result).unwrap())
        .collect();
    assert!(
        !trials.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for result in trials {
        let started = result["started_unix_ns"].as_u64().unwrap();
        assert_equal(of_file(&frames, started), of_result(&result));
    }
}
