// SPDX-License-Identifier: Apache-2.0
//! NAT of IPv6 as observed on the wire: every frame that leaves is compared with one that is built from the translated addresses.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr};

use etherparse::PacketBuilder;
use quietwire_switch::report::{ConnectionsReport, MappingsReport, NatReport};

use crate::bench::{Bench, Peer, change, command, free_address, output, until};
use crate::changes::TWO_THREADS;
use crate::router::{HOST_A, HOST_B, ROUTER_A, ROUTER_B};

/// Two inside hosts, the external address, and a remote host.
const HOST: &str = "fd00:1::5";
const NEIGHBOUR: &str = "fd00:1::6";
const OWN: &str = "2001:db8:f::1";
const REMOTE: &str = "2001:db8:f::9";

const CONFIG: &str = r#"
nat-log = "NATLOG"

[connections]

[[interface]]
name = "inside"
port = "a"
mac = "02:00:00:00:00:0a"
addresses = ["fd00:1::1/64"]

[[interface]]
name = "outside"
port = "b"
mac = "02:00:00:00:00:0b"
addresses = ["2001:db8:f::1/64"]

[[nat]]
name = "ipv6"
interface = "outside"
addresses = ["2001:db8:f::1"]

[[nat.publish]]
protocol = "udp"
port = 53
to = "[fd00:1::5]:5353"

[[neighbour]]
interface = "inside"
address = "fd00:1::5"
mac = "02:00:00:00:00:01"

[[neighbour]]
interface = "inside"
address = "fd00:1::6"
mac = "02:00:00:00:00:01"

[[neighbour]]
interface = "outside"
address = "2001:db8:f::9"
mac = "02:00:00:00:00:02"
"#;

type Macs = ([u8; 6], [u8; 6]);
const TO_A: Macs = (HOST_A, ROUTER_A);
const FROM_A: Macs = (ROUTER_A, HOST_A);
const TO_B: Macs = (HOST_B, ROUTER_B);
const FROM_B: Macs = (ROUTER_B, HOST_B);

pub(crate) fn datagram(macs: Macs, from: (&str, u16), to: (&str, u16), ttl: u8) -> Vec<u8> {
    let octets = |address: &str| address.parse::<Ipv6Addr>().unwrap().octets();
    let builder = PacketBuilder::ethernet2(macs.0, macs.1)
        .ipv6(octets(from.0), octets(to.0), ttl)
        .udp(from.1, to.1);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0x5a; 40]).unwrap();
    frame
}

/// Returns the source port of a datagram.
fn source_port(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[54], frame[55]])
}

