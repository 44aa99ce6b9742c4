// SPDX-License-Identifier: Apache-2.0
//! Tests that each kind of port carries frames: `quietwire generate` or the kernel on one side, `quietwire switch run`
//! between, all inside a private network namespace. Requires root, as both do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "peers/bird.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod bird;
#[path = "switch_ports/bystander.rs"]
mod bystander;
#[path = "switch_ports/captures.rs"]
mod captures;
#[path = "switch_ports/cni.rs"]
mod cni;
#[path = "switch_ports/conversations.rs"]
mod conversations;
#[path = "switch_ports/files.rs"]
mod files;
#[path = "switch_ports/kernel.rs"]
mod kernel;
#[path = "switch_ports/kernel_forwarding.rs"]
mod kernel_forwarding;
#[path = "switch_ports/killed.rs"]
mod killed;
#[path = "switch_ports/library_lines.rs"]
mod library_lines;
#[path = "peers/memif.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod memif;
#[path = "switch_ports/memif_peers.rs"]
mod memif_peers;
#[path = "switch_ports/nat.rs"]
mod nat;
#[path = "switch_ports/offloads.rs"]
mod offloads;
#[path = "switch_ports/privileges.rs"]
mod privileges;
#[path = "switch_ports/programs.rs"]
mod programs;
#[cfg(target_arch = "x86_64")]
#[path = "switch_ports/puppet.rs"]
mod puppet;
#[path = "switch_ports/queues.rs"]
mod queues;
#[path = "switch_ports/quiet_peers.rs"]
mod quiet_peers;
#[path = "switch_ports/rig.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod rig;
#[path = "switch_ports/secrets.rs"]
mod secrets;
#[path = "switch_ports/segments.rs"]
mod segments;
#[path = "switch_ports/service_manager.rs"]
mod service_manager;
#[path = "switch_ports/silence.rs"]
mod silence;
#[path = "peers/sockets.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod sockets;
#[path = "switch_ports/steering.rs"]
mod steering;
#[cfg(target_arch = "x86_64")]
#[path = "switch_ports/system_calls.rs"]
mod system_calls;
#[path = "switch_ports/tap_streams.rs"]
mod tap_streams;
#[path = "switch_ports/taps.rs"]
mod taps;
#[path = "switch_ports/veths.rs"]
mod veths;
#[path = "peers/vhost.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod vhost;
#[path = "switch_ports/vhost_peers.rs"]
mod vhost_peers;

use tempfile::TempDir;

use rig::{Carrier, Namespace, Switch, lossless, quietwire};

/// Carries frames from one port of the tester through the switch to the other, both ways.
fn carries(kind: &str, switch_uris: [&str; 2], tester_uris: [&str; 2]) {
    carries_with(kind, switch_uris, tester_uris, &["--idle", "yield"]);
}

/// The same with more arguments of the switch.
fn carries_with(kind: &str, switch_uris: [&str; 2], tester_uris: [&str; 2], arguments: &[&str]) {
    let namespace = Namespace::with_pairs(kind);
    let directory = TempDir::new().unwrap();
    let full = |uri: &str| uri.replace("DIR", &directory.path().display().to_string());
    let ports = [("a", full(switch_uris[0])), ("b", full(switch_uris[1]))];
    let switch = Switch::start(
        &namespace,
        directory.path(),
        &ports,
        &[&["--cross-connect", "a,b"], arguments].concat(),
    );
    carries_in(kind, (&namespace, &directory, &switch), tester_uris);
}

/// The same with a switch that runs.
fn carries_in(
    kind: &str,
    (namespace, directory, switch): (&Namespace, &TempDir, &Switch),
    tester_uris: [&str; 2],
) {
    let full = |uri: &str| uri.replace("DIR", &directory.path().display().to_string());
    lossless(kind, Carrier::of(&tester_uris), || {
        let mut command = namespace.command(quietwire());
        command.args(["generate", "--rate", "2000", "--duration", "500ms"]);
        command.args([
            "--port",
            &full(tester_uris[0]),
            "--port",
            &full(tester_uris[1]),
        ]);
        command.args(["--warm-up", "0s", "--drain", "500ms", "--direction", "both"]);
        command.args(["--memory-mib", "192", "--no-huge", "--isolation", "none"]);
        command.arg("--json");
        command
    });
    for port in switch.ports() {
        let (received, sent) = (port["rx_frames"].as_u64(), port["tx_frames"].as_u64());
        assert!(received >= Some(400) && sent >= Some(400), "{kind}: {port}");
    }
}

#[test]
fn vhost_carries_frames_of_virtio_user() {
    carries(
        "vhost",
        ["vhost:DIR/a.sock", "vhost:DIR/b.sock"],
        [
            "virtio-user:DIR/a.sock?role=client",
            "virtio-user:DIR/b.sock?role=client",
        ],
    );
}

/// 2,000 frames a second come one by one, each to a thread that sleeps or is about to.
#[test]
fn a_sleeping_thread_is_woken_by_vhost() {
    for (kind, layout) in [("intr-split", ""), ("intr-packed", "&packed=on")] {
        let tester =
            ["a", "b"].map(|port| format!("virtio-user:DIR/{port}.sock?role=client{layout}"));
        carries_with(
            kind,
            ["vhost:DIR/a.sock", "vhost:DIR/b.sock"],
            [&tester[0], &tester[1]],
            &["--idle", "interrupt"],
        );
    }
}

#[test]
fn a_sleeping_thread_is_woken_by_the_kernel_and_by_memif() {
    carries_with(
        "intr-mixed",
        ["memif:DIR/a.sock?role=server", "af-packet:v0"],
        ["memif:DIR/a.sock?role=client", "af-packet:v1"],
        &["--idle", "interrupt"],
    );
}

#[test]
fn af_packet_carries_frames_of_the_kernel() {
    carries(
        "packet",
        ["af-packet:v0", "af-packet:v2"],
        ["af-packet:v1", "af-packet:v3"],
    );
}

#[test]
fn af_xdp_carries_frames_of_the_kernel() {
    carries(
        "xdp",
        ["af-xdp:v0", "af-xdp:v2"],
        ["af-xdp:v1", "af-xdp:v3"],
    );
}

#[test]
fn af_xdp_carries_frames_of_the_kernel_by_copies() {
    carries(
        "xdp-copy",
        ["af-xdp:v0?copy=on", "af-xdp:v2?copy=on"],
        ["af-xdp:v1", "af-xdp:v3"],
    );
}

#[test]
fn veth_carries_frames_of_the_kernel() {
    carries(
        "veth",
        ["veth:qwn0", "veth:qwn1"],
        ["af-packet:qwn0-peer", "af-packet:qwn1-peer"],
    );
}

#[test]
fn kinds_of_ports_can_be_mixed() {
    carries(
        "mixed",
        ["memif:DIR/a.sock?role=server", "af-packet:v0"],
        ["memif:DIR/a.sock?role=client", "af-packet:v1"],
    );
}
