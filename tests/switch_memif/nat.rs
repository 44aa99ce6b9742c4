// SPDX-License-Identifier: Apache-2.0
//! NAT as observed on the wire: every frame that leaves is compared, octet by octet, with one that is built from the translated addresses.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use etherparse::{Icmpv4Type, Ipv4Header, PacketBuilder, icmpv4};
use quietwire_switch::report::{
    ConnectionsReport, LoadBalancerReport, MappingsReport, NatReport, PortDrop, PortReport,
    RouterCounts, StatsReport,
};

use crate::bench::{Bench, Peer, change, command, output, refused, until};
use crate::changes::TWO_THREADS;
use crate::fragments::fragments;
use crate::router::{HOST_A, HOST_B, ROUTER_A, ROUTER_B};

/// Inside hosts, the external address, and a remote host.
pub(super) const HOST: &str = "10.0.0.5";
pub(super) const SERVER: &str = "10.0.0.6";
pub(super) const OWN: &str = "198.51.100.1";
pub(super) const REMOTE: &str = "198.51.100.9";

const CONFIG: &str = r#"
nat-log = "NATLOG"

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
addresses = ["198.51.100.1/24"]

[[nat]]
name = "internet"
interface = "outside"
"#;

const NEIGHBOURS: [(&str, &str, &str); 3] = [
    ("inside", HOST, "02:00:00:00:00:01"),
    ("inside", SERVER, "02:00:00:00:00:01"),
    ("outside", REMOTE, "02:00:00:00:00:02"),
];

/// Starts a router with NAT. `keys` are further ones of the instance.
pub(super) fn start(keys: &str) -> (Bench, Peer, Peer) {
    start_with(&[], keys)
}

/// The same with these arguments.
pub(super) fn start_with(arguments: &[&str], keys: &str) -> (Bench, Peer, Peer) {
    start_with_log(arguments, "", keys)
}

/// The same with further keys of the log.
pub(super) fn start_with_log(arguments: &[&str], of_log: &str, keys: &str) -> (Bench, Peer, Peer) {
    let bench = Bench::new(&["a", "b"], arguments);
    let log = bench.path("nat.jsonl").display().to_string();
    let config = CONFIG.replace("NATLOG", &log);
    let mut config = format!("{of_log}\n{config}{keys}");
    for (interface, address, mac) in NEIGHBOURS {
        config += &format!(
            "\n[[neighbour]]\ninterface = \"{interface}\"\naddress = \"{address}\"\nmac = \"{mac}\"\n"
        );
    }
    let file = bench.path("switch.toml");
    fs::write(&file, config).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let peers = (bench.peer("a"), bench.peer("b"));
    (bench, peers.0, peers.1)
}

pub(super) type Macs = ([u8; 6], [u8; 6]);
pub(super) const TO_A: Macs = (HOST_A, ROUTER_A);
pub(super) const FROM_A: Macs = (ROUTER_A, HOST_A);
pub(super) const TO_B: Macs = (HOST_B, ROUTER_B);
pub(super) const FROM_B: Macs = (ROUTER_B, HOST_B);

fn bytes(address: &str) -> [u8; 4] {
    address.parse::<std::net::Ipv4Addr>().unwrap().octets()
}

pub(super) fn udp(macs: Macs, from: (&str, u16), to: (&str, u16), ttl: u8) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(macs.0, macs.1)
        .ipv4(bytes(from.0), bytes(to.0), ttl)
        .udp(from.1, to.1);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0x5a; 40]).unwrap();
    frame
}

/// Returns a segment: a SYN, or an acknowledgement of one.
pub(super) fn tcp(
    macs: Macs,
    from: (&str, u16),
    to: (&str, u16),
    ttl: u8,
    is_answer: bool,
) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(macs.0, macs.1)
        .ipv4(bytes(from.0), bytes(to.0), ttl)
        .tcp(from.1, to.1, 7, 1000)
        .syn();
    let builder = if is_answer { builder.ack(8) } else { builder };
    let mut frame = Vec::new();
    builder.write(&mut frame, &[]).unwrap();
    frame
}

pub(super) fn echo(
    macs: Macs,
    from: &str,
    to: &str,
    ttl: u8,
    identifier: u16,
    is_reply: bool,
) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(macs.0, macs.1).ipv4(bytes(from), bytes(to), ttl);
    let builder = match is_reply {
        true => builder.icmpv4_echo_reply(identifier, 1),
        false => builder.icmpv4_echo_request(identifier, 1),
    };
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0x11; 32]).unwrap();
    frame
}

/// Returns an ICMP error, time exceeded, about the packet in a frame.
fn error(macs: Macs, from: &str, to: &str, ttl: u8, about: &[u8]) -> Vec<u8> {
    let kind = Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::TtlExceededInTransit);
    let builder = PacketBuilder::ethernet2(macs.0, macs.1)
        .ipv4(bytes(from), bytes(to), ttl)
        .icmpv4(kind);
    let mut frame = Vec::new();
    builder.write(&mut frame, &about[14..]).unwrap();
    frame
}

