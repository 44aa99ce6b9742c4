// SPDX-License-Identifier: Apache-2.0
//! Requirements of the RFCs on NAT64 and on prefix translation, one by one: `ipv6_nat_requirements.py` makes, with scapy, the frames to send
//! and all expected ones, and reports sections that the code names without a case.

use crate::requirements::{Neighbour, document_of, play_all, start_with};

/// A NAT with one port for each parity, so that all external ports are known.
const NAT64: &str = r#"
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
ports = "4000-4001"
block-size = 2
blocks-per-host = 1
nat64 = { prefix = "2001:db8:64::/96", clients = ["2001:db8:1::/48"] }
"#;

const NAT64_NEIGHBOURS: [Neighbour; 3] = [
    ("inside", "2001:db8:1::5", "02:00:00:00:00:01"),
    ("outside", "198.51.100.9", "02:00:00:00:00:02"),
    ("outside", "198.51.100.10", "02:00:00:00:00:02"),
];

/// A pair of prefixes of the same length, and a pair of others.
const PREFIXES: &str = r#"
[[interface]]
name = "inside"
port = "a"
mac = "02:00:00:00:00:0a"
addresses = ["fd01:203:405:1::1/64", "fd02:0:0:1::1/64"]

[[interface]]
name = "outside"
port = "b"
mac = "02:00:00:00:00:0b"
addresses = ["2001:db8:f::1/64"]
prefix-translation = { inside = "fd01:203:405::/48", outside = "2001:db8:1::/48" }

[[interface]]
name = "outside60"
port = "b"
vlan = 60
mac = "02:00:00:00:00:6b"
addresses = ["2001:db8:60::1/64"]
prefix-translation = { inside = "fd02:0:0:1::/64", outside = "2001:db8:61::/56" }
"#;

const PREFIXES_NEIGHBOURS: [Neighbour; 5] = [
    ("inside", "fd01:203:405:1::1234", "02:00:00:00:00:01"),
    ("inside", "fd01:203:405:1::5", "02:00:00:00:00:01"),
    ("inside", "fd02:0:0:1:ffff::5", "02:00:00:00:00:01"),
    ("outside", "2001:db8:f::9", "02:00:00:00:00:02"),
    ("outside60", "2001:db8:60::9", "02:00:00:00:00:02"),
];

#[test]
fn nat64_does_what_the_rfcs_ask() {
    let document = document_of("ipv6_nat_requirements.py", &["nat64"]);
    play_all(&start_with(NAT64, &NAT64_NEIGHBOURS), document);
}

#[test]
fn prefix_translation_does_what_the_rfc_asks() {
    let document = document_of("ipv6_nat_requirements.py", &["prefixes"]);
    play_all(&start_with(PREFIXES, &PREFIXES_NEIGHBOURS), document);
}
