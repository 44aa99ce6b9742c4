// SPDX-License-Identifier: Apache-2.0
//! Rights of a running switch, and ports of every kind that are added with them.

use std::os::unix::fs::{MetadataExt, chown};

use serde_json::json;
use tempfile::TempDir;

use crate::carries_in;
use crate::rig::{Namespace, Switch};

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

/// Checks the rights of every thread.
fn has_rights_of(switch: &Switch, uid: u32) {
    let threads = switch.show("threads");
    for role in ["forwarding", "service", "control"] {
        let has_role = threads.iter().any(|thread| thread["role"] == role);
        assert!(has_role, "{role}: {threads:?}");
    }
    for thread in threads {
        let rights = &thread["rights"];
        let capabilities = match thread["role"].as_str() {
            Some("control") => CAPABILITIES,
            _ => "none",
        };
        assert_eq!(rights["uid"], json!(uid), "{thread}");
        assert_eq!(rights["capabilities"], capabilities, "{thread}");
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
    has_rights_of(&switch, 0);
    adds_every_kind(&switch, &directory);
    has_rights_of(&switch, 0);
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
    has_rights_of(&switch, uid);
    let socket = switch.control().metadata().unwrap();
    assert_eq!((socket.uid(), socket.mode() & 0o777), (uid, 0o600));
    adds_every_kind(&switch, &directory);
    let control = switch.control().to_owned();
    assert_eq!(switch.end(), Some(0));
    assert!(!control.exists());
}
