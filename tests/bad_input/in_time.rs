// SPDX-License-Identifier: Apache-2.0
//! SIGTERM ends every command within 5 seconds in every state, and the command lists what it must leave. Signals to a switch, to a
//! generator and between two trials of a study are in `signals`.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::workspace::{Ended, Running, STUDY, Workspace};
use crate::{FAILED, NULLS};

/// Time limit of every command after a signal.
const IN_TIME: Duration = Duration::from_secs(5);

/// Starts a command, sends SIGTERM once it is `ready`, and waits for its end in time.
fn stopped(
    workspace: &Workspace,
    name: &str,
    command: Command,
    ready: impl Fn(&Workspace, u32) -> bool,
) -> Ended {
    let mut running = workspace.start(command);
    let id = running.id();
    running.until(name, || ready(workspace, id));
    running.signal("TERM");
    let ended = running.ended_within(IN_TIME);
    assert!(
        !ended.printed.contains("panicked"),
        "{name}: {}",
        ended.printed
    );
    ended
}

type Ready = fn(&Workspace, u32) -> bool;

/// Name, words, state in which the signal is sent, exit code and a part of the message.
type Row<'a> = (&'a str, Vec<&'a str>, Ready, Option<i32>, &'a str);

fn has_started(_: &Workspace, id: u32) -> bool {
    Running::has_thread(id, "qw-signals")
}

fn sends(_: &Workspace, id: u32) -> bool {
    Running::has_thread(id, "qw-tester-0")
}

#[test]
fn commands_that_wait_or_measure_end_in_time() {
    let workspace = Workspace::unchanged();
    let before = workspace.machine();
    let own = ["--no-huge", "--memory-mib", "64", "--isolation", "none"];
    let server = format!("memif:{}?role=server", workspace.text("a.sock"));
    let client = server.replace("server", "client");
    let listens: Ready = |workspace, _| workspace.path("a.sock").exists();
    let calibrate = ["tester", "calibrate", "--file", "c.json", "--port", &server];
    let table: [Row; 12] = [
        (
            "measure waits for its peer",
            [&["measure", "single-run", "--port", &server], &own[..]].concat(),
            listens,
            Some(FAILED),
            "",
        ),
        (
            "calibrate waits for its peer",
            [&calibrate[..], &own].concat(),
            listens,
            Some(FAILED),
            "aborted",
        ),
        (
            "calibrate measures",
            [&calibrate[..], &["--port", &client], &own].concat(),
            sends,
            Some(FAILED),
            "aborted",
        ),
        (
            "self-test measures",
            vec!["tester", "self-test", "--no-huge", "--duration", "60s"],
            sends,
            Some(FAILED),
            "aborted",
        ),
        (
            "jitter measures",
            vec!["host", "jitter", "--cpus", "1", "--for", "10m"],
            has_started,
            Some(0),
            "",
        ),
        (
            "an echo service waits",
            vec!["application", "echo-server", "--address", "127.0.0.1:0"],
            has_started,
            Some(0),
            "",
        ),
        (
            "an echo client sends",
            vec![
                "application",
                "echo",
                "--address",
                "127.0.0.1:7077",
                "--with-server",
                "--duration",
                "10m",
            ],
            has_started,
            Some(FAILED),
            "",
        ),
        (
            "iperf measures",
            vec![
                "application",
                "iperf",
                "--address",
                "127.0.0.1",
                "--duration",
                "600s",
            ],
            has_started,
            Some(FAILED),
            "",
        ),
        ("doctor looks", vec!["doctor"], |_, _| true, None, ""),
        (
            "verify watches",
            vec!["partition", "verify", "--watch", "--plan", "plan.json"],
            has_started,
            Some(0),
            "",
        ),
        (
            "serve listens",
            vec!["serve", "--listen", "127.0.0.1:0"],
            has_started,
            Some(0),
            "",
        ),
        (
            "a controller waits for its API server",
            vec!["cluster", "controller", "--kubeconfig", "kubeconfig"],
            has_started,
            Some(0),
            "",
        ),
    ];
    fs::copy(plan(), workspace.path("plan.json")).unwrap();
    fs::write(workspace.path("kubeconfig"), KUBECONFIG).unwrap();
    for (name, words, ready, code, part) in table {
        let ended = stopped(&workspace, name, workspace.quietwire(&words), ready);
        let printed = ended.printed;
        // A command without a handler ends by the signal itself.
        if code.is_some() {
            assert_eq!(ended.code, code, "{name}: {printed}");
        }
        assert!(printed.contains(part), "{name}: no '{part}' in: {printed}");
        assert!(!printed.contains("by force"), "{name}: {printed}");
    }
    for file in ["plan.json", "kubeconfig"] {
        fs::remove_file(workspace.path(file)).unwrap();
    }
    assert_eq!(workspace.machine(), before);
}

/// An API server that is not there.
const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"#;

/// A plan for a machine that exists nowhere.
fn plan() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/tests/corpus/plan/server")
}

