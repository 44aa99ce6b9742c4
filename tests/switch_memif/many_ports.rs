// SPDX-License-Identifier: Apache-2.0
//! A switch with as many ports as it can have.

use std::fs;

use quietwire_switch::PORTS_MAX;
use quietwire_switch::report::{PortDrop, PortReport};

use crate::bench::{Bench, Peer, change, frame, refused};
use crate::vlans::tagged;

const BROADCAST: [u8; 6] = [0xff; 6];

fn mac(last: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, last as u8]
}

/// Sends a broadcast of a peer. It is the next frame of these others.
fn broadcast(peers: &mut [Peer], from: usize, number: u8, receivers: &[usize]) {
    let call = frame(BROADCAST, mac(from), number);
    peers[from].send(std::slice::from_ref(&call));
    for receiver in receivers {
        let received = peers[*receiver].receive(1);
        assert_eq!(
            received,
            std::slice::from_ref(&call),
            "{number} at {receiver}"
        );
    }
}

#[test]
fn a_bridge_forwards_between_as_many_ports_as_a_switch_can_have() {
    let names: Vec<String> = (1..PORTS_MAX).map(|number| format!("p{number}")).collect();
    let ports: Vec<&str> = names.iter().map(String::as_str).collect();
    let bridge = format!("lan={}", names.join(","));
    let mut arguments = vec!["--bridge", &bridge, "--memory-mib", "256"];
    arguments.extend(["--rx-ring-size", "64", "--tx-ring-size", "64"]);
    let bench = Bench::start(&ports, &arguments);
    let peers = ["p1", "p41", "p201", "p255"].map(|name| bench.peer(name));
    let mut peers = Vec::from(peers);
    broadcast(&mut peers, 0, 1, &[1, 2, 3]);
    broadcast(&mut peers, 1, 2, &[0, 2, 3]);
    broadcast(&mut peers, 2, 3, &[0, 1, 3]);
    broadcast(&mut peers, 3, 4, &[0, 1, 2]);
    let answer = frame(mac(0), mac(3), 5);
    peers[3].send(std::slice::from_ref(&answer));
    assert_eq!(peers[0].receive(1), [answer]);
    // Frames of one burst to one port each, and to all.
    let [first, second, third] = [1, 2, 3].map(|to| frame(mac(to), mac(0), 6));
    let all = frame(BROADCAST, mac(0), 7);
    peers[0].send(&[first.clone(), second.clone(), all.clone(), third.clone()]);
    assert_eq!(peers[1].receive(2), [first, all.clone()]);
    assert_eq!(peers[2].receive(2), [second, all.clone()]);
    assert_eq!(peers[3].receive(2), [all, third]);
    // Frames of one burst to one port each only.
    let both = [1, 3].map(|to| frame(mac(to), mac(0), 8));
    peers[0].send(&both);
    assert_eq!(peers[1].receive(1), [both[0].clone()]);
    assert_eq!(peers[3].receive(1), [both[1].clone()]);

    // Rules of ports with high numbers.
    change(
        &bench,
        &["add", "rule", "in", "--action", "drop", "--port", "p41"],
    );
    let mut leave = vec!["add", "rule", "leave", "--action", "drop"];
    leave.extend(["--direction", "out", "--port", "p255", "--from", "p201"]);
    change(&bench, &leave);
    broadcast(&mut peers, 1, 9, &[]);
    broadcast(&mut peers, 2, 10, &[0, 1]);
    broadcast(&mut peers, 0, 11, &[1, 2, 3]);

    // Other ports take the numbers of former ones.
    let uri = |name: &str| {
        let socket = bench.path(&format!("{name}.sock"));
        format!("memif:{}?role=server", socket.display())
    };
    change(&bench, &["del", "port", "p7"]);
    for name in ["late", "last"] {
        let uri = uri(name);
        change(&bench, &["add", "port", name, &uri, "--bridge", "lan"]);
        peers.push(bench.peer(name));
    }
    let none = uri("none");
    let error = refused(&bench, &["add", "port", "none", &none, "--bridge", "lan"]);
    assert!(
        error.contains("port 'none': too many ports (maximum: 256)"),
        "{error}"
    );
    broadcast(&mut peers, 5, 12, &[0, 1, 2, 3, 4]);
    broadcast(&mut peers, 4, 13, &[0, 1, 2, 3, 5]);
    broadcast(&mut peers, 0, 14, &[1, 2, 3, 4, 5]);
    let ports: Vec<PortReport> = bench.show("ports");
    assert_eq!(ports.len(), PORTS_MAX);
}

#[test]
fn a_burst_of_tagged_broadcasts_reaches_hundreds_of_access_ports() {
    let bench = Bench::new(&[], &[]);
    let port = |number: usize| {
        let socket = bench.path(&format!("p{number}.sock"));
        let mode = match number {
            1 => "trunk = \"5\"",
            _ => "access = 5",
        };
        format!(
            "[[port]]\nname = \"p{number}\"\nuri = \"memif:{}?role=server\"\nbridging = {{ {mode} }}\n",
            socket.display()
        )
    };
    let ports: String = (1..=PORTS_MAX).map(port).collect();
    let names: Vec<String> = (1..=PORTS_MAX)
        .map(|number| format!("\"p{number}\""))
        .collect();
    let names = names.join(", ");
    let bridge = format!("[[bridge]]\nname = \"lan\"\nports = [{names}]\n");
    let config = bench.path("switch.toml");
    let rings = "rx-ring-size = 64\ntx-ring-size = 64\n";
    fs::write(&config, format!("{rings}{ports}{bridge}")).unwrap();
    let config = config.display().to_string();
    let mut bench = bench.only(&["--config", &config, "--memory-mib", "256"]);
    bench.start_again();
    let mut peers = ["p1", "p41", "p256"].map(|name| bench.peer(name));
    let calls: Vec<Vec<u8>> = (0..32).map(|n| frame(BROADCAST, mac(0), n)).collect();
    let on_trunk: Vec<Vec<u8>> = calls.iter().map(|call| tagged(call, 0x8100, 5)).collect();
    peers[0].send(&on_trunk);
    for peer in &mut peers[1..] {
        assert_eq!(peer.receive(calls.len()), calls);
    }
    let ports: Vec<PortReport> = bench.show("ports");
    assert_eq!(ports[0].counts.drops[PortDrop::NoOutput], 0);
}
