// SPDX-License-Identifier: Apache-2.0
//! Bridges with kernel forwarding: the kernel forwards between hosts behind `veth` ports, and the switch has the same effect on their frames
//! as without it.

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::offloads::{IPV4, Net};
use crate::rig::{self, Namespace, Switch, quietwire, until};

/// Starts a switch with a port for each host, and a second one for the right host, on a bridge.
fn start(net: &Net, directory: &TempDir, arguments: &[&str]) -> Switch {
    let [left, right] = [&net.left, &net.right].map(Namespace::name);
    let ports = [
        ("left", format!("veth:qwleft?netns={left}")),
        ("right", format!("veth:qwright?netns={right}")),
        ("other", format!("veth:qwother?netns={right}&peer=eth1")),
    ];
    let bridge = ["--bridge", "lan=left,right,other"];
    let arguments = [&bridge[..], arguments].concat();
    let switch = Switch::start(&net.middle, directory.path(), &ports, &arguments);
    net.add_addresses();
    switch
}

/// Returns the report about kernel forwarding of the bridge.
fn report(switch: &Switch) -> Value {
    switch.stats()["bridges"][0]["kernel_forwarding"].clone()
}

/// Returns the frames of a port that the kernel has forwarded.
fn forwarded(switch: &Switch, port: &str) -> u64 {
    switch.port(port)["kernel_forwarded"].as_u64().unwrap()
}

/// Returns the frames of both hosts that the switch has forwarded itself.
fn others(switch: &Switch) -> u64 {
    let of = |port: &str| {
        let port = switch.port(port);
        port["rx_frames"].as_u64().unwrap() - port["kernel_forwarded"].as_u64().unwrap()
    };
    of("left") + of("right")
}

