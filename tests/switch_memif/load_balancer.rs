// SPDX-License-Identifier: Apache-2.0
//! Load balancing as observed on the wire: every frame that leaves is compared, octet by octet, with one that is built from the translated
//! addresses.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::PacketBuilder;
use quietwire_switch::report::{ConnectionsReport, LoadBalancerReport, StatsReport};

use crate::bench::{Bench, Peer, change, refused, until};
use crate::router::{HOST_A, HOST_B, ROUTER_A, ROUTER_B};

const VIRTUAL: (&str, u16) = ("198.51.100.80", 80);
const CLIENT: &str = "198.51.100.9";
const SERVERS: [&str; 3] = ["10.0.0.5", "10.0.0.6", "10.0.0.7"];

const CONFIG: &str = r#"
[connections]

[[interface]]
name = "inside"
port = "a"
mac = "02:00:00:00:00:0a"
addresses = ["10.0.0.1/24"]

[[interface]]
name = "outside"
port = "b"
mac = "02:00:00:00:00:0b"
addresses = ["198.51.100.1/24", "198.51.100.80/32"]

[[nat]]
name = "internet"
interface = "outside"

[[load-balancer]]
name = "web"
address = "198.51.100.80"
port = 80

[[load-balancer.backend]]
to = "10.0.0.5:8080"

[[load-balancer.backend]]
to = "10.0.0.6:8080"
"#;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Syn,
    SynAck,
    Ack,
}

/// Returns a segment in a frame.
fn tcp(
    macs: ([u8; 6], [u8; 6]),
    from: (&str, u16),
    to: (&str, u16),
    ttl: u8,
    kind: Kind,
) -> Vec<u8> {
    let bytes = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let sequence = match kind {
        Kind::Syn => 7,
        Kind::SynAck => 100,
        Kind::Ack => 8,
    };
    let builder = PacketBuilder::ethernet2(macs.0, macs.1)
        .ipv4(bytes(from.0), bytes(to.0), ttl)
        .tcp(from.1, to.1, sequence, 1000);
    let builder = match kind {
        Kind::Syn => builder.syn(),
        Kind::SynAck => builder.syn().ack(8),
        Kind::Ack => builder.ack(101),
    };
    let mut frame = Vec::new();
    let payload: &[u8] = if kind == Kind::Ack { &[0; 10] } else { &[] };
    builder.write(&mut frame, payload).unwrap();
    frame
}

/// Removes the padding to the shortest frame.
fn trimmed(frame: &[u8]) -> &[u8] {
    let length = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    &frame[..14 + length]
}

struct Rig {
    bench: Bench,
    a: Peer,
    b: Peer,
}

impl Rig {
    fn new() -> Self {
        Self::with(CONFIG)
    }

    fn with(config: &str) -> Self {
        let bench = Bench::new(&["a", "b"], &[]);
        let mut config = config.to_owned();
        let servers = SERVERS.map(|server| ("inside", server, "02:00:00:00:00:01"));
        for (interface, address, mac) in
            servers
                .into_iter()
                .chain([("outside", CLIENT, "02:00:00:00:00:02")])
        {
            config += &format!(
                "\n[[neighbour]]\ninterface = \"{interface}\"\naddress = \"{address}\"\nmac = \"{mac}\"\n"
            );
        }
        let file = bench.path("switch.toml");
        fs::write(&file, config).unwrap();
        let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
        bench.start_again();
        let (a, b) = (bench.peer("a"), bench.peer("b"));
        Self { bench, a, b }
    }

    /// Sends a segment of a client to the virtual endpoint. Returns the server that received it.
    fn send(&mut self, port: u16, kind: Kind) -> &'static str {
        self.b
            .send(&[tcp((HOST_B, ROUTER_B), (CLIENT, port), VIRTUAL, 64, kind)]);
        let received = self.a.receive(1).remove(0);
        let octets: [u8; 4] = received[30..34].try_into().unwrap();
        let address = Ipv4Addr::from(octets).to_string();
        let server = SERVERS.into_iter().find(|one| *one == address).unwrap();
        let expected = tcp((ROUTER_A, HOST_A), (CLIENT, port), (server, 8080), 63, kind);
        assert_eq!(trimmed(&received), expected);
        server
    }

    /// Sends the answer of a server, which has to arrive from the virtual endpoint.
    fn answer(&mut self, server: &str, port: u16, kind: Kind) {
        self.a.send(&[tcp(
            (HOST_A, ROUTER_A),
            (server, 8080),
            (CLIENT, port),
            64,
            kind,
        )]);
        let received = self.b.receive(1).remove(0);
        let expected = tcp((ROUTER_B, HOST_B), VIRTUAL, (CLIENT, port), 63, kind);
        assert_eq!(trimmed(&received), expected);
    }

    fn report(&self) -> LoadBalancerReport {
        let mut reports: Vec<LoadBalancerReport> = self.bench.show("load-balancers");
        reports.remove(0)
    }
}

