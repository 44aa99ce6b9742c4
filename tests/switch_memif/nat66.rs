// SPDX-License-Identifier: Apache-2.0
//! NAT of IPv6 as observed on the wire: every frame that leaves is compared with one that is built from the translated addresses.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr};

use etherparse::PacketBuilder;
use quietwire_switch::report::{ConnectionsReport, MappingsReport, NatReport};

use crate::bench::{Bench, until};
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

fn datagram(macs: Macs, from: (&str, u16), to: (&str, u16), ttl: u8) -> Vec<u8> {
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
