// SPDX-License-Identifier: Apache-2.0
//! Ports `veth`: pairs of interfaces that the switch creates, whose far ends are in the namespaces of hosts.

use tempfile::TempDir;

use crate::captures::exchange;
use crate::offloads::{IPV4, IPV6, Net};
use crate::rig::{self, Namespace, Switch, quietwire, run, until};

/// Near ends of the left and the right host.
const NEAR: [&str; 2] = ["qwleft", "qwright"];

/// Starts a switch with a port for each host on a bridge that forwards all frames itself. The hosts have addresses afterwards.
fn start(net: &Net, directory: &TempDir, options: &str, arguments: &[&str]) -> Switch {
    let ports = ["left", "right"].map(|port| {
        let (near, host) = match port {
            "left" => (NEAR[0], &net.left),
            _ => (NEAR[1], &net.right),
        };
        (port, format!("veth:{near}?netns={}{options}", host.name()))
    });
    let bridge = ["--bridge", "lan=left,right", "--kernel-forwarding", "false"];
    let arguments = [&bridge[..], arguments].concat();
    let switch = Switch::start(&net.middle, directory.path(), &ports, &arguments);
    net.add_addresses();
    switch
}

fn ping(net: &Net) {
    rig::ping(&net.left, IPV4[1]);
}

fn has(namespace: &Namespace, interface: &str) -> bool {
    let links = namespace.ip(&["-brief", "link"]);
    let mut names = links
        .lines()
        .filter_map(|line| line.split([' ', '@']).next());
    names.any(|name| name == interface)
}

/// Returns true if both pairs exist, and false if none of their ends does.
fn has_pairs(net: &Net) -> bool {
    let ends = [
        has(&net.middle, NEAR[0]),
        has(&net.middle, NEAR[1]),
        has(&net.left, "eth0"),
        has(&net.right, "eth0"),
    ];
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    ends[0]
}

#[test]
fn pairs_carry_streams_of_hosts_with_all_offloads() {
    for (kind, mtu, frame) in [("pair", "1500", "1518"), ("pair9", "9000", "9018")] {
        let net = Net::without_cables(kind);
        let directory = TempDir::new().unwrap();
        let switch = start(&net, &directory, "", &["--frame-size-max", frame]);
        assert!(has_pairs(&net));
        for (namespace, end) in [
            (&net.left, "eth0"),
            (&net.right, "eth0"),
            (&net.middle, NEAR[0]),
            (&net.middle, NEAR[1]),
        ] {
            let shown = namespace.ip(&["link", "show", end]);
            assert!(shown.contains(&format!("mtu {mtu} ")), "{shown}");
        }
        ping(&net);
        net.carries();
        for port in switch.ports() {
            // Whole, both ways.
            assert!(port["tx_tso_frames"].as_u64() > Some(50), "{port}");
            assert_eq!(
                (&port["segmented"], &port["drops"]["rx_errors"]),
                (&0.into(), &0.into())
            );
        }
        assert_eq!(switch.end(), Some(0));
        assert!(!has_pairs(&net));
    }
}

#[test]
fn pairs_carry_streams_while_threads_sleep() {
    let net = Net::without_cables("pair-idle");
    let directory = TempDir::new().unwrap();
    let switch = start(&net, &directory, "", &["--idle", "interrupt"]);
    ping(&net);
    net.carries();
    assert_eq!(switch.end(), Some(0));
    assert!(!has_pairs(&net));
}

