// SPDX-License-Identifier: Apache-2.0
//! NAT64 as observed from the wire: packets of an IPv6 client to IPv4 servers, their answers, and errors of the router about both.

use std::collections::BTreeSet;
use std::fs;

use etherparse::{Ipv4Header, PacketBuilder};
use quietwire_packet::checksum;
use quietwire_switch::report::{MappingsReport, NatReport, RouterCounts, StatsReport};

use crate::bench::{Bench, Peer, change, until};
use crate::changes::TWO_THREADS;
use crate::nat66::{restart_with_file, take_over};
use crate::router::{HOST_A, HOST_B, ROUTER_A, ROUTER_B, udp};

/// The client, a server, its address in the prefix, and the external address.
const CLIENT: &str = "2001:db8:1::5";
const SERVER: &str = "198.51.100.9";
const MAPPED: &str = "2001:db8:64::c633:6409";
const OWN: &str = "198.51.100.1";
const MAPPED_OWN: &str = "2001:db8:64::c633:6401";

const CONFIG: &str = r#"
nat-log = "NATLOG"
nat-log-events = ["blocks", "mappings"]

[[interface]]
name = "inside"
port = "a"
mac = "02:00:00:00:00:0a"
addresses = ["2001:db8:1::1/64"]

[[interface]]
name = "outside"
port = "b"
mac = "02:00:00:00:00:0b"
mtu = 1400
addresses = ["198.51.100.1/24"]

[[nat]]
name = "internet"
interface = "outside"
nat64 = { prefix = "2001:db8:64::/96", clients = ["2001:db8:1::/48"] }

[[neighbour]]
interface = "inside"
address = "2001:db8:1::5"
mac = "02:00:00:00:00:01"

[[neighbour]]
interface = "outside"
address = "198.51.100.9"
mac = "02:00:00:00:00:02"
"#;

type Macs = ([u8; 6], [u8; 6]);
const TO_A: Macs = (HOST_A, ROUTER_A);
const FROM_A: Macs = (ROUTER_A, HOST_A);
const TO_B: Macs = (HOST_B, ROUTER_B);

fn start() -> (Bench, Peer, Peer) {
    let bench = Bench::new(&["a", "b"], &[]);
    let log = bench.path("nat.jsonl");
    let file = bench.path("switch.toml");
    fs::write(&file, CONFIG.replace("NATLOG", log.to_str().unwrap())).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let peers = (bench.peer("a"), bench.peer("b"));
    (bench, peers.0, peers.1)
}

/// Returns a datagram of the server to an external port.
fn answer(port: u16, payload: usize) -> Vec<u8> {
    let bytes = |address: &str| address.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let builder = PacketBuilder::ethernet2(TO_B.0, TO_B.1)
        .ipv4(bytes(SERVER), bytes(OWN), 64)
        .udp(5000, port);
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![0x5a; payload]).unwrap();
    frame
}

fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// Checks that a frame has the UDP packet of the client from the external address, and returns its external port.
fn sent_by_client(frame: &[u8], payload: usize) -> u16 {
    assert_eq!(frame[..14], [&HOST_B[..], &ROUTER_B, &[0x08, 0]].concat());
    let address = |at: usize| {
        std::net::Ipv4Addr::from([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
    };
    assert_eq!(
        (address(26).to_string(), address(30).to_string()),
        (OWN.to_owned(), SERVER.to_owned())
    );
    assert_eq!((frame[22], frame[23], frame.len()), (63, 17, 42 + payload));
    assert_eq!(checksum(&frame[14..34]), 0);
    let length = (frame.len() as u16 - 34).to_be_bytes();
    let pseudo = [&frame[26..34], &[0, 17], &length, &frame[34..]].concat();
    assert_eq!(checksum(&pseudo), 0);
    assert_eq!(word(frame, 36), 5000);
    word(frame, 34)
}

/// Checks that a frame has an ICMPv6 message to the client, and returns type and second word.
fn error_to_client(frame: &[u8], from: &str) -> (u8, u32) {
    assert_eq!(
        frame[..14],
        [&HOST_A[..], &ROUTER_A, &[0x86, 0xdd]].concat()
    );
    let address =
        |at: usize| std::net::Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
    assert_eq!(
        (address(22).to_string(), address(38).to_string()),
        (from.to_owned(), CLIENT.to_owned())
    );
    // It is about the packet of the client.
    assert_eq!((frame[20], frame[68]), (58, 17));
    assert_eq!(
        (address(70).to_string(), address(86).to_string()),
        (CLIENT.to_owned(), MAPPED.to_owned())
    );
    (
        frame[54],
        u32::from_be_bytes(frame[58..62].try_into().unwrap()),
    )
}

#[test]
fn ipv6_clients_reach_ipv4_servers() {
    let (bench, mut a, mut b) = start();
    a.send(&[udp(TO_A, CLIENT, MAPPED, 64, 40)]);
    let port = sent_by_client(&b.receive(1)[0], 40);
    b.send(&[answer(port, 40)]);
    let mut expected = udp(FROM_A, MAPPED, CLIENT, 63, 40);
    expected[54..58].copy_from_slice(&[0x13, 0x88, 0x0f, 0xa0]);
    let received = a.receive(1);
    // The sum of both ports is that of the other direction.
    assert_eq!(received[0], expected);
    // An external port without mapping, and a client that is not one.
    b.send(&[answer(port ^ 1, 40)]);
    a.send(&[udp(TO_A, "2001:db8:2::5", MAPPED, 64, 40)]);
    until("both packets are refused", || {
        let nats: Vec<NatReport> = bench.show("nat");
        (nats[0].refused["no_mapping"] == 2).then_some(())
    });
    let mappings = bench.show::<MappingsReport>("mappings").mappings;
    let one = (
        mappings[0].inside.to_string(),
        mappings[0].outside.to_string(),
    );
    assert_eq!(one, (format!("[{CLIENT}]:4000"), format!("{OWN}:{port}")));
    assert_eq!(mappings.len(), 1);
    let nats: Vec<NatReport> = bench.show("nat");
    assert_eq!(
        (nats[0].hosts, nats[0].outbound, nats[0].inbound),
        (1, 1, 1)
    );
    until("the log has the client", || {
        let text = fs::read_to_string(bench.path("nat.jsonl")).unwrap();
        text.contains(&format!("\"host\":\"{CLIENT}\""))
            .then_some(())
    });
    change(&bench, &["mappings", "flush"]);
    let (log, events) = until("the log has the end of the mapping", || {
        let text = fs::read_to_string(bench.path("nat.jsonl")).unwrap();
        let lines = text.lines();
        let lines = lines.filter_map(|line| serde_json::from_str(line).ok());
        let events: Vec<String> = lines
            .map(|line: serde_json::Value| line["event"].as_str().unwrap().to_owned())
            .collect();
        (events.len() >= 4).then_some((text, events))
    });
    assert_eq!(events, ["assigned", "created", "deleted", "returned"]);
    let ends = format!("\"inside\":\"[{CLIENT}]:4000\",\"outside\":\"{OWN}:{port}\"");
    assert_eq!(log.matches(&ends).count(), 2, "{log}");
    assert!(bench.show::<String>("config").contains("2001:db8:64::/96"));
}

#[test]
fn errors_of_the_router_about_translated_packets_reach_the_sender() {
    let (bench, mut a, mut b) = start();
    a.send(&[udp(TO_A, CLIENT, MAPPED, 1, 40)]);
    let error = &a.receive(1)[0];
    assert_eq!(error_to_client(error, MAPPED_OWN), (3, 0));
    // Longer than the MTU of the outside allows: 1460 octets in IPv4.
    a.send(&[udp(TO_A, CLIENT, MAPPED, 64, 1432)]);
    let error = &a.receive(1)[0];
    assert_eq!(error_to_client(error, MAPPED_OWN), (2, 1420));
    a.send(&[udp(TO_A, CLIENT, MAPPED, 64, 1372)]);
    let port = sent_by_client(&b.receive(1)[0], 1372);
    // An answer whose time is over.
    let mut late = answer(port, 40);
    late[22] = 1;
    let (mut header, _) = Ipv4Header::from_slice(&late[14..34]).unwrap();
    header.header_checksum = header.calc_header_checksum();
    late[14..34].copy_from_slice(&header.to_bytes());
    b.send(&[late]);
    let error = &b.receive(1)[0];
    assert_eq!(error[..14], [&HOST_B[..], &ROUTER_B, &[0x08, 0]].concat());
    assert_eq!((error[23], error[34]), (1, 11));
    assert_eq!(checksum(&error[34..]), 0);
    // It is about the packet of the server.
    assert_eq!(error[54..62], [198, 51, 100, 9, 198, 51, 100, 1]);
    assert_eq!(word(error, 64), port);
    let stats: StatsReport = bench.show("stats");
    let counts: RouterCounts = stats.router;
    assert_eq!(counts.dropped["martian"], 0);
}

#[test]
fn packets_that_may_be_fragmented_become_fragments_of_ipv6() {
    let (_bench, mut a, mut b) = start();
    a.send(&[udp(TO_A, CLIENT, MAPPED, 64, 40)]);
    let port = sent_by_client(&b.receive(1)[0], 40);
    let mut long = answer(port, 1400);
    long[18..22].copy_from_slice(&[0x12, 0x34, 0, 0]);
    let (mut header, _) = Ipv4Header::from_slice(&long[14..34]).unwrap();
    header.header_checksum = header.calc_header_checksum();
    long[14..34].copy_from_slice(&header.to_bytes());
    b.send(&[long]);
    let pieces = a.receive(2);
    for (piece, (length, field)) in pieces.iter().zip([(1280, 1), (40 + 8 + 176, 1232)]) {
        assert_eq!((piece[20], piece[54], piece.len()), (44, 17, 14 + length));
        assert_eq!(
            (word(piece, 56), piece[58..62].to_vec()),
            (field, vec![0, 0, 0x12, 0x34])
        );
    }
}

/// Clients, so many that both threads have some.
fn clients() -> Vec<String> {
    (0x10..0x1c)
        .map(|host| format!("2001:db8:1::{host:x}"))
        .collect()
}

/// Returns the configuration of two threads, without a log of port blocks. `first` are further lines in front.
fn config_of_two(first: &str) -> String {
    let mut config = CONFIG
        .replace("nat-log = \"NATLOG\"\n", first)
        .replace("nat-log-events = [\"blocks\", \"mappings\"]\n", "")
        .replace("nat64 =", "sources = [\"10.0.0.0/24\"]\nnat64 =");
    for client in clients() {
        config += &format!(
            "\n[[neighbour]]\ninterface = \"inside\"\naddress = \"{client}\"\nmac = \"02:00:00:00:00:01\"\n"
        );
    }
    config
}

/// Sends a datagram of each client to the server. Returns their external ports.
fn open_all(a: &mut Peer, b: &mut Peer) -> Vec<u16> {
    let mut ports = Vec::new();
    for client in clients() {
        a.send(&[udp(TO_A, &client, MAPPED, 64, 40)]);
        ports.push(sent_by_client(&b.receive(1)[0], 40));
    }
    let distinct: BTreeSet<&u16> = ports.iter().collect();
    assert_eq!(distinct.len(), ports.len());
    ports
}

/// Checks that answers reach the clients, and that these have the same external ports as before. Answers come first, so the mappings are
/// there before packets of the clients.
fn continue_all(a: &mut Peer, b: &mut Peer, ports: &[u16]) {
    for (client, port) in clients().iter().zip(ports) {
        b.send(&[answer(*port, 40)]);
        let mut expected = udp(FROM_A, MAPPED, client, 63, 40);
        // The sum of both ports is that of the other direction.
        expected[54..58].copy_from_slice(&[0x13, 0x88, 0x0f, 0xa0]);
        assert_eq!(a.receive(1), [expected]);
    }
    assert_eq!(open_all(a, b), ports);
}

#[test]
fn mappings_of_clients_go_on_after_a_restart_with_their_file() {
    let bench = Bench::new(&["a", "b"], &TWO_THREADS);
    let file = bench.path("switch.toml");
    fs::write(&file, config_of_two("")).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let (a, b) = (bench.peer("a"), bench.peer("b"));
    restart_with_file((bench, a, b), (open_all, continue_all));
}

#[test]
fn a_standby_continues_mappings_of_clients() {
    let config = |role: &str| config_of_two(&format!("[replication]\n{role}\n"));
    take_over(config, (open_all, continue_all));
}