/// Pings the right host from the left one. Returns what it prints.
fn ping(net: &Net, count: &str) -> String {
    let mut command = net.left.command("busybox");
    command.args(["ping", "-c", count, "-i", "0.05", "-W", "1", IPV4[1]]);
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn is_answered(net: &Net) -> bool {
    ping(net, "1").contains("1 packets received")
}

/// Pings until the kernel forwards between the left host and the right one, which is behind this port.
pub(crate) fn until_forwarded(net: &Net, switch: &Switch, right: &str) {
    until("the kernel forwards both ways", || {
        let before = ["left", right].map(|port| forwarded(switch, port));
        let is_answered = is_answered(net);
        let now = ["left", right].map(|port| forwarded(switch, port));
        (is_answered && now[0] > before[0] && now[1] > before[1]).then_some(())
    });
}

/// Checks that the switch forwards by itself, for a reason.
fn is_paused(switch: &Switch, reason: &str) {
    let report = report(switch);
    assert_eq!(report["state"], "paused", "{report}");
    let text = report["reason"].as_str().unwrap();
    assert!(text.contains(reason), "{text}");
}

#[test]
fn the_kernel_forwards_between_known_stations_and_their_addresses_stay() {
    let net = Net::without_cables("kfwd");
    let directory = TempDir::new().unwrap();
    let switch = start(&net, &directory, &["--ageing-s", "1"]);
    until_forwarded(&net, &switch, "right");
    let table = switch.table();
    assert!(
        table.contains("left: kernel forwarding is active"),
        "{table}"
    );
    // Longer than the ageing time, in which the switch sees few frames: addresses that only the kernel sees stay known.
    let before = others(&switch);
    let printed = ping(&net, "60");
    let answers = printed.matches("bytes from").count();
    assert!(answers > 50 && !printed.contains("DUP"), "{printed}");
    let received = others(&switch) - before;
    assert!(received < 40, "{received} frames: {printed}");
    let before = ["left", "right"].map(|port| forwarded(&switch, port));
    net.carries();
    for (port, before) in ["left", "right"].into_iter().zip(before) {
        let report = switch.port(port);
        let count = |name: &str| report[name].as_u64().unwrap();
        assert!(count("kernel_forwarded") > before + 50, "{report}");
        assert!(count("rx_octets") > 1_000_000, "{report}");
        assert!(count("tx_octets") > 1_000_000, "{report}");
    }
    until("silent stations age out", || {
        (report(&switch)["addresses"] == 0).then_some(())
    });
    until_forwarded(&net, &switch, "right");
    assert_eq!(switch.end(), Some(0));
}

#[test]
fn the_kernel_forwards_long_frames() {
    let net = Net::without_cables("kfwd-long");
    let directory = TempDir::new().unwrap();
    let switch = start(&net, &directory, &["--frame-size-max", "9018"]);
    until_forwarded(&net, &switch, "right");
    let before = forwarded(&switch, "left");
    net.carries();
    assert!(forwarded(&switch, "left") > before + 50);
    assert_eq!(switch.end(), Some(0));
}

/// Starts a capture of ten frames, and waits until it has begun.
fn capture(switch: &Switch, directory: &TempDir) -> Child {
    let file = directory.path().join("capture");
    let mut command = Command::new(quietwire());
    command.args(["switch", "capture", "--count", "10", "--write"]);
    command.arg(&file).arg("--control-socket");
    command.arg(switch.control()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    until("the capture begins", || {
        fs::metadata(&file)
            .is_ok_and(|file| file.len() > 0)
            .then_some(())
    });
    child
}

#[test]
fn rules_captures_and_settings_of_the_bridge_hold_from_the_next_frame_on() {
    let net = Net::without_cables("kfwd-rule");
    let directory = TempDir::new().unwrap();
    let switch = start(&net, &directory, &[]);
    until_forwarded(&net, &switch, "right");
    let rule = ["add", "rule", "no-ping", "--action", "drop"];
    switch.change(&[&rule[..], &["--protocol", "icmp"]].concat());
    assert!(!is_answered(&net));
    is_paused(&switch, "filter rules");
    switch.change(&["del", "rule", "no-ping"]);
    assert_eq!(report(&switch)["state"], "active");
    until_forwarded(&net, &switch, "right");
    let mut captures = capture(&switch, &directory);
    is_paused(&switch, "capture");
    let ended = until("the capture has ten frames", || {
        let _ = is_answered(&net);
        captures.try_wait().unwrap()
    });
    assert!(ended.success());
    until_forwarded(&net, &switch, "right");
    // VLANs separate the hosts, also in the kernel.
    for port in ["left", "right"] {
        switch.change(&["set", "port", port, "--access", "5"]);
    }
    until_forwarded(&net, &switch, "right");
    switch.change(&["set", "port", "right", "--access", "6"]);
    assert!(!is_answered(&net));
    switch.change(&["set", "port", "right", "--access", "5"]);
    until_forwarded(&net, &switch, "right");
    switch.change(&["set", "bridge", "lan", "--kernel-forwarding", "false"]);
    assert_eq!(report(&switch), Value::Null);
    let before = forwarded(&switch, "left");
    assert!(ping(&net, "5").contains("bytes from"));
    assert_eq!(forwarded(&switch, "left"), before);
    switch.change(&["set", "bridge", "lan", "--kernel-forwarding", "true"]);
    until_forwarded(&net, &switch, "right");
    assert_eq!(switch.end(), Some(0));
}

fn mac_of(namespace: &Namespace, interface: &str) -> String {
    let shown = namespace.ip(&["link", "show", interface]);
    let (_, after) = shown.split_once("link/ether ").unwrap();
    after.split(' ').next().unwrap().to_owned()
}

#[test]
fn a_station_that_moves_is_reached_and_a_killed_switch_leaves_nothing() {
    let net = Net::without_cables("kfwd-move");
    let directory = TempDir::new().unwrap();
    let switch = start(&net, &directory, &[]);
    until_forwarded(&net, &switch, "right");
    let mac = mac_of(&net.right, "eth0");
    for change in [
        &["link", "set", "eth0", "down"][..],
        &["link", "set", "eth1", "down"],
        &["link", "set", "eth1", "address", &mac],
        &["link", "set", "eth1", "up"],
        &["addr", "add", &format!("{}/24", IPV4[1]), "dev", "eth1"],
    ] {
        net.right.ip(change);
    }
    rig::ping(&net.right, IPV4[0]);
    until_forwarded(&net, &switch, "other");
    until("the former port is down", || {
        (switch.port("right")["state"] == "down").then_some(())
    });
    // The other way round, without a loss of the former link.
    let before = forwarded(&switch, "other");
    net.right.ip(&["link", "set", "eth0", "up"]);
    net.right.ip(&["link", "set", "eth1", "down"]);
    rig::ping(&net.right, IPV4[0]);
    until_forwarded(&net, &switch, "right");
    assert!(forwarded(&switch, "other") >= before);
    switch.kill();
    assert!(!is_answered(&net));
    let switch = start(&net, &directory, &[]);
    until_forwarded(&net, &switch, "right");
    assert_eq!(switch.end(), Some(0));
}
