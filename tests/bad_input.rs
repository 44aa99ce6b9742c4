// SPDX-License-Identifier: Apache-2.0
//! The real binary, given what makes no sense, on a machine that lacks something, or told to end: one message that
//! helps, the right exit code, and nothing left behind. Wants root and two CPUs, as studies do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "bad_input/place.rs"]
mod place;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use place::{Ended, Place, Running, STUDY};

const NULLS: [&str; 6] = [
    "--port",
    "a=null:",
    "--port",
    "b=null:",
    "--cross-connect",
    "a,b",
];

const BAD_INPUT: i32 = 2;
const LACKS: i32 = 3;
const FAILED: i32 = 1;

#[test]
fn a_wrong_uri_of_each_kind_is_named() {
    let place = Place::new();
    for (uri, part) in [
        ("", "no scheme"),
        ("nothing", "no scheme"),
        ("tcp:1", "the scheme 'tcp'"),
        ("memif:x?role=server", "absolute"),
        ("memif:/x", "needs role=server or role=client"),
        ("memif:/x?role=boss", "'boss'"),
        ("memif:/x?role=server&id=-1", "id '-1'"),
        ("memif:/x?role=server&colour=1", "'colour=1'"),
        ("vhost:x", "absolute"),
        ("vhost:/x?id=1", "vhost takes no id"),
        ("virtio-user:/x?role=x", "'x'"),
        ("virtio-user:/a,b", "may not hold"),
        ("af-xdp:", "not a name of a network interface"),
        ("af-xdp:eth0?role=server", "af-xdp takes no role"),
        ("af-packet:a/b", "'a/b'"),
        ("af-packet:sixteen-letters-", "'sixteen-letters-'"),
        ("null:x", "nothing after the colon"),
        ("pci:17", "'17' is not a PCI address"),
        ("pci:0000:17:00.9", "'0000:17:00.9'"),
    ] {
        let parts = [part, "Known forms: memif:/path?role=server|client"];
        place.refused(
            BAD_INPUT,
            place.generate(&["--rate", "1k", "--port", uri]),
            &parts,
        );
        let port = format!("a={uri}");
        let switch = place.switch(&[
            "--port",
            &port,
            "--port",
            "b=null:",
            "--cross-connect",
            "a,b",
        ]);
        place.refused(BAD_INPUT, switch, &parts);
    }
    place.refused(BAD_INPUT, place.switch(&["--port", "null:"]), &["NAME=URI"]);
}

#[test]
fn wrong_cpus_are_named() {
    let place = Place::new();
    let switch = |options: &[&str]| place.switch(&[&NULLS, options].concat());
    for (options, parts) in [
        (
            &["--forwarding-cpus", "8000"] as &[&str],
            ["forwarding-cpus", "8000", "online"],
        ),
        (
            &["--service-cpus", "8000"],
            ["service-cpus", "8000", "online"],
        ),
        (
            &["--forwarding-cpus", "9999"],
            ["--forwarding-cpus", "9999", "8191"],
        ),
        (
            &["--forwarding-cpus", "x"],
            ["--forwarding-cpus", "'x'", "3,4,8-11"],
        ),
        (
            &["--forwarding-cpus", "2-1"],
            ["--forwarding-cpus", "2-1", "before it begins"],
        ),
        (
            &["--forwarding-cpus", "1", "--service-cpus", "1"],
            ["service-cpus", "CPU 1", "choose from"],
        ),
        (
            &["--forwarding-cpus", "1", "--control-cpus", "0x2"],
            ["control-cpus", "CPU 1", "choose from"],
        ),
    ] {
        place.refused(BAD_INPUT, switch(options), &parts);
    }
    let generate = |cpus| place.generate(&["--port", "null:", "--rate", "1k", "--cpus", cpus]);
    place.refused(
        BAD_INPUT,
        generate("8000"),
        &["--cpus: CPU 8000 is not online", "this machine has"],
    );
    place.refused(BAD_INPUT, generate(""), &["--cpus is empty"]);
}

#[test]
fn a_wrong_configuration_is_named_with_file_and_line() {
    let place = Place::new();
    let with = |text: &str| {
        fs::write(place.path("switch.toml"), text).unwrap();
        place.switch(&["--config", "switch.toml"])
    };
    place.refused(
        BAD_INPUT,
        with("this is not TOML"),
        &["switch.toml, line 1"],
    );
    place.refused(
        BAD_INPUT,
        with("\ncolour = 1"),
        &["switch.toml, line 2, key 'colour'", "expected one of"],
    );
    place.refused(
        BAD_INPUT,
        with("rx-ring-size = \"many\""),
        &["switch.toml, line 1", "rx-ring-size"],
    );
    place.refused(
        BAD_INPUT,
        place.switch(&["--config", "absent.toml"]),
        &["absent.toml", "No such file"],
    );
    place.refused(
        BAD_INPUT,
        place.switch(&["--config", "."]),
        &["configuration .", "directory"],
    );
}

