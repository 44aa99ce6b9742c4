// SPDX-License-Identifier: Apache-2.0
//! Tests of child processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

use super::*;
use crate::faults::{Random, SpawnFaults, When, run_seeds};

const DEADLINE: Duration = Duration::from_secs(60);

fn deadline() -> Deadline {
    Deadline::after(DEADLINE)
}

fn shell(script: &str) -> Command {
    Command::new("sh").args(["-c", script])
}

/// Starts a script with its output in a file, and waits until it has printed a line. Returns the line.
fn logged(directory: &Path, script: &str) -> (Supervised, String) {
    let log = directory.join("log");
    let child = shell(script).start(Streams::Log(&log)).unwrap();
    let mut line = String::new();
    assert!(wait_until(DEADLINE, || {
        line = fs::read_to_string(&log).unwrap_or_default();
        line.ends_with('\n')
    }));
    (child, line.trim().to_owned())
}

fn process(number: &str) -> ProcessId {
    ProcessId::of(number.parse().unwrap()).unwrap()
}

const DEAF: &str = "trap '' TERM; sleep 600 & echo $!; while :; do sleep 1; done";

#[test]
fn a_helper_answers_and_ends_with_its_input() {
    let mut helper = Command::new("cat").start(Streams::Pipes).unwrap();
    let id = helper.process().unwrap();
    let mut stdin = helper.take_stdin().unwrap();
    writeln!(stdin, "hello").unwrap();
    let mut line = String::new();
    let stdout = helper.take_stdout().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n");
    drop(stdin);
    drop(helper);
    assert!(!id.is_alive());
    // Its input ends with it, too.
    let helper = Command::new("cat").start(Streams::Input).unwrap();
    let id = helper.process().unwrap();
    drop(helper);
    assert!(!id.is_alive());
    // Its output may go to a log.
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut helper = Command::new("cat")
        .start(Streams::InputAndLog(&log))
        .unwrap();
    let mut stdin = helper.take_stdin().unwrap();
    writeln!(stdin, "hello").unwrap();
    assert!(wait_until(DEADLINE, || helper.printed() == "hello\n"));
    drop(stdin);
    assert!(helper.wait(deadline()).unwrap().unwrap().success());
    assert_eq!(fs::read_to_string(log).unwrap(), "hello\n");
}

#[test]
fn a_child_that_is_dropped_is_ended_with_all_that_it_forked_and_reaped() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, forked) = logged(directory.path(), DEAF);
    child.set_timeout(Duration::from_millis(100));
    let (id, forked) = (child.process().unwrap(), process(&forked));
    drop(child);
    assert!(!id.is_alive());
    assert!(!PathBuf::from(format!("/proc/{}", id.pid)).exists());
    assert!(wait_until(DEADLINE, || !forked.is_alive()));
}

#[test]
fn the_way_in_which_a_child_ended_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, forked) = logged(directory.path(), DEAF);
    let forked = process(&forked);
    assert!(!child.end(Duration::from_millis(100)).unwrap());
    assert!(wait_until(DEADLINE, || !forked.is_alive()));
    // A second call does no harm.
    assert!(child.end(Duration::from_millis(100)).unwrap());

    let directory = tempfile::tempdir().unwrap();
    let (mut child, _) = logged(directory.path(), "echo ready; exec sleep 600");
    assert!(child.end(DEADLINE).unwrap());

    let directory = tempfile::tempdir().unwrap();
    let (mut child, _) = logged(directory.path(), "echo ready; exec sleep 600");
    child.ask_to_end();
    assert!(child.wait(deadline()).unwrap().is_some());
    assert!(child.end(Duration::ZERO).unwrap());
}

#[test]
fn processes_forked_by_a_child_are_killed_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, forked) = logged(directory.path(), DEAF);
    let forked = process(&forked);
    child.kill().unwrap();
    assert!(child.has_ended());
    assert!(wait_until(DEADLINE, || !forked.is_alive()));
    child.kill().unwrap();
}

#[test]
fn processes_that_a_killed_child_forked_are_ended() {
    for is_known in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (mut child, forked) = logged(directory.path(), DEAF);
        let (id, forked) = (child.process().unwrap(), process(&forked));
        assert!(!id.end(Duration::ZERO).unwrap());
        assert!(!is_known || child.has_ended());
        assert!(forked.is_alive());
        assert!(child.end(DEADLINE).unwrap());
        assert!(wait_until(DEADLINE, || !forked.is_alive()));
        assert!(child.has_ended());
        assert!(!PathBuf::from(format!("/proc/{}", id.pid)).exists());
    }
}