pub(super) fn source_port(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]])
}

/// Sends a frame into one port and returns the frame that leaves by the other.
pub(super) fn pass(from: &mut Peer, to: &mut Peer, frame: Vec<u8>) -> Vec<u8> {
    from.send(&[frame]);
    let mut received = to.receive(1);
    assert_eq!(received.len(), 1);
    received.remove(0)
}

/// Removes the padding to the shortest frame.
pub(super) fn trimmed(frame: &[u8]) -> &[u8] {
    let length = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    &frame[..14 + length]
}

/// Waits until an IPFIX collector has the events of port blocks of all these hosts.
fn await_events(collector: &UdpSocket, hosts: &[&str]) {
    let mut missing: BTreeSet<[u8; 4]> = hosts.iter().map(|host| bytes(host)).collect();
    let mut message = [0; 512];
    while !missing.is_empty() {
        let length = collector.recv(&mut message).unwrap();
        let message = &message[..length];
        // RFC 7011, section 3.1: version and length.
        let head = [0, 10, (length >> 8) as u8, length as u8];
        assert_eq!(message[..4], head);
        missing.retain(|host| !message.windows(4).any(|octets| octets == host));
    }
}

#[test]
fn hosts_share_an_address_and_answers_return_to_each() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let to = collector.local_addr().unwrap();
    let (bench, mut a, mut b) = start_with_log(&[], &format!("nat-log-collector = \"{to}\""), "");
    // Out and back, with the checksums of a sender that has these addresses.
    let sent = pass(&mut a, &mut b, udp(TO_A, (HOST, 4000), (REMOTE, 53), 64));
    let external = source_port(&sent);
    assert_eq!(sent, udp(FROM_B, (OWN, external), (REMOTE, 53), 63));
    let received = pass(&mut b, &mut a, udp(TO_B, (REMOTE, 53), (OWN, external), 64));
    assert_eq!(received, udp(FROM_A, (REMOTE, 53), (HOST, 4000), 63));
    // Another remote port reaches the mapping, and another host has a port of its own.
    let other = pass(&mut b, &mut a, udp(TO_B, (REMOTE, 9), (OWN, external), 64));
    assert_eq!(other, udp(FROM_A, (REMOTE, 9), (HOST, 4000), 63));
    let second = pass(&mut a, &mut b, udp(TO_A, (SERVER, 4000), (REMOTE, 53), 64));
    assert_ne!(source_port(&second), external);
    // Echoes have identifiers in the place of ports.
    let request = pass(&mut a, &mut b, echo(TO_A, HOST, REMOTE, 64, 77, false));
    let identifier = u16::from_be_bytes([request[38], request[39]]);
    assert_eq!(request, echo(FROM_B, OWN, REMOTE, 63, identifier, false));
    let reply = pass(
        &mut b,
        &mut a,
        echo(TO_B, REMOTE, OWN, 64, identifier, true),
    );
    assert_eq!(reply, echo(FROM_A, REMOTE, HOST, 63, 77, true));
    // Errors from outside arrive as about the host's own packet.
    let about = udp(FROM_B, (OWN, external), (REMOTE, 53), 63);
    let arrived = pass(&mut b, &mut a, error(TO_B, REMOTE, OWN, 64, &about));
    let mine = udp(FROM_A, (HOST, 4000), (REMOTE, 53), 63);
    assert_eq!(arrived, error(FROM_A, REMOTE, HOST, 63, &mine));
    // An error of the router itself about a translated packet shows the outside what it knows.
    let expiring = udp(TO_B, (REMOTE, 53), (OWN, external), 1);
    b.send(std::slice::from_ref(&expiring));
    let answer = b.receive(1).remove(0);
    assert_eq!((answer[34], answer[35]), (11, 0));
    assert_eq!(answer[26..30], bytes(OWN));
    assert_eq!(answer[42..][16..28], expiring[14..][16..28]);
    // A packet that came with the inside address has it in the error too (RFC 1812, section 4.3.2.3).
    let direct = udp(TO_B, (REMOTE, 53), (HOST, 4000), 1);
    b.send(std::slice::from_ref(&direct));
    let answer = b.receive(1).remove(0);
    assert_eq!((answer[34], answer[35]), (11, 0));
    assert_eq!(answer[42..][16..28], direct[14..][16..28]);
    // Packets to the router itself still reach it.
    let pong = echo(TO_B, REMOTE, OWN, 64, 5, false);
    b.send(&[pong]);
    let pong = b.receive(1).remove(0);
    assert_eq!((pong[34], &pong[26..30]), (0, &bytes(OWN)[..]));
    let nats: Vec<NatReport> = bench.show("nat");
    assert_eq!((nats[0].mappings, nats[0].hosts), (3, 2));
    assert_eq!((nats[0].outbound, nats[0].created), (3, 3));
    let mappings = bench.show::<MappingsReport>("mappings").mappings;
    let one = mappings
        .iter()
        .find(|one| one.inside.to_string() == "10.0.0.5:4000");
    assert_eq!(
        one.unwrap().outside.to_string(),
        format!("{OWN}:{external}")
    );
    // The tracker has one connection for both directions, and its translation.
    let connections: ConnectionsReport = bench.show("connections");
    let of_host = |port| {
        let mut all = connections.connections.iter();
        all.find(|one| one.source.to_string() == HOST && one.destination_port == port)
    };
    let dns = of_host(53).unwrap();
    assert_eq!((dns.state.as_str(), dns.packets[0]), ("udp_replied", 1));
    let outside = dns.external_source.unwrap().to_string();
    assert_eq!(outside, format!("{OWN}:{external}"));
    // The log has a block of each host.
    let log = until("the log has both blocks", || {
        let text = fs::read_to_string(bench.path("nat.jsonl")).unwrap();
        (text.lines().count() >= 2).then_some(text)
    });
    assert!(
        log.contains("\"host\":\"10.0.0.5\"") && log.contains("\"event\":\"assigned\""),
        "{log}"
    );
    await_events(&collector, &[HOST, SERVER]);
    let shown = output(&mut command(&bench, &["show", "mappings"]));
    assert!(shown.contains("10.0.0.6:4000"), "{shown}");
    // Pages of one mapping have all three, each once.
    let (mut listed, mut from) = (Vec::new(), Some(0));
    while let Some(position) = from {
        let position = position.to_string();
        let page = ["--limit", "1", "--from", position.as_str(), "--json"];
        let page = [&["show", "mappings"][..], &page].concat();
        let page: MappingsReport =
            serde_json::from_str(&output(&mut command(&bench, &page))).unwrap();
        assert!(page.mappings.len() <= 1, "{page:?}");
        listed.extend(page.mappings);
        from = page.next;
    }
    let endpoints: Vec<_> = listed.iter().map(|one| one.inside).collect();
    assert_eq!(endpoints.len(), 3, "{endpoints:?}");
    assert!(
        mappings.iter().all(|one| endpoints.contains(&one.inside)),
        "{endpoints:?}"
    );
}

