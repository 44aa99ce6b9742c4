// SPDX-License-Identifier: Apache-2.0
//! Metrics over HTTP, read by Prometheus' parser.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::bench::{Bench, frame, free_address, until};

fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns samples by name and labels, as Prometheus' parser reads them.
fn parse(text: &str) -> BTreeMap<String, f64> {
    const SCRIPT: &str = r"
import json, sys
from prometheus_client.parser import text_string_to_metric_families
samples = {}
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation and family.type in ('counter', 'gauge', 'histogram'), family
    for sample in family.samples:
        labels = ','.join(f'{key}={value}' for key, value in sorted(sample.labels.items()))
        samples[f'{sample.name}{{{labels}}}'] = sample.value
print(json.dumps(samples))
";
    let python = std::env::var("QUIETWIRE_PYTHON").expect(
        "QUIETWIRE_PYTHON must name a Python with prometheus_client (`make test` installs one)",
    );
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn prometheus_reads_the_counters() {
    let address = free_address();
    let mut bench = Bench::start(
        &["a", "b"],
        &["--bridge", "lan=a,b", "--metrics", &address.to_string()],
    );
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let frames: Vec<Vec<u8>> = (0..5)
        .map(|n| frame([0xff; 6], [2, 0, 0, 0, 0, 1], n))
        .collect();
    a.send(&frames);
    assert_eq!(b.receive(5), frames);
    // Clients that send nothing, or nonsense, delay no others.
    let silent: Vec<TcpStream> = (0..5)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\x16\x03\x01\x02\r\n\r\n", "400"),
    ] {
        let answer = ask(address, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    bench.settle();
    let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    drop((silent, a, b));
    assert_eq!(bench.end("TERM"), Some(0));
    bench.release();
    let samples = parse(text);
    for (name, value) in [
        ("quietwire_switch_port_receive_frames_total{port=a}", 5.0),
        ("quietwire_switch_port_transmit_frames_total{port=b}", 5.0),
        ("quietwire_switch_port_up{port=a}", 1.0),
        (
            "quietwire_switch_port_drops_total{port=a,reason=short}",
            0.0,
        ),
        ("quietwire_switch_bridge_addresses{bridge=lan}", 1.0),
        (
            "quietwire_switch_queue_burst_frames_sum{port=a,queue=0}",
            5.0,
        ),
        (
            "quietwire_switch_bridge_flooded_frames_total{bridge=lan}",
            5.0,
        ),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let bench = Bench::new(&["a"], &[]);
    let printed = bench.refused(2, &["--metrics", &address]);
    assert!(
        printed.contains(&format!("metrics: cannot listen on {address}")),
        "{printed}"
    );
    until("nothing is left behind", || {
        bench.files().is_empty().then_some(())
    });
}