#[test]
fn a_long_trial_of_a_study_ends_in_time() {
    let workspace = Workspace::new();
    let before = workspace.machine();
    let long = STUDY.replace("duration-s = 0.05", "duration-s = 600");
    fs::write(workspace.path("study.toml"), long).unwrap();
    let study = || workspace.study(&["--store", "s.sqlite", "--html", "s.html"]);
    let is_starting: Ready = |workspace, _| workspace.path("lab/named/study").exists();
    for (name, ready) in [
        ("the device starts", is_starting),
        ("a trial runs", sends as Ready),
    ] {
        let Ended { code, printed } = stopped(&workspace, name, study(), ready);
        assert_eq!(code, Some(FAILED), "{name}: {printed}");
        assert!(printed.contains("was interrupted"), "{name}: {printed}");
        for file in ["s.sqlite", "s.html"] {
            fs::remove_file(workspace.path(file)).unwrap();
        }
        assert_eq!(workspace.machine(), {
            fs::write(workspace.path("study.toml"), STUDY).unwrap();
            Workspace::machine(&workspace)
        });
        assert_eq!(workspace.machine(), before, "{name}: {printed}");
        let long = STUDY.replace("duration-s = 0.05", "duration-s = 600");
        fs::write(workspace.path("study.toml"), long).unwrap();
    }
}

#[test]
fn a_check_of_a_lab_ends_in_time() {
    let workspace = Workspace::new();
    let lab = |words: &[&str]| {
        let mut command = workspace.quietwire(&[&["lab"], words].concat());
        command.arg("--state-directory").arg(workspace.path("lab"));
        command
    };
    let Ended { code, printed } = workspace.run(lab(&["up", "vNet1", "--name", "x"]));
    assert_eq!(code, Some(0), "{printed}");
    let check = lab(&["check", "x", "--duration", "600s", "--no-huge"]);
    let Ended { code, printed } = stopped(&workspace, "a check runs", check, sends);
    assert_eq!(code, Some(FAILED), "{printed}");
    let Ended { code, printed } = workspace.run(lab(&["down", "x"]));
    assert_eq!(code, Some(0), "{printed}");
}

#[test]
fn a_start_of_a_lab_ends_in_time() {
    let workspace = Workspace::new();
    let lab = |words: &[&str]| {
        let mut command = workspace.quietwire(&[&["lab"], words].concat());
        command.arg("--state-directory").arg(workspace.path("lab"));
        command
    };
    let is_starting: Ready = |workspace, _| workspace.path("lab/named/x").exists();
    let up = lab(&["up", "vNet1", "--name", "x"]);
    let Ended { code, printed } = stopped(&workspace, "a lab starts", up, is_starting);
    if code == Some(0) {
        // It was up before the signal.
        let Ended { code, printed } = workspace.run(lab(&["down", "x"]));
        assert_eq!(code, Some(0), "{printed}");
    } else {
        assert_eq!(code, Some(FAILED), "{printed}");
        assert!(printed.contains("interrupted by a signal"), "{printed}");
        assert!(!printed.contains("by force"), "{printed}");
    }
    let Ended { code, printed } = workspace.run(lab(&["clean"]));
    assert_eq!(code, Some(0), "{printed}");
}

#[test]
fn a_command_whose_reader_does_not_read_ends_in_time() {
    // Neither the command nor this switch changes the machine.
    let workspace = Workspace::beside_others();
    let before = workspace.files();
    let mut switch =
        workspace.start(workspace.switch(&[&NULLS[..], &["--idle", "sleep"]].concat()));
    switch.until("the switch is up", || {
        workspace.path("control.sock").exists()
    });
    let pipe = workspace.path("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    // The reader does not read, and the writer looks whether there is space.
    let reader = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    let words = [
        "switch", "show", "stats", "--watch", "--for", "1ms", "--json",
    ];
    let mut command = workspace.quietwire(&words);
    command.arg("--control-socket").arg("control.sock");
    command.stdout(Stdio::from(File::create(&pipe).unwrap()));
    let mut watch = workspace.start_with_output(command);
    let id = watch.id();
    let writes = format!("{} 0x1 ", nix::libc::SYS_write);
    watch.until("it waits for room in the pipe", || {
        let mut ends = [PollFd::new(reader.as_fd(), PollFlags::POLLOUT)];
        poll(&mut ends, PollTimeout::ZERO).unwrap();
        let is_full = !ends[0].revents().unwrap().contains(PollFlags::POLLOUT);
        // A pipe that is almost full may take another line (proc_pid_syscall(5)).
        let call = fs::read_to_string(format!("/proc/{id}/syscall")).unwrap_or_default();
        is_full && call.starts_with(&writes)
    });
    watch.signal("TERM");
    let Ended { code, printed } = watch.ended_within(IN_TIME);
    assert_eq!(code, Some(FAILED), "{printed}");
    assert!(printed.contains("ended by force"), "{printed}");
    fs::remove_file(&pipe).unwrap();
    switch.signal("TERM");
    assert_eq!(switch.ended().code, Some(0));
    assert_eq!(workspace.files(), before);
}

/// Returns whether `partition apply` with the state directory `state` has made its first changes and waits for the writer of a pipe.
fn waits_for_a_pipe(workspace: &Workspace, id: u32) -> bool {
    // proc_pid_syscall(5)
    let opens = format!("{} 0x", nix::libc::SYS_openat);
    let call = fs::read_to_string(format!("/proc/{id}/syscall")).unwrap_or_default();
    workspace.path("state/plan.json").exists() && call.starts_with(&opens)
}

#[test]
fn an_apply_that_is_stopped_between_two_changes_undoes_them() {
    // It changes files of its own directory only.
    let workspace = Workspace::beside_others();
    let changed = workspace.path("root/sys/devices/virtual/workqueue/cpumask");
    let pipe = workspace.path("root/proc/irq/default_smp_affinity");
    for file in [&changed, &pipe] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
    }
    fs::write(workspace.path("root/proc/cmdline"), "quiet\n").unwrap();
    fs::write(&changed, "ffffffff\n").unwrap();
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let mut command = workspace.quietwire(&["partition", "apply", "--root", "root"]);
    command.arg("--state-directory").arg("state");
    command.arg("--plan").arg(plan());
    let mut running = workspace.start(command);
    let id = running.id();
    running.until("the first change is made", || {
        let text = fs::read_to_string(&changed).unwrap();
        text.trim() == "66" && waits_for_a_pipe(&workspace, id)
    });
    running.signal("TERM");
    // The next setting can be read now.
    fs::write(&pipe, "ff\n").unwrap();
    let Ended { code, printed } = running.ended_within(IN_TIME);
    assert_eq!(code, Some(FAILED), "{printed}");
    assert!(
        printed.contains("interrupted by a signal: every change that this command made is undone"),
        "{printed}"
    );
    assert_eq!(fs::read_to_string(&changed).unwrap(), "ffffffff\n");
    assert!(!workspace.path("state/journal").exists(), "{printed}");
}