/// The left and the right host are in VLAN 5 and another host is in VLAN 6 of two bridges. A bridge of the kernel connects the trunks of
/// both: tagged frames go into a pair and come from one.
#[test]
fn pairs_carry_streams_in_vlans_of_trunks() {
    const OTHER: &str = "10.213.8.3";
    let net = Net::without_cables("pair-vlan");
    let [cable, other] = ["cable", "other"].map(|end| Namespace::new(&format!("pair-vlan-{end}")));
    let directory = TempDir::new().unwrap();
    let ports = [
        ("left", &net.left, "eth0"),
        ("one", &cable, "one"),
        ("two", &cable, "two"),
        ("right", &net.right, "eth0"),
        ("other", &other, "eth0"),
    ];
    let ports = ports.map(|(port, host, peer)| {
        let uri = format!("veth:qw{port}?netns={}&peer={peer}", host.name());
        (port, uri)
    });
    let bridges = [
        "--bridge",
        "first=left,one",
        "--bridge",
        "second=two,right,other",
    ];
    let switch = Switch::start(&net.middle, directory.path(), &ports, &bridges);
    for (port, vlan) in [("left", "5"), ("right", "5"), ("other", "6")] {
        switch.change(&["set", "port", port, "--access", vlan]);
    }
    cable.ip(&["link", "add", "cable", "type", "bridge"]);
    cable.ip(&["link", "set", "cable", "up"]);
    for trunk in ["one", "two"] {
        switch.change(&["set", "port", trunk, "--trunk", "5,6"]);
        cable.ip(&["link", "set", trunk, "master", "cable"]);
    }
    net.add_addresses();
    let address = format!("{OTHER}/24");
    other.ip(&["addr", "add", &address, "dev", "eth0"]);
    ping(&net);
    for to in [IPV4[1], IPV6[1]] {
        exchange(&net, to, 5000);
    }
    net.has_no_wrong_checksum();
    for port in ["left", "one", "two", "right"] {
        let port = switch.port(port);
        assert!(port["tx_tso_frames"].as_u64() > Some(0), "{port}");
        assert_eq!(port["drops"]["not_segmented"], 0, "{port}");
    }
    // The trunks carry both VLANs, and the hosts of one do not reach those of the other.
    let mut request = net.left.command("busybox");
    request.args(["ping", "-c", "1", "-W", "1", OTHER]);
    assert!(!request.status().unwrap().success());
    switch.change(&["set", "port", "left", "--access", "6"]);
    rig::ping(&net.left, OTHER);
    assert_eq!(switch.end(), Some(0));
}

#[test]
fn a_pair_is_as_its_uri_requires_and_removed_with_its_port() {
    let net = Net::without_cables("pair-uri");
    let directory = TempDir::new().unwrap();
    let switch = Switch::start(&net.middle, directory.path(), &[], &[]);
    let uri = format!(
        "veth:qwv?netns={}&peer=lan0&mtu=1400&mac=02:00:00:00:00:0a&peer-mac=02:00:00:00:00:0b",
        net.left.name()
    );
    for _ in 0..2 {
        switch.change(&["add", "port", "v", &uri]);
        let port = switch.port("v");
        assert_eq!(port["uri"], uri);
        let near = net.middle.ip(&["link", "show", "qwv"]);
        let far = net.left.ip(&["link", "show", "lan0"]);
        for (shown, mac) in [(near, "02:00:00:00:00:0a"), (far, "02:00:00:00:00:0b")] {
            assert!(
                shown.contains(mac) && shown.contains("mtu 1400 "),
                "{shown}"
            );
        }
        switch.until_up("v");
        switch.change(&["del", "port", "v"]);
        until("the pair is deleted", || {
            (!has(&net.middle, "qwv") && !has(&net.left, "lan0")).then_some(())
        });
    }
    // In the namespace of the switch.
    switch.change(&["add", "port", "v", "veth:qwv?queues=2"]);
    assert!(has(&net.middle, "qwv") && has(&net.middle, "qwv-peer"));
    // Without its far end, it is down.
    net.middle.ip(&["link", "delete", "qwv-peer"]);
    until("the loss of the pair is detected", || {
        (switch.port("v")["state"] == "down").then_some(())
    });
    switch.change(&["del", "port", "v"]);
    switch.change(&["add", "port", "v", "veth:qwv"]);
    assert_eq!(switch.end(), Some(0));
    assert!(!has(&net.middle, "qwv") && !has(&net.middle, "qwv-peer"));
}

/// Pools of their own would require 500 MiB.
#[test]
fn fifty_pairs_share_buffers() {
    let net = Net::without_cables("pair-many");
    let directory = TempDir::new().unwrap();
    let arguments = [
        "--memory-mib",
        "128",
        "--pinning",
        "none",
        "--forwarding-cpus",
        "0",
    ];
    let switch = Switch::start(&net.middle, directory.path(), &[], &arguments);
    let add = |number: u32| {
        let uri = format!(
            "veth:qwm{number}?netns={}&peer=lan{number}",
            net.left.name()
        );
        switch.change(&["add", "port", &format!("m{number}"), &uri]);
    };
    (0..50).for_each(add);
    assert_eq!(switch.ports().len(), 50);
    for number in 0..50 {
        switch.change(&["del", "port", &format!("m{number}")]);
    }
    let is_left = |number| has(&net.middle, &format!("qwm{number}"));
    until("the pairs are deleted", || {
        (!(0..50).any(is_left)).then_some(())
    });
    add(0);
    switch.until_up("m0");
    assert_eq!(switch.end(), Some(0));
    assert!(!has(&net.middle, "qwm0"));
}