#[test]
fn connections_are_distributed_and_stay_while_backends_come_and_go() {
    let mut rig = Rig::new();
    let mut servers = BTreeMap::new();
    for port in 1000..1040 {
        let server = rig.send(port, Kind::Syn);
        rig.answer(server, port, Kind::SynAck);
        assert_eq!(rig.send(port, Kind::Ack), server);
        servers.insert(port, server);
    }
    let count = |servers: &BTreeMap<u16, &str>, server: &str| {
        servers.values().filter(|one| **one == server).count() as u64
    };
    let first = count(&servers, SERVERS[0]);
    assert!((5..36).contains(&first), "{first}");
    let report = rig.report();
    assert_eq!((report.connections, report.created), (40, 40));
    assert_eq!(report.backends[0].connections, first);
    // The tracker has the servers as the destinations, and complete handshakes.
    let connections: ConnectionsReport = rig.bench.show("connections");
    let established = connections.connections.iter();
    let established = established.filter(|one| one.state == "tcp_established");
    assert_eq!(established.count(), 40);
    // Another backend, and one that drains: nothing that is established moves.
    change(&rig.bench, &["add", "backend", "web", "10.0.0.7:8080"]);
    change(
        &rig.bench,
        &[
            "set",
            "backend",
            "web",
            "10.0.0.5:8080",
            "--state",
            "draining",
        ],
    );
    for (port, server) in &servers {
        assert_eq!(rig.send(*port, Kind::Ack), *server);
    }
    for port in 2000..2020 {
        assert_ne!(rig.send(port, Kind::Syn), SERVERS[0]);
    }
    // Down: its connections go to the others, and only its.
    change(
        &rig.bench,
        &["set", "backend", "web", "10.0.0.5:8080", "--state", "down"],
    );
    for (port, server) in &servers {
        let now = rig.send(*port, Kind::Ack);
        assert!(now != SERVERS[0] && (*server == SERVERS[0] || now == *server));
    }
    assert_eq!(rig.report().moved, first);
    let absent = refused(&rig.bench, &["del", "backend", "web", "10.0.0.9:80"]);
    assert!(absent.contains("no such backend"), "{absent}");
    for server in ["10.0.0.6:8080", "10.0.0.7:8080"] {
        change(&rig.bench, &["del", "backend", "web", server]);
    }
    let syn = tcp((HOST_B, ROUTER_B), (CLIENT, 3000), VIRTUAL, 64, Kind::Syn);
    rig.b.send(&[syn]);
    until("the packet is dropped", || {
        let stats: StatsReport = rig.bench.show("stats");
        (stats.router.dropped["balancer-no-backend"] == 1).then_some(())
    });
    change(&rig.bench, &["del", "load-balancer", "web"]);
    let config: String = rig.bench.show("config");
    assert!(!config.contains("load-balancer"), "{config}");
}

#[test]
fn backends_that_answer_directly_get_packets_to_the_virtual_endpoint() {
    let config = CONFIG
        .replace("[connections]\n", "")
        .replace("port = 80\n", "port = 80\ndirect-return = true\n")
        .replace(":8080", ":80");
    let mut rig = Rig::with(&config);
    for port in 1000..1040 {
        for kind in [Kind::Syn, Kind::Ack] {
            let sent = tcp((HOST_B, ROUTER_B), (CLIENT, port), VIRTUAL, 64, kind);
            rig.b.send(&[sent]);
            let received = rig.a.receive(1).remove(0);
            let expected = tcp((ROUTER_A, HOST_A), (CLIENT, port), VIRTUAL, 63, kind);
            assert_eq!(trimmed(&received), expected);
        }
    }
    let report = rig.report();
    assert_eq!((report.connections, report.created), (40, 40));
    let packets: Vec<u64> = report.backends.iter().map(|one| one.packets_in).collect();
    assert_eq!(packets.iter().sum::<u64>(), 80);
    assert!(packets.iter().all(|one| *one > 0), "{packets:?}");
    // An error of the router itself is about the packet as it was.
    let expiring = tcp((HOST_B, ROUTER_B), (CLIENT, 1000), VIRTUAL, 1, Kind::Ack);
    rig.b.send(std::slice::from_ref(&expiring));
    let error = rig.b.receive(1).remove(0);
    assert_eq!((error[23], error[34]), (1, 11));
    assert_eq!(error[42..][12..28], expiring[14..][12..28]);
}

const IPV6: &str = r#"
[connections]

[[interface]]
name = "inside"
port = "a"
mac = "02:00:00:00:00:0a"
addresses = ["2001:db8:1::1/64"]

[[interface]]
name = "outside"
port = "b"
mac = "02:00:00:00:00:0b"
addresses = ["2001:db8:2::1/64", "2001:db8:2::80/128"]

[[load-balancer]]
name = "web"
address = "2001:db8:2::80"
port = 80

[[load-balancer.backend]]
to = "[2001:db8:1::5]:8080"

[[load-balancer.backend]]
to = "[2001:db8:1::6]:8080"

[[neighbour]]
interface = "inside"
address = "2001:db8:1::5"
mac = "02:00:00:00:00:01"

[[neighbour]]
interface = "inside"
address = "2001:db8:1::6"
mac = "02:00:00:00:00:01"

[[neighbour]]
interface = "outside"
address = "2001:db8:2::9"
mac = "02:00:00:00:00:02"
"#;