#[test]
fn a_rollback_that_is_stopped_between_two_changes_is_continued_by_the_next_one() {
    // It changes files of its own directory only.
    let workspace = Workspace::beside_others();
    let mask = workspace.path("root/sys/devices/virtual/workqueue/cpumask");
    let affinity = workspace.path("root/proc/irq/default_smp_affinity");
    for file in [&mask, &affinity] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "ffffffff\n").unwrap();
    }
    fs::write(workspace.path("root/proc/cmdline"), "quiet\n").unwrap();
    let partition = |words: &[&str]| {
        let places = ["--root", "root", "--state-directory", "state"];
        workspace.quietwire(&[&["partition"][..], words, &places].concat())
    };
    let mut apply = partition(&["apply"]);
    apply.arg("--plan").arg(plan());
    // Other settings of the plan are missing in the directory.
    let Ended { printed, .. } = workspace.run(apply);
    let changed = |file: &Path| fs::read_to_string(file).unwrap() != "ffffffff\n";
    assert!(changed(&mask) && changed(&affinity), "{printed}");
    // The change that is undone first: reading the pipe waits for its writer.
    fs::remove_file(&affinity).unwrap();
    mkfifo(&affinity, Mode::S_IRWXU).unwrap();
    let mut running = workspace.start(partition(&["rollback"]));
    let id = running.id();
    running.until("a setting is read", || {
        // Twice, because other files are opened before.
        let waits = || has_started(&workspace, id) && waits_for_a_pipe(&workspace, id);
        waits() && {
            sleep(Duration::from_millis(50));
            waits()
        }
    });
    running.signal("TERM");
    // The setting has its former value already.
    fs::write(&affinity, "ffffffff\n").unwrap();
    let Ended { code, printed } = running.ended_within(IN_TIME);
    assert_eq!(code, Some(FAILED), "{printed}");
    assert!(
        printed.contains("interrupted by a signal") && printed.contains("repeat the command"),
        "{printed}"
    );
    assert!(!printed.contains("ended by force"), "{printed}");
    assert!(changed(&mask), "{printed}");
    fs::remove_file(&affinity).unwrap();
    fs::write(&affinity, "ffffffff\n").unwrap();
    let Ended { code, printed } = workspace.run(partition(&["rollback"]));
    assert_eq!(code, Some(0), "{printed}");
    assert!(!changed(&mask) && !workspace.path("state/journal").exists());
}

#[test]
fn a_stuck_apply_ends_in_time_and_reports_what_it_leaves() {
    // It changes files of its own directory only.
    let workspace = Workspace::beside_others();
    let root = workspace.path("root");
    fs::create_dir_all(root.join("proc")).unwrap();
    // Opening a pipe waits for its writer, as a file system that hangs does.
    mkfifo(&root.join("proc/cmdline"), Mode::S_IRWXU).unwrap();
    let mut command = workspace.quietwire(&["partition", "apply", "--root", "root"]);
    command.arg("--state-directory").arg("state");
    command.arg("--plan").arg(plan());
    let Ended { code, printed } = stopped(&workspace, "a file hangs", command, waits_for_a_pipe);
    assert_eq!(code, Some(FAILED), "{printed}");
    assert!(
        printed.contains("ended by force") && printed.contains("partition rollback"),
        "{printed}"
    );
}
