// SPDX-License-Identifier: Apache-2.0
//! Hosts behind `af-packet` and `af-xdp` ports whose kernels leave checksums and segmentation to the network card, as veth pairs do by
//! default. Data pass in both directions, no checksum is wrong, and the interfaces keep their offloads.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use tempfile::TempDir;

use crate::rig::{Namespace, Switch, quietwire, run, until};

/// Two hosts, and the namespace of the switch with one end of the cable to each.
pub(crate) struct Net {
    pub(crate) left: Namespace,
    pub(crate) right: Namespace,
    pub(crate) middle: Namespace,
}

/// Addresses of the left and the right host.
pub(crate) const IPV4: [&str; 2] = ["10.213.8.1", "10.213.8.2"];
pub(crate) const IPV6: [&str; 2] = ["fd21:8::1", "fd21:8::2"];
/// Their addresses in different networks ([`Net::route`]).
pub(crate) const ROUTED_IPV4: [&str; 2] = ["10.79.0.1", "10.79.1.1"];
pub(crate) const ROUTED_IPV6: [&str; 2] = ["2001:db8:79::1", "2001:db8:79:1::1"];

/// Counters of a kernel (nstat(8)): packets with a wrong checksum, of IPv4 headers and of each protocol.
const CHECKSUM_ERRORS: [&str; 6] = [
    "IpExtInCsumErrors",
    "TcpInCsumErrors",
    "UdpInCsumErrors",
    "Udp6InCsumErrors",
    "IcmpInCsumErrors",
    "Icmp6InCsumErrors",
];

impl Net {
    /// Creates the namespaces without cables. `kind` must be unique to the test.
    pub(crate) fn without_cables(kind: &str) -> Self {
        let named = |end: &str| Namespace::new(&format!("{kind}-{end}"));
        Self {
            left: named("left"),
            right: named("right"),
            middle: named("middle"),
        }
    }

    /// Creates the namespaces and the cables.
    pub(crate) fn new(kind: &str, mtu: &str) -> Self {
        let net = Self::for_ports(kind, mtu, ["af-packet:l0", "af-packet:r0"]);
        net.add_addresses();
        net
    }

    /// Creates the namespaces, and cables for ports on existing interfaces: `l0` to the left host, and `r0` to the right one. The hosts
    /// have no addresses yet.
    pub(crate) fn for_ports(kind: &str, mtu: &str, uris: [&str; 2]) -> Self {
        let net = Self::without_cables(kind);
        for (number, port) in ["l0", "r0"].into_iter().enumerate() {
            if !uris[number].starts_with("af-") {
                continue;
            }
            let host = [&net.left, &net.right][number];
            let name = host.name();
            net.middle.ip(&[
                "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name,
            ]);
            net.middle.ip(&[
                "link",
                "set",
                port,
                "mtu",
                mtu,
                "arp",
                "off",
                "addrgenmode",
                "none",
                "up",
            ]);
            host.ip(&["link", "set", "eth0", "mtu", mtu, "up"]);
        }
        net
    }

    /// Gives the hosts their addresses.
    pub(crate) fn add_addresses(&self) {
        for (number, host) in [&self.left, &self.right].into_iter().enumerate() {
            host.ip(&[
                "addr",
                "add",
                &format!("{}/24", IPV4[number]),
                "dev",
                "eth0",
            ]);
            host.ip(&[
                "addr",
                "add",
                &format!("{}/64", IPV6[number]),
                "dev",
                "eth0",
                "nodad",
            ]);
        }
    }

