// SPDX-License-Identifier: Apache-2.0
//! Invalid options and configuration files.

use std::fs;

use crate::workspace::{Ended, Workspace};
use crate::{BAD_INPUT, NULLS};

#[test]
fn a_wrong_configuration_is_named_with_file_and_line() {
    let workspace = Workspace::unchanged();
    let with = |text: &str| {
        fs::write(workspace.path("switch.toml"), text).unwrap();
        workspace.switch(&["--config", "switch.toml"])
    };
    workspace.refused(
        BAD_INPUT,
        with("this is not TOML"),
        &["switch.toml, line 1"],
    );
    workspace.refused(
        BAD_INPUT,
        with("\ncolour = 1"),
        &["switch.toml, line 2, key 'colour'", "expected one of"],
    );
    workspace.refused(
        BAD_INPUT,
        with("rx-ring-size = \"many\""),
        &["switch.toml, line 1", "rx-ring-size"],
    );
    let port = |number: u32| format!("[[port]]\nname = \"p{number}\"\nuri = \"null:\"\n");
    let ports: Vec<String> = (0..33).map(port).collect();
    workspace.refused(
        BAD_INPUT,
        with(&ports.concat()),
        &[
            "switch.toml, line 97, key 'port': port 'p32': too many ports of the kinds af-xdp",
            "maximum: 32 in sum",
        ],
    );
    let port = |number: u32| format!("[[port]]\nname = \"p{number}\"\nuri = \"tap:t{number}\"\n");
    let ports: Vec<String> = (0..257).map(port).collect();
    workspace.refused(
        BAD_INPUT,
        with(&ports.concat()),
        &[
            "switch.toml, line 769, key 'port'",
            "port 'p256': too many ports (maximum: 256)",
        ],
    );
    let nothing = "memory-mib = 0\n[[port]]\nname = \"a\"\nuri = \"null:\"\n";
    fs::write(workspace.path("switch.toml"), nothing).unwrap();
    let mut switch = workspace.quietwire(&["switch", "run", "--config", "switch.toml"]);
    switch.args(["--control-socket", "c.sock"]);
    let Ended { code, printed } = workspace.run(switch);
    assert_eq!(code, Some(BAD_INPUT), "{printed}");
    assert!(printed.contains("memory-mib is 0"), "{printed}");
    fs::write(workspace.path("utf-16.toml"), b"\xff\xfea\0").unwrap();
    workspace.refused(
        BAD_INPUT,
        workspace.switch(&["--config", "utf-16.toml"]),
        &["utf-16.toml: it is not UTF-8 text"],
    );
    workspace.refused(
        BAD_INPUT,
        workspace.switch(&["--config", "absent.toml"]),
        &["absent.toml", "No such file"],
    );
    workspace.refused(
        BAD_INPUT,
        workspace.switch(&["--config", "."]),
        &["configuration .", "directory"],
    );
}

#[test]
fn files_of_routes_are_checked_and_one_without_routes_needs_a_switch_too() {
    let workspace = Workspace::unchanged();
    fs::write(workspace.path("empty"), "# none\n").unwrap();
    fs::write(workspace.path("latin-1"), b"# \xfc\n").unwrap();
    for (file, part) in [
        ("empty", "no switch is listening"),
        ("latin-1", "latin-1:1: it is not UTF-8 text"),
        (".", ".: is a directory (give a file"),
        ("absent", "absent: No such file"),
    ] {
        let words = [
            "switch",
            "add",
            "routes",
            file,
            "--control-socket",
            "x.sock",
        ];
        workspace.refused(BAD_INPUT, workspace.quietwire(&words), &[part]);
    }
}

#[test]
fn a_kubeconfig_of_the_environment_that_is_not_text_is_named() {
    let workspace = Workspace::unchanged();
    fs::write(workspace.path("kubeconfig"), b"\xff\xfe\0").unwrap();
    let mut controller = workspace.quietwire(&["cluster", "controller"]);
    controller.env("KUBECONFIG", workspace.path("kubeconfig"));
    let parts = [
        "configuration of the API server",
        "kubeconfig: it is not UTF-8 text",
    ];
    workspace.refused(BAD_INPUT, controller, &parts);
}

