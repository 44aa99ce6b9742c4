// SPDX-License-Identifier: Apache-2.0
//! Prefix translation of IPv6 as observed on the wire: every frame that leaves is compared with one that is built from the translated
//! addresses.

use std::fs;

use quietwire_switch::report::{
    ConnectionsReport, PortDrop, PortReport, RouterCounts, StatsReport,
};

use crate::bench::{Bench, until};
use crate::changes::TWO_THREADS;
use crate::nat66::datagram;
use crate::router::{HOST_A, HOST_B, ROUTER_A, ROUTER_B, udp};

/// An inside host and its external address (RFC 6296, section 3.6), its neighbour, and a remote host.
const HOST: &str = "fd01:203:405:1::1234";
const EXTERNAL: &str = "2001:db8:1:d550::1234";
const NEIGHBOUR: &str = "fd01:203:405:1::5";
const EXTERNAL_NEIGHBOUR: &str = "2001:db8:1:d550::5";
const REMOTE: &str = "2001:db8:f::9";

const CONFIG: &str = r#"
[[interface]]
name = "inside"
port = "a"
mac = "02:00:00:00:00:0a"
addresses = ["fd01:203:405:1::1/64"]

[[interface]]
name = "outside"
port = "b"
mac = "02:00:00:00:00:0b"
addresses = ["2001:db8:f::1/64"]
prefix-translation = { inside = "fd01:203:405::/48", outside = "2001:db8:1::/48" }

[[neighbour]]
interface = "inside"
address = "fd01:203:405:1::1234"
mac = "02:00:00:00:00:01"

[[neighbour]]
interface = "inside"
address = "fd01:203:405:1::5"
mac = "02:00:00:00:00:01"

[[neighbour]]
interface = "outside"
address = "2001:db8:f::9"
mac = "02:00:00:00:00:02"
"#;

#[test]
fn prefixes_are_translated_both_ways_and_between_inside_hosts() {
    let bench = Bench::new(&["a", "b"], &[]);
    let file = bench.path("switch.toml");
    fs::write(&file, CONFIG).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let (to_a, from_a) = ((HOST_A, ROUTER_A), (ROUTER_A, HOST_A));
    let (to_b, from_b) = ((HOST_B, ROUTER_B), (ROUTER_B, HOST_B));
    a.send(&[udp(to_a, HOST, REMOTE, 64, 40)]);
    assert_eq!(b.receive(1), [udp(from_b, EXTERNAL, REMOTE, 63, 40)]);
    b.send(&[udp(to_b, REMOTE, EXTERNAL, 64, 40)]);
    assert_eq!(a.receive(1), [udp(from_a, REMOTE, HOST, 63, 40)]);
    a.send(&[udp(to_a, NEIGHBOUR, EXTERNAL, 64, 40)]);
    assert_eq!(
        a.receive(1),
        [udp(from_a, EXTERNAL_NEIGHBOUR, HOST, 63, 40)]
    );
    // A subnet without translation, and sources that are not of the prefix.
    a.send(&[udp(to_a, "fd01:203:405:ffff::1", REMOTE, 64, 40)]);
    until("the packet is dropped", || {
        let stats: StatsReport = bench.show("stats");
        let counts: RouterCounts = stats.router;
        (counts.dropped["prefix-address"] == 1).then_some(())
    });
    a.send(&[udp(to_a, "fd02::1", REMOTE, 64, 40)]);
    assert_eq!(b.receive(1), [udp(from_b, "fd02::1", REMOTE, 63, 40)]);
    assert!(bench.show::<String>("config").contains("2001:db8:1::/48"));
}

/// Rules that accept answers of the outside only.
const RULES: &str = r#"
[[rule]]
name = "answers"
action = "accept"
ct-state = "established,related"

[[rule]]
name = "out"
action = "accept"
port = "a"
ct-state = "new"
"#;

/// Starts a switch that tracks connections, with these inside hosts.
fn start_tracked(threads: &[&str], hosts: &[String]) -> Bench {
    let mut config = format!("rule-default = \"drop\"\n[connections]\n{CONFIG}{RULES}");
    for host in hosts {
        config += &format!(
            "\n[[neighbour]]\ninterface = \"inside\"\naddress = \"fd01:203:405:1::{host}\"\nmac = \"02:00:00:00:00:01\"\n"
        );
    }
    let bench = Bench::new(&["a", "b"], threads);
    let file = bench.path("switch.toml");
    fs::write(&file, config).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    bench
}

#[test]
fn answers_to_an_external_prefix_pass_and_other_packets_from_outside_do_not() {
    // Enough hosts for both threads.
    let hosts: Vec<String> = (0x10..0x1c).map(|host| format!("{host:x}")).collect();
    for threads in [&[][..], &TWO_THREADS[..]] {
        let bench = start_tracked(threads, &hosts);
        let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
        let (to_a, from_a) = ((HOST_A, ROUTER_A), (ROUTER_A, HOST_A));
        let (to_b, from_b) = ((HOST_B, ROUTER_B), (ROUTER_B, HOST_B));
        for host in &hosts {
            let inside = format!("fd01:203:405:1::{host}");
            let outside = format!("2001:db8:1:d550::{host}");
            let (inside, outside) = ((inside.as_str(), 4000), (outside.as_str(), 4000));
            // Of no connection.
            b.send(&[datagram(to_b, (REMOTE, 53), outside, 64)]);
            a.send(&[datagram(to_a, inside, (REMOTE, 54), 64)]);
            let left = datagram(from_b, outside, (REMOTE, 54), 63);
            assert_eq!(b.receive(1), [left]);
            b.send(&[datagram(to_b, (REMOTE, 54), outside, 64)]);
            let answer = datagram(from_a, (REMOTE, 54), inside, 63);
            assert_eq!(a.receive(1), [answer]);
        }
        // Between inside hosts, by external addresses.
        let (own, external) = ((HOST, 7000), (EXTERNAL, 7000));
        let (other, external_other) = ((NEIGHBOUR, 4000), (EXTERNAL_NEIGHBOUR, 4000));
        a.send(&[datagram(to_a, other, external, 64)]);
        assert_eq!(a.receive(1), [datagram(from_a, external_other, own, 63)]);
        a.send(&[datagram(to_a, own, external_other, 64)]);
        assert_eq!(a.receive(1), [datagram(from_a, external, other, 63)]);
        until("packets of no connection are dropped", || {
            let ports: Vec<PortReport> = bench.show("ports");
            (ports[1].counts.drops[PortDrop::Denied] == hosts.len() as u64).then_some(())
        });
        let report: ConnectionsReport = bench.show("connections");
        assert_eq!(report.total, hosts.len() as u64 + 1);
        for one in &report.connections {
            assert_eq!((one.state.as_str(), one.packets), ("udp_replied", [1, 1]));
            assert!(one.source.to_string().starts_with("fd01:203:405:1::"));
        }
    }
}
