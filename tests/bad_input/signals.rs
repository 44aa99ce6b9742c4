// SPDX-License-Identifier: Apache-2.0
//! Termination by signals.

use std::fs;

use crate::place::{Ended, Place, Running};
use crate::{FAILED, NULLS};

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
fn a_switch_under_nohup_outlives_its_terminal() {
    let place = Place::new();
    let before = place.machine();
    let switch = place.switch(&NULLS);
    let mut command = place.command("sh", &["-c", r#"trap "" HUP; exec "$@""#, "sh"]);
    command.arg(switch.get_program()).args(switch.get_args());
    let mut running = place.start(command);
    let show = || {
        place.quietwire(&[
            "switch",
            "show",
            "threads",
            "--control-socket",
            "control.sock",
        ])
    };
    running.until("the switch is up", || place.run(show()).code == Some(0));
    running.signal("HUP");
    assert_eq!(place.run(show()).code, Some(0));
    running.signal("TERM");
    let Ended { code, said } = running.ended();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(place.machine(), before);
}

/// Where the device of a study has its second port.
const PORT_OF_STUDY: &str = "lab/named/study/l1.sock";

#[test]
fn every_signal_ends_a_study_cleanly() {
    let place = Place::new();
    let before = place.machine();
    for signal in ["HUP", "TERM", "INT"] {
        let mut study = place.start(place.study(&["--store", "s.sqlite", "--html", "s.html"]));
        let socket = place.path(PORT_OF_STUDY);
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
    let socket = place.path(PORT_OF_STUDY);
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
