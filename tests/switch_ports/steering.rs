// SPDX-License-Identifier: Apache-2.0
//! The split path: a connection of the kernel and its counters go on over an interface whose steered flows pass the switch.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::offloads::features;
use crate::rig::{Namespace, Switch, run, until};

/// Addresses of the left host, of the kernel between, and of the right host, which only the switch reaches.
const LEFT: &str = "10.213.9.1";
const KERNEL: &str = "10.213.9.2";
const RIGHT: &str = "10.213.9.3";
const TCP_PORT: u16 = 7000;
const STEERED: u16 = 5000;
/// UDP port without rule.
const OTHER: u16 = 5001;
/// Time for an answer. A lost frame is sent again.
const ANSWER: Duration = Duration::from_millis(200);

const CONFIG: &str = r#"
[[steer]]
name = "requests"
port = "l"
to = "switch"
protocol = "udp"
destination = "10.213.9.3/32"
destination-port = "5000"

[[steer]]
name = "answers"
port = "r"
to = "switch"
protocol = "udp"
source = "10.213.9.3/32"
source-port = "5000"
"#;

/// Counters of the kernel between, for what its interface gives it: TCP, the steered UDP port, and the other one. Later hooks see no frames
/// to other MAC addresses. A rule of its firewall also counts TCP.
const COUNTERS: &str = "\
add table netdev qw
add counter netdev qw qw_tcp
add counter netdev qw qw_steered
add counter netdev qw qw_other
add chain netdev qw early { type filter hook ingress device \"DEVICE\" priority 0; }
add rule netdev qw early tcp dport 7000 counter name qw_tcp
add rule netdev qw early udp dport 5000 counter name qw_steered
add rule netdev qw early udp dport 5001 counter name qw_other
add table inet qw
add counter inet qw qw_firewall
add chain inet qw input { type filter hook input priority 0; }
add rule inet qw input iifname \"DEVICE\" tcp dport 7000 counter name qw_firewall accept
";

/// Two hosts, and the namespace of the switch between them.
struct Net {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
}

impl Net {
    /// Creates the hosts and their cables. `kind` must be unique to the test.
    fn new(kind: &str) -> Self {
        let named = |end: &str| Namespace::new(&format!("{kind}-{end}"));
        let net = Self {
            left: named("left"),
            middle: named("middle"),
            right: named("right"),
        };
        for (host, port, address) in [(&net.left, "l0", LEFT), (&net.right, "r0", RIGHT)] {
            net.middle.ip(&[
                "link",
                "add",
                port,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                host.name(),
            ]);
            net.middle.ip(&["link", "set", port, "up"]);
            host.ip(&["link", "set", "eth0", "up"]);
            host.ip(&["addr", "add", &format!("{address}/24"), "dev", "eth0"]);
        }
        // No rule steers ARP to the switch.
        for (host, other, address) in [
            (&net.left, &net.right, RIGHT),
            (&net.right, &net.left, LEFT),
        ] {
            let mac = mac_address(other, "eth0");
            host.ip(&[
                "neigh",
                "add",
                address,
                "lladdr",
                &mac,
                "dev",
                "eth0",
                "nud",
                "permanent",
            ]);
        }
        net
    }

    /// Gives an interface between the hosts the kernel's address, and counts what it gives the kernel.
    fn has_address_on(&self, interface: &str, directory: &TempDir) {
        let address = format!("{KERNEL}/24");
        self.middle.ip(&["addr", "add", &address, "dev", interface]);
        let rules = directory.path().join("counters.nft");
        fs::write(&rules, COUNTERS.replace("DEVICE", interface)).unwrap();
        run(self.middle.command("nft").arg("-f").arg(rules));
    }

    /// Returns the packets of a counter of the kernel between, at the ingress of its interface.
    fn counted(&self, name: &str) -> u64 {
        self.counted_in("netdev", name)
    }

    fn counted_in(&self, family: &str, name: &str) -> u64 {
        let text = run(self.middle.command("nft").args([
            "-j",
            "list",
            "counter",
            family,
            "qw",
            &format!("qw_{name}"),
        ]));
        let listed: Value = serde_json::from_str(&text).unwrap();
        let all = listed["nftables"].as_array().unwrap();
        let counter = all.iter().find_map(|one| one.get("counter")).unwrap();
        counter["packets"].as_u64().unwrap()
    }

    fn has_program(&self, interface: &str) -> bool {
        let shown = self.middle.ip(&["-details", "link", "show", interface]);
        shown.contains("prog/xdp")
    }
}

fn mac_address(namespace: &Namespace, interface: &str) -> String {
    let text = namespace.ip(&["-j", "link", "show", interface]);
    let link: Value = serde_json::from_str(&text).unwrap();
    link[0]["address"].as_str().unwrap().to_owned()
}

/// A connection of the left host to the kernel between, which returns all octets.
struct Connection(TcpStream);

impl Connection {
    fn open(net: &Net) -> Self {
        let listener = net
            .middle
            .within(|| TcpListener::bind((KERNEL, TCP_PORT)).unwrap());
        let listener = listener.join().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut octets = [0; 4096];
            // Until the connection is closed.
            while let Ok(length @ 1..) = stream.read(&mut octets) {
                stream.write_all(&octets[..length]).unwrap();
            }
        });
        let connected = net
            .left
            .within(|| TcpStream::connect((KERNEL, TCP_PORT)).unwrap());
        let stream = connected.join().unwrap();
        stream.set_read_timeout(Some(crate::rig::DEADLINE)).unwrap();
        Self(stream)
    }

    /// Fails unless data go to the kernel and return, which the kernel counts.
    fn goes_on(&mut self, net: &Net) {
        let count = || [net.counted("tcp"), net.counted_in("inet", "firewall")];
        let before = count();
        for round in 0..20_u8 {
            let sent = [round; 1000];
            self.0.write_all(&sent).unwrap();
            let mut returned = [0; 1000];
            self.0.read_exact(&mut returned).unwrap();
            assert_eq!(returned, sent);
        }
        for (count, before) in count().into_iter().zip(before) {
            assert!(count >= before + 20);
        }
    }
}