#[test]
fn wrong_options_are_named() {
    let place = Place::new();
    for (options, part) in [
        (
            &["--rx-ring-size", "1000"] as &[&str],
            "the receive ring size 1000 is not a power of two",
        ),
        (&["--tx-ring-size", "0"], "the transmit ring size 0"),
        (&["--frame-size-max", "3"], "3 octets is not within"),
        (&["--memory-mib", "0"], "--memory-mib"),
        (&["--port", "a=null:"], "two ports 'a'"),
        (&["--bridge", "lan=a,b"], "'a'"),
    ] {
        place.refused(
            BAD_INPUT,
            place.switch(&[&NULLS, options].concat()),
            &[part],
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
        (&["--rate", "1k", "--direction", "both"], "needs two ports"),
        (
            &["--rate", "1k", "--port", "null:", "--port", "null:"],
            "one or two",
        ),
        (&[], "--rate"),
    ] {
        let generate = place.generate(&[&["--port", "null:"], options].concat());
        place.refused(BAD_INPUT, generate, &[part]);
    }
    for arguments in [
        &["flip"] as &[&str],
        &["switch", "flip"],
        &["study", "flip"],
        &["lab", "flip"],
    ] {
        place.refused(BAD_INPUT, place.quietwire(arguments), &["'flip'", "--help"]);
    }
}

#[test]
fn a_port_that_cannot_be_opened_is_named() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    let path = |form: &str| form.replace("DIR", &place.text(""));
    for (uri, parts) in [
        (
            "memif:DIR/absent/x.sock?role=server",
            ["absent/x.sock", "make it first"],
        ),
        (
            "vhost:DIR/absent/x.sock",
            ["absent/x.sock", "make it first"],
        ),
        (
            "virtio-user:DIR/absent/x.sock?role=server",
            ["absent/x.sock", "make it first"],
        ),
        ("memif:DIR/x.sock?role=client", ["x.sock", "start the peer"]),
        ("virtio-user:DIR/x.sock", ["x.sock", "start the peer"]),
        (
            "memif:DIR/file?role=server",
            ["file exists and is not a socket", "choose another"],
        ),
        ("af-xdp:quietwire-none", ["'quietwire-none'", "`ip link`"]),
        (
            "af-packet:quietwire-none",
            ["'quietwire-none'", "`ip link`"],
        ),
        ("pci:0000:ff:1f.7", ["0000:ff:1f.7", "no such device"]),
    ] {
        let uri = path(uri);
        let parts = [&parts[..], &["port 'p0'"]].concat();
        place.refused(
            BAD_INPUT,
            place.generate(&["--rate", "1k", "--port", &uri]),
            &parts,
        );
        let port = format!("a={uri}");
        let switch = place.switch(&[
            "--port",
            &port,
            "--port",
            "b=null:",
            "--cross-connect",
            "a,b",
        ]);
        place.refused(BAD_INPUT, switch, &[&parts[..2], &["port 'a'"]].concat());
    }
    // The port before is open by then, and has to go.
    let first = path("a=memif:DIR/a.sock?role=server");
    let switch = place.switch(&[
        "--port",
        &first,
        "--port",
        "b=af-packet:quietwire-none",
        "--cross-connect",
        "a,b",
    ]);
    place.refused(BAD_INPUT, switch, &["port 'b'"]);
}

#[test]
fn a_control_socket_that_cannot_be_had_is_named() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    let run = |socket: &str| {
        let mut command = place.quietwire(&["switch", "run", "--control-socket", socket]);
        command
            .args(NULLS)
            .args(["--memory-mib", "64", "--huge-pages", "never"]);
        command
    };
    place.refused(
        BAD_INPUT,
        run("absent/c.sock"),
        &["absent does not exist", "make it first"],
    );
    place.refused(
        BAD_INPUT,
        run("file"),
        &["/file", "not a socket", "choose another path"],
    );
    let show = |socket| place.quietwire(&["switch", "show", "ports", "--control-socket", socket]);
    place.refused(
        BAD_INPUT,
        show("absent.sock"),
        &["absent.sock", "no switch listens there"],
    );
    // Relative to where the command is given.
    let mut switch = place.start(run("c.sock"));
    switch.until("the switch is up", || {
        place.run(show("c.sock")).code == Some(0)
    });
    switch.signal("TERM");
    assert_eq!(switch.ended().code, Some(0));
    assert!(!place.path("c.sock").exists());
}

