// SPDX-License-Identifier: Apache-2.0
//! States of packets compared with those of the kernel's connection tracking: the same exchanges pass the switch, and a network namespace
//! that routes them. `conntrack.py` makes the exchanges, and names the packets whose states differ as docs/connections.md does. Requires
//! root, nft, and a kernel with nf_conntrack and nft_ct.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;

use crate::bench::{Bench, until};
use crate::rig::{Namespace, run};
use crate::rules::{lines_of, octets_of};

const STATES: [&str; 5] = ["new", "established", "related", "invalid", "untracked"];
const GUIDE: &str = include_str!("../../docs/connections.md");
const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/switch_memif/conntrack.py"
);

/// A router between the hosts of `conntrack.py`, which the devices `client` and `server` reach. The kernel's settings are its defaults.
const ROUTER: &str = "
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
sysctl -qw net.netfilter.nf_conntrack_tcp_loose=1 net.netfilter.nf_conntrack_checksum=1
ip link add left address 02:00:00:00:00:02 type veth peer name client
ip link add right address 02:00:00:00:00:01 type veth peer name server
sysctl -qw net.ipv6.conf.client.disable_ipv6=1 net.ipv6.conf.server.disable_ipv6=1
for device in left right client server; do ip link set $device up; done
ip address add 10.0.0.254/24 dev left
ip address add 192.0.2.254/24 dev right
ip address add 2001:db8:1::fe/64 dev left nodad
ip address add 2001:db8:2::fe/64 dev right nodad
ip neighbour add 10.0.0.1 lladdr 02:00:00:00:00:01 dev left nud permanent
ip neighbour add 192.0.2.1 lladdr 02:00:00:00:00:02 dev right nud permanent
ip neighbour add 2001:db8:1::1 lladdr 02:00:00:00:00:01 dev left nud permanent
ip neighbour add 2001:db8:2::1 lladdr 02:00:00:00:00:02 dev right nud permanent
";

/// A packet of an exchange.
#[derive(Debug, Deserialize)]
struct Step {
    name: String,
    /// 0: from the client, 1: from the server.
    side: usize,
    frame: String,
    /// Expected state in the switch.
    ours: String,
    /// Expected state in the kernel.
    kernel: String,
    /// Packet in the table of the guide, if the states differ.
    row: Option<String>,
}

/// Runs a command with this input. Returns its output.
fn output_of(command: &mut Command, input: &str) -> String {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let written = child.stdin.take().unwrap().write_all(input.as_bytes());
    let ended = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success(),
        "{command:?}: {errors}(without nft, nf_conntrack or nft_ct, leave this test out by --skip kernel_states)"
    );
    written.unwrap();
    String::from_utf8(ended.stdout).unwrap()
}

/// Returns a ruleset that adds the source MAC address of each packet to the set of its state.
fn ruleset() -> String {
    let sets: String = STATES
        .map(|state| format!("set {state} {{ type ether_addr; flags dynamic; size 65535; }}\n"))
        .concat();
    let rules: String = STATES
        .map(|state| format!("ct state {state} add @{state} {{ ether saddr }}\n"))
        .concat();
    format!(
        "table inet t {{\n{sets}chain c {{\ntype filter hook prerouting priority 0; policy accept;\n\
         iifname != {{ \"left\", \"right\" }} accept\n{rules}}}\n}}\n"
    )
}

/// Returns the numbers of the packets in the sets, with their states.
fn listed(ruleset: &str) -> BTreeMap<usize, &'static str> {
    let json: Value = serde_json::from_str(ruleset).unwrap();
    let mut states = BTreeMap::new();
    let objects = json["nftables"].as_array().unwrap().iter();
    for set in objects.filter_map(|object| object.get("set")) {
        let state = STATES.into_iter().find(|state| set["name"] == *state);
        for element in set["elem"].as_array().into_iter().flatten() {
            let plain = element["elem"]["val"].as_str();
            let mac = plain.or(element.as_str()).unwrap();
            let octets = octets_of(&mac.replace(':', ""));
            let number = usize::from(u16::from_be_bytes([octets[4], octets[5]]));
            let former = states.insert(number, state.unwrap());
            assert_eq!(former, None, "packet {number} has two states");
        }
    }
    states
}

