// SPDX-License-Identifier: Apache-2.0
//! Files and directories that options name and that cannot be read or written: bad input, except on a full disk.

use std::fs;
use std::os::unix::fs::symlink;

use crate::workspace::{Ended, Workspace};
use crate::{BAD_INPUT, FAILED};

/// Commands that write to PLACE, a file or, if the second value is true, a directory. None of them requires more than root.
const WRITERS: [(&[&str], bool); 10] = [
    (&["host", "show", "--svg", "PLACE"], false),
    (&["host", "record", "PLACE"], false),
    (&["lab", "show", "vNet1", "--svg", "PLACE"], false),
    (
        &["partition", "render", "--for", "tuned", "--output", "PLACE"],
        true,
    ),
    (&["manual", "PLACE"], true),
    (
        &[
            "study",
            "run",
            "study.toml",
            "--store",
            "PLACE",
            "--dry-run",
        ],
        false,
    ),
    (
        &["study", "run", "study.toml", "--html", "PLACE", "--dry-run"],
        false,
    ),
    (
        &[
            "measure",
            "single-run",
            "--tester",
            "sim",
            "--store",
            "PLACE",
        ],
        false,
    ),
    (
        &[
            "measure",
            "single-run",
            "--tester",
            "sim",
            "--html",
            "PLACE",
        ],
        false,
    ),
    (
        &[
            "tester",
            "calibrate",
            "--no-huge",
            "--port",
            "tap:quietwire-none",
            "--file",
            "PLACE",
        ],
        false,
    ),
];

#[test]
fn a_place_that_cannot_be_written_is_bad_input_and_named() {
    let workspace = Workspace::unchanged();
    fs::write(workspace.path("file"), "precious").unwrap();
    fs::create_dir(workspace.path("directory")).unwrap();
    symlink("loop", workspace.path("loop")).unwrap();
    let long = "x".repeat(300);
    for (arguments, wants_directory) in WRITERS {
        let places = [
            "file/below",
            "loop/below",
            long.as_str(),
            // No process can create a file here.
            "/proc/quietwire",
            if wants_directory { "file" } else { "directory" },
        ];
        for place in places {
            let words: Vec<&str> = arguments
                .iter()
                .map(|word| if *word == "PLACE" { place } else { word })
                .collect();
            let below = place.split('/').next().unwrap();
            workspace.refused(BAD_INPUT, workspace.quietwire(&words), &[below]);
        }
    }
    // These create no directories.
    for words in [
        &["host", "show", "--svg", "absent/file"] as &[&str],
        &["host", "record", "absent/file"],
        &["lab", "show", "vNet1", "--svg", "absent/file"],
        &[
            "partition",
            "render",
            "--for",
            "tuned",
            "--output",
            "absent",
        ],
    ] {
        workspace.refused(
            BAD_INPUT,
            workspace.quietwire(words),
            &["absent", "another"],
        );
    }
    workspace.refused(
        BAD_INPUT,
        workspace.study(&["--store", "s.sqlite", "--html", "/dev/full"]),
        &["--html /dev/full", "device"],
    );
    let file = fs::read_to_string(workspace.path("file")).unwrap();
    assert_eq!(file, "precious");
}

#[test]
fn a_full_disk_is_a_failure() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("disk")).unwrap();
    // The file system exists for these processes only, and is removed with them.
    let script = r#"mount -t tmpfs -o size=8k none disk || exit 99
        head -c 8192 /dev/zero > disk/rest; "$@" > /dev/null"#;
    let fails = |arguments: &[&str], wants_directory: bool| {
        let place = if wants_directory { "disk" } else { "disk/new" };
        let words = arguments
            .iter()
            .map(|word| if *word == "PLACE" { place } else { word });
        let mut command = workspace.command("unshare", &["--mount", "sh", "-c", script, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_quietwire")).args(words);
        let Ended { code, printed } = workspace.run(command);
        assert_eq!(code, Some(FAILED), "{arguments:?}: {printed}");
        assert!(
            printed.contains("No space left"),
            "{arguments:?}: {printed}"
        );
    };
    let fails = &fails;
    // Some at once: each has a disk of its own.
    std::thread::scope(|scope| {
        for writers in WRITERS.chunks(WRITERS.len().div_ceil(4)) {
            scope.spawn(move || {
                for &(arguments, wants_directory) in writers {
                    fails(arguments, wants_directory);
                }
            });
        }
    });
}

#[test]
fn a_place_that_cannot_be_read_is_bad_input_and_named() {
    let workspace = Workspace::unchanged();
    fs::write(workspace.path("file"), "no calibration").unwrap();
    let calibrated = ["--rate", "1k", "--port", "null:", "--calibration"];
    for words in [
        &["partition", "plan", "--config", "PLACE"] as &[&str],
        &["partition", "render", "--for", "tuned", "--plan", "PLACE"],
        &["partition", "verify", "--plan", "PLACE"],
        &["host", "show", "--root", "PLACE"],
        &["host", "show", "--svg", "x.svg", "--plan", "PLACE"],
        &["switch", "add", "routes", "PLACE"],
        &["switch", "set", "rules", "--file", "PLACE"],
        &["switch", "run", "--config", "PLACE"],
        &["switch", "run", "--rules", "PLACE"],
        &["study", "run", "PLACE"],
        &["study", "report", "PLACE"],
        &["cluster", "agent", "--node", "n1", "--kubeconfig", "PLACE"],
    ] {
        for place in ["absent", "file/below"] {
            let words: Vec<&str> = words
                .iter()
                .map(|word| if *word == "PLACE" { place } else { word })
                .collect();
            workspace.refused(BAD_INPUT, workspace.quietwire(&words), &[place]);
        }
    }
    // One that does not exist is made by a calibration.
    for place in ["file/below", "file"] {
        let generate = workspace.generate(&[&calibrated[..], &[place]].concat());
        workspace.refused(BAD_INPUT, generate, &[place]);
    }
    let routes = ["switch", "add", "routes", "lab"];
    workspace.refused(BAD_INPUT, workspace.quietwire(&routes), &["lab"]);
}

#[test]
fn a_state_directory_that_cannot_be_used_is_bad_input_and_named() {
    let workspace = Workspace::unchanged();
    fs::write(workspace.path("file"), "precious").unwrap();
    let below = workspace.text("file/state");
    for words in [
        &["lab", "list"] as &[&str],
        &["lab", "down"],
        &["lab", "clean"],
        &["lab", "check"],
        &["partition", "status"],
        &["partition", "rollback"],
    ] {
        let words = [words, &["--state-directory", &below]].concat();
        workspace.refused(BAD_INPUT, workspace.quietwire(&words), &["file"]);
    }
}
