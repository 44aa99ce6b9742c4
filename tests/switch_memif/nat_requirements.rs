// SPDX-License-Identifier: Apache-2.0
//! Requirements of the RFCs on NAT, one by one: `nat_requirements.py` makes, with scapy, the frames to send and all expected ones, and
//! reports requirements that the code names without a case.

use crate::bench::{Bench, command, output, refused};
use crate::requirements::{Neighbour, document_of, play_all, start_with};

/// A NAT with one port for each parity, so that all external ports are known.
const CONFIG: &str = r#"
[[interface]]
name = "inside"
port = "a"
mac = "02:00:00:00:00:0a"
addresses = ["10.0.0.1/24"]

[[interface]]
name = "outside"
port = "b"
mac = "02:00:00:00:00:0b"
mtu = 1400
addresses = ["198.51.100.1/24"]

[[nat]]
name = "internet"
interface = "outside"
excluded-destinations = ["198.51.100.11/32"]
ports = "4000-4001"
block-size = 2
blocks-per-host = 1

[[nat.publish]]
protocol = "udp"
port = 53
to = "10.0.0.6:5300"

[[nat.publish]]
protocol = "tcp"
port = 443
to = "10.0.0.6:8443"
"#;

const NEIGHBOURS: [Neighbour; 5] = [
    ("inside", "10.0.0.5", "02:00:00:00:00:01"),
    ("inside", "10.0.0.6", "02:00:00:00:00:01"),
    ("outside", "198.51.100.9", "02:00:00:00:00:02"),
    ("outside", "198.51.100.10", "02:00:00:00:00:02"),
    ("outside", "198.51.100.11", "02:00:00:00:00:02"),
];

/// Starts a switch with the NAT, and with this line in its section.
fn start(line: &str) -> Bench {
    start_nat(CONFIG, line)
}

/// The same with this configuration.
fn start_nat(config: &str, line: &str) -> Bench {
    let limit = "blocks-per-host = 1\n";
    let config = config.replace(limit, &format!("{limit}{line}\n"));
    start_with(&config, &NEIGHBOURS)
}

#[test]
fn nat_does_what_the_rfcs_ask() {
    let document = document_of("nat_requirements.py", &[]);
    play_all(&start(""), document);
}

#[test]
fn nat_depends_on_remote_addresses_or_endpoints_as_the_rfc_says() {
    for behaviour in ["address-dependent", "address-and-port-dependent"] {
        let document = document_of("nat_requirements.py", &[behaviour]);
        play_all(&start(&format!("mapping = \"{behaviour}\"")), document);
    }
}

/// RFC 4787, REQ-3a.
#[test]
fn external_ports_are_of_the_ranges_of_inside_ports() {
    let document = document_of("nat_requirements.py", &["ranges"]);
    let both = CONFIG
        .replace("4000-4001", "1022-1025")
        .replace("blocks-per-host = 1", "blocks-per-host = 2");
    play_all(&start_nat(&both, ""), document);
}

/// RFC 7422. The command needs no switch.
#[test]
fn ports_are_computed_from_inside_addresses() {
    let document = document_of("nat_requirements.py", &["deterministic"]);
    let two = CONFIG.replace("4000-4001", "4000-4003");
    let keys = "block-allocation = \"deterministic\"\nsources = [\"10.0.0.5/32\", \"10.0.0.6/32\"]";
    let bench = start_nat(&two, keys);
    play_all(&bench, document);
    let file = bench.path("switch.toml").display().to_string();
    for (query, offline) in [("198.51.100.1:4003", true), ("10.0.0.6", false)] {
        let mut arguments = vec!["mappings", "block", query, "--json"];
        if offline {
            arguments.extend(["--config", file.as_str()]);
        }
        let printed = output(&mut command(&bench, &arguments));
        let blocks: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let expected = serde_json::json!([{
            "nat": "internet", "host": "10.0.0.6", "address": "198.51.100.1", "first_port": 4002, "last_port": 4003
        }]);
        assert_eq!(blocks, expected);
    }
    let absent = refused(&bench, &["mappings", "block", "198.51.100.1:4004"]);
    assert!(absent.contains("is in no computed port block"), "{absent}");
}
