// SPDX-License-Identifier: Apache-2.0
//! Rights of a running switch, and ports of every kind that are added with them.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::process::{Command, Output};

use serde_json::json;
use tempfile::TempDir;

use crate::carries_in;
use crate::rig::{Namespace, Switch, quietwire};

/// Capabilities of control threads, which open ports. Other threads have none.
const CAPABILITIES: &str = "NET_ADMIN,NET_RAW,IPC_LOCK,SYS_ADMIN";

/// Adds a port of every kind and removes it.
fn adds_every_kind(switch: &Switch, directory: &TempDir) {
    for uri in [
        "memif:DIR/m.sock?role=server",
        "vhost:DIR/v.sock",
        "virtio-user:DIR/u.sock?role=server",
        "tap:qwprivileges",
        "veth:qwrights",
        "veth:qwrights?netns=/proc/self/ns/net&peer=qwfar",
        "af-packet:v0",
        "af-xdp:v2",
    ] {
        let uri = uri.replace("DIR", &directory.path().display().to_string());
        switch.change(&["add", "port", "added", &uri]);
        assert_eq!(switch.port("added")["name"], "added");
        switch.change(&["del", "port", "added"]);
    }
}

/// DPDK's driver of AF_XDP leaves its socket open, which would keep the queue of the interface.
#[test]
fn an_interface_is_added_again_after_its_removal() {
    let namespace = Namespace::with_pairs("again");
    let directory = TempDir::new().unwrap();
    let switch = Switch::start(&namespace, directory.path(), &[], &[]);
    for round in 0..2 {
        for (name, uri) in [
            ("a", "af-xdp:v0"),
            ("b", "af-packet:v2"),
            ("c", "tap:qwagain"),
            ("d", "veth:qwagain-v"),
        ] {
            switch.change(&["add", "port", name, uri]);
            assert_eq!(switch.port(name)["name"], name, "{round}");
        }
        for name in ["a", "b", "c", "d"] {
            switch.change(&["del", "port", name]);
        }
    }
    switch.change(&["add", "port", "a", "af-xdp:v0"]);
    switch.change(&["add", "port", "b", "af-xdp:v2"]);
    switch.change(&["add", "cross-connect", "a", "b"]);
    let tester = ["af-packet:v1", "af-packet:v3"];
    carries_in("again", (&namespace, &directory, &switch), tester);
    assert_eq!(switch.end(), Some(0));
}

/// Checks the rights of every thread. `capabilities` are those of control threads.
fn has_rights_of(switch: &Switch, uid: u32, capabilities: &str) {
    let threads = switch.show("threads");
    for role in ["forwarding", "service", "control"] {
        let has_role = threads.iter().any(|thread| thread["role"] == role);
        assert!(has_role, "{role}: {threads:?}");
    }
    for thread in threads {
        let rights = &thread["rights"];
        let expected = match thread["role"].as_str() {
            Some("control") => capabilities,
            _ => "none",
        };
        assert_eq!(rights["uid"], json!(uid), "{thread}");
        assert_eq!(rights["capabilities"], expected, "{thread}");
        assert_eq!(rights["can_gain_rights"], json!(false), "{thread}");
        assert_eq!(rights["has_seccomp_filter"], json!(true), "{thread}");
        assert_eq!(thread["denied_calls"], json!(0), "{thread}");
    }
}

#[test]
fn ports_of_every_kind_are_added_without_other_rights() {
    let namespace = Namespace::with_pairs("rights");
    let directory = TempDir::new().unwrap();
    let switch = Switch::start(&namespace, directory.path(), &[], &[]);
    has_rights_of(&switch, 0, CAPABILITIES);
    adds_every_kind(&switch, &directory);
    has_rights_of(&switch, 0, CAPABILITIES);
    assert_eq!(switch.end(), Some(0));
}

#[test]
fn a_switch_becomes_another_user() {
    let user = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let uid = user.uid.as_raw();
    let namespace = Namespace::with_pairs("user");
    let directory = TempDir::new().unwrap();
    chown(directory.path(), Some(uid), None).unwrap();
    let switch = Switch::start(&namespace, directory.path(), &[], &["--user", "nobody"]);
    has_rights_of(&switch, uid, CAPABILITIES);
    let socket = switch.control().metadata().unwrap();
    assert_eq!((socket.uid(), socket.mode() & 0o777), (uid, 0o600));
    adds_every_kind(&switch, &directory);
    let control = switch.control().to_owned();
    assert_eq!(switch.end(), Some(0));
    assert!(!control.exists());
}

