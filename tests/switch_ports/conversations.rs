// SPDX-License-Identifier: Apache-2.0
//! Usual traffic of hosts behind ports of the kernel: short messages both ways, downloads, long datagrams. Each on every kind of port, with
//! the offloads that the kernel has by default.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::offloads::{IPV4, IPV6, Net, ROUTED_IPV4, ROUTED_IPV6};
use crate::rig::{DEADLINE, Namespace, Switch, ping, run, until};

/// Size of a downloaded file, MiB. The environment variable sets another.
const DOWNLOAD_MIB: u64 = 8;
const DOWNLOAD: &str = "QUIETWIRE_DOWNLOAD_MIB";

/// Two hosts behind ports of some kinds.
struct Hosts {
    net: Net,
    switch: Switch,
    directory: TempDir,
}

impl Hosts {
    /// Starts a switch between two hosts, whose bridge forwards all frames itself. `uris` are those of their ports; NETNS becomes the name of
    /// the host's namespace. The hosts' interfaces are named eth0.
    fn start(kind: &str, uris: [&str; 2], arguments: &[&str]) -> Self {
        Self::start_at("1500", kind, uris, arguments)
    }

    /// The same with another MTU of the cables.
    fn start_at(mtu: &str, kind: &str, uris: [&str; 2], arguments: &[&str]) -> Self {
        let bridge = ["--bridge", "lan=left,right", "--kernel-forwarding", "false"];
        let arguments = [&bridge[..], arguments].concat();
        let hosts = Self::start_alone(mtu, kind, uris, &arguments);
        hosts.net.add_addresses();
        hosts
    }

    /// Starts a switch that routes between two hosts with the addresses [`ROUTED_IPV4`] and [`ROUTED_IPV6`].
    fn start_routed(kind: &str, uris: [&str; 2], arguments: &[&str]) -> Self {
        let hosts = Self::start_alone("1500", kind, uris, arguments);
        let ports = ["left", "right"];
        hosts.net.route(&hosts.switch, ports, ["1500"; 2]);
        hosts
    }

    /// Starts a switch whose ports are not connected. The hosts have no addresses.
    fn start_alone(mtu: &str, kind: &str, uris: [&str; 2], arguments: &[&str]) -> Self {
        let net = Net::for_ports(kind, mtu, uris);
        let directory = TempDir::new().unwrap();
        let [left, right] = [(uris[0], &net.left), (uris[1], &net.right)]
            .map(|(uri, host)| uri.replace("NETNS", host.name()));
        let ports = [("left", left), ("right", right)];
        let switch = Switch::start(&net.middle, directory.path(), &ports, arguments);
        Self {
            net,
            switch,
            directory,
        }
    }

    fn end(self) {
        self.net.has_no_wrong_checksum();
        assert_eq!(self.switch.end(), Some(0));
    }
}

const TAPS: [&str; 2] = ["tap:eth0?netns=NETNS", "tap:eth0?netns=NETNS"];
const PAIRS: [&str; 2] = ["veth:qwl?netns=NETNS", "veth:qwr?netns=NETNS"];
const PACKETS: [&str; 2] = ["af-packet:l0", "af-packet:r0"];
const XDP: [&str; 2] = ["af-xdp:l0", "af-xdp:r0"];
const MERGING: [&str; 2] = ["af-xdp:l0", "af-packet:r0?gro=on"];

fn address(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), port)
}

/// Answers each message of a connection with as many octets, each one higher, until the client closes it.
fn answer(host: &Namespace, at: SocketAddr) -> std::thread::JoinHandle<()> {
    let listener = host.within(move || TcpListener::bind(at).unwrap());
    let listener = listener.join().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut octets = [0; 256];
        loop {
            let count = stream.read(&mut octets).unwrap();
            if count == 0 {
                return;
            }
            for octet in &mut octets[..count] {
                *octet = octet.wrapping_add(1);
            }
            stream.write_all(&octets[..count]).unwrap();
        }
    })
}

/// Sends short messages one after the other, each of which waits for its reply, as a terminal does.
fn type_letters(host: &Namespace, to: SocketAddr, messages: usize) {
    let typed = host.within(move || {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        for number in 0..messages {
            let length = number % 61 + 1;
            let message: Vec<u8> = (number..number + length).map(|at| at as u8).collect();
            stream.write_all(&message).unwrap();
            let mut reply = vec![0; length];
            stream.read_exact(&mut reply).unwrap();
            let expected: Vec<u8> = message.iter().map(|octet| octet.wrapping_add(1)).collect();
            assert_eq!(reply, expected, "message {number}");
        }
    });
    typed.join().unwrap();
}

#[test]
fn short_messages_go_back_and_forth_on_every_kind_of_port() {
    const MESSAGES: usize = 500;
    for (kind, uris, idle) in [
        ("sst", TAPS, "yield"),
        ("ssv", PAIRS, "sleep"),
        ("ssp", PACKETS, "interrupt"),
        ("ssx", XDP, "interrupt"),
        ("ssg", MERGING, "yield"),
    ] {
        let hosts = Hosts::start(kind, uris, &["--idle", idle]);
        type_both_ways(&hosts.net, [IPV4, IPV6], MESSAGES);
        hosts.end();
    }
}