#[test]
fn pairs_of_a_killed_switch_are_replaced_by_the_next_one_or_removed_by_clean() {
    let net = Net::without_cables("pair-kill");
    let directory = TempDir::new().unwrap();
    let cleans = || run(net.middle.command(quietwire()).args(["lab", "clean"]));
    start(&net, &directory, "", &[]).kill();
    assert!(has_pairs(&net));
    let switch = start(&net, &directory, "", &[]);
    let printed = switch.printed();
    assert!(
        printed.contains("replaced the pair of interface 'qwleft'"),
        "{printed}"
    );
    ping(&net);
    // Those of a running switch stay.
    cleans();
    assert!(has_pairs(&net));
    ping(&net);
    switch.kill();
    assert!(has_pairs(&net));
    let printed = cleans();
    for near in NEAR {
        let line = format!("veth pair of a killed process, interface {near}: removed");
        assert!(printed.contains(&line), "{printed}");
    }
    assert!(!has_pairs(&net));
}

#[test]
fn pairs_that_persist_are_used_again() {
    let net = Net::without_cables("pair-keep");
    let directory = TempDir::new().unwrap();
    let cleans = || run(net.middle.command(quietwire()).args(["lab", "clean"]));
    let switch = start(&net, &directory, "&persist=on", &[]);
    let uri = switch.port("left")["uri"].as_str().unwrap().to_owned();
    switch.change(&["del", "port", "left"]);
    until("the host has no carrier", || {
        let shown = net.left.ip(&["link", "show", "eth0"]);
        shown.contains("NO-CARRIER").then_some(())
    });
    switch.change(&["add", "port", "left", &uri, "--bridge", "lan"]);
    // The host has kept its addresses.
    ping(&net);
    switch.kill();
    cleans();
    assert!(has_pairs(&net));
    let ports = ["left", "right"].into_iter().zip(NEAR);
    let hosts = [net.left.name(), net.right.name()];
    let ports: Vec<_> = ports
        .zip(hosts)
        .map(|((port, near), host)| (port, format!("veth:{near}?netns={host}&persist=on")))
        .collect();
    let bridge = ["--bridge", "lan=left,right"];
    let switch = Switch::start(&net.middle, directory.path(), &ports, &bridge);
    ping(&net);
    assert_eq!(switch.end(), Some(0));
    assert!(has_pairs(&net));
    // Without the option, a switch deletes them at its end.
    let switch = start(&net, &directory, "", &[]);
    ping(&net);
    assert_eq!(switch.end(), Some(0));
    assert!(!has_pairs(&net));
}

#[test]
fn interfaces_of_others_are_refused_and_left_alone() {
    let net = Net::without_cables("pair-other");
    let directory = TempDir::new().unwrap();
    for (place, interface, peer) in [(&net.middle, "qwv", "other"), (&net.left, "eth0", "eth9")] {
        place.ip(&[
            "link", "add", interface, "type", "veth", "peer", "name", peer,
        ]);
    }
    net.middle.ip(&["link", "set", "qwv", "alias", "quietwire"]);
    let links = || {
        let interfaces = [
            (&net.middle, "qwv"),
            (&net.middle, "other"),
            (&net.left, "eth0"),
        ];
        interfaces.map(|(place, name)| place.ip(&["-d", "link", "show", name]))
    };
    let switch = Switch::start(&net.middle, directory.path(), &[], &[]);
    switch.change(&["add", "port", "used", "veth:qwused"]);
    let before = links();
    let [left, right] = [&net.left, &net.right].map(Namespace::name);
    for (uri, parts) in [
        (
            format!("veth:qwv?netns={right}"),
            ["'qwv' exists", "af-packet:qwv"],
        ),
        (
            "veth:qwnew?peer=other".to_owned(),
            ["'other' exists", "peer=NAME"],
        ),
        (
            format!("veth:qwnew?netns={left}"),
            ["'eth0' exists in network namespace", left],
        ),
        (
            format!("veth:qwused?netns={right}"),
            ["'qwused' is in use", "another name"],
        ),
        (
            "veth:qwnew?netns=quietwire-none".to_owned(),
            ["quietwire-none", "ip netns add"],
        ),
        (
            "veth:qwnew?netns=/dev/null".to_owned(),
            ["/dev/null", "not a network namespace"],
        ),
        (
            "veth:qwnew?mtu=1501".to_owned(),
            ["mtu=1501", "frame-size-max"],
        ),
    ] {
        let message = switch.refusal(&["add", "port", "new", &uri]);
        for part in parts {
            assert!(message.contains(part), "{uri}: {message}");
        }
    }
    assert_eq!(links(), before);
    assert!(!has(&net.middle, "qwnew") && !has(&net.right, "eth0"));
    assert!(has(&net.middle, "qwused"));
    assert_eq!(switch.end(), Some(0));
    assert!(!has(&net.middle, "qwused"));
}