#[test]
fn the_status_of_a_child_is_that_of_the_kernel() {
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 200", Some(200), None),
        ("kill -TERM $$", None, Some(Signal::SIGTERM as i32)),
        ("kill -KILL $$", None, Some(Signal::SIGKILL as i32)),
    ] {
        let mut child = shell(script).start(Streams::Captured(0)).unwrap();
        let status = child.wait(deadline()).unwrap().unwrap();
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
        assert_eq!(child.child.wait().unwrap(), status, "{script}");
    }
}

#[test]
fn a_released_child_keeps_running() {
    let child = Command::new("sleep").arg("600").start(Streams::Captured(0));
    let child = child.unwrap();
    let id = child.process().unwrap();
    child.release();
    assert!(id.is_alive());
    id.end(DEADLINE).unwrap();
}

#[test]
fn an_exit_is_reported_with_the_last_lines() {
    let directory = tempfile::tempdir().unwrap();
    let (out, err) = (directory.path().join("out"), directory.path().join("err"));
    let streams = Streams::Logs {
        stdout: &out,
        stderr: &err,
        max: LOG_MAX,
    };
    let mut child = shell("echo out; echo no memory >&2; exit 3")
        .start(streams)
        .unwrap();
    let status = child.wait(deadline()).unwrap().unwrap();
    assert_eq!(status.code(), Some(3));
    assert_eq!(child.last_lines(), "out\nno memory");
    // As soon as the exit is known, the files are complete.
    assert_eq!(fs::read_to_string(out).unwrap(), "out\n");
    assert_eq!(fs::read_to_string(err).unwrap(), "no memory\n");
}

#[test]
fn endless_output_of_a_child_does_not_fill_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut child = shell("echo begin; yes 0123456789abcdef")
        .start(Streams::Log(&log))
        .unwrap();
    let length = || fs::metadata(&log).map_or(0, |meta| meta.len());
    // It is cut several times.
    let mut cuts = 0;
    let mut last = 0;
    assert!(wait_until(DEADLINE, || {
        let now = length();
        assert!(now <= LOG_MAX, "{now}");
        cuts += u32::from(now < last);
        last = now;
        cuts > 2
    }));
    assert!(!child.has_ended());
    drop(child);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.starts_with("begin\n0123"));
    assert_eq!(text.matches("octets left out").count(), 1);
}

#[test]
fn a_captured_output_has_both_streams_up_to_a_limit() {
    let mut child = shell("printf 'long '; printf begin >&2; printf ' end'")
        .start(Streams::Captured(9))
        .unwrap();
    child.wait(deadline()).unwrap().unwrap();
    assert_eq!(child.printed(), "begin end");
}

#[test]
fn a_child_in_this_group_may_lead_a_session_and_is_ended_as_well() {
    let mut child = Command::new("perl")
        .args(["-e", "use POSIX; POSIX::setsid() > 0 or die; sleep 600"])
        .in_this_group()
        .start(Streams::Captured(100))
        .unwrap();
    let id = child.process().unwrap();
    let is_leader = || {
        let group = nix::unistd::getpgid(Some(Pid::from_raw(id.pid)));
        group.is_ok_and(|group| group.as_raw() == id.pid)
    };
    assert!(wait_until(DEADLINE, is_leader), "{}", child.printed());
    assert!(child.end(DEADLINE).unwrap());
    assert!(!id.is_alive());
}

#[test]
fn a_command_bound_to_its_parent_does_not_run_under_another_parent() {
    let words = [&WITH_PARENT[..], &["echo", "ready"]].concat();
    let command: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let guarded = never_orphaned(&command);
    let of = |words: &[String]| {
        let finished = Command::of(words).run(deadline()).unwrap();
        String::from_utf8(finished.stdout).unwrap()
    };
    assert_eq!(of(&guarded), "ready\n");
    // Now the child of another process.
    let between: Vec<String> = ["sh", "-c", "\"$@\"; true", "sh"]
        .map(str::to_owned)
        .into_iter()
        .chain(guarded)
        .collect();
    assert_eq!(of(&between), "");
    let other = ["echo".to_owned()];
    assert_eq!(never_orphaned(&other), other);
    let finished = Command::new("echo")
        .arg("ready")
        .with_parent()
        .run(deadline());
    assert_eq!(finished.unwrap().stdout, b"ready\n");
}