/// Returns the state of each packet in the kernel.
fn states_of_kernel(steps: &[Step]) -> Vec<&'static str> {
    let namespace = Namespace::new("ct");
    output_of(namespace.command("nft").args(["-f", "-"]), &ruleset());
    run(namespace.command("sh").args(["-ec", ROUTER]));
    let mut lines = String::new();
    for (number, step) in steps.iter().enumerate() {
        let (destination, rest) = step.frame.split_at(12);
        let (side, rest) = (step.side, &rest[12..]);
        lines += &format!("{side} {destination}02000000{number:04x}{rest}\n");
    }
    let mut send = namespace.command("python3");
    output_of(send.args([SCRIPT, "client", "server"]), &lines);
    let states = until("the kernel has a state for each packet", || {
        let ruleset = run(namespace.command("nft").args(["-j", "list", "ruleset"]));
        let states = listed(&ruleset);
        (states.len() == steps.len()).then_some(states)
    });
    states.into_values().collect()
}

/// Returns a configuration that accepts all packets, and marks each state by a DSCP.
fn config() -> String {
    let mut text = "[connections]\nmax-entries = 4096\n".to_owned();
    for (number, state) in STATES.iter().enumerate() {
        let class = number + 1;
        text += &format!(
            "[[rule]]\nname = \"{state}\"\naction = \"accept\"\nct-state = \"{state}\"\nset-dscp = \"cs{class}\"\n"
        );
    }
    text
}

/// Returns the state that the switch has marked.
fn marked(frame: &[u8]) -> &'static str {
    let traffic_class = match frame[14] >> 4 {
        4 => frame[15],
        _ => (frame[14] << 4) | (frame[15] >> 4),
    };
    let state = usize::from(traffic_class >> 5).checked_sub(1);
    state.map_or("unmarked", |state| STATES[state])
}

/// Returns the state of each packet in the switch.
fn states_of_switch(steps: &[Step]) -> Vec<&'static str> {
    let bench = Bench::new(&["client", "server"], &["--cross-connect", "client,server"]);
    let file = bench.path("switch.toml");
    fs::write(&file, config()).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let mut peers = ["client", "server"].map(|port| bench.peer(port));
    let state = |step: &Step| {
        // Shown if the packet does not arrive.
        println!("{}", step.name);
        peers[step.side].send(&[octets_of(&step.frame)]);
        let arrived = peers[1 - step.side].receive(1);
        assert_eq!(arrived.len(), 1, "{}", step.name);
        marked(&arrived[0])
    };
    steps.iter().map(state).collect()
}

#[test]
fn states_are_those_of_the_kernel_except_for_differences_in_the_guide() {
    let steps: Vec<Step> = lines_of("conntrack.py");
    let (kernel, switch) = (states_of_kernel(&steps), states_of_switch(&steps));
    let mut wrong = Vec::new();
    for ((step, switch), kernel) in steps.iter().zip(switch).zip(kernel) {
        if switch != step.ours || kernel != step.kernel {
            wrong.push(format!(
                "{}: {switch} in the switch (expected: {}), {kernel} in the kernel (expected: {})",
                step.name, step.ours, step.kernel
            ));
        }
        if let Some(row) = &step.row {
            let row = format!("| {row} | `{}` | `{}` |", step.ours, step.kernel);
            assert!(GUIDE.contains(&row), "the guide has no row {row}");
        } else {
            assert_eq!(step.ours, step.kernel, "{}", step.name);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for state in STATES {
        let is_in_both = |step: &Step| step.ours == state && step.kernel == state;
        assert!(steps.iter().any(is_in_both), "no packet is {state} in both");
    }
}
