// SPDX-License-Identifier: Apache-2.0
//! Studies of a device that the lab does not start: its owner's commands start a switch and end it, after any kind of end.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{DEADLINE, STUDY, Workplace, with_latency_only, words};

/// Starts a switch between two memif ports in the background, and ends when it forwards.
const PREPARE: &str = r#"
echo "prepare $QUIETWIRE_CASE $QUIETWIRE_ISOLATION" >> calls
"$1" switch run --control-socket c.sock --port "a=memif:$PWD/a.sock?role=server" --port "b=memif:$PWD/b.sock?role=server" \
    --cross-connect a,b --forwarding-cpus 1 --service-cpus 0 --control-cpus 0 --memory-mib 64 --huge-pages never > switch.log 2>&1 &
echo $! > pid
until [ -S a.sock ] && [ -S b.sock ] && [ -S c.sock ]; do
    kill -0 "$(cat pid)" || { cat switch.log; exit 1; }
    sleep 0.02
done
"#;

/// Ends the switch, if it runs. The switch removes its sockets when it ends.
const RESTORE: &str = r#"
echo "restore $QUIETWIRE_CASE" >> calls
[ -e pid ] || exit 0
kill "$(cat pid)" && rm pid
while [ -S c.sock ]; do sleep 0.02; done
"#;

/// Writes the study of the device and its two commands.
fn place_with(prepare: &str, restore: &str) -> Workplace {
    let place = Workplace::new();
    let directory = place.directory.path().display().to_string();
    let program = env!("CARGO_BIN_EXE_quietwire");
    for (name, script) in [("prepare.sh", prepare), ("restore.sh", restore)] {
        fs::write(
            place.path(name),
            format!("cd {directory} || exit 1\n{script}"),
        )
        .unwrap();
    }
    let command = |name: &str| format!("[\"sh\", \"{directory}/{name}\", \"{program}\"]");
    let uri = |name: &str| format!("\"memif:{directory}/{name}.sock?role=client\"");
    let device = format!(
        "switch = \"other\"\nprepare = {}\nrestore = {}\nprepare-timeout-s = 120",
        command("prepare.sh"),
        command("restore.sh")
    );
    let tester = format!("[tester]\nports = [{}, {}]", uri("a"), uri("b"));
    let text = STUDY
        .replace("switch = \"quietwire\"", &device)
        .replace("link = \"memif\"", "link = \"other\"")
        .replace("[tester]", &tester);
    fs::write(place.path("study.toml"), text).unwrap();
    place
}

fn calls(place: &Workplace) -> Vec<String> {
    let text = fs::read_to_string(place.path("calls")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_device_that_commands_prepare_is_measured_and_restored_after_each_case() {
    let place = place_with(PREPARE, RESTORE);
    let file = place.path("study.toml");
    let study = fs::read_to_string(&file).unwrap();
    fs::write(&file, with_latency_only(&study)).unwrap();
    let output = place.study(&["--json"]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let wanted = [
        "prepare quiet none",
        "restore quiet",
        "prepare noisy-isolated isolated",
        "restore noisy-isolated",
    ];
    assert_eq!(calls(&place), wanted);
    assert!(!place.path("c.sock").exists() && !place.path("pid").exists());
    assert!(place.trials() > 0);
    let page = fs::read_to_string(place.path("s.html")).unwrap();
    assert!(page.contains("prepare.sh") && page.contains("restore.sh"));
    place.assert_nothing_left();
}

#[test]
fn a_killed_study_leaves_a_device_that_lab_clean_restores() {
    let place = place_with(PREPARE, RESTORE);
    let mut child = place.start_and_wait_for_trials(1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(place.path("c.sock").exists());
    place.clean();
    assert!(!place.path("c.sock").exists() && !place.path("pid").exists());
    assert!(calls(&place).last().unwrap().starts_with("restore"));
    place.assert_nothing_left();
}

#[test]
fn a_device_that_cannot_be_prepared_is_one_error_and_is_restored() {
    let place = place_with("echo no such card; echo prepare >> calls; exit 3", RESTORE);
    let output = place.study(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    let text = words(&output);
    assert!(
        text.contains("exit status: 3") && text.contains("no such card"),
        "{text}"
    );
    assert_eq!(calls(&place), ["prepare", "restore quiet"]);
    place.assert_nothing_left();
}

#[test]
fn a_signal_while_a_device_is_prepared_restores_it() {
    let place = place_with("echo prepare >> calls; exec sleep 600", RESTORE);
    let mut child = place.study(&[]).spawn().unwrap();
    let began = Instant::now();
    while !place.path("calls").exists() {
        assert!(began.elapsed() < DEADLINE, "the device is not prepared");
        assert!(child.try_wait().unwrap().is_none(), "the study ended early");
        sleep(Duration::from_millis(20));
    }
    let mut kill = Command::new("kill");
    let pid = child.id().to_string();
    assert!(kill.args(["-TERM", &pid]).status().unwrap().success());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < DEADLINE, "the study does not stop");
        sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(1));
    assert_eq!(calls(&place), ["prepare", "restore quiet"]);
    place.assert_nothing_left();
}
