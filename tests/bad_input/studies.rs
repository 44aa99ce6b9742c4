// SPDX-License-Identifier: Apache-2.0
//! Invalid study files, stores and pages.

use std::fs;

use crate::BAD_INPUT;
use crate::workspace::{Ended, STUDY, Workspace};

#[test]
fn impossible_values_in_a_study_are_named_with_line_and_key() {
    let workspace = Workspace::unchanged();
    for (from, to, part) in [
        (
            "duration-s = 0.05",
            "duration-s = -1",
            "study.toml:16:14: trials.duration-s",
        ),
        ("duration-s = 0.05", "duration-s = nan", "trials.duration-s"),
        ("rounds = 4", "rounds = 0", "rounds"),
        (
            "max-rate-pps = 100_000",
            "max-rate-pps = 0",
            "trials.max-rate-pps",
        ),
        (
            "max-rate-pps = 100_000",
            "max-rate-pps = 1e300",
            "trials.max-rate-pps",
        ),
        ("[1, 2,", "[101, 2,", "sweep.loads-percent"),
        ("[1, 2,", "[2, 2,", "sweep.loads-percent[1]"),
        ("link = \"memif\"", "link = \"string\"", "device.link"),
        ("name = \"test\"", "name = \"../evil\"", "'../evil'"),
        ("name = \"test\"", "nane = \"test\"", "nane"),
        (
            "service-cpus = \"0\"",
            "service-cpus = \"1\"",
            "device.service-cpus: CPU 1 is also one of the forwarding-cpus",
        ),
        (
            "forwarding-cpus = \"1\"",
            "forwarding-cpus = \"700\"",
            "CPU 700",
        ),
        ("cpu = \"0\"", "cpu = \"0-1\"", "tester.cpu"),
        (
            "--cpu 1",
            "--no-such 1",
            "[neighbours] stressors: stress-ng does not accept `--no-such 1`",
        ),
        ("--cpu 1", "rm -rf /", "neighbours.stressors[0]"),
        ("\nname = \"test\"", "\nthis is not TOML", "study.toml:2"),
    ] {
        assert!(STUDY.contains(from), "{from}");
        fs::write(workspace.path("study.toml"), STUDY.replacen(from, to, 1)).unwrap();
        workspace.refused(BAD_INPUT, workspace.study(&[]), &[part]);
    }
    fs::remove_file(workspace.path("study.toml")).unwrap();
    workspace.refused(
        BAD_INPUT,
        workspace.study(&[]),
        &["study.toml", "No such file"],
    );
    fs::create_dir(workspace.path("study.toml")).unwrap();
    workspace.refused(
        BAD_INPUT,
        workspace.study(&[]),
        &["study.toml", "directory"],
    );
}

#[test]
fn impossible_bursts_restarts_and_addresses_are_named_with_their_keys() {
    let workspace = Workspace::unchanged();
    let bridge = "link = \"memif\"\nmode = \"bridge\"";
    for (section, part) in [
        ("[back-to-back]\ngoal = \"NDR\"", "back-to-back.goal"),
        (
            "[back-to-back]\nrate-percent = 101",
            "back-to-back.rate-percent",
        ),
        (
            "[back-to-back]\nrate-percent = 5\nlongest-burst-s = 0",
            "back-to-back.longest-burst-s",
        ),
        (
            "[system-recovery]\nrate-percent = 5\nreduced-s = inf",
            "system-recovery.reduced-s",
        ),
        (
            "[reset]\nrate-percent = 5\nkind = \"power-interruption\"",
            "reset.kind",
        ),
        ("[reset]\nrate-percent = 5\nlimit-s = -1", "reset.limit-s"),
        (
            "[address-caching]\nmax-addresses = 5\nresolution-addresses = 6",
            "address-caching.resolution-addresses",
        ),
        (
            "[address-caching]\nmax-addresses = 5\nageing-s = 0",
            "address-caching.ageing-s",
        ),
        (
            "[address-learning-rate]\naddresses = 5\nmax-rate-pps = -1",
            "address-learning-rate.max-rate-pps",
        ),
        ("[address-learning-rate]\naddresses = 5", "max-rate-pps"),
        (
            "[address-learning-rate]\naddresses = 99000000\nmax-rate-pps = 10",
            "address-learning-rate.addresses",
        ),
    ] {
        let text = STUDY.replacen("link = \"memif\"", bridge, 1).replacen(
            "[neighbours]",
            &format!("{section}\n[neighbours]"),
            1,
        );
        fs::write(workspace.path("study.toml"), text).unwrap();
        workspace.refused(BAD_INPUT, workspace.study(&[]), &["study.toml:", part]);
    }
    for (from, to, part) in [
        (
            "[neighbours]",
            "[address-caching]\nmax-addresses = 5\n[neighbours]",
            "only a bridge learns addresses",
        ),
        (
            "link = \"memif\"",
            "link = \"memif\"\nmax-entries = 10",
            "device.max-entries",
        ),
    ] {
        fs::write(workspace.path("study.toml"), STUDY.replacen(from, to, 1)).unwrap();
        workspace.refused(BAD_INPUT, workspace.study(&[]), &["study.toml:", part]);
    }
}

