// SPDX-License-Identifier: Apache-2.0
//! Ports with several queues, between two switches of two forwarding threads each.

use std::net::UdpSocket;

use serde_json::Value;
use tempfile::TempDir;

use crate::files;
use crate::rig::{Namespace, Switch, until};

/// Two threads, on any CPUs.
const THREADS: [&str; 6] = [
    "--pinning",
    "none",
    "--forwarding-cpus",
    "0,1",
    "--bridge",
    "lan=x,y,link",
];

/// Returns the received frames by queue of the port.
fn by_queue(switch: &Switch, port: &str) -> Vec<u64> {
    let queues = switch.show("queues");
    let of_port = |queue: &&Value| queue["port"] == port;
    queues
        .iter()
        .filter(of_port)
        .map(|queue| queue["frames"].as_u64().unwrap())
        .collect()
}

/// Checks that two capture files, sent by two threads over `link`, arrive on both of its queues at the other side.
fn arrive_on_all_queues(kind: &str, link: [&str; 2]) {
    let namespace = Namespace::new(kind);
    let directory = TempDir::new().unwrap();
    let path = directory.path().display().to_string();
    let file = directory.path().join("in.pcap");
    files::write(&file, &files::frames(500));
    let source = format!("pcap:?rx={}&loop=on", file.display());
    let ends: Vec<TempDir> = (0..2).map(|_| TempDir::new().unwrap()).collect();
    let ports = |index: usize, others: [&str; 2]| {
        [
            ("x", others[0].to_owned()),
            ("y", others[1].to_owned()),
            ("link", link[index].replace("DIR", &path)),
        ]
    };
    // The side that can wait for the other starts first.
    let receiver = Switch::start(
        &namespace,
        ends[0].path(),
        &ports(0, ["tap:t0", "tap:t1"]),
        &THREADS,
    );
    let also = format!("{source}&tx={path}/other.pcap");
    let sender = Switch::start(
        &namespace,
        ends[1].path(),
        &ports(1, [&source, &also]),
        &THREADS,
    );
    until("frames arrive on both queues", || {
        let queues = by_queue(&receiver, "link");
        (queues.len() == 2 && queues.iter().all(|frames| *frames > 1000)).then_some(())
    });
    for switch in [&receiver, &sender] {
        let link = switch.port("link");
        assert_eq!(link["rx_queues"], 2, "{link}");
        assert_eq!(link["tx_queues"], 2, "{link}");
        assert_eq!(link["state"], "connected", "{link}");
    }
    assert_eq!(by_queue(&receiver, "link").len(), 2);
    assert_eq!(sender.end(), Some(0));
    assert_eq!(receiver.end(), Some(0));
}

#[test]
fn vhost_and_virtio_user_have_several_queues() {
    arrive_on_all_queues(
        "mq-vhost",
        [
            "vhost:DIR/l.sock?queues=2",
            "virtio-user:DIR/l.sock?queues=2",
        ],
    );
}

#[test]
fn packed_rings_and_a_server_that_starts_later_are_supported() {
    arrive_on_all_queues(
        "mq-packed",
        [
            "vhost:DIR/l.sock?role=client&queues=2",
            "virtio-user:DIR/l.sock?role=server&queues=2&packed=on",
        ],
    );
}

#[test]
fn memif_has_several_queues() {
    arrive_on_all_queues(
        "mq-memif",
        [
            "memif:DIR/l.sock?role=server&queues=2",
            "memif:DIR/l.sock?role=client&queues=2",
        ],
    );
}

#[test]
fn interfaces_of_the_kernel_have_several_queues() {
    let namespace = Namespace::new("mq-kernel");
    namespace.ip(&[
        "link",
        "add",
        "v0",
        "numrxqueues",
        "2",
        "numtxqueues",
        "2",
        "type",
        "veth",
        "peer",
        "name",
        "v1",
    ]);
    for end in ["v0", "v1"] {
        namespace.ip(&["link", "set", end, "up"]);
    }
    let directory = TempDir::new().unwrap();
    let ports = [
        ("packet", "af-packet:v1?queues=2".to_owned()),
        ("tap", "tap:t0?queues=2".to_owned()),
    ];
    let switch = Switch::start(
        &namespace,
        directory.path(),
        &ports,
        &[
            "--pinning",
            "none",
            "--forwarding-cpus",
            "0,1",
            "--bridge",
            "lan=packet,tap",
        ],
    );
    for port in switch.ports() {
        assert_eq!(port["rx_queues"], 2, "{port}");
        assert_eq!(port["tx_queues"], 2, "{port}");
    }
    for port in ["packet", "tap"] {
        switch.until_up(port);
    }
    assert_eq!(switch.end(), Some(0));
}

/// An unused address, so that datagrams to it are not answered.
const NOBODY: &str = "10.9.0.2";

/// Sends a datagram of each of 64 flows, which differ in their ports, from an interface of the namespace.
fn send_flows(namespace: &Namespace) {
    let sender = namespace.within(|| {
        for _ in 0..64 {
            let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
            socket.send_to(b"flow", (NOBODY, 9)).unwrap();
        }
    });
    sender.join().unwrap();
}

/// Checks that flows from the kernel through `sender` arrive on both queues of the port `link`.
fn flows_arrive_on_all_queues(namespace: &Namespace, link: &str, sender: &str) {
    let directory = TempDir::new().unwrap();
    let sink = |name| format!("pcap:?tx={}", directory.path().join(name).display());
    let ports = [
        ("link", link.to_owned()),
        ("x", sink("x.pcap")),
        ("y", sink("y.pcap")),
    ];
    let switch = Switch::start(namespace, directory.path(), &ports, &THREADS);
    namespace.ip(&["address", "add", "10.9.0.1/24", "dev", sender]);
    namespace.ip(&["link", "set", sender, "up"]);
    let neighbour = ["neighbour", "add", NOBODY, "lladdr", "02:00:00:00:00:02"];
    namespace.ip(&[&neighbour[..], &["dev", sender]].concat());
    until("flows arrive on both queues", || {
        send_flows(namespace);
        let queues = by_queue(&switch, "link");
        (queues.len() == 2 && queues.iter().all(|frames| *frames >= 10)).then_some(())
    });
    assert_eq!(switch.end(), Some(0));
}

#[test]
fn flows_from_a_tap_spread_over_its_queues() {
    let namespace = Namespace::new("spread-tap");
    flows_arrive_on_all_queues(&namespace, "tap:t0?queues=2", "t0");
}

#[test]
fn flows_from_an_interface_spread_over_the_queues_of_af_packet() {
    let namespace = Namespace::with_pairs("spread-packet");
    flows_arrive_on_all_queues(&namespace, "af-packet:v0?queues=2", "v1");
}