const VIRTUAL_IPV6: (&str, u16) = ("2001:db8:2::80", 80);
const CLIENT_IPV6: &str = "2001:db8:2::9";
const SERVERS_IPV6: [&str; 2] = ["2001:db8:1::5", "2001:db8:1::6"];

fn octets(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

/// Returns a segment of IPv6 in a frame.
fn tcp_ipv6(
    macs: ([u8; 6], [u8; 6]),
    from: (&str, u16),
    to: (&str, u16),
    (hop_limit, kind): (u8, Kind),
) -> Vec<u8> {
    let sequence = match kind {
        Kind::Syn => 7,
        Kind::SynAck => 100,
        Kind::Ack => 8,
    };
    let builder = PacketBuilder::ethernet2(macs.0, macs.1)
        .ipv6(octets(from.0), octets(to.0), hop_limit)
        .tcp(from.1, to.1, sequence, 1000);
    let builder = match kind {
        Kind::Syn => builder.syn(),
        Kind::SynAck => builder.syn().ack(8),
        Kind::Ack => builder.ack(101),
    };
    let mut frame = Vec::new();
    let payload: &[u8] = if kind == Kind::Ack { &[0; 10] } else { &[] };
    builder.write(&mut frame, payload).unwrap();
    frame
}

/// Returns a message that the packet in a frame is too big (RFC 4443, section 3.2).
fn too_big(macs: ([u8; 6], [u8; 6]), to: &str, hop_limit: u8, about: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(macs.0, macs.1)
        .ipv6(octets("2001:db8:9::1"), octets(to), hop_limit)
        .icmpv6_raw(2, 0, 1280u32.to_be_bytes());
    let mut frame = Vec::new();
    builder.write(&mut frame, &about[14..]).unwrap();
    frame
}

#[test]
fn ipv6_connections_go_to_backends_and_errors_follow_them() {
    let bench = Bench::new(&["a", "b"], &[]);
    let file = bench.path("switch.toml");
    fs::write(&file, IPV6).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let (to_a, to_b) = ((ROUTER_A, HOST_A), (ROUTER_B, HOST_B));
    let mut servers = BTreeMap::new();
    for port in 1000..1040 {
        let client = (CLIENT_IPV6, port);
        for kind in [Kind::Syn, Kind::Ack] {
            b.send(&[tcp_ipv6(
                (HOST_B, ROUTER_B),
                client,
                VIRTUAL_IPV6,
                (64, kind),
            )]);
            let received = a.receive(1).remove(0);
            let mut servers_of = SERVERS_IPV6.into_iter();
            let server = servers_of.find(|one| received[38..54] == octets(one));
            let server = server.unwrap();
            let expected = tcp_ipv6(to_a, client, (server, 8080), (63, kind));
            assert_eq!(received, expected);
            assert_eq!(*servers.entry(port).or_insert(server), server);
            if kind == Kind::Syn {
                let answer = (server, 8080);
                a.send(&[tcp_ipv6(
                    (HOST_A, ROUTER_A),
                    answer,
                    client,
                    (64, Kind::SynAck),
                )]);
                let received = b.receive(1).remove(0);
                let expected = tcp_ipv6(to_b, VIRTUAL_IPV6, client, (63, Kind::SynAck));
                assert_eq!(received, expected);
            }
        }
    }
    let reports: Vec<LoadBalancerReport> = bench.show("load-balancers");
    assert_eq!((reports[0].connections, reports[0].created), (40, 40));
    assert_eq!(reports[0].endpoint.to_string(), "[2001:db8:2::80]:80");
    assert!(reports[0].backends.iter().all(|one| one.connections > 4));
    let connections: ConnectionsReport = bench.show("connections");
    let established = connections.connections.iter();
    let established = established.filter(|one| one.state == "tcp_established");
    assert_eq!(established.count(), 40);
    // A router of the path reports a packet to the client as too big: the backend that has sent it gets the error.
    for (&port, &server) in &servers {
        let client = (CLIENT_IPV6, port);
        let about = tcp_ipv6(to_b, VIRTUAL_IPV6, client, (63, Kind::Ack));
        b.send(&[too_big((HOST_B, ROUTER_B), VIRTUAL_IPV6.0, 64, &about)]);
        let about = tcp_ipv6(to_b, (server, 8080), client, (63, Kind::Ack));
        assert_eq!(a.receive(1).remove(0), too_big(to_a, server, 63, &about));
    }
    // A backend that is down gets nothing.
    let down = [
        "set",
        "backend",
        "web",
        "[2001:db8:1::5]:8080",
        "--state",
        "down",
    ];
    change(&bench, &down);
    for port in servers.keys() {
        let (client, to) = ((CLIENT_IPV6, *port), (SERVERS_IPV6[1], 8080));
        b.send(&[tcp_ipv6(
            (HOST_B, ROUTER_B),
            client,
            VIRTUAL_IPV6,
            (64, Kind::Ack),
        )]);
        let expected = tcp_ipv6(to_a, client, to, (63, Kind::Ack));
        assert_eq!(a.receive(1).remove(0), expected);
    }
}
