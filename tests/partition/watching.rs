// SPDX-License-Identifier: Apache-2.0
//! `verify --watch` on this machine: it repeats the checks, reports changes, and serves Prometheus metrics.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quietwire_base::testing::KillOnDrop;

use crate::rig::until;

/// CPU 1 forwards, and nothing was applied: the checks only require a plan.
const PLAN: &str = r#"{
  "groups": [
    {"role": "host", "name": "host", "cpus": "0", "nodes": [0], "memory_mib": 0, "class": null},
    {"role": "forwarding", "name": "forwarding", "cpus": "1", "nodes": [0], "memory_mib": 0, "class": null}
  ],
  "classes": [], "huge_pages": [], "nics": [], "frequencies": [], "boot": [],
  "housekeeping": "0", "rx_ring_size": 1024, "tx_ring_size": 1024, "idle": "poll", "reasons": []
}"#;

/// Returns the body of a response.
fn asked(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .ok()?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    Some(body.to_owned())
}

fn value(text: &str, start: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(start))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn watching_continues_and_serves_prometheus() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.json");
    fs::write(&plan, PLAN).unwrap();
    let watcher = Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .args(["partition", "verify", "--watch", "--for", "200ms"])
        .args(["--metrics", "127.0.0.1:0", "--plan"])
        .arg(&plan)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut watcher = KillOnDrop(watcher);
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let address = first.strip_prefix("metrics at http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap().to_owned();
    // Each round checks again.
    let when = "quietwire_partition_verify_timestamp_seconds";
    let began = until("metrics", || value(&asked(&address)?, when));
    let text = until("another round", || {
        let text = asked(&address)?;
        (value(&text, when)? > began && text.contains("check=\"who-ran\"")).then_some(text)
    });
    assert!(value(&text, "quietwire_partition_verify_cpu_seconds_total").unwrap() > 0.0);
    for metric in ["checks{", "interrupts_total{", "softirqs_total{"] {
        let name = format!("quietwire_partition_{metric}");
        assert!(value(&text, &name).is_some(), "{name}: {text}");
    }
    // Prometheus' client library parses it.
    let parse = "import sys\nfrom prometheus_client.parser import text_string_to_metric_families as families\nprint(len(list(families(sys.stdin.read()))))";
    let python =
        std::env::var("QUIETWIRE_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_owned());
    let mut reader = Command::new(python)
        .args(["-c", parse])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    reader
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = reader.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "QUIETWIRE_PYTHON must name a Python with prometheus_client (`make test` sets it)"
    );
    let families: usize = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert_eq!(families, text.matches("# TYPE ").count());

    kill(
        Pid::from_raw(i32::try_from(watcher.id()).unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    // The first round was reported in full, and the machine does not match the plan.
    let reported: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(
        reported.iter().any(|line| line.starts_with("pass")),
        "{reported:?}"
    );
    assert!(
        reported.iter().any(|line| line.starts_with("FAIL")),
        "{reported:?}"
    );
    assert_eq!(watcher.wait().unwrap().code(), Some(1));
}