#[test]
fn ipv6_hosts_share_an_address_and_publish_ports() {
    let bench = Bench::new(&["a", "b"], &[]);
    let log = bench.path("nat.jsonl");
    let file = bench.path("switch.toml");
    fs::write(&file, CONFIG.replace("NATLOG", log.to_str().unwrap())).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    // Out and back, with the checksums of a sender that has these addresses.
    a.send(&[datagram(TO_A, (HOST, 4000), (REMOTE, 53), 64)]);
    let sent = b.receive(1).remove(0);
    let port = source_port(&sent);
    assert_eq!(sent, datagram(FROM_B, (OWN, port), (REMOTE, 53), 63));
    b.send(&[datagram(TO_B, (REMOTE, 53), (OWN, port), 64)]);
    assert_eq!(
        a.receive(1),
        [datagram(FROM_A, (REMOTE, 53), (HOST, 4000), 63)]
    );
    // Another host has a port of its own.
    a.send(&[datagram(TO_A, (NEIGHBOUR, 4000), (REMOTE, 53), 64)]);
    let second = source_port(&b.receive(1)[0]);
    assert_ne!(second, port);
    // A published port, from outside and from inside.
    b.send(&[datagram(TO_B, (REMOTE, 9), (OWN, 53), 64)]);
    assert_eq!(
        a.receive(1),
        [datagram(FROM_A, (REMOTE, 9), (HOST, 5353), 63)]
    );
    a.send(&[datagram(TO_A, (HOST, 5353), (REMOTE, 9), 64)]);
    assert_eq!(b.receive(1), [datagram(FROM_B, (OWN, 53), (REMOTE, 9), 63)]);
    a.send(&[datagram(TO_A, (NEIGHBOUR, 4000), (OWN, 53), 64)]);
    assert_eq!(
        a.receive(1),
        [datagram(FROM_A, (OWN, second), (HOST, 5353), 63)]
    );
    // An error of the router itself about a packet between inside hosts returns to its sender, about the packet as it was.
    let expiring = datagram(TO_A, (NEIGHBOUR, 4000), (OWN, 53), 1);
    a.send(std::slice::from_ref(&expiring));
    let error = a.receive(1).remove(0);
    assert_eq!((error[20], error[54]), (58, 3));
    assert_eq!(error[22..38], OWN.parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!(error[62..][8..48], expiring[14..][8..48]);
    // An error of the router itself about a translated packet shows the outside the packet as it was.
    let expiring = datagram(TO_B, (REMOTE, 53), (OWN, port), 1);
    b.send(std::slice::from_ref(&expiring));
    let error = b.receive(1).remove(0);
    assert_eq!((error[20], error[54]), (58, 3));
    // Behind the hop limit: addresses, ports, length and checksum.
    assert_eq!(error[62..][8..48], expiring[14..][8..48]);
    let mappings = bench.show::<MappingsReport>("mappings").mappings;
    let ends = |port: u16| {
        let mut all = mappings.iter().map(|one| (one.inside, one.outside));
        let outside = SocketAddr::new(OWN.parse().unwrap(), port);
        all.find(|ends| ends.1 == outside).map(|ends| ends.0)
    };
    let inside = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
    assert_eq!(ends(port), inside("[fd00:1::5]:4000"));
    assert_eq!(ends(53), inside("[fd00:1::5]:5353"));
    assert_eq!(mappings.len(), 3);
    // The tracker has one connection for both directions, and its translation.
    let connections: ConnectionsReport = bench.show("connections");
    let dns = connections
        .connections
        .iter()
        .find(|one| (one.source.to_string().as_str(), one.destination_port) == (HOST, 53));
    let dns = dns.unwrap();
    assert_eq!(dns.state, "udp_replied");
    let outside = dns.external_source.unwrap().to_string();
    assert_eq!(outside, format!("[{OWN}]:{port}"));
    let nats: Vec<NatReport> = bench.show("nat");
    let counts = (nats[0].mappings, nats[0].published, nats[0].hosts);
    assert_eq!(counts, (2, 1, 2));
    assert_eq!(nats[0].addresses[0].to_string(), OWN);
    until("the log has both hosts", || {
        let text = fs::read_to_string(bench.path("nat.jsonl")).unwrap();
        let has = |host: &str| {
            let line = format!("\"host\":\"{host}\",\"address\":\"{OWN}\"");
            text.contains(&line)
        };
        (has(HOST) && has(NEIGHBOUR)).then_some(())
    });
    assert!(bench.show::<String>("config").contains("[fd00:1::5]:5353"));
}

#[test]
fn an_added_ipv6_address_has_ports_and_established_mappings_stay() {
    const ADDED: &str = "2001:db8:e::1";
    let bench = Bench::new(&["a", "b"], &[]);
    let own = format!("addresses = [\"{OWN}\"]\n");
    let small = format!("{own}ports = \"2000-2007\"\nblock-size = 8\n");
    let config = CONFIG.replace("nat-log = \"NATLOG\"\n", "");
    let file = bench.path("switch.toml");
    fs::write(&file, config.replace(&own, &small)).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let from = |host| datagram(TO_A, (host, 4000), (REMOTE, 53), 64);
    a.send(&[from(HOST)]);
    let first = b.receive(1);
    // The second host gets an ICMPv6 error: no port is left.
    a.send(&[from(NEIGHBOUR)]);
    let error = a.receive(1).remove(0);
    assert_eq!((error[20], error[54]), (58, 1));
    change(&bench, &["add", "nat-address", "ipv6", ADDED]);
    a.send(&[from(NEIGHBOUR)]);
    let second = b.receive(1).remove(0);
    let port = source_port(&second);
    assert_eq!(second, datagram(FROM_B, (ADDED, port), (REMOTE, 53), 63));
    // The mapping from before.
    a.send(&[from(HOST)]);
    assert_eq!(b.receive(1), first);
    for (host, outside, port) in [
        (NEIGHBOUR, ADDED, port),
        (HOST, OWN, source_port(&first[0])),
    ] {
        b.send(&[datagram(TO_B, (REMOTE, 53), (outside, port), 64)]);
        let expected = datagram(FROM_A, (REMOTE, 53), (host, 4000), 63);
        assert_eq!(a.receive(1), [expected]);
    }
    let nats: Vec<NatReport> = bench.show("nat");
    assert_eq!((nats[0].addresses.len(), nats[0].mappings), (2, 2));
}

/// Inside hosts, so many that both threads have some.
fn hosts() -> Vec<String> {
    (0x10..0x1c)
        .map(|host| format!("fd00:1::{host:x}"))
        .collect()
}

/// Returns the configuration of two threads, without a log of port blocks. `of_tracking` are further lines behind its section.
fn config_of_two(of_tracking: &str) -> String {
    let own = format!("addresses = [\"{OWN}\"]\n");
    let with_sources = format!("{own}sources = [\"fd00:1::/64\"]\n");
    let tracking = format!("[connections]\n{of_tracking}\n");
    let mut config = CONFIG
        .replace("nat-log = \"NATLOG\"\n", "")
        .replace("[connections]\n", &tracking)
        .replace(&own, &with_sources);
    for host in hosts() {
        config += &format!(
            "\n[[neighbour]]\ninterface = \"inside\"\naddress = \"{host}\"\nmac = \"02:00:00:00:00:01\"\n"
        );
    }
    config
}

fn start_two() -> (Bench, Peer, Peer) {
    let bench = Bench::new(&["a", "b"], &TWO_THREADS);
    let file = bench.path("switch.toml");
    fs::write(&file, config_of_two("")).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let peers = (bench.peer("a"), bench.peer("b"));
    (bench, peers.0, peers.1)
}

/// Sends a frame into one port and returns the frame that leaves by the other.
fn pass(from: &mut Peer, to: &mut Peer, frame: Vec<u8>) -> Vec<u8> {
    from.send(&[frame]);
    to.receive(1).remove(0)
}

/// Sends a datagram of each host to the remote one. Returns their external ports.
fn open_all(a: &mut Peer, b: &mut Peer) -> Vec<u16> {
    let mut ports = Vec::new();
    for host in hosts() {
        let sent = datagram(TO_A, (host.as_str(), 4000), (REMOTE, 53), 64);
        let sent = pass(a, b, sent);
        let port = source_port(&sent);
        assert_eq!(sent, datagram(FROM_B, (OWN, port), (REMOTE, 53), 63));
        ports.push(port);
    }
    let distinct: BTreeSet<&u16> = ports.iter().collect();
    assert_eq!(distinct.len(), ports.len());
    ports
}

/// Checks that answers reach the hosts, and that these have the same external ports as before. Answers come first, so the mappings are there
/// before packets of the hosts.
fn continue_all(a: &mut Peer, b: &mut Peer, ports: &[u16]) {
    for (host, port) in hosts().iter().map(String::as_str).zip(ports) {
        let answer = datagram(TO_B, (REMOTE, 53), (OWN, *port), 64);
        let expected = datagram(FROM_A, (REMOTE, 53), (host, 4000), 63);
        assert_eq!(pass(b, a, answer), expected);
    }
    assert_eq!(open_all(a, b), ports);
}

/// Returns a datagram in two fragments.
fn fragments(frame: &[u8], identification: u32) -> [Vec<u8>; 2] {
    let (head, payload) = frame.split_at(54);
    let fragment = |part: &[u8], field: u16| {
        let mut fragment = head.to_vec();
        let length = part.len() as u16 + 8;
        fragment[18..20].copy_from_slice(&length.to_be_bytes());
        fragment[20] = 44;
        fragment.extend([17, 0]);
        fragment.extend(field.to_be_bytes());
        fragment.extend(identification.to_be_bytes());
        fragment.extend(part);
        fragment
    };
    [fragment(&payload[..16], 1), fragment(&payload[16..], 16)]
}

#[test]
fn two_threads_share_mappings_of_ipv6() {
    // One thread receives from inside, the other from outside. Each owns some of the hosts.
    let (bench, mut a, mut b) = start_two();
    let ports = open_all(&mut a, &mut b);
    let hosts = hosts();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    continue_all(&mut a, &mut b, &ports);
    let nats: Vec<NatReport> = bench.show("nat");
    let counts = (nats[0].mappings, nats[0].published, nats[0].hosts);
    assert_eq!(counts, (12, 1, 12));
    for ((host, port), number) in hosts.iter().copied().zip(&ports).zip(0u32..) {
        // Fragments in order, and those of another datagram, the last one first.
        let answer = datagram(TO_B, (REMOTE, 53), (OWN, *port), 64);
        let expected = datagram(FROM_A, (REMOTE, 53), (host, 4000), 63);
        for (identification, is_reversed) in [(2 * number, false), (2 * number + 1, true)] {
            let mut parts = fragments(&answer, identification);
            if is_reversed {
                parts.reverse();
            }
            b.send(&parts);
            assert_eq!(a.receive(2), fragments(&expected, identification));
        }
    }
    // An error of the router itself shows the outside the packet as it was.
    let expiring = datagram(TO_B, (REMOTE, 53), (OWN, ports[0]), 1);
    let error = pass_back(&mut b, &expiring);
    assert_eq!((error[20], error[54]), (58, 3));
    assert_eq!(error[62..][8..48], expiring[14..][8..48]);
    // A published port, and hosts that reach one another by external ports.
    let published = datagram(TO_B, (REMOTE, 9), (OWN, 53), 64);
    let expected = datagram(FROM_A, (REMOTE, 9), (HOST, 5353), 63);
    assert_eq!(pass(&mut b, &mut a, published), expected);
    let answer = datagram(TO_A, (HOST, 5353), (REMOTE, 9), 64);
    let expected = datagram(FROM_B, (OWN, 53), (REMOTE, 9), 63);
    assert_eq!(pass(&mut a, &mut b, answer), expected);
    for (pair, port) in hosts.windows(2).zip(&ports[1..]) {
        let (host, other) = (pair[0], pair[1]);
        let sent = datagram(TO_A, (host, 4000), (OWN, *port), 64);
        let received = pass_back(&mut a, &sent);
        let external = source_port(&received);
        let expected = datagram(FROM_A, (OWN, external), (other, 4000), 63);
        assert_eq!(received, expected);
        let answer = datagram(TO_A, (other, 4000), (OWN, external), 64);
        let expected = datagram(FROM_A, (OWN, *port), (host, 4000), 63);
        assert_eq!(pass_back(&mut a, &answer), expected);
    }
}

/// Sends a frame into a port and returns the frame that leaves by it.
fn pass_back(peer: &mut Peer, frame: &[u8]) -> Vec<u8> {
    peer.send(&[frame.to_vec()]);
    peer.receive(1).remove(0)
}

/// Opens mappings of some hosts. Returns their external ports.
pub(crate) type OpenAll = fn(&mut Peer, &mut Peer) -> Vec<u16>;
/// Checks that hosts have the same external ports as before.
pub(crate) type ContinueAll = fn(&mut Peer, &mut Peer, &[u16]);

/// Checks that mappings go on after a restart with their file.
pub(crate) fn restart_with_file(
    (mut bench, mut a, mut b): (Bench, Peer, Peer),
    (open_all, continue_all): (OpenAll, ContinueAll),
) {
    let ports = open_all(&mut a, &mut b);
    let count = ports.len();
    let saved = bench.path("mappings");
    let save = ["mappings", "save", saved.to_str().unwrap()];
    assert_eq!(
        output(&mut command(&bench, &save)).trim(),
        count.to_string()
    );
    drop((a, b));
    assert_eq!(bench.end("TERM"), Some(0));
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let restore = ["mappings", "restore", saved.to_str().unwrap()];
    let printed = output(&mut command(&bench, &restore));
    let restored = format!("restored: {count}\n");
    assert!(printed.starts_with(&restored), "{printed}");
    continue_all(&mut a, &mut b, &ports);
    let printed = output(&mut command(&bench, &restore));
    let known = format!("already there: {count}\n");
    assert!(printed.contains(&known), "{printed}");
}

#[test]
fn mappings_of_ipv6_go_on_after_a_restart_with_their_file() {
    restart_with_file(start_two(), (open_all, continue_all));
}

/// Checks that mappings go on when a standby takes over. `config` returns the configuration with these keys of replication.
pub(crate) fn take_over(
    config: impl Fn(&str) -> String,
    (open_all, continue_all): (OpenAll, ContinueAll),
) {
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let start = |role: &str| {
        let file = directory.path().join("switch.toml");
        fs::write(&file, config(role)).unwrap();
        let of_file = ["--config", file.to_str().unwrap()];
        Bench::quiet(&["a", "b"], &[&TWO_THREADS[..], &of_file].concat())
    };
    let mut active = start(&format!("role = \"active\"\nlisten = \"{address}\""));
    let mut standby = start(&format!("role = \"standby\"\npeer = \"{address}\""));
    active.take();
    let (mut a, mut b) = (active.peer("a"), active.peer("b"));
    let ports = open_all(&mut a, &mut b);
    until("the standby has all mappings", || {
        let nats: Vec<NatReport> = standby.show("nat");
        (nats[0].mappings == ports.len() as u64).then_some(())
    });
    drop((a, b));
    active.release();
    assert_eq!(active.end("KILL"), None);
    let printed = output(&mut command(&standby, &["connections", "take-over"]));
    assert!(printed.starts_with("role: active\n"), "{printed}");
    standby.take();
    let (mut a, mut b) = (standby.peer("a"), standby.peer("b"));
    continue_all(&mut a, &mut b, &ports);
    drop((a, b));
    standby.release();
}

#[test]
fn a_standby_continues_mappings_of_ipv6() {
    let config = |role: &str| config_of_two(&format!("\n[connections.replication]\n{role}\n"));
    take_over(config, (open_all, continue_all));
}
