// SPDX-License-Identifier: Apache-2.0
//! Streams between the network stacks of two namespaces through taps, with the offloads that the kernel has by default.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::UdpGsoSegment;
use quietwire_base::testing::KillOnDrop;
use serde_json::Value;
use tempfile::TempDir;

use crate::offloads::{has_learned_mtu, has_no_wrong_checksum};
use crate::rig::{Namespace, Switch, until};

/// Two namespaces whose only link is a switch in a third one.
struct Hosts {
    ends: [Namespace; 2],
    switch: Switch,
    place: Namespace,
    _directory: TempDir,
}

const TAPS: [&str; 2] = ["left0", "right0"];
/// Networks without the number of the end, by version of IP.
const NETWORKS: [&str; 2] = ["10.77.0.", "2001:db8:77::"];

impl Hosts {
    /// Starts the switch, whose ports `left` and `right` are on a bridge.
    fn start(kind: &str, arguments: &[&str]) -> Self {
        let arguments = [&["--bridge", "lan=left,right"], arguments].concat();
        Self::start_with(kind, &[], &arguments)
    }

    /// Starts the switch with more taps, in its own namespace.
    fn start_with(kind: &str, more: &[&str], arguments: &[&str]) -> Self {
        let ends = ["l", "r"].map(|end| Namespace::new(&format!("{kind}-{end}")));
        let place = Namespace::new(kind);
        let directory = TempDir::new().unwrap();
        let mut ports = vec![("left", tap_uri(&ends, 0)), ("right", tap_uri(&ends, 1))];
        ports.extend(more.iter().map(|name| (*name, format!("tap:{name}"))));
        let switch = Switch::start(&place, directory.path(), &ports, arguments);
        add_addresses(&ends);
        Self {
            ends,
            switch,
            place,
            _directory: directory,
        }
    }

    /// Starts two switches that are connected by vhost-user: one between the left namespace and its `vhost` port `v` with segmentation, and
    /// one between its `virtio-user` port `u` with these options and the right namespace. Also returns the second one.
    fn start_across_vhost_user(kind: &str, options: &str) -> (Self, Switch) {
        let ends = ["l", "r"].map(|end| Namespace::new(&format!("{kind}-{end}")));
        let place = Namespace::new(kind);
        let directory = TempDir::new().unwrap();
        let of_far = directory.path().join("far");
        std::fs::create_dir(&of_far).unwrap();
        let socket = directory.path().join("v.sock").display().to_string();
        let ports = [
            ("left", tap_uri(&ends, 0)),
            ("v", format!("vhost:{socket}?tso=on")),
        ];
        let connected = ["--cross-connect", "left,v"];
        let switch = Switch::start(&place, directory.path(), &ports, &connected);
        let ports = [
            ("u", format!("virtio-user:{socket}?{options}")),
            ("right", tap_uri(&ends, 1)),
        ];
        let far = Switch::start(&place, &of_far, &ports, &["--cross-connect", "u,right"]);
        for (switch, port) in [(&switch, "v"), (&far, "u")] {
            until("the ports are connected", || {
                (switch.port(port)["state"] == "connected").then_some(())
            });
        }
        add_addresses(&ends);
        let hosts = Self {
            ends,
            switch,
            place,
            _directory: directory,
        };
        (hosts, far)
    }