    /// Gives the hosts addresses in different networks, between which the switch routes. `ports` and `mtus` are the ports of the left and
    /// of the right host, and the MTUs of the router's interfaces on them.
    pub(crate) fn route(&self, switch: &Switch, ports: [&str; 2], mtus: [&str; 2]) {
        for (index, host) in [&self.left, &self.right].into_iter().enumerate() {
            let (port, other) = (ports[index], 1 - index);
            let name = format!("to-{port}");
            let [v4, v6] = [
                format!("10.79.{index}.254"),
                format!("2001:db8:79:{index}::fe"),
            ];
            let interface = ["add", "interface", &name, "--port", port];
            let [with_v4, with_v6] = [format!("{v4}/24"), format!("{v6}/64")];
            let addresses = ["--address", &with_v4, "--address", &with_v6];
            let mtu = ["--mtu", mtus[index]];
            switch.change(&[&interface[..], &mtu, &addresses].concat());
            for (address, more) in [
                (format!("{}/24", ROUTED_IPV4[index]), &[][..]),
                (format!("{}/64", ROUTED_IPV6[index]), &["nodad"][..]),
            ] {
                let add = ["address", "add", &address, "dev", "eth0"];
                host.ip(&[&add, more].concat());
            }
            for (network, gateway) in [
                (format!("10.79.{other}.0/24"), v4),
                (format!("2001:db8:79:{other}::/64"), v6),
            ] {
                host.ip(&["route", "add", &network, "via", &gateway]);
            }
        }
    }

    fn interfaces(&self) -> [(&Namespace, &str); 4] {
        [
            (&self.left, "eth0"),
            (&self.right, "eth0"),
            (&self.middle, "l0"),
            (&self.middle, "r0"),
        ]
    }

    /// Returns the state of all interfaces: offloads and flags.
    fn state(&self) -> Vec<String> {
        self.interfaces()
            .map(|(namespace, interface)| {
                let link: Value =
                    serde_json::from_str(&namespace.ip(&["-d", "-j", "link", "show", interface]))
                        .unwrap();
                let link = &link[0];
                let [promiscuity, xdp, max_mtu] =
                    ["promiscuity", "xdp", "max_mtu"].map(|key| &link[key]);
                let features = features(namespace, interface);
                format!("{interface} {promiscuity} {xdp} {max_mtu} {features}")
            })
            .to_vec()
    }

    /// Fails unless TCP passes both ways, and UDP.
    pub(crate) fn carries(&self) {
        for [_, to] in [IPV4, IPV6] {
            let server = Server::start(&self.right, to);
            for direction in [&[][..], &["--reverse"]] {
                // More than the socket buffers of the sender hold, which count as sent.
                let arguments = [&["--bytes", "16M"][..], direction].concat();
                let received = server.receive(&self.left, &arguments);
                assert!(
                    received > 2_000_000.0,
                    "{to} {direction:?}: {received} octets"
                );
            }
            let received = server.receive(
                &self.left,
                &[
                    "--udp",
                    "--bitrate",
                    "100M",
                    "--length",
                    "1200",
                    "--bytes",
                    "3M",
                ],
            );
            assert!(received > 1_000_000.0, "{to}: {received} octets of UDP");
        }
        self.has_no_wrong_checksum();
    }

    pub(crate) fn has_no_wrong_checksum(&self) {
        has_no_wrong_checksum(&self.left);
        has_no_wrong_checksum(&self.right);
    }
}

/// Fails if the kernel of a host has counted a wrong checksum.
pub(crate) fn has_no_wrong_checksum(host: &Namespace) {
    let text = run(host.command("nstat").args(["-asz"]).args(CHECKSUM_ERRORS));
    let counts: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("InCsumErrors"))
        .collect();
    assert_eq!(counts.len(), CHECKSUM_ERRORS.len(), "{text}");
    let is_zero = |line: &&str| line.split_whitespace().nth(1) == Some("0");
    assert!(counts.iter().all(is_zero), "{text}");
}

/// Fails unless a host has learned the MTU of the path to an address from ICMP errors (RFC 1191, RFC 8201).
pub(crate) fn has_learned_mtu(host: &Namespace, to: &str, mtu: &str) {
    let route = host.ip(&["route", "get", to]);
    let mut words = route.split_whitespace();
    let learned = words.find(|word| *word == "mtu").and(words.next());
    assert_eq!(learned, Some(mtu), "{route}");
}

