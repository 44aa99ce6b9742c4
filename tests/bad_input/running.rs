// SPDX-License-Identifier: Apache-2.0
//! Values that a running switch refuses: exit code 2, one message, and the switch as before.

use std::fs;

use crate::workspace::{Ended, Running, Workspace};
use crate::{BAD_INPUT, FAILED};

fn control(workspace: &Workspace, words: &[&str]) -> std::process::Command {
    let mut command = workspace.quietwire(&[&["switch"], words].concat());
    command.arg("--control-socket").arg("control.sock");
    command
}

/// Starts a switch with two ports and a router interface.
fn start(workspace: &Workspace) -> Running {
    let config = r#"
idle = "sleep"
rx-ring-size = 64
tx-ring-size = 64
[[port]]
name = "a"
uri = "null:"
[[port]]
name = "b"
uri = "null:"
[[port]]
name = "r"
uri = "null:"
[[bridge]]
name = "lan"
ports = ["a", "b"]
[[interface]]
name = "up"
port = "r"
addresses = ["192.0.2.1/24"]
"#;
    fs::write(workspace.path("switch.toml"), config).unwrap();
    let mut running = workspace.start(workspace.switch(&["--config", "switch.toml"]));
    running.until("the switch is up", || {
        let show = control(workspace, &["show", "threads"]);
        workspace.run(show).code == Some(0)
    });
    running
}

#[test]
fn values_that_a_running_switch_refuses_are_bad_input() {
    let workspace = Workspace::unchanged();
    let before = workspace.machine();
    fs::write(workspace.path("file"), "").unwrap();
    fs::write(workspace.path("routes"), "198.51.100.0/24 203.0.113.1\n").unwrap();
    fs::write(
        workspace.path("rules.toml"),
        "[[rule]]\nname = \"x\"\naction = \"drop\"\nport = \"none\"\n",
    )
    .unwrap();
    let mut running = start(&workspace);
    let config = || {
        let path = workspace.path("config");
        let mut command = workspace.command("sh", &["-c", r#""$@" > config"#, "sh"]);
        let show = control(&workspace, &["show", "config"]);
        command.arg(show.get_program()).args(show.get_args());
        let Ended { code, printed } = workspace.run(command);
        assert_eq!(code, Some(0), "{printed}");
        fs::read_to_string(path).unwrap()
    };
    let former = config();
    let file = format!("memif:{}?role=server", workspace.text("file"));
    let absent = format!("vhost:{}", workspace.text("absent/x.sock"));
    for (words, part) in [
        (&["add", "port", "a", "null:"] as &[&str], "'a'"),
        (&["add", "port", "c", "tcp:1"], "unknown scheme 'tcp'"),
        (&["add", "port", "c", &file], "is not a socket"),
        (&["add", "port", "c", &absent], "create it"),
        (&["add", "port", "c", "af-packet:quietwire-no"], "ip link"),
        (&["add", "port", "c", "pci:0000:ff:1f.7"], "does not exist"),
        (&["add", "port", "c", "null:", "--bridge", "wan"], "'wan'"),
        (&["add", "bridge", "lan", "a"], "'lan'"),
        (&["add", "bridge", "wan", "none"], "'none'"),
        (&["add", "cross-connect", "a", "none"], "'none'"),
        (&["add", "vlan", "a", "4097"], "4097"),
        (&["add", "fdb", "wan", "02:00:00:00:00:01", "a"], "'wan'"),
        (
            &[
                "add",
                "interface",
                "x",
                "--port",
                "none",
                "--address",
                "198.51.100.1/24",
            ],
            "'none'",
        ),
        (
            &["add", "route", "198.51.100.0/24", "--via", "203.0.113.1"],
            "203.0.113.1",
        ),
        (&["add", "routes", "routes"], "203.0.113.1"),
        (
            &["add", "neighbour", "none", "192.0.2.9", "02:00:00:00:00:01"],
            "'none'",
        ),
        (
            &["add", "rule", "x", "--action", "drop", "--port", "none"],
            "'none'",
        ),
        (&["del", "port", "none"], "'none'"),
        (&["del", "bridge", "none"], "'none'"),
        (&["del", "interface", "none"], "'none'"),
        (&["del", "vrf", "none"], "'none'"),
        (&["del", "rule", "none"], "'none'"),
        (&["del", "route", "198.51.100.0/24"], "198.51.100.0/24"),
        (&["del", "neighbour", "none", "192.0.2.9"], "'none'"),
        (&["del", "cross-connect", "a"], "'a'"),
        (&["del", "kernel-filter", "none"], "'none'"),
        (&["set", "port", "none", "--reset"], "'none'"),
        (&["set", "bridge", "lan", "--add-port", "none"], "'none'"),
        (&["set", "bridge", "none", "--ageing-s", "5"], "'none'"),
        (&["set", "rules", "--file", "rules.toml"], "'none'"),
        (&["set", "threads", "--forwarding-cpus", "8000"], "8000"),
        (&["set", "queue", "a", "7", "--cpu", "0"], "queue 7"),
        (&["set", "queue", "none", "0", "--cpu", "0"], "'none'"),
        (&["set", "queue", "a", "0", "--cpu", "8000"], "8000"),
        (&["flush", "none"], "'none'"),
        (&["flush", "lan", "--port", "none"], "'none'"),
        (&["show", "routes", "--vrf", "none"], "'none'"),
        (
            &["capture", "--write", "c.pcapng", "--port", "none"],
            "'none'",
        ),
        (
            &["capture", "--write", "absent/c.pcapng"],
            "absent/c.pcapng",
        ),
        (&["capture", "--write", "file/c.pcapng"], "file/c.pcapng"),
        (&["capture", "--write", "lab"], "--write lab"),
        (&["trace", "--port", "none"], "'none'"),
    ] {
        running.until("the switch runs on", || true);
        let ended = workspace.run(control(&workspace, words));
        let Ended { code, printed } = ended;
        assert_eq!(code, Some(BAD_INPUT), "{words:?}: {printed}");
        assert_eq!(printed.lines().count(), 1, "{words:?}: {printed}");
        assert!(
            printed.contains(part),
            "{words:?}: no '{part}' in: {printed}"
        );
    }
    assert_eq!(config(), former);
    // A file that is full is a failure.
    let Ended { code, printed } =
        workspace.run(control(&workspace, &["capture", "--write", "/dev/full"]));
    assert_eq!(code, Some(FAILED), "{printed}");
    running.signal("TERM");
    assert_eq!(running.ended().code, Some(0));
    for name in ["file", "routes", "rules.toml", "switch.toml", "config"] {
        fs::remove_file(workspace.path(name)).unwrap();
    }
    assert_eq!(workspace.machine(), before);
}
