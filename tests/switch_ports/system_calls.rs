// SPDX-License-Identifier: Apache-2.0
//! System calls of threads, with ports of every kind.

use nix::libc;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::puppet::{Outcome, Puppet};
use crate::rig::{Namespace, Switch, until};
use crate::{carries_in, files};

/// First attempts of an attacker: files, network, programs, other processes. All arguments are 0, except those without which the
/// kernel would refuse the call at once.
const ATTEMPTS: [(&str, i64, [u64; 3]); 4] = [
    ("openat", libc::SYS_openat, [0; 3]),
    (
        "socket",
        libc::SYS_socket,
        [libc::AF_INET as u64, libc::SOCK_STREAM as u64, 0],
    ),
    ("execve", libc::SYS_execve, [0; 3]),
    (
        "ptrace",
        libc::SYS_ptrace,
        [libc::PTRACE_PEEKDATA as u64, 0, 0],
    ),
];

fn thread(switch: &Switch, role: &str) -> Value {
    let threads = switch.show("threads");
    let found = threads.into_iter().find(|thread| thread["role"] == role);
    found.unwrap()
}

fn puppet(switch: &Switch) -> Puppet {
    let tid = thread(switch, "forwarding")["tid"].as_i64().unwrap();
    Puppet::new(i32::try_from(tid).unwrap())
}

fn switch_with(namespace: &Namespace, directory: &TempDir, uris: [&str; 2], mode: &str) -> Switch {
    let uri = |uri: &str| uri.replace("DIR", &directory.path().display().to_string());
    let ports = [("a", uri(uris[0])), ("b", uri(uris[1]))];
    // The thread makes calls again and again.
    let idle = ["--idle", "yield"];
    let arguments = [&["--cross-connect", "a,b", "--seccomp", mode], &idle[..]].concat();
    Switch::start(namespace, directory.path(), &ports, &arguments)
}

/// Ports of each kind. Only `null:` is missing: it always has frames, so its thread never makes a call.
const KINDS: [[&str; 2]; 8] = [
    [
        "memif:DIR/a.sock?role=server",
        "memif:DIR/b.sock?role=server",
    ],
    ["vhost:DIR/a.sock", "vhost:DIR/b.sock"],
    [
        "virtio-user:DIR/a.sock?role=server",
        "virtio-user:DIR/b.sock?role=server",
    ],
    ["tap:qwcalls0", "tap:qwcalls1"],
    ["af-packet:v0", "af-packet:v2"],
    ["veth:qwcalls2", "veth:qwcalls3"],
    ["af-xdp:v0", "af-xdp:v2"],
    [
        "pcap:?rx=DIR/in.pcap&tx=DIR/a.pcap",
        "pcap:?rx=DIR/in.pcap&tx=DIR/b.pcap",
    ],
];

#[test]
fn a_forwarding_thread_with_ports_of_any_kind_opens_and_starts_nothing() {
    // Some kinds at the same time: each is waited for in turn.
    const AT_ONCE: usize = 4;
    let kinds: Vec<(usize, [&str; 2])> = KINDS.into_iter().enumerate().collect();
    for some in kinds.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            for (number, uris) in some {
                scope.spawn(move || opens_and_starts_nothing(*number, *uris));
            }
        });
    }
}

fn opens_and_starts_nothing(number: usize, uris: [&str; 2]) {
    let namespace = Namespace::with_pairs(&format!("calls{number}"));
    let directory = TempDir::new().unwrap();
    files::write(&directory.path().join("in.pcap"), &files::frames(8));
    let switch = switch_with(&namespace, &directory, uris, "enforce");
    let puppet = puppet(&switch);
    for (name, call, arguments) in ATTEMPTS {
        let outcome = puppet.call(call, arguments);
        let denied = Outcome::Denied(-i64::from(libc::EPERM));
        assert_eq!(outcome, denied, "{uris:?}: {name}");
    }
    drop(puppet);
    let forwarding = thread(&switch, "forwarding");
    assert_eq!(forwarding["denied_calls"], json!(4), "{forwarding}");
    assert_eq!(forwarding["last_denied_call"], "ptrace", "{forwarding}");
    assert_eq!(thread(&switch, "control")["denied_calls"], json!(0));
    until("the denied calls are logged", || {
        let logged = "seccomp filters of forwarding threads have denied 4 system calls, most recently ptrace";
        switch.printed().contains(logged).then_some(())
    });
    let turns = |switch: &Switch| switch.stats()["threads"][0]["polls"].as_u64();
    let before = turns(&switch);
    until("the thread forwards", || {
        (turns(&switch) > before).then_some(())
    });
    assert_eq!(switch.end_after_denials(), Some(0));
}

#[test]
fn frames_pass_after_denied_calls() {
    let namespace = Namespace::new("calls-then");
    let directory = TempDir::new().unwrap();
    let switch = switch_with(&namespace, &directory, KINDS[0], "enforce");
    let puppet = puppet(&switch);
    for (_, call, arguments) in ATTEMPTS {
        puppet.call(call, arguments);
    }
    drop(puppet);
    let tester = ["a", "b"].map(|name| format!("memif:DIR/{name}.sock?role=client"));
    carries_in(
        "calls-then",
        (&namespace, &directory, &switch),
        [&tester[0], &tester[1]],
    );
    assert_eq!(switch.end_after_denials(), Some(0));
}

#[test]
fn calls_are_executed_if_filters_only_log_or_are_off() {
    for (mode, is_filtered) in [("log", true), ("off", false)] {
        let namespace = Namespace::new(&format!("calls-{mode}"));
        let directory = TempDir::new().unwrap();
        let switch = switch_with(&namespace, &directory, KINDS[0], mode);
        let forwarding = thread(&switch, "forwarding");
        let has_filter = &forwarding["rights"]["has_seccomp_filter"];
        assert_eq!(*has_filter, json!(is_filtered), "{mode}");
        let puppet = puppet(&switch);
        let [(_, openat, arguments), ..] = ATTEMPTS;
        let outcome = puppet.call(openat, arguments);
        drop(puppet);
        // The path is a null pointer.
        let executed = Outcome::Executed(-i64::from(libc::EFAULT));
        assert_eq!(outcome, executed, "{mode}");
        assert_eq!(switch.end(), Some(0));
    }
}