#[test]
fn wrong_options_are_named() {
    let workspace = Workspace::unchanged();
    for (options, part) in [
        (
            &["--rx-ring-size", "1000"] as &[&str],
            "the receive ring size 1000 is not a power of two",
        ),
        (&["--tx-ring-size", "0"], "the transmit ring size 0"),
        (&["--frame-size-max", "3"], "3 octets is not in the range"),
        (&["--memory-mib", "0"], "--memory-mib"),
        (&["--port", "a=null:"], "duplicate port 'a'"),
        (&["--bridge", "lan=a,b"], "'a'"),
        (&["--port", "a b=null:"], "port name 'a b' is invalid"),
        (&["--user", ""], "'' is not the name of a user"),
    ] {
        workspace.refused(
            BAD_INPUT,
            workspace.switch(&[&NULLS, options].concat()),
            &[part],
        );
    }
    // Options of earlier versions.
    workspace.refused(
        BAD_INPUT,
        workspace.quietwire(&["switch", "set", "port", "p", "--anew"]), // words: an option of an earlier version
        &["--anew", "is now '--reset'"], // words: an option of an earlier version
    );
    workspace.refused(
        BAD_INPUT,
        workspace.quietwire(&["lab", "up", "vNet1", "--guest-deadline", "9s"]), // words: an option of an earlier version
        &["--guest-deadline", "is now '--guest-timeout'"], // words: an option of an earlier version
    );
    workspace.refused(
        BAD_INPUT,
        workspace.quietwire(&["tester", "self-test", "--connections", "--lie", "reset"]), // words: an option of an earlier version
        &["--lie", "is now '--fault'"], // words: an option of an earlier version
    );
    workspace.refused(
        BAD_INPUT,
        workspace.quietwire(&["measure", "frame-loss-sweep", "--tester", "sim"]), // words: a method of an earlier version
        &["'frame-loss-sweep' is now 'loss-sweep'"], // words: a method of an earlier version
    );
    for (words, part) in [
        (&["--goal", "PDR=2"], "quietwire: --goal: 2 is not in"),
        (&["--set", "x=1"], "--set search.x: unknown field"),
        (&["--max-rate-pps", "0"], "at most 10G"),
    ] {
        let measure = ["measure", "mlrsearch", "--tester", "sim"];
        workspace.refused(
            BAD_INPUT,
            workspace.quietwire(&[&measure[..], words].concat()),
            &[part],
        );
    }
    // `remove` is another name of `del`, so only the switch is missing.
    for command in [
        &["del", "port"] as &[&str],
        &["remove", "port"],
        &["steer", "remove"],
    ] {
        workspace.refused(
            BAD_INPUT,
            workspace.quietwire(
                &[
                    &["switch"],
                    command,
                    &["x", "--control-socket", "x.sock"][..],
                ]
                .concat(),
            ),
            &["no switch is listening"],
        );
    }
    for (options, range) in [
        (&["--flows", "0"] as &[&str], "from 1 to 65535"),
        (&["--attempts", "11"], "from 1 to 10"),
    ] {
        workspace.refused(
            BAD_INPUT,
            workspace.generate(&[&["--port", "null:", "--rate", "1k"], options].concat()),
            &[range],
        );
    }
    for (options, part) in [
        (&["--rate", "1e30"] as &[&str], "at most 10G"),
        (&["--rate", "0"], "above 0"),
        (&["--rate", "1k", "--duration", "0s"], "longer than 0"),
        (&["--rate", "1", "--duration", "100ms"], "no frame is due"),
        (&["--rate", "1k", "--frame-size", "63"], "64 to 9000"),
        (
            &["--rate", "1k", "--mac-addresses", "4000000000"],
            "16777216",
        ),
        (&["--rate", "1k", "--flows", "0"], "--flows"),
        (
            &["--rate", "1k", "--realtime-priority", "100"],
            "--realtime-priority",
        ),
        (&["--rate", "1k", "--memory-mib", "0"], "--memory-mib"),
        (
            &["--rate", "1k", "--ring-size", "1000"],
            "not a power of two",
        ),
        (
            &["--rate", "1k", "--direction", "both"],
            "requires two ports",
        ),
        (
            &["--rate", "1k", "--direction", "reverse"],
            "add a second port",
        ),
        (
            &["--rate", "1k", "--port", "null:", "--port", "null:"],
            "one or two",
        ),
        (&[], "--rate"),
    ] {
        let generate = workspace.generate(&[&["--port", "null:"], options].concat());
        workspace.refused(BAD_INPUT, generate, &[part]);
    }
    for arguments in [
        &["flip"] as &[&str],
        &["switch", "flip"],
        &["study", "flip"],
        &["lab", "flip"],
    ] {
        workspace.refused(
            BAD_INPUT,
            workspace.quietwire(arguments),
            &["'flip'", "--help"],
        );
    }
}