#[test]
fn a_socket_of_a_living_switch_is_left_to_it() {
    let place = Place::new();
    let port = format!("a=memif:{}?role=server", place.text("a.sock"));
    let ports = [
        "--port",
        &port,
        "--port",
        "b=null:",
        "--cross-connect",
        "a,b",
        "--idle",
        "yield",
    ];
    let mut living = place.start(place.switch(&ports));
    living.until("the switch is up", || {
        place.path("a.sock").exists() && place.path("control.sock").exists()
    });
    let log = living.said();
    place.refused(BAD_INPUT, place.switch(&ports), &["control.sock"]);
    let mut other = place.quietwire(&["switch", "run", "--control-socket"]);
    other.arg(place.path("other.sock")).args(ports);
    other.args(["--huge-pages", "never", "--memory-mib", "64"]);
    place.refused(
        BAD_INPUT,
        other,
        &[
            "another process listens on",
            "a.sock",
            "stop it or choose another",
        ],
    );
    let uri = format!("memif:{}?role=server", place.text("a.sock"));
    place.refused(
        BAD_INPUT,
        place.generate(&["--rate", "1k", "--port", &uri]),
        &["another process listens on"],
    );
    living.until("it lives on", || place.path("control.sock").exists());
    living.signal("HUP");
    let Ended { code, said } = living.ended();
    assert_eq!(code, Some(0), "{log}{said}");
    assert!(!place.path("a.sock").exists() && !place.path("control.sock").exists());
}

/// The same command as the user `nobody`, who may run a copy of the program.
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
fn impossible_values_in_a_study_are_named_with_line_and_key() {
    let place = Place::new();
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
        ("link = \"memif\"", "link = \"vhost-user\"", "device.link"),
        ("name = \"test\"", "name = \"../evil\"", "'../evil'"),
        ("name = \"test\"", "nane = \"test\"", "nane"),
        (
            "service-cpus = \"0\"",
            "service-cpus = \"1\"",
            "device.service-cpus: CPU 1 has two roles",
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
            "[neighbours] stressors: stress-ng does not take `--no-such 1`",
        ),
        ("--cpu 1", "rm -rf /", "neighbours.stressors[0]"),
        ("\nname = \"test\"", "\nthis is not TOML", "study.toml:2"),
    ] {
        assert!(STUDY.contains(from), "{from}");
        fs::write(place.path("study.toml"), STUDY.replacen(from, to, 1)).unwrap();
        place.refused(BAD_INPUT, place.study(&[]), &[part]);
    }
    fs::remove_file(place.path("study.toml")).unwrap();
    place.refused(BAD_INPUT, place.study(&[]), &["study.toml", "No such file"]);
    fs::create_dir(place.path("study.toml")).unwrap();
    place.refused(BAD_INPUT, place.study(&[]), &["study.toml", "directory"]);
}