    /// Sends a stream to an address of the right side, or from it. Returns the client's report.
    fn stream(&self, address: &str, arguments: &[&str]) -> Value {
        let mut command = self.ends[1].command("iperf3");
        // It goes on after a client that fails.
        command.args(["--server", "--bind", address]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = KillOnDrop(command.spawn().unwrap());
        let report = until("the server answers", || {
            let mut command = self.ends[0].command("iperf3");
            command
                .args(["--client", address, "--json"])
                .args(arguments);
            let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
            report["error"].is_null().then_some(report)
        });
        drop(server);
        report
    }

    /// Sends streams of TCP data both ways, and datagrams.
    fn exchange(&self, address: &str) {
        const OCTETS: u64 = 64 << 20;
        let octets = OCTETS.to_string();
        for direction in [&[][..], &["--reverse"]] {
            let report = self.stream(address, &[&["--bytes", &octets], direction].concat());
            let received = report["end"]["sum_received"]["bytes"].as_u64();
            // The receiver stops to count when the sender has sent all.
            assert!(
                received > Some(OCTETS / 2),
                "{address} {direction:?}: {received:?}"
            );
        }
        // Short datagrams, and some of several fragments.
        for length in ["1000", "20000"] {
            let datagrams = [
                "--udp",
                "--bitrate",
                "100M",
                "--bytes",
                "2M",
                "--length",
                length,
            ];
            let report = self.stream(address, &datagrams);
            let sum = &report["end"]["sum"];
            let (lost, sent) = (sum["lost_packets"].as_u64(), sum["packets"].as_u64());
            assert!(sent > Some(50) && lost < sent, "{address}: {report}");
        }
    }

    fn has_taps(&self) -> bool {
        let links = [0, 1].map(|end| self.ends[end].ip(&["link"]).contains(TAPS[end]));
        assert_eq!(links[0], links[1]);
        links[0]
    }
}

/// Returns the URI of the tap in one of the namespaces.
fn tap_uri(ends: &[Namespace; 2], index: usize) -> String {
    format!("tap:{}?netns={}", TAPS[index], ends[index].name())
}

/// Gives the taps their addresses.
fn add_addresses(ends: &[Namespace; 2]) {
    for (index, end) in ends.iter().enumerate() {
        for network in NETWORKS {
            let (length, more) = match network.contains('.') {
                true => (24, &[][..]),
                false => (64, &["nodad"][..]),
            };
            let address = format!("{network}{}/{length}", index + 1);
            let add = ["address", "add", &address, "dev", TAPS[index]];
            end.ip(&[&add, more].concat());
        }
    }
}

/// Exchanges streams over both versions of IP. Returns the two namespaces after the end of the switch.
fn exchange(hosts: Hosts, ports: &[&str]) -> [Namespace; 2] {
    for network in NETWORKS {
        hosts.exchange(&format!("{network}2"));
    }
    hosts.ends.iter().for_each(has_no_wrong_checksum);
    for port in ports {
        let port = hosts.switch.port(port);
        // Data passed in large frames, none of them cut.
        assert!(port["tx_tso_frames"].as_u64() > Some(1000), "{port}");
        assert_eq!(port["segmented"], 0, "{port}");
        for drop in ["not_segmented", "rx_errors", "tx_full"] {
            assert_eq!(port["drops"][drop], 0, "{drop}: {port}");
        }
    }
    let Hosts { ends, switch, .. } = hosts;
    assert_eq!(switch.end(), Some(0));
    ends
}

fn exchanges(kind: &str, mtu: &str, arguments: &[&str]) {
    let hosts = Hosts::start(kind, arguments);
    for (end, tap) in hosts.ends.iter().zip(TAPS) {
        let shown = end.ip(&["link", "show", tap]);
        assert!(shown.contains(&format!("mtu {mtu} ")), "{shown}");
    }
    let ends = exchange(hosts, &["left", "right"]);
    for (end, tap) in ends.iter().zip(TAPS) {
        assert!(!end.ip(&["link"]).contains(tap));
    }
}

#[test]
fn taps_carry_streams_of_hosts_as_they_are() {
    exchanges("taps", "1500", &[]);
}

#[test]
fn taps_carry_streams_in_jumbo_frames() {
    exchanges("jumbo", "9000", &["--frame-size-max", "9018"]);
}

#[test]
fn taps_carry_streams_while_threads_sleep() {
    exchanges("drowsy", "1500", &["--idle", "interrupt"]);
}

/// Large frames pass both switches unsegmented, both ways, if the driver's side accepts them. Otherwise the switch that receives them from
/// its tap segments them.
#[test]
fn streams_pass_vhost_user_whole_if_its_driver_takes_large_frames() {
    for (kind, options, networks, is_whole) in [
        ("vus", "tso=on", &NETWORKS[..], true),
        ("vup", "tso=on&packed=on", &NETWORKS[..1], true),
        ("vuc", "mergeable=on", &NETWORKS[..1], false),
    ] {
        let (hosts, far) = Hosts::start_across_vhost_user(kind, options);
        for network in networks {
            for direction in [&[][..], &["--reverse"]] {
                let address = format!("{network}2");
                let report = hosts.stream(&address, &[&["--bytes", "16M"], direction].concat());
                // More than the socket buffers of the sender hold, which count as sent.
                let received = report["end"]["sum_received"]["bytes"].as_u64();
                assert!(
                    received > Some(2_000_000),
                    "{kind} {direction:?}: {received:?}"
                );
            }
        }
        hosts.ends.iter().for_each(has_no_wrong_checksum);
        for port in [hosts.switch.port("v"), far.port("u")] {
            let [whole, cut] = ["tx_tso_frames", "segmented"].map(|key| port[key].as_u64());
            let (many, none) = if is_whole { (whole, cut) } else { (cut, whole) };
            assert!(many > Some(50), "{kind}: {port}");
            assert_eq!(none, Some(0), "{kind}: {port}");
            for drop in ["not_segmented", "rx_errors"] {
                assert_eq!(port["drops"][drop], 0, "{kind} {drop}: {port}");
            }
        }
        let port = hosts.switch.port("v");
        let features = port["guest"]["features"].as_array().unwrap();
        assert!(features.contains(&"mrg-rxbuf".into()), "{kind}: {port}");
        for feature in ["csum", "guest-csum", "host-tso4", "guest-tso6"] {
            let is_used = features.contains(&feature.into());
            assert_eq!(is_used, is_whole, "{kind} {feature}: {port}");
        }
        for port in [hosts.switch.port("left"), far.port("right")] {
            let whole = port["tx_tso_frames"].as_u64();
            assert_eq!(whole > Some(50), is_whole, "{kind}: {port}");
        }
        assert_eq!(far.end(), Some(0));
        assert_eq!(hosts.switch.end(), Some(0));
    }
}

/// Each end is in VLAN 5 of a bridge of the switch, and a bridge of the kernel connects the trunks of both: tagged frames go into a tap and
/// come from one.
#[test]
fn taps_carry_streams_with_tags() {
    let arguments = [
        "--bridge",
        "one=left,trunk0",
        "--bridge",
        "two=right,trunk1",
    ];
    let hosts = Hosts::start_with("tags", &["trunk0", "trunk1"], &arguments);
    for port in ["left", "right"] {
        hosts.switch.change(&["set", "port", port, "--access", "5"]);
    }
    hosts.place.ip(&["link", "add", "cable", "type", "bridge"]);
    hosts.place.ip(&["link", "set", "cable", "up"]);
    for trunk in ["trunk0", "trunk1"] {
        hosts.switch.change(&["set", "port", trunk, "--trunk", "5"]);
        hosts.place.ip(&["link", "set", trunk, "master", "cable"]);
    }
    exchange(hosts, &["left", "right", "trunk0", "trunk1"]);
}

/// Rules on ports and on the states of connections decide about large frames as about others.
#[test]
fn taps_carry_streams_through_the_filter() {
    const RULES: &str = r#"
rule-default = "drop"

[connections]
max-entries = 1000

[[rule]]
name = "neighbours"
action = "accept"
ct-state = "untracked"

[[rule]]
name = "answers"
action = "accept"
ct-state = "established,related"

[[rule]]
name = "out"
action = "accept"
port = "left"
ct-state = "new"
"#;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("switch.toml");
    std::fs::write(&file, RULES).unwrap();
    let hosts = Hosts::start("filtered", &["--config", file.to_str().unwrap()]);
    for network in NETWORKS {
        let address = format!("{network}2");
        for direction in [&[][..], &["--reverse"]] {
            let report = hosts.stream(&address, &[&["--bytes", "16M"][..], direction].concat());
            let received = report["end"]["sum_received"]["bytes"].as_u64();
            assert!(received > Some(2_000_000), "{address}: {report}");
        }
        // Datagrams of several fragments.
        let datagrams = ["--udp", "--bitrate", "50M", "--length", "20000"];
        let report = hosts.stream(&address, &[&datagrams[..], &["--bytes", "1M"]].concat());
        let sum = &report["end"]["sum"];
        let (lost, sent) = (sum["lost_packets"].as_u64(), sum["packets"].as_u64());
        assert!(sent > Some(10) && lost < sent, "{address}: {report}");
    }
    for (end, port) in ["left", "right"].iter().enumerate() {
        has_no_wrong_checksum(&hosts.ends[end]);
        let port = hosts.switch.port(port);
        assert!(port["tx_tso_frames"].as_u64() > Some(100), "{port}");
        assert_eq!(port["segmented"], 0, "{port}");
        for drop in ["malformed", "not_segmented"] {
            assert_eq!(port["drops"][drop], 0, "{drop}: {port}");
        }
    }
    let before = hosts.switch.port("right")["drops"]["denied"].as_u64();
    // The right host begins nothing.
    let mut ping = hosts.ends[1].command("busybox");
    ping.args(["ping", "-c", "1", "-W", "1", "10.77.0.1"]);
    assert!(!ping.status().unwrap().success());
    until("the request is counted", || {
        (hosts.switch.port("right")["drops"]["denied"].as_u64() > before).then_some(())
    });
    assert_eq!(hosts.switch.end(), Some(0));
}

/// The hosts are in different networks, and the link to the right one has a smaller MTU: the left one learns it (RFC 1191, RFC 8201).
#[test]
fn taps_carry_streams_through_the_router() {
    let hosts = Hosts::start_with("routed", &[], &[]);
    for (index, port) in ["left", "right"].iter().enumerate() {
        let mtu = ["1500", "1400"][index];
        let interface = format!("to-{port}");
        let [v4, v6] = [
            format!("10.78.{index}.254/24"),
            format!("2001:db8:78:{index}::fe/64"),
        ];
        let arguments = ["add", "interface", &interface, "--port", port, "--mtu", mtu];
        let addresses = ["--address", &v4, "--address", &v6];
        hosts.switch.change(&[&arguments[..], &addresses].concat());
        let (end, tap, other) = (&hosts.ends[index], TAPS[index], 1 - index);
        let add = ["address", "add", "dev", tap];
        end.ip(&[&add[..], &[&format!("10.78.{index}.1/24")]].concat());
        let address = format!("2001:db8:78:{index}::1/64");
        end.ip(&[&add[..], &[&address, "nodad"]].concat());
        for [network, gateway] in [
            [format!("10.78.{other}.0/24"), format!("10.78.{index}.254")],
            [
                format!("2001:db8:78:{other}::/64"),
                format!("2001:db8:78:{index}::fe"),
            ],
        ] {
            end.ip(&["route", "add", &network, "via", &gateway]);
        }
    }
    const OCTETS: u64 = 32 << 20;
    for address in ["10.78.1.1", "2001:db8:78:1::1"] {
        for direction in [&[][..], &["--reverse"]] {
            let octets = OCTETS.to_string();
            let report = hosts.stream(address, &[&["--bytes", &octets], direction].concat());
            let received = report["end"]["sum_received"]["bytes"].as_u64();
            assert!(received > Some(OCTETS / 2), "{address}: {report}");
        }
        has_learned_mtu(&hosts.ends[0], address, "1400");
    }
    for (end, port) in ["left", "right"].iter().enumerate() {
        has_no_wrong_checksum(&hosts.ends[end]);
        let port = hosts.switch.port(port);
        assert!(port["tx_tso_frames"].as_u64() > Some(500), "{port}");
        assert_eq!(port["segmented"], 0, "{port}");
    }
    // Frames are cut for the router only until the left host has learned the MTU.
    let router = &hosts.switch.stats()["router"];
    let [forwarded, segmented] = ["forwarded", "segmented"].map(|name| router[name].as_u64());
    assert!(segmented > Some(0), "{router}");
    assert!(forwarded > Some(1000), "{router}");
    assert_eq!(hosts.switch.end(), Some(0));
}

/// Several datagrams that the sender passes to its kernel at once (UDP_SEGMENT, udp(7)) are one frame up to the receiver's kernel.
#[test]
fn taps_carry_datagrams_many_at_once() {
    const SIZE: u16 = 1000;
    const COUNT: usize = 20;
    let size = usize::from(SIZE);
    let hosts = Hosts::start("datagrams", &[]);
    for network in NETWORKS {
        let address = |end: usize| {
            let address: IpAddr = format!("{network}{end}").parse().unwrap();
            SocketAddr::new(address, 4711)
        };
        let (own, peer) = (address(1), address(2));
        let receiver = hosts.ends[1].within(move || UdpSocket::bind(peer).unwrap());
        let receiver = receiver.join().unwrap();
        let timeout = Some(Duration::from_secs(1));
        receiver.set_read_timeout(timeout).unwrap();
        let sender = hosts.ends[0].within(move || {
            let socket = UdpSocket::bind(own).unwrap();
            setsockopt(&socket, UdpGsoSegment, &i32::from(SIZE)).unwrap();
            socket.connect(peer).unwrap();
            socket
        });
        let sender = sender.join().unwrap();
        let sent: Vec<u8> = (0..size * COUNT).map(|at| (at % 251) as u8).collect();
        until("all datagrams arrive", || {
            sender.send(&sent).unwrap();
            let mut heard = vec![0; 2 * size];
            let mut all = Vec::new();
            for _ in 0..COUNT {
                let length = receiver.recv(&mut heard).ok()?;
                assert_eq!(length, size);
                all.extend_from_slice(&heard[..length]);
            }
            (all == sent).then_some(())
        });
    }
    has_no_wrong_checksum(&hosts.ends[1]);
    let port = hosts.switch.port("right");
    assert!(port["tx_tso_frames"].as_u64() >= Some(2), "{port}");
    assert_eq!(port["drops"]["not_segmented"], 0, "{port}");
    assert_eq!(hosts.switch.end(), Some(0));
}

#[test]
fn interfaces_of_taps_are_deleted_with_the_switch_unless_they_persist() {
    let hosts = Hosts::start("leave", &[]);
    assert!(hosts.has_taps());
    // In other namespaces too, ports come and go while the switch runs.
    let uri = |more: &str| format!("tap:more0?netns={}{more}", hosts.ends[0].name());
    let has_more = || hosts.ends[0].ip(&["link"]).contains("more0");
    hosts.switch.change(&[
        "add",
        "port",
        "more",
        &uri("&mtu=1400&mac=02:00:00:00:00:0a"),
    ]);
    let shown = hosts.ends[0].ip(&["link", "show", "more0"]);
    for part in ["02:00:00:00:00:0a", "mtu 1400 "] {
        assert!(shown.contains(part), "{shown}");
    }
    hosts.switch.until_up("more");
    hosts.switch.change(&["del", "port", "more"]);
    until("the interface is deleted", || (!has_more()).then_some(()));
    for _ in 0..2 {
        hosts
            .switch
            .change(&["add", "port", "more", &uri("&persist=on")]);
        hosts.switch.until_up("more");
        hosts.switch.change(&["del", "port", "more"]);
        assert!(has_more());
    }
    let Hosts {
        ends,
        switch,
        place: _place,
        _directory,
    } = hosts;
    switch.kill();
    for (end, tap) in ends.iter().zip(TAPS) {
        until("the interface is deleted", || {
            (!end.ip(&["link"]).contains(tap)).then_some(())
        });
    }
    ends[0].ip(&["link", "show", "more0"]);
}