/// A socket of a host for requests, and one of the right host that answers them.
struct Requests {
    client: UdpSocket,
}

impl Requests {
    fn open(net: &Net) -> Self {
        let open = |namespace: &Namespace, address: &'static str, port: u16| {
            let bound = namespace.within(move || UdpSocket::bind((address, port)).unwrap());
            bound.join().unwrap()
        };
        let server = open(&net.right, RIGHT, STEERED);
        std::thread::spawn(move || {
            let mut octets = [0; 2048];
            // Until the test ends.
            while let Ok((length, from)) = server.recv_from(&mut octets) {
                let _ = server.send_to(&octets[..length], from);
            }
        });
        let client = open(&net.left, LEFT, 0);
        client.set_read_timeout(Some(ANSWER)).unwrap();
        Self { client }
    }

    /// Sends requests until this number of them is answered.
    fn are_answered(&self, count: u8) {
        for number in 0..count {
            until("a request is answered", || {
                self.send(STEERED, number);
                let mut octets = [0; 2048];
                let (length, from) = self.client.recv_from(&mut octets).ok()?;
                assert_eq!(from, SocketAddr::new(RIGHT.parse().unwrap(), STEERED));
                (octets[..length] == [number; 100]).then_some(())
            });
        }
    }

    fn send(&self, port: u16, number: u8) {
        self.client.send_to(&[number; 100], (RIGHT, port)).unwrap();
    }
}

/// Returns the frames that a rule has decided on.
fn hits(switch: &Switch, name: &str) -> Option<u64> {
    let ports = switch.show("steer");
    let mut rules = ports
        .iter()
        .flat_map(|port| port["rules"].as_array().unwrap());
    let rule = rules.find(|rule| rule["name"] == name)?;
    rule["frames"].as_u64()
}

