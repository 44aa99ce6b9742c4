// SPDX-License-Identifier: Apache-2.0
//! Tests of pairs in separate network namespaces. They require root.

use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nix::net::if_::if_nametoindex;

use super::*;
use crate::testing::{self, in_a_namespace, spawn_in_namespace};

fn ip(arguments: &str) -> String {
    let words = arguments.split(' ');
    let output = Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A further namespace, that of a thread which lists its interfaces on demand.
struct Other {
    file: File,
    requests: Sender<String>,
    replies: Receiver<String>,
    thread: Option<JoinHandle<()>>,
}

impl Other {
    fn new() -> Self {
        let (requests, requested) = channel::<String>();
        let (reply, replies) = channel();
        let (opened, file) = channel();
        let inside = move || {
            opened
                .send(File::open("/proc/thread-self/ns/net").unwrap())
                .unwrap();
            for request in requested {
                reply.send(ip(&request)).unwrap();
            }
        };
        let thread = Some(spawn_in_namespace(inside));
        Self {
            file: file.recv().unwrap(),
            requests,
            replies,
            thread,
        }
    }

    fn path(&self) -> String {
        let (process, file) = (std::process::id(), self.file.as_raw_fd());
        format!("/proc/{process}/fd/{file}")
    }

    fn ip(&self, arguments: &str) -> String {
        self.requests.send(arguments.to_owned()).unwrap();
        self.replies.recv().unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.requests = channel().0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn opened(uri: &str) -> Result<Pair, String> {
    opened_with(uri, 1518)
}

fn opened_with(uri: &str, frame_size_max: u16) -> Result<Pair, String> {
    let options = PortOptions::new("left", frame_size_max);
    let uri = uri.parse().unwrap();
    let mut pair = open(&uri, &options)
        .map_err(|error| error.to_string())?
        .unwrap();
    pair.settle();
    Ok(pair)
}

/// Leaves a pair as a killed process does.
fn killed(uri: &str, is_kept: bool) {
    let mut pair = opened(uri).unwrap();
    let alias = Marker::of_a_dead_process("left", is_kept).to_string();
    let changed = message::set_alias(pair.index, &alias);
    pair.near.change(changed).unwrap();
    pair.promiscuity = None;
    std::mem::forget(pair);
}

#[test]
fn only_uris_of_the_kind_open_a_pair() {
    let options = PortOptions::new("left", 1518);
    let uri = "af-packet:lo".parse().unwrap();
    assert!(open(&uri, &options).unwrap().is_none());
}

#[test]
fn a_pair_is_as_the_uri_requires_and_is_deleted_with_the_value() {
    in_a_namespace(|| {
        let other = Other::new();
        let uri = format!(
            "veth:qwa?netns={}&mtu=1400&mac=02:00:00:00:00:0a&peer-mac=02:00:00:00:00:0b",
            other.path()
        );
        let pair = opened(&uri).unwrap();
        let near = ip("-d link show qwa");
        for part in [
            "mtu 1400",
            "02:00:00:00:00:0a",
            "NOARP",
            "UP",
            "addrgenmode none",
            "veth",
            "persist=off port=left",
            "group default",
        ] {
            assert!(near.contains(part), "{part}: {near}");
        }
        assert!(!ip("address show qwa").contains("inet"));
        let far = other.ip("-d link show eth0");
        for part in ["mtu 1400", "02:00:00:00:00:0b", "UP", "veth"] {
            assert!(far.contains(part), "{part}: {far}");
        }
        assert!(!far.contains("NOARP"), "{far}");
        drop(pair);
        assert!(!ip("link").contains("qwa"));
        assert!(!other.ip("link").contains("eth0"));

        // In one namespace, with the MTU of the largest frame.
        let pair = opened_with("veth:qwa", 9018).unwrap();
        let shown = ip("link");
        assert!(shown.contains("qwa-peer@qwa"), "{shown}");
        assert_eq!(shown.matches("mtu 9000").count(), 2, "{shown}");
        drop(pair);
        assert!(!ip("link").contains("qwa"));
    });
}

#[test]
fn other_interfaces_are_refused_and_left_alone() {
    in_a_namespace(|| {
        let other = Other::new();
        ip("link add qwa type veth peer name qwb");
        ip("link set qwa alias mine");
        ip("link add qwc type veth peer name qwd");
        ip("link set qwc alias quietwire");
        other.ip("link add eth0 type veth peer name eth9");
        let before = (ip("-d link"), other.ip("-d link"));
        let far = format!("veth:qwx?netns={}", other.path());
        for (uri, parts) in [
            ("veth:qwa", ["'qwa' exists", "af-packet:qwa"]),
            ("veth:qwc?persist=on", ["'qwc' exists", "another name"]),
            ("veth:qwx?peer=qwb", ["'qwb' exists", "peer=NAME"]),
            (
                far.as_str(),
                ["'eth0' exists in network namespace", "peer=NAME"],
            ),
            (
                "veth:qwx?netns=quietwire-none",
                ["quietwire-none", "ip netns add"],
            ),
            (
                "veth:qwx?netns=/dev/null",
                ["/dev/null", "not a network namespace"],
            ),
            ("veth:qwx?mtu=1501", ["mtu=1501", "frames of up to 1519"]),
        ] {
            let error = opened(uri).unwrap_err();
            for part in ["'left'", parts[0], parts[1]] {
                assert!(error.contains(part), "{uri}: {error}");
            }
        }
        assert_eq!((ip("-d link"), other.ip("-d link")), before);
    });
}

#[test]
fn a_pair_in_use_is_refused_and_one_of_a_killed_process_is_replaced() {
    in_a_namespace(|| {
        let index = || if_nametoindex("qwa").unwrap();
        let pair = opened("veth:qwa").unwrap();
        let error = opened("veth:qwa?peer=qwother").unwrap_err();
        assert!(error.contains("'qwa' is in use"), "{error}");
        assert_eq!(remove_left_veth_pairs(), Vec::<String>::new());
        drop(pair);

        killed("veth:qwa", false);
        let former = index();
        let pair = opened("veth:qwa").unwrap();
        assert_ne!(index(), former);
        drop(pair);
        assert!(!ip("link").contains("qwa"));

        // A packet capture of another program does not protect it.
        killed("veth:qwa", false);
        let capture = Promiscuity::of("qwa").unwrap();
        assert_eq!(remove_left_veth_pairs(), ["qwa"]);
        assert!(!ip("link").contains("qwa"));
        drop(capture);

        // The process was killed before it had set the alias.
        let [near, far] = ["qwa", "qwb"].map(|name| End {
            name,
            mtu: 1500,
            address: None,
        });
        let links = Links::open().unwrap();
        links.create(message::create(&near, &far, None)).unwrap();
        assert_eq!(remove_left_veth_pairs(), Vec::<String>::new());
        drop(opened("veth:qwa").unwrap());
        assert!(!ip("link").contains("qw"));
    });
}

#[test]
fn a_kept_pair_is_used_again() {
    in_a_namespace(|| {
        let other = Other::new();
        let uri = format!("veth:qwa?netns={}", other.path());
        let kept = format!("{uri}&persist=on");
        drop(opened(&kept).unwrap());
        testing::until("the carrier is lost", || {
            other.ip("link show eth0").contains("NO-CARRIER")
        });
        other.ip("address add 10.0.0.1/24 dev eth0");
        // Neither the one that was closed, nor that of a killed process, loses the address.
        killed(&format!("{kept}&mtu=1300"), true);
        assert_eq!(remove_left_veth_pairs(), Vec::<String>::new());
        let pair = opened(&format!("{kept}&peer-mac=02:00:00:00:00:0b")).unwrap();
        let shown = other.ip("address show eth0");
        for part in ["10.0.0.1/24", "02:00:00:00:00:0b", "mtu 1500"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        drop(pair);
        // With another far end, and without the option, it is replaced.
        let pair = opened(&format!("{kept}&peer=lan0")).unwrap();
        let shown = other.ip("link");
        assert!(shown.contains("lan0") && !shown.contains("eth0"), "{shown}");
        drop(pair);
        drop(opened(&uri).unwrap());
        assert!(!ip("link").contains("qwa"));

        // An alias that an administrator changes makes the pair that of the administrator.
        let pair = opened(&uri).unwrap();
        ip("link set qwa alias mine");
        drop(pair);
        assert!(opened(&uri).unwrap_err().contains("exists"));
        ip("link delete qwa");
    });
}
