// SPDX-License-Identifier: Apache-2.0
//! A machine that lacks something: root, programs, memory, disk space, a reader of the output.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use crate::place::{Ended, Place, STUDY};
use crate::{FAILED, LACKS, NULLS};

/// Returns the same command as the user `nobody`, who may run a copy of the program.
fn as_nobody(place: &Place, arguments: &[&str]) -> Command {
    let program = place.path("quietwire");
    fs::copy(env!("CARGO_BIN_EXE_quietwire"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = place.command(
        "setpriv",
        &["--reuid=65534", "--regid=65534", "--clear-groups"],
    );
    command.arg(program).args(arguments);
    command
}

#[test]
fn who_is_not_root_is_told_where_root_is_needed() {
    let place = Place::new();
    drop(as_nobody(&place, &[]));
    let nulls: Vec<&str> = [&["switch", "run"], &NULLS[..]].concat();
    place.refused(LACKS, as_nobody(&place, &nulls), &["root"]);
    place.refused(
        LACKS,
        as_nobody(&place, &["study", "run", "study.toml"]),
        &["root", "sudo"],
    );
    for uri in ["af-packet:lo", "af-xdp:lo", "pci:0000:ff:1f.7"] {
        let generate = ["generate", "--no-huge", "--rate", "1k", "--port", uri];
        place.refused(LACKS, as_nobody(&place, &generate), &["root", "sudo"]);
    }
    fs::set_permissions(place.path("lab"), fs::Permissions::from_mode(0o700)).unwrap();
    let inside = place.text("lab/state");
    let clean = as_nobody(&place, &["lab", "clean", "--state-directory", &inside]);
    place.refused(LACKS, clean, &["lab/state", "Permission denied"]);
}

#[test]
fn a_missing_program_is_told_before_anything_is_measured() {
    let place = Place::new();
    fs::create_dir(place.path("bin")).unwrap();
    for program in ["sh", "setpriv", "chrt"] {
        symlink(
            format!("/usr/bin/{program}"),
            place.path("bin").join(program),
        )
        .unwrap();
    }
    let mut study = place.study(&[]);
    study.env("PATH", place.path("bin"));
    place.refused(
        LACKS,
        study,
        &["stress-ng is not installed", "apt-get install stress-ng"],
    );
    fs::remove_file(place.path("bin/chrt")).unwrap();
    symlink("/usr/bin/stress-ng", place.path("bin/stress-ng")).unwrap();
    let mut study = place.study(&[]);
    study.env("PATH", place.path("bin"));
    place.refused(
        LACKS,
        study,
        &["chrt is not installed", "apt-get install util-linux"],
    );
}

#[test]
fn more_memory_than_there_is_is_refused() {
    let place = Place::new();
    let much = ["--memory-mib", "4000000000"];
    let parts = [
        "memory-mib is 4000000000",
        "are available",
        "decrease --memory-mib",
    ];
    place.refused(LACKS, place.switch(&[&NULLS[..], &much].concat()), &parts);
    let generate = ["--rate", "1k", "--port", "null:"];
    place.refused(
        LACKS,
        place.generate(&[&generate[..], &much].concat()),
        &parts,
    );
}

#[test]
fn huge_pages_are_not_taken_from_everybody_else() {
    let place = Place::new();
    let much = STUDY.replace("huge-pages-mib = 32", "huge-pages-mib = 4_000_000_000");
    fs::write(place.path("study.toml"), much).unwrap();
    place.refused(
        LACKS,
        place.study(&[]),
        &["huge pages", "are available", "huge-pages-mib"],
    );
}

#[test]
fn a_full_disk_ends_a_study_and_keeps_its_trials() {
    let place = Place::new();
    fs::create_dir(place.path("disk")).unwrap();
    let before = place.machine();
    // The file system exists for these processes only, and is removed with them.
    let script = r#"mount -t tmpfs -o size=260k none disk || exit 99
        "$@" > /dev/null; code=$?
        "$1" study report disk/s.sqlite --json > report.json || exit 98
        exit $code"#;
    let mut command = place.command("unshare", &["--mount", "sh", "-c", script, "sh"]);
    let study = place.study(&["--store", "disk/s.sqlite", "--html", "s.html"]);
    command.arg(study.get_program()).args(study.get_args());
    let Ended { code, said } = place.run(command);
    assert_eq!(code, Some(FAILED), "{said}");
    let messages: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("quietwire: "))
        .collect();
    let [message] = messages[..] else {
        panic!("not one message: {said}")
    };
    assert!(
        message.contains("no space left for disk/s.sqlite"),
        "{said}"
    );
    assert!(message.contains("--resume"), "{said}");
    assert_eq!(message.matches("no space left").count(), 1, "{said}");
    let text = fs::read_to_string(place.path("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let trials = &report["summary"]["sizes"][0]["cases"][0]["health"]["trials"];
    let stored = trials
        .as_u64()
        .unwrap_or_else(|| panic!("no count of trials: {text}"));
    let shown = said
        .lines()
        .filter(|line| line.contains("Mpps offered"))
        .count();
    assert!(
        stored > 0 && stored as usize >= shown,
        "{stored} of {shown}: {said}"
    );
    fs::remove_file(place.path("report.json")).unwrap();
    assert_eq!(place.machine(), before);
}

#[test]
fn a_page_that_cannot_be_written_in_the_end_leaves_the_results() {
    let place = Place::new();
    let short = STUDY.replace("rounds = 4", "rounds = 1");
    fs::write(place.path("study.toml"), short).unwrap();
    let Ended { code, said } =
        place.run(place.study(&["--store", "s.sqlite", "--html", "/dev/full"]));
    assert_eq!(code, Some(FAILED), "{said}");
    assert!(said.contains("cannot write the page /dev/full"), "{said}");
    let report = place.quietwire(&["study", "report", "s.sqlite", "--html", "s.html"]);
    assert_eq!(place.run(report).code, Some(0));
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_a_full_disk_is() {
    let place = Place::new();
    let clean = place.quietwire(&["lab", "clean", "--state-directory", "lab"]);
    for (script, wanted) in [
        (r#""$@" > /dev/full"#, Some(FAILED)),
        // The pipe's other end is closed before anything is written to it.
        (
            r#"mkfifo p; sleep 0 < p & exec 3> p; wait; "$@" >&3"#,
            Some(0),
        ),
        // The user sees none of the output.
        (r#""$@" > /dev/full 2> /dev/full"#, Some(FAILED)),
    ] {
        let mut command = place.command("sh", &["-c", script, "sh"]);
        command.arg(clean.get_program()).args(clean.get_args());
        let Ended { code, said } = place.run(command);
        assert_eq!(code, wanted, "{script}: {said}");
        assert!(!said.contains("panicked"), "{script}: {said}");
        assert!(
            said.is_empty() || said.contains("standard output: No space left"),
            "{script}: {said}"
        );
    }
}

#[test]
fn a_study_goes_on_when_nobody_listens_any_more() {
    let place = Place::new();
    let before = place.machine();
    let short = STUDY.replace("rounds = 4", "rounds = 1");
    fs::write(place.path("study.toml"), short).unwrap();
    let mut command = place.command("sh", &["-c", r#""$@" 2> /dev/full > /dev/full"#, "sh"]);
    let study = place.study(&["--store", "s.sqlite", "--html", "s.html"]);
    command.arg(study.get_program()).args(study.get_args());
    let Ended { code, said } = place.run(command);
    assert_eq!(code, Some(FAILED), "{said}");
    assert!(place.path("s.html").exists());
    for file in ["s.sqlite", "s.html"] {
        fs::remove_file(place.path(file)).unwrap();
    }
    fs::write(place.path("study.toml"), STUDY).unwrap();
    assert_eq!(place.machine(), before);
}