#[test]
fn published_ports_come_and_go_and_inside_hosts_use_them_too() {
    let (bench, mut a, mut b) = start("");
    let kept = pass(&mut a, &mut b, udp(TO_A, (HOST, 4000), (REMOTE, 53), 64));
    change(
        &bench,
        &["add", "publish", "internet", "tcp", "443", "10.0.0.6:8443"],
    );
    let request = tcp(TO_B, (REMOTE, 900), (OWN, 443), 64, false);
    let received = pass(&mut b, &mut a, request);
    let expected = tcp(FROM_A, (REMOTE, 900), (SERVER, 8443), 63, false);
    assert_eq!(trimmed(&received), expected);
    let answer = pass(
        &mut a,
        &mut b,
        tcp(TO_A, (SERVER, 8443), (REMOTE, 900), 64, true),
    );
    let expected = tcp(FROM_B, (OWN, 443), (REMOTE, 900), 63, true);
    assert_eq!(trimmed(&answer), expected);
    // From the inside by the external address, and back.
    a.send(&[tcp(TO_A, (HOST, 901), (OWN, 443), 64, false)]);
    let hairpinned = a.receive(1).remove(0);
    let external = source_port(&hairpinned);
    let expected = tcp(FROM_A, (OWN, external), (SERVER, 8443), 63, false);
    assert_eq!(trimmed(&hairpinned), expected);
    a.send(&[tcp(TO_A, (SERVER, 8443), (OWN, external), 64, true)]);
    let back = a.receive(1).remove(0);
    assert_eq!(
        trimmed(&back),
        tcp(FROM_A, (OWN, 443), (HOST, 901), 63, true)
    );
    // An error of the router itself about such a packet returns to its sender, about the packet as it was.
    let expiring = tcp(TO_A, (HOST, 901), (OWN, 443), 1, false);
    a.send(std::slice::from_ref(&expiring));
    let error = a.receive(1).remove(0);
    assert_eq!((error[23], error[34]), (1, 11));
    assert_eq!(error[26..34], [bytes(OWN), bytes(HOST)].concat());
    assert_eq!(error[42..][12..28], expiring[14..][12..28]);
    let config = output(&mut bench.show_command("config"));
    assert!(config.contains("[[nat.publish]]"), "{config}");
    let absent = refused(&bench, &["del", "publish", "internet", "udp", "443"]);
    assert!(absent.contains("is not published"), "{absent}");
    change(&bench, &["del", "publish", "internet", "tcp", "443"]);
    // To the router itself, which does not answer.
    b.send(&[tcp(TO_B, (REMOTE, 902), (OWN, 443), 64, false)]);
    until("the packet is for the router", || {
        let stats: StatsReport = bench.show("stats");
        (stats.router.unknown_protocol == 1).then_some(())
    });
    // The mapping from before all changes.
    let port = source_port(&kept);
    let received = pass(&mut b, &mut a, udp(TO_B, (REMOTE, 53), (OWN, port), 64));
    assert_eq!(received, udp(FROM_A, (REMOTE, 53), (HOST, 4000), 63));
    let refusal = refused(&bench, &["del", "interface", "outside"]);
    assert!(refusal.contains("delete its NAT first"), "{refusal}");
    change(&bench, &["del", "nat", "internet"]);
    let plain = pass(&mut a, &mut b, udp(TO_A, (HOST, 4000), (REMOTE, 53), 64));
    assert_eq!(plain, udp(FROM_B, (HOST, 4000), (REMOTE, 53), 63));
}