/// Sends short messages both ways at once, between each pair of addresses.
fn type_both_ways(net: &Net, addresses: [[&str; 2]; 2], messages: usize) {
    let Net { left, right, .. } = net;
    for (number, [a, b]) in addresses.into_iter().enumerate() {
        let ports = [5000, 5001].map(|port| port + 10 * number as u16);
        let (to_b, to_a) = (address(b, ports[0]), address(a, ports[1]));
        let servers = [answer(right, to_b), answer(left, to_a)];
        std::thread::scope(|scope| {
            scope.spawn(|| type_letters(left, to_b, messages));
            scope.spawn(|| type_letters(right, to_a, messages));
        });
        for server in servers {
            server.join().unwrap();
        }
    }
}

#[test]
fn short_messages_and_long_datagrams_pass_the_router_on_every_kind_of_port() {
    const MESSAGES: usize = 100;
    for (kind, uris) in [
        ("crt", TAPS),
        ("crv", PAIRS),
        ("crp", PACKETS),
        ("crx", XDP),
    ] {
        let hosts = Hosts::start_routed(kind, uris, &["--idle", "interrupt"]);
        let Net { left, right, .. } = &hosts.net;
        ping(left, ROUTED_IPV4[1]);
        type_both_ways(&hosts.net, [ROUTED_IPV4, ROUTED_IPV6], MESSAGES);
        for [a, b] in [ROUTED_IPV4, ROUTED_IPV6] {
            for length in [1400, 20_000] {
                passes((left, a), (right, b), length);
                passes((right, b), (left, a), length);
            }
        }
        hosts.end();
    }
}

/// A web server that ends with this value.
struct WebServer(Child);

impl Drop for WebServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the digest of a file (sha256sum(1)).
fn digest(path: &std::path::Path) -> String {
    let printed = run(Command::new("sha256sum").arg("--").arg(path));
    printed.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn downloads_have_the_digest_of_the_file() {
    let mib = std::env::var(DOWNLOAD).map_or(DOWNLOAD_MIB, |text| text.parse().unwrap());
    for (kind, uris) in [
        ("dlt", TAPS),
        ("dlv", PAIRS),
        ("dlp", PACKETS),
        ("dlx", XDP),
        ("dlg", MERGING),
    ] {
        let hosts = Hosts::start(kind, uris, &[]);
        let (served, fetched) = (
            hosts.directory.path().join("served"),
            hosts.directory.path().join("fetched"),
        );
        std::fs::create_dir(&served).unwrap();
        let file = served.join("data");
        let size = format!("{mib}M");
        run(Command::new("sh")
            .args(["-c", "head -c \"$1\" /dev/urandom > \"$2\"", "sh", &size])
            .arg(&file));
        let expected = digest(&file);
        // On all addresses of both versions of IP.
        let mut server = hosts.net.left.command("python3");
        server.args(["-m", "http.server", "--bind", "::", "--directory"]);
        server.arg(&served).arg("8000");
        server.stdout(Stdio::null()).stderr(Stdio::null());
        let _server = WebServer(server.spawn().unwrap());
        for host in [IPV4[0].to_owned(), format!("[{}]", IPV6[0])] {
            let url = format!("http://{host}:8000/data");
            until("the file is downloaded", || {
                let mut curl = hosts.net.right.command("curl");
                curl.args(["--silent", "--fail", "--globoff", "--max-time", "600"]);
                curl.arg("--output").arg(&fetched).arg(&url);
                curl.status().unwrap().success().then_some(())
            });
            assert_eq!(digest(&fetched), expected, "{kind}: {host}");
            std::fs::remove_file(&fetched).unwrap();
        }
        hosts.end();
    }
}

/// Sends a datagram until it arrives, and compares it.
fn passes(from: (&Namespace, &str), to: (&Namespace, &str), length: usize) {
    let bind = |(host, at): (&Namespace, &str)| {
        let at = address(at, 0);
        host.within(move || UdpSocket::bind(at).unwrap())
            .join()
            .unwrap()
    };
    // Each receiver has its own port, so that no late copy of an earlier datagram comes to it.
    let (sender, receiver) = (bind(from), bind(to));
    let destination = receiver.local_addr().unwrap();
    let timeout = Some(Duration::from_millis(500));
    receiver.set_read_timeout(timeout).unwrap();
    let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    let mut heard = vec![0; 1 << 16];
    let count = until("a datagram arrives", || {
        sender.send_to(&sent, destination).unwrap();
        receiver.recv(&mut heard).ok()
    });
    assert!(heard[..count] == sent, "{length} octets: {count} arrived");
}

#[test]
fn datagrams_of_many_fragments_arrive_whole() {
    for (kind, uris) in [
        ("dgt", TAPS),
        ("dgv", PAIRS),
        ("dgp", PACKETS),
        ("dgx", XDP),
    ] {
        let hosts = Hosts::start(kind, uris, &[]);
        let Net { left, right, .. } = &hosts.net;
        for [a, b] in [IPV4, IPV6] {
            // One frame, two fragments, and as many as a datagram can have.
            for length in [1400, 2000, 8000, 65_000] {
                passes((left, a), (right, b), length);
                passes((right, b), (left, a), length);
            }
        }
        hosts.end();
    }
}

#[test]
fn jumbo_frames_carry_long_datagrams() {
    let arguments = ["--frame-size-max", "9018"];
    for (kind, uris) in [("jdt", TAPS), ("jdv", PAIRS), ("jdp", PACKETS)] {
        let hosts = Hosts::start_at("9000", kind, uris, &arguments);
        let Net { left, right, .. } = &hosts.net;
        for [a, b] in [IPV4, IPV6] {
            for length in [8900, 65_000] {
                passes((left, a), (right, b), length);
                passes((right, b), (left, a), length);
            }
        }
        hosts.end();
    }
}