/// Checks that no thread has a capability, or may get one.
fn has_no_capability(switch: &Switch) {
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{}/task", switch.pid())).unwrap() {
        // The thread may have ended.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else {
            continue;
        };
        for key in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            let line = format!("{key}:\t0000000000000000");
            assert!(status.contains(&line), "{line}: {status}");
        }
        threads += 1;
    }
    // Those of each role, and those of DPDK.
    assert!(threads > 4, "{threads}");
}

fn command(switch: &Switch, arguments: &[&str]) -> Output {
    let mut command = Command::new(quietwire());
    command.arg("switch").args(arguments);
    command.arg("--control-socket").arg(switch.control());
    command.output().unwrap()
}

fn config(switch: &Switch) -> String {
    String::from_utf8(command(switch, &["show", "config"]).stdout).unwrap()
}

/// Checks that a change is refused with a message, and changes nothing.
fn is_refused(switch: &Switch, arguments: &[&str], message: &str) {
    let before = config(switch);
    let output = command(switch, arguments);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains(message), "{printed}");
    assert_eq!(config(switch), before);
}

#[test]
fn a_switch_with_ports_of_shared_memory_has_no_capability() {
    let user = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    for (kind, uid, more) in [
        ("bare", 0, &[][..]),
        ("bareuser", user.uid.as_raw(), &["--user", "nobody"][..]),
    ] {
        let namespace = Namespace::new(kind);
        let directory = TempDir::new().unwrap();
        chown(directory.path(), Some(uid), None).unwrap();
        let uri = |uri: &str| uri.replace("DIR", &directory.path().display().to_string());
        let ports = [
            ("m", uri("memif:DIR/m.sock?role=server")),
            ("v", uri("vhost:DIR/v.sock")),
        ];
        let arguments = [&["--later-ports", "memif,vhost"][..], more].concat();
        let switch = Switch::start(&namespace, directory.path(), &ports, &arguments);
        has_rights_of(&switch, uid, "none");
        has_no_capability(&switch);
        let added = uri("memif:DIR/added.sock?role=server");
        switch.change(&["add", "port", "added", &added]);
        assert_eq!(switch.port("added")["name"], "added");
        has_no_capability(&switch);
        switch.change(&["del", "port", "added"]);
        is_refused(
            &switch,
            &["add", "port", "t", "tap:qwbare"],
            "port 't': tap ports cannot be added to this switch (start the switch with `--later-ports memif,vhost,tap`)",
        );
        is_refused(
            &switch,
            &["add", "interface", "i", "--port", "m", "--kernel", "qwbare"],
            "interface 'i': kernel requires the capability NET_ADMIN, which the switch gave up at its start (start the switch with `--later-ports memif,vhost,tap`)",
        );
        let links = namespace.ip(&["link"]);
        assert!(!links.contains("qwbare"), "{links}");
        // The kernel reports its routes to every process.
        switch.change(&["set", "vrf", "main", "--kernel-table", "254"]);
        has_no_capability(&switch);
        assert_eq!(switch.end(), Some(0));
    }
}

#[test]
fn a_tap_is_closed_with_its_own_rights_and_not_added_again() {
    let namespace = Namespace::new("onetap");
    let directory = TempDir::new().unwrap();
    let ports = [("t", "tap:qwonetap".to_owned())];
    let later = ["--later-ports", "none"];
    let switch = Switch::start(&namespace, directory.path(), &ports, &later);
    has_rights_of(&switch, 0, "NET_ADMIN");
    assert!(namespace.ip(&["link"]).contains("qwonetap"));
    switch.change(&["del", "port", "t"]);
    let links = namespace.ip(&["link"]);
    assert!(!links.contains("qwonetap"), "{links}");
    is_refused(
        &switch,
        &["add", "port", "t", "tap:qwonetap"],
        "port 't': tap ports cannot be added to this switch (start the switch with `--later-ports tap`)",
    );
    assert_eq!(switch.end(), Some(0));
}