/// Returns the active offload features of an interface, as a number (linux/ethtool.h, ETHTOOL_GFEATURES).
pub(crate) fn features(namespace: &Namespace, interface: &str) -> String {
    let script = format!(
        "import array, fcntl, socket, struct\n\
         blocks = array.array('B', struct.pack('II', 0x3a, 8) + bytes(16 * 8))\n\
         request = struct.pack('16sP16x', b'{interface}', blocks.buffer_info()[0])\n\
         fcntl.ioctl(socket.socket(), 0x8946, request)\n\
         print([struct.unpack_from('I', blocks, 8 + 16 * at + 8)[0] for at in range(8)])\n"
    );
    run(namespace.command("python3").args(["-c", &script]))
}

/// A server of iperf3.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(namespace: &Namespace, address: &str) -> Self {
        let child = namespace
            .command("iperf3")
            .args(["--server", "--bind", address])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            address: address.to_owned(),
        }
    }

    /// Runs a client. Returns the octets that its receiver got.
    fn receive(&self, client: &Namespace, arguments: &[&str]) -> f64 {
        // The server may not listen yet, or not again.
        until("iperf3 succeeds", || {
            let mut command = client.command("iperf3");
            command.args([
                "--client",
                &self.address,
                "--json",
                "--connect-timeout",
                "3000",
            ]);
            let output = command.args(arguments).output().unwrap();
            let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if !output.status.success() || !result["error"].is_null() {
                println!("{}", result["error"]);
                return None;
            }
            let end = &result["end"];
            let sum = [&end["sum_received"], &end["sum"]]
                .into_iter()
                .find(|sum| !sum.is_null());
            sum?["bytes"].as_f64()
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(net: &Net, directory: &Path, ports: [&str; 2], arguments: &[&str]) -> Switch {
    let ports = [("l", ports[0].to_owned()), ("r", ports[1].to_owned())];
    Switch::start(
        &net.middle,
        directory,
        &ports,
        &[&["--bridge", "lan=l,r"], arguments].concat(),
    )
}

#[test]
fn af_packet_passes_data_of_hosts_with_all_offloads() {
    // At the same time: clients wait for servers.
    std::thread::scope(|scope| {
        for (kind, mtu, frame) in [("offp", "1500", "1518"), ("offp9", "9000", "9018")] {
            scope.spawn(move || passes_data_with_all_offloads(kind, mtu, frame));
        }
    });
}

fn passes_data_with_all_offloads(kind: &str, mtu: &str, frame: &str) {
    let net = Net::new(kind, mtu);
    let directory = TempDir::new().unwrap();
    let before = net.state();
    let uris = ["af-packet:l0", "af-packet:r0"];
    let switch = start(&net, directory.path(), uris, &["--frame-size-max", frame]);
    net.carries();
    for port in switch.ports() {
        // Whole, both ways.
        assert!(port["tx_tso_frames"].as_u64() > Some(50), "{port}");
        assert_eq!(
            (&port["segmented"], &port["drops"]["rx_errors"]),
            (&0.into(), &0.into())
        );
    }
    switch.kill();
    assert_eq!(net.state(), before);
    let switch = start(&net, directory.path(), uris, &["--frame-size-max", frame]);
    net.carries();
    assert_eq!(switch.end(), Some(0));
    assert_eq!(net.state(), before);
}

#[test]
fn af_xdp_passes_data_of_hosts_with_all_offloads() {
    // At the same time: clients wait for servers.
    std::thread::scope(|scope| {
        for (kind, mtu, frame) in [("offx", "1500", "1518"), ("offx3", "3000", "3018")] {
            scope.spawn(move || af_xdp_passes_data_with_all_offloads(kind, mtu, frame));
        }
    });
}

fn af_xdp_passes_data_with_all_offloads(kind: &str, mtu: &str, frame: &str) {
    let net = Net::new(kind, mtu);
    let directory = TempDir::new().unwrap();
    let before = net.state();
    let uris = ["af-xdp:l0", "af-xdp:r0"];
    let arguments = ["--frame-size-max", frame];
    let switch = start(&net, directory.path(), uris, &arguments);
    net.carries();
    for port in switch.ports() {
        assert_eq!(port["xdp_mode"], "copy", "{port}");
        assert_eq!(port["drops"]["rx_errors"], 0, "{port}");
    }
    assert!(switch.table().contains("l: AF_XDP in copy mode"));
    // The next switch removes the XDP program of the killed one.
    switch.kill();
    let switch = start(&net, directory.path(), uris, &arguments);
    net.carries();
    assert_eq!(switch.end(), Some(0));
    assert_eq!(net.state(), before);
}

#[test]
fn an_mtu_that_xdp_does_not_allow_is_named() {
    let net = Net::new("offm9", "9000");
    let directory = TempDir::new().unwrap();
    let before = net.state();
    let switch = Switch::start(&net.middle, directory.path(), &[], &[]);
    let message = switch.refusal(&["add", "port", "l", "af-xdp:l0"]);
    for part in ["port 'l'", "MTU of 9000 octets", "use af-packet"] {
        assert!(message.contains(part), "{message}");
    }
    // One that XDP allows, but the switch does not.
    for (namespace, end) in [(&net.middle, "l0"), (&net.left, "eth0")] {
        namespace.ip(&["link", "set", end, "mtu", "3000"]);
    }
    switch.change(&["add", "port", "l", "af-xdp:l0"]);
    let log = switch.printed();
    assert!(log.contains("its MTU is 3000 octets"), "{log}");
    assert_eq!(switch.end(), Some(0));
    assert_eq!(net.state(), before);
}

#[test]
fn longest_frames_that_xdp_does_not_allow_are_named() {
    let net = Net::new("offl9", "9000");
    let directory = TempDir::new().unwrap();
    let before = net.state();
    let ports = [("r", "af-packet:r0".to_owned())];
    let arguments = ["--bridge", "lan=r", "--frame-size-max", "9018"];
    let switch = Switch::start(&net.middle, directory.path(), &ports, &arguments);
    let message = switch.refusal(&["add", "port", "l", "af-xdp:l0"]);
    for part in ["port 'l'", "frame-size-max", "3524", "use af-packet"] {
        assert!(message.contains(part), "{message}");
    }
    switch.change(&["add", "port", "l", "af-packet:l0", "--bridge", "lan"]);
    net.carries();
    assert_eq!(switch.end(), Some(0));
    assert_eq!(net.state(), before);
}

#[test]
fn data_of_af_packet_are_cut_for_af_xdp() {
    let net = Net::new("offm", "1500");
    let directory = TempDir::new().unwrap();
    let switch = start(&net, directory.path(), ["af-packet:l0", "af-xdp:r0"], &[]);
    net.carries();
    let port = switch.port("r");
    assert!(port["segmented"].as_u64() > Some(50), "{port}");
    assert_eq!(port["drops"]["not_segmented"], 0, "{port}");
    assert_eq!(switch.end(), Some(0));
}

/// The kernel at the other end of an XDP program cuts its data itself.
#[test]
fn segments_are_merged_for_hosts_behind_ports_with_gro() {
    let net = Net::new("offg", "1500");
    let before = net.state();
    segments_are_merged(&net, ["af-xdp:l0", "af-packet:r0?gro=on"]);
    assert_eq!(net.state(), before);
}

#[test]
fn segments_are_merged_for_a_host_behind_a_tap_with_gro() {
    let tap = "tap:eth0?netns=NETNS&gro=on";
    let net = Net::for_ports("offgt", "1500", ["af-xdp:l0", tap]);
    let tap = tap.replace("NETNS", net.right.name());
    segments_are_merged(&net, ["af-xdp:l0", &tap]);
}

/// Checks data from the left host, which arrive in segments, to the right one.
fn segments_are_merged(net: &Net, uris: [&str; 2]) {
    let directory = TempDir::new().unwrap();
    let switch = start(net, directory.path(), uris, &[]);
    if uris[1].starts_with("tap:") {
        net.add_addresses();
    }
    net.carries();
    let port = switch.port("r");
    assert!(port["merged"].as_u64() > Some(500), "{port}");
    // Fewer frames than segments.
    let whole = port["tx_tso_frames"].as_u64();
    assert!(
        whole > Some(50) && whole < port["merged"].as_u64(),
        "{port}"
    );
    assert_eq!(port["drops"]["not_segmented"], 0, "{port}");
    assert_eq!(switch.port("l")["merged"], 0);
    assert_eq!(switch.end(), Some(0));
}

/// The near ends of the cables are members of bridges of the kernel, one of which connects the port of the right host: the port has the end
/// of a further cable there.
#[test]
fn data_of_hosts_pass_members_of_bridges() {
    let net = Net::new("offb", "1500");
    let directory = TempDir::new().unwrap();
    let ip = |arguments: &[&str]| net.middle.ip(arguments);
    ip(&["link", "add", "t0", "type", "veth", "peer", "name", "t1"]);
    let quiet = ["arp", "off", "addrgenmode", "none", "up"];
    for bridge in ["one", "two"] {
        ip(&["link", "add", bridge, "type", "bridge"]);
    }
    for interface in ["t0", "t1", "one", "two"] {
        ip(&[&["link", "set", interface], &quiet[..]].concat());
    }
    for (member, bridge) in [("l0", "one"), ("r0", "two"), ("t1", "two")] {
        ip(&["link", "set", member, "master", bridge]);
    }
    let before = net.state();
    let uris = ["af-packet:l0", "af-packet:t0"];
    let switch = start(&net, directory.path(), uris, &[]);
    net.carries();
    for port in switch.ports() {
        assert!(port["tx_tso_frames"].as_u64() > Some(50), "{port}");
        assert_eq!(port["segmented"], 0, "{port}");
    }
    assert_eq!(switch.end(), Some(0));
    assert_eq!(net.state(), before);
}

/// The hosts are in different networks, and the link to the right one has a smaller MTU: the left one learns it (RFC 1191, RFC 8201).
#[test]
fn data_of_hosts_pass_the_router() {
    // At the same time: clients wait for servers.
    std::thread::scope(|scope| {
        for (kind, uris) in [
            ("offr", ["af-packet:l0", "af-packet:r0"]),
            ("offrv", ["veth:qwrl?netns=NETNS", "veth:qwrr?netns=NETNS"]),
            ("offrx", ["af-xdp:l0", "af-xdp:r0"]),
        ] {
            scope.spawn(move || data_pass_the_router(kind, uris));
        }
    });
}

fn data_pass_the_router(kind: &str, uris: [&str; 2]) {
    let net = Net::for_ports(kind, "1500", uris);
    let directory = TempDir::new().unwrap();
    let ports = [("l", uris[0], &net.left), ("r", uris[1], &net.right)];
    let ports = ports.map(|(name, uri, host)| (name, uri.replace("NETNS", host.name())));
    let switch = Switch::start(&net.middle, directory.path(), &ports, &[]);
    net.route(&switch, ["l", "r"], ["1500", "1400"]);
    for address in [ROUTED_IPV4[1], ROUTED_IPV6[1]] {
        let server = Server::start(&net.right, address);
        for direction in [&[][..], &["--reverse"]] {
            let arguments = [&["--bytes", "16M"][..], direction].concat();
            let received = server.receive(&net.left, &arguments);
            assert!(
                received > 2_000_000.0,
                "{address} {direction:?}: {received} octets"
            );
        }
        has_learned_mtu(&net.left, address, "1400");
        // Datagrams of several fragments.
        let datagrams = ["--udp", "--bitrate", "50M", "--length", "8000"];
        let arguments = [&datagrams[..], &["--bytes", "2M"]].concat();
        let received = server.receive(&net.left, &arguments);
        assert!(
            received > 500_000.0,
            "{address}: {received} octets of fragments"
        );
    }
    net.has_no_wrong_checksum();
    // The kernel at the other end of an XDP program cuts its data itself.
    let is_whole = kind != "offrx";
    for port in switch.ports() {
        assert_eq!(
            port["tx_tso_frames"].as_u64() > Some(50),
            is_whole,
            "{port}"
        );
        assert_eq!(port["segmented"], 0, "{port}");
    }
    // Frames are cut for the router only until the left host has learned the MTU.
    let router = &switch.stats()["router"];
    assert_eq!(router["segmented"].as_u64() > Some(0), is_whole, "{router}");
    assert_eq!(switch.end(), Some(0));
}

/// A bridge with the left host and one end of a cable, another one with the other end and the right host. Frames are tagged on the cable.
#[test]
fn data_of_hosts_pass_in_a_vlan() {
    let net = Net::new("offv", "1500");
    let ip = |arguments: &[&str]| net.middle.ip(arguments);
    ip(&["link", "add", "t0", "type", "veth", "peer", "name", "t1"]);
    for end in ["t0", "t1"] {
        ip(&[
            "link",
            "set",
            end,
            "arp",
            "off",
            "addrgenmode",
            "none",
            "up",
        ]);
    }
    let directory = TempDir::new().unwrap();
    let ports = [("l", "l0"), ("t", "t0"), ("u", "t1"), ("r", "r0")];
    let ports = ports.map(|(name, interface)| (name, format!("af-packet:{interface}")));
    let bridges = ["--bridge", "one=l,t", "--bridge", "two=u,r"];
    let switch = Switch::start(&net.middle, directory.path(), &ports, &bridges);
    for port in ["l", "r"] {
        switch.change(&["set", "port", port, "--access", "5"]);
    }
    for port in ["t", "u"] {
        switch.change(&["set", "port", port, "--trunk", "5"]);
    }
    net.carries();
    for port in switch.ports() {
        assert!(port["tx_tso_frames"].as_u64() > Some(50), "{port}");
    }
    assert_eq!(switch.end(), Some(0));
}

/// A bridge of the kernel between tagged ports keeps the tags apart from the octets of frames. It is in a namespace of its own.
#[test]
fn tags_of_a_kernel_pass_af_xdp() {
    let net = Net::new("offt", "1500");
    let other = Namespace::new("offt-other");
    let quiet = ["arp", "off", "addrgenmode", "none", "up"];
    other.ip(&["link", "add", "cable", "type", "bridge"]);
    other.ip(&[&["link", "set", "cable"], &quiet[..]].concat());
    for [near, far] in [["t0", "t1"], ["u0", "u1"]] {
        let peer = ["type", "veth", "peer", "name", far, "netns", other.name()];
        net.middle.ip(&[&["link", "add", near], &peer[..]].concat());
        net.middle
            .ip(&[&["link", "set", near], &quiet[..]].concat());
        other.ip(&[&["link", "set", far], &quiet[..]].concat());
        other.ip(&["link", "set", far, "master", "cable"]);
    }
    let before = features(&other, "u1");
    let directory = TempDir::new().unwrap();
    let ports = [
        ("l", "af-packet:l0"),
        ("t", "af-packet:t0"),
        ("u", "af-xdp:u0"),
        ("r", "af-packet:r0"),
    ];
    let ports = ports.map(|(name, uri)| (name, uri.to_owned()));
    let bridges = ["--bridge", "one=l,t", "--bridge", "two=u,r"];
    let begin = || {
        let switch = Switch::start(&net.middle, directory.path(), &ports, &bridges);
        for port in ["l", "r"] {
            switch.change(&["set", "port", port, "--access", "5"]);
        }
        for port in ["t", "u"] {
            switch.change(&["set", "port", port, "--trunk", "5"]);
        }
        switch
    };
    let switch = begin();
    net.carries();
    switch.kill();
    assert_ne!(features(&other, "u1"), before);
    let cleans = || run(net.middle.command(quietwire()).args(["lab", "clean"]));
    let printed = cleans();
    assert!(
        printed.contains("features for VLAN tags restored"),
        "{printed}"
    );
    assert_eq!(features(&other, "u1"), before);
    // Those of a running switch stay.
    let switch = begin();
    let while_open = features(&other, "u1");
    cleans();
    assert_eq!(features(&other, "u1"), while_open);
    assert_eq!(switch.end(), Some(0));
    assert_eq!(features(&other, "u1"), before);
}

/// Sends datagrams from one address to the other in one call (`UDP_SEGMENT`, udp(7)). They arrive one by one. Returns false if the kernel
/// dropped some.
fn send_datagrams(net: &Net, [from, to]: [&str; 2]) -> bool {
    const SIZE: u16 = 1000;
    const COUNT: usize = 40;
    let bind = |address: &str, port: u16| {
        let address = (address.parse::<std::net::IpAddr>().unwrap(), port);
        std::net::UdpSocket::bind(address).unwrap()
    };
    let (from, to) = (from.to_owned(), to.to_owned());
    let destination = to.parse::<std::net::IpAddr>().unwrap();
    let receiver = net.right.within(move || bind(&to, 4000)).join().unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let data: Vec<u8> = (0..COUNT * usize::from(SIZE) - 300)
        .map(|at| (at / 777) as u8)
        .collect();
    let sent = data.clone();
    let sender = move || {
        let socket = bind(&from, 0);
        setsockopt(&socket, sockopt::UdpGsoSegment, &i32::from(SIZE)).unwrap();
        socket.send_to(&sent, (destination, 4000)).unwrap();
    };
    net.left.within(sender).join().unwrap();
    for expected in data.chunks(SIZE.into()) {
        let mut buffer = [0; 2000];
        let Ok(length) = receiver.recv(&mut buffer) else {
            return false;
        };
        // After a lost one, a later one of the same data.
        let got = &buffer[..length];
        if got != expected {
            assert!(data.chunks(SIZE.into()).any(|one| one == got), "{length}");
            return false;
        }
    }
    true
}

/// Datagrams pass whole, are cut for a port that does not take them, and are merged again.
#[test]
fn datagrams_sent_in_one_call_arrive_one_by_one() {
    for (case, uris, counter) in [
        ("offu", ["af-packet:l0", "af-packet:r0"], "tx_tso_frames"),
        ("offuc", ["af-packet:l0", "af-xdp:r0"], "segmented"),
        ("offum", ["af-xdp:l0", "af-packet:r0?gro=on"], "merged"),
    ] {
        let net = Net::new(case, "1500");
        let directory = TempDir::new().unwrap();
        let switch = start(&net, directory.path(), uris, &[]);
        // Datagrams are merged only if several are in one burst.
        until("datagrams pass in the expected form", || {
            let have_arrived = [IPV4, IPV6].map(|addresses| send_datagrams(&net, addresses));
            let count = switch.port("r")[counter].as_u64();
            (have_arrived == [true; 2] && count >= Some(2)).then_some(())
        });
        net.has_no_wrong_checksum();
        let port = switch.port("r");
        if counter != "segmented" {
            assert_eq!(port["segmented"], 0, "{case}: {port}");
        }
        assert_eq!(port["drops"]["not_segmented"], 0, "{case}: {port}");
        assert_eq!(switch.end(), Some(0));
    }
}