#[test]
fn the_kernel_ends_a_child_with_the_thread_that_started_it() {
    let start = || {
        let command = Command::new("sleep").arg("600").with_parent();
        let child = command.start(Streams::Captured(0)).unwrap();
        // The kernel sends the signal only once setpriv(1) has requested it.
        assert!(wait_until(DEADLINE, || {
            let name = fs::read_to_string(format!("/proc/{}/comm", child.id()));
            name.is_ok_and(|name| name == "sleep\n")
        }));
        child
    };
    let mut child = std::thread::spawn(start).join().unwrap();
    let status = child.wait(deadline()).unwrap().unwrap();
    assert!(!status.success(), "{status}");
}

#[test]
fn both_outputs_and_the_status_are_kept() {
    let finished = shell("echo out; echo err >&2; exit 3").run(deadline());
    let finished = finished.unwrap();
    assert_eq!(finished.status.and_then(|status| status.code()), Some(3));
    assert_eq!(
        (&finished.stdout[..], &finished.stderr[..]),
        (&b"out\n"[..], &b"err\n"[..])
    );
    let reason = finished.into_result().unwrap_err();
    assert_eq!(reason, "out\nerr (exit status: 3)");
    let succeeded = shell("echo out; echo err >&2").run(deadline()).unwrap();
    assert_eq!(succeeded.into_result().unwrap(), "out\n");
    let missing = Command::new("/no/such/program").run(deadline());
    assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    let none: [&str; 0] = [];
    let empty = Command::of(&none).run(deadline());
    assert_eq!(empty.unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn output_is_bounded() {
    let script = format!("echo begin; head -c {OUTPUT_MAX} /dev/zero");
    let finished = shell(&script).run(deadline()).unwrap();
    assert!(finished.status.unwrap().success());
    assert_eq!(finished.stdout.len(), OUTPUT_MAX);
}

#[test]
fn a_command_is_killed_at_the_deadline_with_all_that_it_forked() {
    let finished = shell(DEAF)
        .run(Deadline::after(Duration::from_millis(500)))
        .unwrap();
    assert_eq!(finished.status, None);
    let forked = String::from_utf8_lossy(&finished.stdout).trim().to_owned();
    let forked: i32 = forked.parse().unwrap();
    assert!(wait_until(DEADLINE, || ProcessId::of(forked).is_none()));
    let reason = finished.into_result().unwrap_err();
    assert!(reason.contains("did not end within"), "{reason}");
}

#[test]
fn a_process_that_keeps_the_pipes_is_not_waited_for() {
    let finished = shell("sleep 600 & echo $!").run(deadline()).unwrap();
    assert!(finished.status.unwrap().success());
    let left = process(String::from_utf8_lossy(&finished.stdout).trim());
    left.end(DEADLINE).unwrap();
}

/// Seeds of `make test`.
const SEEDS: u64 = 300;
/// Timeout of processes that may ignore SIGTERM.
const SHORT: Duration = Duration::from_millis(20);

/// Runs, ends and drops processes of which one in two fails.
fn start_and_end(seed: u64) {
    let mut random = Random::new(seed);
    let faults = SpawnFaults::new(When::OneIn(2), None, Random::new(random.word()));
    let sleep = Command::new("sleep").arg("600");
    let mut dropped = Vec::new();
    faults.run(|| {
        for _ in 0..=random.below(3) {
            if random.below(3) == 0 {
                let finished = Command::new("echo").arg("printed").run(deadline());
                if let Ok(Ok(printed)) = finished.map(Finished::into_result) {
                    assert_eq!(printed, "printed\n");
                }
                continue;
            }
            let Ok(mut child) = sleep.start(Streams::Captured(100)) else {
                continue;
            };
            child.set_timeout(SHORT);
            if random.below(3) == 0 {
                faults.kill_rest();
            }
            match random.below(3) {
                0 => {
                    child.end(SHORT).unwrap();
                }
                1 => child.kill().unwrap(),
                _ => dropped.push(child),
            }
        }
    });
    drop(dropped);
    let left = faults.left();
    assert!(left.is_empty(), "{left:?}: {:#?}", faults.happened());
}

#[test]
fn no_process_is_left_after_any_fault_of_spawning() {
    let test = "supervised::tests::no_process_is_left";
    run_seeds(SEEDS, "quietwire-base", test, start_and_end);
}