#[test]
fn a_store_or_page_that_will_not_do_is_refused_before_anything_is_set_up() {
    let place = Place::new();
    fs::write(place.path("file"), "no store").unwrap();
    let study = |arguments: &[&str]| place.study(arguments);
    for (arguments, parts) in [
        (
            &["--store", "file"] as &[&str],
            ["file is there already", "--resume"],
        ),
        (
            &["--store", "file", "--resume"],
            ["file is not a store", "another path"],
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
        place.refused(BAD_INPUT, study(arguments), &parts);
    }
    assert_eq!(fs::read_to_string(place.path("file")).unwrap(), "no store");
    for (store, part) in [
        ("absent.sqlite", "there is no store absent.sqlite"),
        ("file", "file is not a store"),
        ("lab", "lab is a directory"),
    ] {
        place.refused(
            BAD_INPUT,
            place.quietwire(&["study", "report", store]),
            &[part],
        );
    }
    let clean = place.quietwire(&["lab", "clean", "--state-directory", "file"]);
    place.refused(BAD_INPUT, clean, &["file is not a directory"]);
}

#[test]
fn a_store_of_another_study_is_not_gone_on_with() {
    let place = Place::new();
    // Two trials are enough.
    let short = STUDY
        .replace("rounds = 4", "rounds = 1")
        .replace("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "[1, 2]");
    fs::write(place.path("study.toml"), &short).unwrap();
    // Directories that are not there are made: nobody has to wait for a study to hear of it.
    let paths = ["--store", "results/s.sqlite", "--html", "pages/deep/s.html"];
    let Ended { code, said } = place.run(place.study(&paths));
    assert_eq!(code, Some(0), "{said}");
    assert!(place.path("pages/deep/s.html").exists());
    fs::write(place.path("study.toml"), short.replace("[1, 2]", "[1, 3]")).unwrap();
    let resume = [&paths[..], &["--resume"]].concat();
    place.refused(
        BAD_INPUT,
        place.study(&resume),
        &["results of another study file", "--fresh"],
    );
    let again = place.quietwire(&[
        "study",
        "report",
        "results/s.sqlite",
        "--html",
        "more/s.html",
    ]);
    assert_eq!(place.run(again).code, Some(0));
    assert!(place.path("more/s.html").exists());
}

#[test]
fn a_full_disk_ends_a_study_and_keeps_its_trials() {
    let place = Place::new();
    fs::create_dir(place.path("disk")).unwrap();
    let before = place.machine();
    // The file system is there for these processes only, and gone with them.
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
        message.contains("there is no room for disk/s.sqlite"),
        "{said}"
    );
    assert!(message.contains("--resume"), "{said}");
    assert_eq!(message.matches("there is no room").count(), 1, "{said}");
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
    assert!(
        said.contains("the page /dev/full cannot be written"),
        "{said}"
    );
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
        // Nobody is there to hear of anything.
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

#[test]
fn every_signal_ends_a_switch_and_a_generator_cleanly() {
    let place = Place::new();
    let before = place.machine();
    let server = format!("memif:{}?role=server", place.text("a.sock"));
    let port = format!("a={server}");
    for signal in ["HUP", "TERM", "INT"] {
        let ports = [
            "--port",
            &port,
            "--port",
            "b=null:",
            "--cross-connect",
            "a,b",
        ];
        let mut switch = place.start(place.switch(&ports));
        switch.until("the switch is up", || {
            place.path("a.sock").exists() && place.path("control.sock").exists()
        });
        switch.signal(signal);
        let Ended { code, said } = switch.ended();
        assert_eq!(code, Some(0), "{signal}: {said}");
        assert_eq!(place.machine(), before, "{signal}");

        // While it waits for its peer, and while it sends.
        let mut generator = place.start(place.generate(&["--rate", "1k", "--port", &server]));
        generator.until("it listens", || place.path("a.sock").exists());
        generator.signal(signal);
        let Ended { code, said } = generator.ended();
        assert_eq!(code, Some(FAILED), "{signal}: {said}");
        assert_eq!(said, "quietwire: the trial was aborted\n");
        assert_eq!(place.machine(), before, "{signal}");

        let endless = ["--rate", "1k", "--port", "null:", "--duration", "10m"];
        let mut generator = place.start(place.generate(&endless));
        let id = generator.id();
        generator.until("it sends", || Running::has_thread(id, "qw-tester-0"));
        generator.signal(signal);
        let Ended { code, said } = generator.ended();
        assert_eq!(code, Some(FAILED), "{signal}: {said}");
        assert_eq!(said, "quietwire: the trial was aborted\n");
    }
}

#[test]
fn every_signal_ends_a_study_cleanly() {
    let place = Place::new();
    let before = place.machine();
    for signal in ["HUP", "TERM", "INT"] {
        let mut study = place.start(place.study(&["--store", "s.sqlite", "--html", "s.html"]));
        let id = study.id();
        let socket = place.path(&format!("lab/lab-{id}/case-0001/p1.sock"));
        study.until("a case is up", || socket.exists());
        study.signal(signal);
        let Ended { code, said } = study.ended();
        assert_eq!(code, Some(FAILED), "{signal}: {said}");
        assert!(
            said.contains("was interrupted") && said.contains("--resume"),
            "{said}"
        );
        for file in ["s.sqlite", "s.html"] {
            fs::remove_file(place.path(file)).unwrap();
        }
        assert_eq!(place.machine(), before, "{signal}");
    }
    let mut study = place.start(place.study(&["--store", "s.sqlite"]));
    let socket = place.path(&format!("lab/lab-{}/case-0001/p1.sock", study.id()));
    study.until("a case is up", || socket.exists());
    study.signal("KILL");
    assert_eq!(study.ended().code, None);
    let clean = || place.quietwire(&["lab", "clean", "--state-directory", "lab"]);
    assert_eq!(place.run(clean()).code, Some(0));
    for entry in fs::read_dir(place.path("")).unwrap() {
        let path = entry.unwrap().path();
        if path.display().to_string().contains("s.sqlite") {
            fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(place.machine(), before);
}