#[test]
fn the_kernel_and_the_switch_share_an_interface() {
    let directory = TempDir::new().unwrap();
    let net = Net::new("steer");
    net.has_address_on("l0", &directory);
    let config = directory.path().join("switch.toml");
    fs::write(&config, CONFIG).unwrap();
    let config = config.display().to_string();
    let start = || {
        let ports = [("l", "af-xdp:l0".to_owned()), ("r", "af-xdp:r0".to_owned())];
        let arguments = ["--config", &config, "--cross-connect", "l,r"];
        Switch::start(&net.middle, directory.path(), &ports, &arguments)
    };
    let interfaces = [
        (&net.middle, "l0"),
        (&net.left, "eth0"),
        (&net.middle, "r0"),
        (&net.right, "eth0"),
    ];
    let all_features = || interfaces.map(|(namespace, interface)| features(namespace, interface));
    let features_before = all_features();
    let mut connection = Connection::open(&net);
    connection.goes_on(&net);
    let requests = Requests::open(&net);

    // Both paths at once, in both directions.
    let switch = start();
    connection.goes_on(&net);
    requests.are_answered(20);
    connection.goes_on(&net);
    for rule in ["requests", "answers"] {
        assert!(
            hits(&switch, rule) >= Some(20),
            "{:?}",
            switch.show("steer")
        );
    }
    assert_eq!(net.counted("steered"), 0);
    let report = &switch.show("steer")[0];
    assert_eq!(
        (&report["port"], &report["by"]),
        (&"l".into(), &"xdp".into())
    );
    assert!(report["unmatched"].as_u64() > Some(20), "{report}");

    // Rules change at run time. Those that stay keep their counters.
    let before = hits(&switch, "requests");
    requests.send(OTHER, 1);
    until("the kernel gets a frame without rule", || {
        (net.counted("other") == 1).then_some(())
    });
    let other = ["steer", "add", "other", "--port", "l", "--to", "switch"];
    let udp = ["--protocol", "udp", "--destination-port", "5001"];
    switch.change(&[&other[..], &udp, &["--before", "requests"]].concat());
    requests.send(OTHER, 2);
    until("the switch gets it", || {
        (hits(&switch, "other") == Some(1)).then_some(())
    });
    assert_eq!(net.counted("other"), 1);
    let refused = ["steer", "add", "x", "--port", "l", "--to", "kernel"];
    let message = switch.refusal(&[&refused[..], &["--source-port", "1"]].concat());
    assert!(message.contains("steering rule 'x'"), "{message}");
    assert_eq!(hits(&switch, "x"), None);
    switch.change(&["steer", "del", "other"]);
    assert_eq!(hits(&switch, "other"), None);
    assert!(hits(&switch, "requests") >= before);
    connection.goes_on(&net);
    // The driver of a veth pair has no flow rules, so nothing changes.
    let message = switch.refusal(&[&other[..], &udp, &["--queue", "0"]].concat());
    let reason = "flow rules of interface 'l0': its driver has no flow rules";
    assert!(message.contains(reason), "{message}");
    assert_eq!(hits(&switch, "other"), None);
    requests.are_answered(1);

    // The program stays when the link is lost.
    net.middle.ip(&["link", "set", "l0", "down"]);
    net.middle.ip(&["link", "set", "l0", "up"]);
    requests.are_answered(5);
    connection.goes_on(&net);

    // A killed switch leaves the interface to the kernel, and the next one has the same rules.
    assert!(net.has_program("l0") && net.has_program("r0"));
    switch.kill();
    until("the kernel has removed the programs", || {
        (!net.has_program("l0") && !net.has_program("r0")).then_some(())
    });
    connection.goes_on(&net);
    requests.send(STEERED, 3);
    until("the kernel gets all frames", || {
        (net.counted("steered") == 1).then_some(())
    });
    let switch = start();
    requests.are_answered(5);
    connection.goes_on(&net);
    assert!(hits(&switch, "requests") >= Some(5));
    assert_eq!(switch.end(), Some(0));
    assert!(!net.has_program("l0") && !net.has_program("r0"));
    assert_eq!(all_features(), features_before);
}

/// A port that cannot leave frames to the kernel has a tap for them.
#[test]
fn a_tap_gives_the_kernel_what_no_rule_steers_to_the_switch() {
    let directory = TempDir::new().unwrap();
    let net = Net::new("steer-tap");
    for interface in ["l0", "r0"] {
        // Only the tap answers for the kernel.
        net.middle.ip(&["link", "set", interface, "arp", "off"]);
    }
    let ports = [
        ("l", "af-packet:l0".to_owned()),
        ("r", "af-packet:r0".to_owned()),
        ("k", "tap:kernel0".to_owned()),
    ];
    let pair = ["--cross-connect", "l,r"];
    let switch = Switch::start(&net.middle, directory.path(), &ports, &pair);
    net.has_address_on("kernel0", &directory);
    let add = ["steer", "add", "requests", "--port", "l", "--to", "switch"];
    let message = switch.refusal(&add);
    assert!(message.contains("set kernel-port"), "{message}");
    let udp = [
        "--kernel-port",
        "k",
        "--protocol",
        "udp",
        "--destination-port",
        "5000",
    ];
    switch.change(&[&add[..], &udp].concat());
    let mut connection = Connection::open(&net);
    let requests = Requests::open(&net);
    requests.are_answered(20);
    connection.goes_on(&net);
    assert_eq!(net.counted("steered"), 0);
    assert!(hits(&switch, "requests") >= Some(20));
    let report = &switch.show("steer")[0];
    assert_eq!(
        (&report["by"], &report["kernel_port"]),
        (&"software".into(), &"k".into())
    );
    assert!(report["unmatched"].as_u64() > Some(20), "{report}");
    assert_eq!(switch.end(), Some(0));
}
