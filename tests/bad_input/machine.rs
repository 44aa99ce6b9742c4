// SPDX-License-Identifier: Apache-2.0
//! A machine that lacks something: root, programs, memory, disk space, a reader of the output.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use crate::workspace::{Ended, STUDY, Workspace};
use crate::{FAILED, LACKS, NULLS};

/// Returns the same command as the user `nobody`, who may run a copy of the program.
fn command_as_nobody(workspace: &Workspace, arguments: &[&str]) -> Command {
    let program = workspace.path("quietwire");
    fs::copy(env!("CARGO_BIN_EXE_quietwire"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = workspace.command(
        "setpriv",
        &["--reuid=65534", "--regid=65534", "--clear-groups"],
    );
    command.arg(program).args(arguments);
    command
}

#[test]
fn commands_that_require_root_report_other_users() {
    let workspace = Workspace::unchanged();
    drop(command_as_nobody(&workspace, &[]));
    let nulls: Vec<&str> = [&["switch", "run"], &NULLS[..]].concat();
    workspace.refused(LACKS, command_as_nobody(&workspace, &nulls), &["root"]);
    workspace.refused(
        LACKS,
        command_as_nobody(&workspace, &["study", "run", "study.toml"]),
        &["root", "sudo"],
    );
    for uri in [
        "af-packet:lo",
        "af-xdp:lo",
        "veth:qwbad",
        "pci:0000:ff:1f.7",
    ] {
        let generate = ["generate", "--no-huge", "--rate", "1k", "--port", uri];
        workspace.refused(
            LACKS,
            command_as_nobody(&workspace, &generate),
            &["root", "sudo"],
        );
    }
    fs::set_permissions(workspace.path("lab"), fs::Permissions::from_mode(0o700)).unwrap();
    let inside = workspace.text("lab/state");
    let clean = command_as_nobody(&workspace, &["lab", "clean", "--state-directory", &inside]);
    workspace.refused(LACKS, clean, &["lab/state", "Permission denied"]);
}

#[test]
fn a_missing_program_is_reported_before_anything_is_measured() {
    let workspace = Workspace::unchanged();
    fs::create_dir(workspace.path("bin")).unwrap();
    for program in ["sh", "setpriv", "chrt"] {
        symlink(
            format!("/usr/bin/{program}"),
            workspace.path("bin").join(program),
        )
        .unwrap();
    }
    let mut study = workspace.study(&[]);
    study.env("PATH", workspace.path("bin"));
    workspace.refused(
        LACKS,
        study,
        &["stress-ng is not installed", "apt-get install stress-ng"],
    );
    fs::remove_file(workspace.path("bin/chrt")).unwrap();
    symlink("/usr/bin/stress-ng", workspace.path("bin/stress-ng")).unwrap();
    let mut study = workspace.study(&[]);
    study.env("PATH", workspace.path("bin"));
    workspace.refused(
        LACKS,
        study,
        &["chrt is not installed", "apt-get install util-linux"],
    );
}

#[test]
fn more_memory_than_available_is_refused() {
    let workspace = Workspace::unchanged();
    let much = ["--memory-mib", "4000000000"];
    let parts = [
        "memory-mib is 4000000000",
        "are available",
        "decrease --memory-mib",
    ];
    workspace.refused(
        LACKS,
        workspace.switch(&[&NULLS[..], &much].concat()),
        &parts,
    );
    let generate = ["--rate", "1k", "--port", "null:"];
    workspace.refused(
        LACKS,
        workspace.generate(&[&generate[..], &much].concat()),
        &parts,
    );
}

#[test]
fn huge_pages_beyond_half_of_the_memory_are_refused() {
    let workspace = Workspace::new();
    let much = STUDY.replace("huge-pages-mib = 32", "huge-pages-mib = 4_000_000_000");
    fs::write(workspace.path("study.toml"), much).unwrap();
    workspace.refused(
        LACKS,
        workspace.study(&[]),
        &["huge pages", "are available", "huge-pages-mib"],
    );
}

#[test]
fn a_full_disk_ends_a_study_and_keeps_its_trials() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("disk")).unwrap();
    let before = workspace.machine();
    // The file system exists for these processes only, and is removed with them.
    let script = r#"mount -t tmpfs -o size=260k none disk || exit 99
        "$@" > /dev/null; code=$?
        "$1" study report disk/s.sqlite --json > report.json || exit 98
        exit $code"#;
    let mut command = workspace.command("unshare", &["--mount", "sh", "-c", script, "sh"]);
    let study = workspace.study(&["--store", "disk/s.sqlite", "--html", "s.html"]);
    command.arg(study.get_program()).args(study.get_args());
    let Ended { code, printed } = workspace.run(command);
    assert_eq!(code, Some(FAILED), "{printed}");
    let messages: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with("quietwire: "))
        .collect();
    let [message] = messages[..] else {
        panic!("not one message: {printed}")
    };
    assert!(
        message.contains("no space left for disk/s.sqlite"),
        "{printed}"
    );
    assert!(message.contains("--resume"), "{printed}");
    assert_eq!(message.matches("no space left").count(), 1, "{printed}");
    let text = fs::read_to_string(workspace.path("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let trials = &report["summary"]["sizes"][0]["cases"][0]["health"]["trials"];
    let stored = trials
        .as_u64()
        .unwrap_or_else(|| panic!("no count of trials: {text}"));
    let shown = printed
        .lines()
        .filter(|line| line.contains("Mpps offered"))
        .count();
    assert!(
        stored > 0 && stored as usize >= shown,
        "{stored} of {shown}: {printed}"
    );
    // The page, on another disk, has the stored trials.
    let page = fs::read_to_string(workspace.path("s.html")).unwrap();
    assert!(page.trim_end().ends_with("</html>"), "{page}");
    for file in ["report.json", "s.html"] {
        fs::remove_file(workspace.path(file)).unwrap();
    }
    assert_eq!(workspace.machine(), before);
}

#[test]
fn a_calibration_file_of_another_user_is_not_cited() {
    let workspace = Workspace::unchanged();
    drop(command_as_nobody(&workspace, &[]));
    fs::create_dir_all(workspace.path("home/quietwire")).unwrap();
    fs::write(workspace.path("home/quietwire/calibration.json"), "{}").unwrap();
    fs::set_permissions(workspace.path("home"), fs::Permissions::from_mode(0o700)).unwrap();
    let generate = |more: &[&str]| {
        let words = [
            "generate",
            "--no-huge",
            "--memory-mib",
            "64",
            "--isolation",
            "none",
            "--rate",
            "1k",
            "--duration",
            "100ms",
            "--warm-up",
            "0s",
            "--port",
            "null:",
            // Other tests may hold up the tester.
            "--attempts",
            "5",
        ];
        let mut command = command_as_nobody(&workspace, &[&words[..], more].concat());
        command.env("XDG_STATE_HOME", workspace.path("home"));
        workspace.run(command)
    };
    let Ended { printed, .. } = generate(&[]);
    assert!(printed.contains("results cite no calibration"), "{printed}");
    assert!(!printed.contains("quietwire: "), "{printed}");
    // A file that was asked for has to be readable.
    let named = workspace.text("home/quietwire/calibration.json");
    let Ended { code, printed } = generate(&["--calibration", &named]);
    assert_ne!(code, Some(0), "{printed}");
    assert!(printed.contains("Permission denied"), "{printed}");
}

#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    let workspace = Workspace::unchanged();
    let clean = ["lab", "clean", "--state-directory", "lab"];
    for (words, script, wanted) in [
        (&clean as &[&str], r#""$@" > /dev/full"#, Some(FAILED)),
        (&["--help"], r#""$@" > /dev/full"#, Some(FAILED)),
        (&["--version"], r#""$@" > /dev/full"#, Some(FAILED)),
        // The pipe's other end is closed before anything is written to it.
        (
            &clean,
            r#"mkfifo p; sleep 0 < p & exec 3> p; wait; "$@" >&3"#,
            Some(0),
        ),
        (
            &["switch", "run", "--help"],
            r#"mkfifo q; sleep 0 < q & exec 3> q; wait; "$@" >&3"#,
            Some(0),
        ),
        // The user sees none of the output.
        (&clean, r#""$@" > /dev/full 2> /dev/full"#, Some(FAILED)),
    ] {
        let mut command = workspace.command("sh", &["-c", script, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_quietwire")).args(words);
        let Ended { code, printed } = workspace.run(command);
        assert_eq!(code, wanted, "{words:?} {script}: {printed}");
        assert!(!printed.contains("panicked"), "{script}: {printed}");
        let is_silent = code == Some(0) || script.contains("2>");
        let expected = if is_silent {
            ""
        } else {
            "standard output: No space left"
        };
        assert!(printed.contains(expected), "{script}: {printed}");
        assert_eq!(printed.is_empty(), is_silent, "{script}: {printed}");
    }
}

#[test]
fn a_study_continues_if_its_output_cannot_be_written() {
    let workspace = Workspace::new();
    let before = workspace.machine();
    // Two trials are enough.
    let short = STUDY
        .replace("rounds = 4", "rounds = 1")
        .replace("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "[1, 2]");
    fs::write(workspace.path("study.toml"), short).unwrap();
    let mut command = workspace.command("sh", &["-c", r#""$@" 2> /dev/full > /dev/full"#, "sh"]);
    let study = workspace.study(&["--store", "s.sqlite", "--html", "s.html"]);
    command.arg(study.get_program()).args(study.get_args());
    let Ended { code, printed } = workspace.run(command);
    assert_eq!(code, Some(FAILED), "{printed}");
    assert!(workspace.path("s.html").exists());
    for file in ["s.sqlite", "s.html"] {
        fs::remove_file(workspace.path(file)).unwrap();
    }
    fs::write(workspace.path("study.toml"), STUDY).unwrap();
    assert_eq!(workspace.machine(), before);
}
