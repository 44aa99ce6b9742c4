// SPDX-License-Identifier: Apache-2.0
//! Lines of DPDK and of the libraries of its drivers do not reach the terminal, and errors are sentences.

use std::process::Command;

use tempfile::TempDir;

use crate::rig::{Namespace, Switch, quietwire};

/// Texts of their lines that ours do not contain.
const THEIRS: [&str; 9] = [
    "EAL:", "ETHDEV:", "VHOST_", "TAP:", "init_", "eth_", "libbpf:", "libxdp:", "rte_",
];

fn assert_ours(printed: &str) {
    let theirs = THEIRS.iter().find(|word| printed.contains(**word));
    assert!(theirs.is_none(), "{theirs:?}: {printed}");
}

/// The tester's ports on two interfaces of the namespace.
fn generate(namespace: &Namespace, uris: [&str; 2], size: &str) -> Command {
    let mut command = namespace.command(quietwire());
    command.args(["generate", "--rate", "1000", "--duration", "200ms"]);
    command.args(["--warm-up", "0s", "--drain", "200ms", "--memory-mib", "192"]);
    command.args(["--no-huge", "--isolation", "none", "--frame-size", size]);
    for uri in uris {
        command.args(["--port", uri]);
    }
    command
}

#[test]
fn a_queue_that_another_switch_has_is_an_error_in_words() {
    let namespace = Namespace::with_pairs("lines-xdp");
    let directory = TempDir::new().unwrap();
    let ports = [("a", "af-xdp:v0".to_owned())];
    let switch = Switch::start(&namespace, directory.path(), &ports, &[]);
    assert_ours(&switch.printed());
    let mut second = namespace.command(quietwire());
    second.args([
        "switch",
        "run",
        "--port",
        "b=af-xdp:v0",
        "--memory-mib",
        "192",
    ]);
    second.args(["--huge-pages", "never", "--control-socket"]);
    let output = second
        .arg(directory.path().join("second.sock"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let mut errors = printed
        .lines()
        .filter(|line| line.starts_with("quietwire:"));
    let error = errors.find(|line| line.contains("port 'b'"));
    let error = error.unwrap_or_else(|| panic!("no error: {printed}"));
    for part in ["af-xdp:v0", "receive queue", "another switch", "stop it"] {
        assert!(error.contains(part), "{part}: {printed}");
    }
    // What the libraries said is part of the error, and of nothing else.
    for line in printed.lines().filter(|line| *line != error) {
        assert_ours(line);
    }
    assert!(!error.contains("rte_"), "{printed}");
}

#[test]
fn taps_are_ports_of_a_tester_with_short_frames() {
    let namespace = Namespace::new("lines-tap");
    let output = generate(&namespace, ["tap:t0", "tap:t1"], "64")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!printed.contains("could not be opened"), "{printed}");
    assert_ours(&printed);
}