#[test]
fn measuring_what_takes_a_lab_or_more_ports_is_refused_at_once() {
    let workspace = Workspace::unchanged();
    let refuse = |arguments: &[&str], parts: &[&str]| {
        let command = workspace.quietwire(&[&["measure", "--no-huge"], arguments].concat());
        workspace.refused(BAD_INPUT, command, parts);
    };
    let [a, b, c] =
        ["a", "b", "c"].map(|name| format!("memif:{}?role=server", workspace.text(name)));
    let two = ["--port", &a, "--port", &b];
    let three = [&two[..], &["--port", &c]].concat();
    refuse(
        &[&["back-to-back"], &three[..]].concat(),
        &["3 ports given", "one or two"],
    );
    refuse(
        &[&["address-caching", "--set", "max-addresses=9"], &two[..]].concat(),
        &["2 ports given", "requires three"],
    );
    refuse(
        &[&["address-caching", "--set", "max-addresses=9"], &three[..]].concat(),
        &["ageing-s"],
    );
    refuse(
        &[&["reset", "--set", "rate-percent=5"], &two[..]].concat(),
        &["cannot restart a device that it did not start"],
    );
}

#[test]
fn a_store_or_page_that_will_not_do_is_refused_before_anything_is_set_up() {
    let workspace = Workspace::unchanged();
    fs::write(workspace.path("file"), "no store").unwrap();
    let study = |arguments: &[&str]| workspace.study(arguments);
    for (arguments, parts) in [
        (
            &["--store", "file"] as &[&str],
            ["file already exists", "--resume"],
        ),
        (
            &["--store", "file", "--resume"],
            ["file is not a quietwire result store", "another path"],
        ),
        (
            &["--store", "absent.sqlite", "--resume"],
            ["store absent.sqlite does not exist", "omit --resume"],
        ),
        (
            &["--store", "absent.sqlite", "--resume", "--dry-run"],
            ["store absent.sqlite does not exist", "omit --resume"],
        ),
        (&["--store", "lab"], ["--store lab", "directory"]),
        (
            &["--store", "file/s.sqlite"],
            ["--store file/s.sqlite", "file is not a directory"],
        ),
        (&["--html", "lab"], ["--html lab", "directory"]),
        (
            &["--html", "file/s.html"],
            ["--html file/s.html", "file is not a directory"],
        ),
        (&["--resume", "--fresh"], ["--resume", "--fresh"]),
    ] {
        workspace.refused(BAD_INPUT, study(arguments), &parts);
    }
    assert_eq!(
        fs::read_to_string(workspace.path("file")).unwrap(),
        "no store"
    );
    for (store, part) in [
        ("absent.sqlite", "store absent.sqlite does not exist"),
        ("file", "file is not a quietwire result store"),
        ("lab", "lab is a directory"),
    ] {
        workspace.refused(
            BAD_INPUT,
            workspace.quietwire(&["study", "report", store]),
            &[part],
        );
    }
    let clean = workspace.quietwire(&["lab", "clean", "--state-directory", "file"]);
    workspace.refused(BAD_INPUT, clean, &["file is not a directory"]);
}

#[test]
fn a_store_of_another_study_is_not_gone_on_with() {
    let workspace = Workspace::new();
    // Two trials are enough, and a busy machine disturbs some.
    let short = STUDY
        .replace("rounds = 4", "rounds = 1")
        .replace("invalid-repeats = 0", "invalid-repeats = 20")
        .replace("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "[1, 2]");
    fs::write(workspace.path("study.toml"), &short).unwrap();
    // Missing directories are created before the study starts, so an error is reported immediately.
    let paths = ["--store", "results/s.sqlite", "--html", "pages/deep/s.html"];
    let Ended { code, printed } = workspace.run(workspace.study(&paths));
    assert_eq!(code, Some(0), "{printed}");
    assert!(workspace.path("pages/deep/s.html").exists());
    fs::write(
        workspace.path("study.toml"),
        short.replace("[1, 2]", "[1, 3]"),
    )
    .unwrap();
    let resume = [&paths[..], &["--resume"]].concat();
    workspace.refused(
        BAD_INPUT,
        workspace.study(&resume),
        &["results of another study file", "--fresh"],
    );
    let again = workspace.quietwire(&[
        "study",
        "report",
        "results/s.sqlite",
        "--html",
        "more/s.html",
    ]);
    assert_eq!(workspace.run(again).code, Some(0));
    assert!(workspace.path("more/s.html").exists());
}
