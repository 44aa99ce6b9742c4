// SPDX-License-Identifier: Apache-2.0
//! `quietwire generate --connections`: conversations through a bridge, and what a filter rule makes of them.

use std::fs;

use serde_json::Value;

use crate::bench::{Bench, command, output, quietwire};

const DESCRIPTION: &str = "
[connections]
rate = 200.0
syn-retries = 1
[connections.client]
count = 20
[[connections.mix]]
name = \"web\"
port = 80
request = 100
answer = [1, 5000]
[[connections.mix]]
name = \"dns\"
protocol = \"udp\"
port = 53
request = 60
answer = 100
";

/// Runs the description through ports a and b. The tester may have been stalled, but its counts are valid.
fn run(bench: &Bench) -> Value {
    let description = bench.path("c.toml");
    fs::write(&description, DESCRIPTION).unwrap();
    let mut command = quietwire();
    command
        .arg("generate")
        .arg("--connections")
        .arg(description);
    for name in ["a", "b"] {
        let path = bench.path(&format!("{name}.sock"));
        let uri = format!("memif:{}?role=client", path.display());
        command.args(["--port", &uri]);
    }
    command.args(["--no-huge", "--memory-mib", "128", "--isolation", "none"]);
    command.args(["--duration", "1s", "--drain", "60s", "--json"]);
    let output = command.output().unwrap();
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn conversations_pass_a_bridge_and_fail_at_a_rule() {
    let bench = Bench::quiet(&["a", "b"], &["--bridge", "lan=a,b"]);
    let count = |value: &Value| value.as_u64().unwrap();
    let result = run(&bench);
    let (client, server) = (&result["client"], &result["server"]);
    let [web, dns] = [0, 1].map(|entry| count(&client["mix"][entry]["opened"]));
    assert!(web > 0 && dns > 0, "{result}");
    assert_eq!(count(&client["completed"]), web + dns, "{result}");
    assert_eq!(count(&client["established"]), web);
    assert_eq!(
        (count(&server["accepted"]), count(&server["datagrams"])),
        (web, dns)
    );
    assert_eq!(count(&server["translations"]["unchanged"]), web + dns);
    assert_eq!(count(&client["tcp"]["damaged_frames"]), 0);

    let rule = ["add", "rule", "web", "--action", "drop", "--port", "a"];
    let of_web = ["--protocol", "tcp", "--destination-port", "80"];
    output(&mut command(&bench, &[&rule[..], &of_web].concat()));
    let result = run(&bench);
    let client = &result["client"];
    let [web, dns] = [0, 1].map(|entry| count(&client["mix"][entry]["opened"]));
    assert!(web > 0 && dns > 0, "{result}");
    assert_eq!(count(&client["failed"]["not_established"]), web, "{result}");
    assert_eq!(count(&client["completed"]), dns, "{result}");
}
