// SPDX-License-Identifier: Apache-2.0
//! Termination by signals.

use std::fs;

use crate::workspace::{Ended, Running, Workspace};
use crate::{FAILED, NULLS};

#[test]
fn every_signal_ends_a_switch_and_a_generator_cleanly() {
    let workspace = Workspace::unchanged();
    let before = workspace.machine();
    let server = format!("memif:{}?role=server", workspace.text("a.sock"));
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
        let mut switch = workspace.start(workspace.switch(&ports));
        switch.until("the switch is up", || {
            workspace.path("a.sock").exists() && workspace.path("control.sock").exists()
        });
        switch.signal(signal);
        let Ended { code, printed } = switch.ended();
        assert_eq!(code, Some(0), "{signal}: {printed}");
        assert_eq!(workspace.machine(), before, "{signal}");

        // While it waits for its peer, and while it sends.
        let mut generator =
            workspace.start(workspace.generate(&["--rate", "1k", "--port", &server]));
        generator.until("it listens", || workspace.path("a.sock").exists());
        generator.signal(signal);
        let Ended { code, printed } = generator.ended();
        assert_eq!(code, Some(FAILED), "{signal}: {printed}");
        assert_eq!(printed, "quietwire: the trial was aborted\n");
        assert_eq!(workspace.machine(), before, "{signal}");

        let endless = ["--rate", "1k", "--port", "null:", "--duration", "10m"];
        let mut generator = workspace.start(workspace.generate(&endless));
        let id = generator.id();
        generator.until("it sends", || Running::has_thread(id, "qw-tester-0"));
        generator.signal(signal);
        let Ended { code, printed } = generator.ended();
        assert_eq!(code, Some(FAILED), "{signal}: {printed}");
        assert_eq!(printed, "quietwire: the trial was aborted\n");
    }
}

#[test]
fn a_switch_under_nohup_outlives_its_terminal() {
    let workspace = Workspace::unchanged();
    let before = workspace.machine();
    let switch = workspace.switch(&NULLS);
    let mut command = workspace.command("sh", &["-c", r#"trap "" HUP; exec "$@""#, "sh"]);
    command.arg(switch.get_program()).args(switch.get_args());
    let mut running = workspace.start(command);
    let show = || {
        workspace.quietwire(&[
            "switch",
            "show",
            "threads",
            "--control-socket",
            "control.sock",
        ])
    };
    running.until("the switch is up", || workspace.run(show()).code == Some(0));
    running.signal("HUP");
    assert_eq!(workspace.run(show()).code, Some(0));
    running.signal("TERM");
    let Ended { code, printed } = running.ended();
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(workspace.machine(), before);
}

/// Path of the second port of the device of a study.
const PORT_OF_STUDY: &str = "lab/named/study/l1.sock";

#[test]
fn every_signal_ends_a_study_cleanly() {
    let workspace = Workspace::new();
    let before = workspace.machine();
    for signal in ["HUP", "TERM", "INT"] {
        let mut study =
            workspace.start(workspace.study(&["--store", "s.sqlite", "--html", "s.html"]));
        let socket = workspace.path(PORT_OF_STUDY);
        study.until("a case is up", || socket.exists());
        study.signal(signal);
        let Ended { code, printed } = study.ended();
        assert_eq!(code, Some(FAILED), "{signal}: {printed}");
        assert!(
            printed.contains("was interrupted") && printed.contains("--resume"),
            "{printed}"
        );
        for file in ["s.sqlite", "s.html"] {
            fs::remove_file(workspace.path(file)).unwrap();
        }
        assert_eq!(workspace.machine(), before, "{signal}");
    }
    let mut study = workspace.start(workspace.study(&["--store", "s.sqlite"]));
    let socket = workspace.path(PORT_OF_STUDY);
    study.until("a case is up", || socket.exists());
    study.signal("KILL");
    assert_eq!(study.ended().code, None);
    let clean = || workspace.quietwire(&["lab", "clean", "--state-directory", "lab"]);
    assert_eq!(workspace.run(clean()).code, Some(0));
    for entry in fs::read_dir(workspace.path("")).unwrap() {
        let path = entry.unwrap().path();
        if path.display().to_string().contains("s.sqlite") {
            fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(workspace.machine(), before);
}