/// Receives the error about a packet for which NAT has no space: host unreachable.
fn is_unreachable(host: &mut Peer) {
    let error = host.receive(1).remove(0);
    assert_eq!((error[23], error[34], error[35]), (1, 3, 1));
}

#[test]
fn exhausted_ports_are_counted_and_established_mappings_stay() {
    // Three blocks of eight ports, two for a host at most; a one-to-one host; sources outside of the prefix stay as they are.
    let keys = "
sources = [\"10.0.0.5/32\", \"10.0.0.6/32\", \"10.0.0.7/32\"]
ports = \"2000-2023\"
block-size = 8
blocks-per-host = 2
[[nat.one-to-one]]
inside = \"10.0.0.7\"
outside = \"203.0.113.7\"
";
    let (bench, mut a, mut b) = start(keys);
    let dropped = |bench: &Bench| -> RouterCounts {
        let stats: StatsReport = bench.show("stats");
        stats.router
    };
    let first = pass(&mut a, &mut b, udp(TO_A, (HOST, 4000), (REMOTE, 53), 64));
    for port in 4001..4016 {
        pass(&mut a, &mut b, udp(TO_A, (HOST, port), (REMOTE, 53), 64));
    }
    a.send(&[udp(TO_A, (HOST, 4016), (REMOTE, 53), 64)]);
    until("the host is at its limit", || {
        (dropped(&bench).dropped["nat-host-limit"] == 1).then_some(())
    });
    is_unreachable(&mut a);
    for port in 4000..4008 {
        pass(&mut a, &mut b, udp(TO_A, (SERVER, port), (REMOTE, 53), 64));
    }
    a.send(&[udp(TO_A, (SERVER, 4008), (REMOTE, 53), 64)]);
    until("the pool is exhausted", || {
        (dropped(&bench).dropped["nat-no-ports"] == 1).then_some(())
    });
    is_unreachable(&mut a);
    let again = pass(&mut a, &mut b, udp(TO_A, (HOST, 4000), (REMOTE, 53), 64));
    assert_eq!(again, first);
    // A packet from outside to a port without mapping, of an address that is not the router's own.
    let pair = pass(&mut a, &mut b, udp(TO_A, ("10.0.0.7", 9), (REMOTE, 53), 64));
    assert_eq!(pair, udp(FROM_B, ("203.0.113.7", 9), (REMOTE, 53), 63));
    let public = pass(&mut a, &mut b, udp(TO_A, ("10.0.0.8", 9), (REMOTE, 53), 64));
    assert_eq!(public, udp(FROM_B, ("10.0.0.8", 9), (REMOTE, 53), 63));
    // A later fragment whose first one has been refused.
    let beyond = udp(TO_A, (HOST, 4016), (REMOTE, 53), 64);
    a.send(&fragments(&beyond, 8)[..1]);
    until("the first fragment is refused", || {
        (dropped(&bench).dropped["nat-host-limit"] == 2).then_some(())
    });
    let mut fragment = udp(TO_A, (HOST, 4000), (REMOTE, 53), 64);
    fragment[18..20].copy_from_slice(&[0, 8]);
    fragment[20..22].copy_from_slice(&[0x20, 8]);
    let (mut header, _) = Ipv4Header::from_slice(&fragment[14..34]).unwrap();
    header.header_checksum = header.calc_header_checksum();
    fragment[14..34].copy_from_slice(&header.to_bytes());
    a.send(&[fragment]);
    until("the fragment is dropped", || {
        (dropped(&bench).dropped["nat-fragment"] == 1).then_some(())
    });
    let nats: Vec<NatReport> = bench.show("nat");
    let (mappings, most) = (nats[0].mappings, nats[0].max_mappings);
    assert_eq!((mappings, most, nats[0].one_to_one), (24, 65_536, 1));
    assert_eq!(nats[0].refused["no_ports"], 1);
}

#[test]
fn mappings_go_on_after_a_restart_with_their_file() {
    let (mut bench, mut a, mut b) = start("");
    let from_host = || udp(TO_A, (HOST, 4000), (REMOTE, 53), 64);
    let first = pass(&mut a, &mut b, from_host());
    let other = pass(&mut a, &mut b, udp(TO_A, (SERVER, 7), (REMOTE, 53), 64));
    let saved = bench.path("mappings");
    let save = ["mappings", "save", saved.to_str().unwrap()];
    assert_eq!(output(&mut command(&bench, &save)).trim(), "2");
    let mode = fs::metadata(&saved).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop((a, b));
    assert_eq!(bench.end("TERM"), Some(0));
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    // A damaged file changes nothing.
    let damaged = bench.path("damaged");
    let mut octets = fs::read(&saved).unwrap();
    octets[60] ^= 1;
    fs::write(&damaged, octets).unwrap();
    let refusal = refused(&bench, &["mappings", "restore", damaged.to_str().unwrap()]);
    assert!(refusal.contains("damaged"), "{refusal}");
    let nats: Vec<NatReport> = bench.show("nat");
    assert_eq!(nats[0].mappings, 0);
    let restore = ["mappings", "restore", saved.to_str().unwrap()];
    let printed = output(&mut command(&bench, &restore));
    assert!(printed.starts_with("restored: 2\n"), "{printed}");
    // From outside first: the mapping is there before a packet of the host.
    let answer = udp(TO_B, (REMOTE, 53), (OWN, source_port(&first)), 64);
    let expected = udp(FROM_A, (REMOTE, 53), (HOST, 4000), 63);
    assert_eq!(pass(&mut b, &mut a, answer), expected);
    assert_eq!(pass(&mut a, &mut b, from_host()), first);
    let again = pass(&mut a, &mut b, udp(TO_A, (SERVER, 7), (REMOTE, 53), 64));
    assert_eq!(again, other);
    let printed = output(&mut command(&bench, &restore));
    assert!(printed.contains("already there: 2\n"), "{printed}");
    let show = [
        "show",
        "mappings",
        "--address",
        "10.0.0.6/32",
        "--protocol",
        "udp",
    ];
    let shown = output(&mut command(&bench, &show));
    assert!(
        shown.contains("10.0.0.6:7") && !shown.contains("10.0.0.5"),
        "{shown}"
    );
    let stated = refused(&bench, &["show", "mappings", "--state", "tcp_close"]);
    assert!(stated.contains("no state"), "{stated}");
    // A host loses its mapping, and the other keeps its own.
    let flush = [
        "mappings",
        "flush",
        "--protocol",
        "udp",
        "--address",
        "10.0.0.6/32",
    ];
    assert_eq!(output(&mut command(&bench, &flush)).trim(), "1");
    let mappings = bench.show::<MappingsReport>("mappings").mappings;
    let inside: Vec<String> = mappings.iter().map(|one| one.inside.to_string()).collect();
    assert_eq!(inside, ["10.0.0.5:4000"]);
    let absent = refused(&bench, &["mappings", "flush", "--nat", "other"]);
    assert!(absent.contains("no such NAT"), "{absent}");
}

#[test]
fn a_host_is_reached_from_addresses_that_it_has_sent_to() {
    const OTHER: &str = "198.51.100.10";
    let keys = format!(
        "filtering = \"address-dependent\"\n[[neighbour]]\ninterface = \"outside\"\naddress = \"{OTHER}\"\n\
         mac = \"02:00:00:00:00:02\"\n"
    );
    let (mut bench, mut a, mut b) = start(&keys);
    let first = pass(&mut a, &mut b, udp(TO_A, (HOST, 4000), (REMOTE, 53), 64));
    let port = source_port(&first);
    // Another address does not reach the mapping until the host has sent a packet to it. The port does not count.
    let other = udp(TO_B, (OTHER, 54), (OWN, port), 64);
    b.send(std::slice::from_ref(&other));
    until("the packet is dropped", || {
        let stats: StatsReport = bench.show("stats");
        (stats.router.dropped["nat-filtered"] == 1).then_some(())
    });
    let second = pass(&mut a, &mut b, udp(TO_A, (HOST, 4000), (OTHER, 99), 64));
    assert_eq!(source_port(&second), port);
    let arrived = udp(FROM_A, (OTHER, 54), (HOST, 4000), 63);
    assert_eq!(pass(&mut b, &mut a, other.clone()), arrived);
    let nats: Vec<NatReport> = bench.show("nat");
    assert_eq!(nats[0].filtering, "address-dependent");
    assert_eq!(nats[0].mappings, 1);
    // A saved file has the mapping and both addresses.
    let saved = bench.path("mappings");
    let save = ["mappings", "save", saved.to_str().unwrap()];
    assert_eq!(output(&mut command(&bench, &save)).trim(), "3");
    drop((a, b));
    assert_eq!(bench.end("TERM"), Some(0));
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let restore = ["mappings", "restore", saved.to_str().unwrap()];
    let printed = output(&mut command(&bench, &restore));
    assert!(printed.starts_with("restored: 3\n"), "{printed}");
    assert_eq!(pass(&mut b, &mut a, other), arrived);
}

#[test]
fn remote_endpoints_have_external_endpoints_of_their_own() {
    let (mut bench, mut a, mut b) = start("mapping = \"address-and-port-dependent\"\n");
    let to = |port| udp(TO_A, (HOST, 4000), (REMOTE, port), 64);
    let first = pass(&mut a, &mut b, to(53));
    let port = source_port(&first);
    assert_eq!(first, udp(FROM_B, (OWN, port), (REMOTE, 53), 63));
    let second = pass(&mut a, &mut b, to(54));
    assert_ne!(source_port(&second), port);
    // The other remote port does not reach the mapping, and not the router either.
    b.send(&[udp(TO_B, (REMOTE, 54), (OWN, port), 64)]);
    until("the packet is dropped", || {
        let stats: StatsReport = bench.show("stats");
        (stats.router.dropped["nat-filtered"] == 1).then_some(())
    });
    let answer = || udp(TO_B, (REMOTE, 53), (OWN, port), 64);
    let arrived = udp(FROM_A, (REMOTE, 53), (HOST, 4000), 63);
    assert_eq!(pass(&mut b, &mut a, answer()), arrived);
    let show = ["show", "mappings", "--l4-port", "54"];
    let shown = output(&mut command(&bench, &show));
    let (there, absent) = (format!("{REMOTE}:54"), format!("{REMOTE}:53"));
    assert!(
        shown.contains(&there) && !shown.contains(&absent),
        "{shown}"
    );
    // A restored mapping belongs to the same remote endpoint.
    let saved = bench.path("mappings");
    let save = ["mappings", "save", saved.to_str().unwrap()];
    assert_eq!(output(&mut command(&bench, &save)).trim(), "2");
    drop((a, b));
    assert_eq!(bench.end("TERM"), Some(0));
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let restore = ["mappings", "restore", saved.to_str().unwrap()];
    let printed = output(&mut command(&bench, &restore));
    assert!(printed.starts_with("restored: 2\n"), "{printed}");
    assert_eq!(pass(&mut b, &mut a, answer()), arrived);
    assert_eq!(pass(&mut a, &mut b, to(53)), first);
    assert_eq!(pass(&mut a, &mut b, to(54)), second);
    // With the other behaviour, all ports of a remote host see one external endpoint, and the file has no mapping of it.
    change(&bench, &["del", "nat", "internet"]);
    let add = ["add", "nat", "internet", "outside"];
    let mapping = ["--mapping", "address-dependent"];
    change(&bench, &[add.as_slice(), &mapping].concat());
    let printed = output(&mut command(&bench, &restore));
    assert!(printed.contains("invalid: 2"), "{printed}");
    let one = pass(&mut a, &mut b, to(53));
    let other = pass(&mut a, &mut b, to(54));
    assert_eq!(source_port(&other), source_port(&one));
    let mappings = bench.show::<MappingsReport>("mappings").mappings;
    let remotes: Vec<_> = mappings
        .iter()
        .map(|one| (one.remote_address, one.remote_port))
        .collect();
    assert_eq!(remotes, [(Some(IpAddr::from(bytes(REMOTE))), None)]);
}

#[test]
fn a_published_endpoint_loses_its_mappings_of_remote_hosts_at_once() {
    let (bench, mut a, mut b) = start("mapping = \"address-dependent\"\n");
    let to = |from: &str, port| udp(TO_A, (from, port), (REMOTE, 53), 64);
    let ended = pass(&mut a, &mut b, to(SERVER, 8443));
    let kept = [
        pass(&mut a, &mut b, to(SERVER, 8444)),
        pass(&mut a, &mut b, to(HOST, 8443)),
    ];
    change(
        &bench,
        &["add", "publish", "internet", "udp", "443", "10.0.0.6:8443"],
    );
    let mappings = bench.show::<MappingsReport>("mappings").mappings;
    let ports: BTreeSet<u16> = mappings.iter().map(|one| one.outside.port()).collect();
    let [first, second] = kept.map(|frame| source_port(&frame));
    assert_eq!(ports, [443, first, second].into(), "{mappings:?}");
    assert!(!ports.contains(&source_port(&ended)));
    // The host answers from the published port.
    let answer = pass(&mut a, &mut b, to(SERVER, 8443));
    assert_eq!(answer, udp(FROM_B, (OWN, 443), (REMOTE, 53), 63));
}

#[test]
fn an_added_address_has_ports_and_established_mappings_stay() {
    const ADDED: &str = "203.0.113.1";
    let keys = "ports = \"2000-2007\"\nblock-size = 8\n";
    let (bench, mut a, mut b) = start(keys);
    let from_host = || udp(TO_A, (HOST, 4000), (REMOTE, 53), 64);
    let from_server = || udp(TO_A, (SERVER, 4000), (REMOTE, 53), 64);
    let first = pass(&mut a, &mut b, from_host());
    a.send(&[from_server()]);
    until("the pool is exhausted", || {
        let stats: StatsReport = bench.show("stats");
        (stats.router.dropped["nat-no-ports"] == 1).then_some(())
    });
    is_unreachable(&mut a);
    change(&bench, &["add", "nat-address", "internet", ADDED]);
    let second = pass(&mut a, &mut b, from_server());
    let port = source_port(&second);
    assert_eq!(second, udp(FROM_B, (ADDED, port), (REMOTE, 53), 63));
    let answer = pass(&mut b, &mut a, udp(TO_B, (REMOTE, 53), (ADDED, port), 64));
    assert_eq!(answer, udp(FROM_A, (REMOTE, 53), (SERVER, 4000), 63));
    // The mapping from before.
    assert_eq!(pass(&mut a, &mut b, from_host()), first);
    let to_first = udp(TO_B, (REMOTE, 53), (OWN, source_port(&first)), 64);
    let answer = pass(&mut b, &mut a, to_first);
    assert_eq!(answer, udp(FROM_A, (REMOTE, 53), (HOST, 4000), 63));
    let nats: Vec<NatReport> = bench.show("nat");
    let expected = [OWN, ADDED].map(|one| one.parse::<std::net::IpAddr>().unwrap());
    assert_eq!(
        (&nats[0].addresses[..], nats[0].mappings),
        (&expected[..], 2)
    );
    let twice = refused(&bench, &["add", "nat-address", "internet", ADDED]);
    assert!(twice.contains("listed twice"), "{twice}");
}

/// A published server and a backend, and rules that accept nothing from outside but answers and segments to these.
pub(super) const SHARED: &str = r#"
sources = ["10.0.0.0/24"]

[[nat.publish]]
protocol = "tcp"
port = 443
to = "10.0.0.6:8443"

[[load-balancer]]
name = "web"
address = "198.51.100.1"
port = 80

[[load-balancer.backend]]
to = "10.0.0.6:8080"

[[rule]]
name = "answers"
action = "accept"
ct-state = "established,related"

[[rule]]
name = "out"
action = "accept"
port = "a"
ct-state = "new"

[[rule]]
name = "published"
action = "accept"
port = "b"
protocol = "tcp"
ct-state = "new"

[[rule]]
name = "rest"
action = "drop"
port = "b"
"#;

#[test]
fn two_threads_share_connections_mappings_and_balanced_connections() {
    let hosts: Vec<String> = (10..22).map(|host| format!("10.0.0.{host}")).collect();
    let clients: Vec<String> = (20..26).map(|host| format!("198.51.100.{host}")).collect();
    let mut keys = SHARED.to_owned();
    for (interface, addresses, mac) in [("inside", &hosts, "01"), ("outside", &clients, "02")] {
        for address in addresses {
            keys += &format!(
                "\n[[neighbour]]\ninterface = \"{interface}\"\naddress = \"{address}\"\nmac = \"02:00:00:00:00:{mac}\"\n"
            );
        }
    }
    // One thread receives from inside, the other from outside. Each owns some of the hosts and some of the clients.
    let (bench, mut a, mut b) = start_with(&TWO_THREADS, &keys);
    let mut externals = BTreeSet::new();
    for host in hosts.iter().map(String::as_str) {
        let sent = pass(&mut a, &mut b, udp(TO_A, (host, 4000), (REMOTE, 53), 64));
        let external = source_port(&sent);
        assert_eq!(sent, udp(FROM_B, (OWN, external), (REMOTE, 53), 63));
        assert!(externals.insert(external), "two hosts have port {external}");
        let back = pass(&mut b, &mut a, udp(TO_B, (REMOTE, 53), (OWN, external), 64));
        assert_eq!(back, udp(FROM_A, (REMOTE, 53), (host, 4000), 63));
        let answer = udp(TO_B, (REMOTE, 53), (OWN, external), 64);
        let expected = udp(FROM_A, (REMOTE, 53), (host, 4000), 63);
        // Fragments in order, and those of another datagram, the last one first.
        for (number, is_reversed) in [(external, false), (!external, true)] {
            let mut parts = fragments(&answer, number);
            if is_reversed {
                parts.reverse();
            }
            b.send(&parts);
            let received = a.receive(2);
            let received: Vec<&[u8]> = received.iter().map(|one| trimmed(one)).collect();
            assert_eq!(received, fragments(&expected, number));
        }
        // Errors of a router outside, and of this one.
        let arrived = pass(&mut b, &mut a, error(TO_B, REMOTE, OWN, 64, &sent));
        let mine = udp(FROM_A, (host, 4000), (REMOTE, 53), 63);
        assert_eq!(arrived, error(FROM_A, REMOTE, host, 63, &mine));
        let expiring = udp(TO_B, (REMOTE, 53), (OWN, external), 1);
        b.send(std::slice::from_ref(&expiring));
        let answer = b.receive(1).remove(0);
        assert_eq!((answer[34], answer[35]), (11, 0));
        assert_eq!(answer[42..][16..28], expiring[14..][16..28]);
    }
    let published = tcp(TO_B, (REMOTE, 900), (OWN, 443), 64, false);
    let received = pass(&mut b, &mut a, published);
    let expected = tcp(FROM_A, (REMOTE, 900), (SERVER, 8443), 63, false);
    assert_eq!(trimmed(&received), expected);
    let answer = tcp(TO_A, (SERVER, 8443), (REMOTE, 900), 64, true);
    let answer = pass(&mut a, &mut b, answer);
    let expected = tcp(FROM_B, (OWN, 443), (REMOTE, 900), 63, true);
    assert_eq!(trimmed(&answer), expected);
    for client in clients.iter().map(String::as_str) {
        let sent = tcp(TO_B, (client, 901), (OWN, 80), 64, false);
        let received = pass(&mut b, &mut a, sent);
        let expected = tcp(FROM_A, (client, 901), (SERVER, 8080), 63, false);
        assert_eq!(trimmed(&received), expected);
        let answer = tcp(TO_A, (SERVER, 8080), (client, 901), 64, true);
        let answer = pass(&mut a, &mut b, answer);
        let expected = tcp(FROM_B, (OWN, 80), (client, 901), 63, true);
        assert_eq!(trimmed(&answer), expected);
    }
    // From outside, nothing else begins.
    b.send(&[udp(TO_B, (REMOTE, 54), (OWN, 9), 64)]);
    until("it is dropped", || {
        let ports: Vec<PortReport> = bench.show("ports");
        (ports[1].counts.drops[PortDrop::Denied] == 1).then_some(())
    });
    // Reports are about both threads.
    let connections: ConnectionsReport = bench.show("connections");
    let all = (hosts.len() + 1 + clients.len()) as u64;
    assert_eq!((connections.total, connections.next), (all, None));
    assert_eq!(connections.connections.len() as u64, all);
    let mappings = bench.show::<MappingsReport>("mappings").mappings;
    let of_hosts = mappings.iter().filter(|one| one.protocol == "udp");
    assert_eq!(of_hosts.count(), hosts.len());
    let nats: Vec<NatReport> = bench.show("nat");
    assert_eq!((nats[0].mappings, nats[0].published), (12, 1));
    let balancers: Vec<LoadBalancerReport> = bench.show("load-balancers");
    assert_eq!(balancers[0].connections, clients.len() as u64);
    assert_eq!(balancers[0].backends[0].packets_out, clients.len() as u64);
    let flush = ["connections", "flush", "--protocol", "udp"];
    let flushed = output(&mut command(&bench, &flush));
    assert_eq!(flushed.trim(), "12");
}

/// RFC 7422: each thread has a part of the block of each host.
#[test]
fn computed_ports_lead_to_their_hosts_on_two_threads() {
    let hosts: Vec<String> = (10..16).map(|host| format!("10.0.0.{host}")).collect();
    let mut keys = "ports = \"2000-4047\"\nblock-size = 64\nblock-allocation = \"deterministic\"\n\
        sources = [\"10.0.0.0/27\"]\n"
        .to_owned();
    for address in &hosts {
        keys += &format!(
            "\n[[neighbour]]\ninterface = \"inside\"\naddress = \"{address}\"\nmac = \"02:00:00:00:00:01\"\n"
        );
    }
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let (bench, mut a, mut b) = start_with(&TWO_THREADS, &keys);
    let mut externals = Vec::new();
    for host in hosts.iter().copied() {
        let question = udp(TO_A, (host, 4000), (REMOTE, 53), 64);
        let external = source_port(&pass(&mut a, &mut b, question));
        let answer = udp(TO_B, (REMOTE, 53), (OWN, external), 64);
        let expected = udp(FROM_A, (REMOTE, 53), (host, 4000), 63);
        assert_eq!(pass(&mut b, &mut a, answer), expected);
        externals.push(external);
    }
    // Each host reaches those of both threads, from ports of its own block.
    let mut ports = BTreeSet::new();
    for (host, external) in hosts.iter().copied().zip(&externals) {
        for (target, of_target) in hosts.iter().copied().zip(&externals) {
            if target == host {
                continue;
            }
            a.send(&[udp(TO_A, (host, 4000), (OWN, *of_target), 64)]);
            let received = a.receive(1).remove(0);
            let port = source_port(&received);
            assert_eq!(received, udp(FROM_A, (OWN, port), (target, 4000), 63));
            assert_eq!((port - 2000) / 64, (external - 2000) / 64);
            a.send(&[udp(TO_A, (target, 4000), (OWN, port), 64)]);
            let back = a.receive(1).remove(0);
            assert_eq!(back, udp(FROM_A, (OWN, *of_target), (host, 4000), 63));
            ports.insert(port);
        }
        for port in ports
            .iter()
            .filter(|port| (*port - 2000) / 64 == (external - 2000) / 64)
        {
            let query = format!("{OWN}:{port}");
            let shown = output(&mut command(&bench, &["mappings", "block", query.as_str()]));
            assert!(shown.contains(host), "{shown}");
        }
    }
    assert_eq!(ports.len(), 2 * hosts.len());
    let nats: Vec<NatReport> = bench.show("nat");
    assert_eq!(nats[0].mappings, ports.len() as u64);
}
