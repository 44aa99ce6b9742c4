// SPDX-License-Identifier: Apache-2.0
//! Peers that are killed during traffic and return.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};

use tempfile::TempDir;

use crate::bystander::Scene;
use crate::files;
use crate::rig::{Namespace, Switch, quietwire, run, until};

/// The sending peers of `v` and `w`.
struct Peers(Child);

impl Peers {
    fn start(scene: &Scene, scheme: &str) -> Self {
        let mut command = scene.generate(scene.attacked(scheme), "60s");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Kills the peers like `kill -9`.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn survives(kind: &str, scheme: &str, peer: &str) {
    let scene = Scene::new(kind, scheme, 1);
    let bystander = scene.bystander("4s");
    let received = |port: &str| scene.switch.port(port)["rx_frames"].as_u64().unwrap();
    for round in 0..3 {
        let before = [received("v"), received("w")];
        let peers = Peers::start(&scene, peer);
        until("frames flow both ways", || {
            (received("v") > before[0] + 200 && received("w") > before[1] + 200).then_some(())
        });
        peers.kill();
        for port in ["v", "w"] {
            until("the ports wait for new peers", || {
                (scene.switch.port(port)["state"] == "waiting").then_some(())
            });
        }
        scene.is_alive(&format!("round {round}"));
    }
    bystander.lost_nothing();
    scene.serves(peer);
    assert_eq!(scene.switch.end(), Some(0));
}

#[test]
fn memif_peers_that_are_killed_cost_their_own_ports_only() {
    survives("killed-memif", "memif", "memif");
}

#[test]
fn virtio_user_peers_that_are_killed_cost_their_own_ports_only() {
    survives("killed-vhost", "vhost", "virtio-user");
}

/// The side that is started first.
#[derive(PartialEq, Eq)]
enum First {
    Client,
    Server,
}

/// Checks that a switch with a client port reconnects to its peer, a switch that is killed and started again.
fn finds_its_server_again(kind: &str, client: &str, server: &str, comes_first: First) {
    let namespace = Namespace::new(kind);
    let directories = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let path = |name: &str| directories[0].path().join(name).display().to_string();
    let full = |uri: &str| uri.replace("SOCKET", &path("l.sock"));
    files::write(&directories[0].path().join("in.pcap"), &files::frames(500));
    let source = format!("pcap:?rx={}&loop=on", path("in.pcap"));
    let start_server = || {
        Switch::start(
            &namespace,
            directories[0].path(),
            &[("link", full(server)), ("x", source.clone())],
            &["--cross-connect", "link,x"],
        )
    };
    let start_client = || {
        Switch::start(
            &namespace,
            directories[1].path(),
            &[("link", full(client)), ("x", "null:".to_owned())],
            &["--cross-connect", "link,x"],
        )
    };
    let (mut peer, switch);
    if comes_first == First::Client {
        switch = start_client();
        peer = start_server();
    } else {
        peer = start_server();
        switch = start_client();
    }
    for _ in 0..3 {
        let before = switch.port("link")["rx_frames"].as_u64();
        until("frames arrive from the server", || {
            (switch.port("link")["rx_frames"].as_u64() > before).then_some(())
        });
        assert_eq!(switch.port("link")["state"], "connected");
        peer.kill();
        until("the client detects the loss of its server", || {
            (switch.port("link")["state"] == "waiting").then_some(())
        });
        peer = start_server();
    }
    assert_eq!(peer.end(), Some(0));
    assert_eq!(switch.end(), Some(0));
}

#[test]
fn a_memif_client_finds_its_server_again() {
    finds_its_server_again(
        "again-memif",
        "memif:SOCKET?role=client",
        "memif:SOCKET?role=server",
        First::Server,
    );
}

#[test]
fn a_virtio_user_client_finds_its_server_again() {
    finds_its_server_again(
        "again-virtio-user",
        "virtio-user:SOCKET?role=client",
        "vhost:SOCKET?role=server",
        First::Server,
    );
}

#[test]
fn a_vhost_client_finds_its_guest_again() {
    finds_its_server_again(
        "again-vhost",
        "vhost:SOCKET?role=client",
        "virtio-user:SOCKET?role=server",
        First::Client,
    );
}

/// A process that is killed cannot detach the XDP program of its ports.
#[test]
fn the_program_of_a_killed_switch_is_removed_by_the_next_one_and_by_clean() {
    let namespace = Namespace::with_pairs("left");
    let directory = TempDir::new().unwrap();
    let has_program = || {
        let shown = namespace.ip(&["-details", "link", "show", "v0"]);
        shown.contains("prog/xdp")
    };
    let ports = [("a", "af-xdp:v0".to_owned())];
    let killed = || {
        let switch = Switch::start(&namespace, directory.path(), &ports, &[]);
        assert!(has_program());
        switch.kill();
        assert!(has_program());
    };
    let cleans = || run(namespace.command(quietwire()).args(["lab", "clean"]));
    assert!(!has_program());
    killed();
    let next = Switch::start(&namespace, directory.path(), &ports, &[]);
    assert!(
        next.printed().contains("removed XDP program"),
        "{}",
        next.printed()
    );
    // The program of a running switch stays.
    cleans();
    assert!(has_program());
    assert_eq!(next.end(), Some(0));
    assert!(!has_program());

    killed();
    assert!(cleans().contains("XDP program of a killed process"));
    assert!(!has_program());

    // A program without a note is not ours.
    killed();
    let network = std::fs::metadata(Path::new("/run/netns").join(namespace.name())).unwrap();
    for entry in std::fs::read_dir("/run/quietwire/xdp").unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with(&format!("{}-", network.ino())) {
            std::fs::remove_file(path).unwrap();
        }
    }
    cleans();
    assert!(has_program());
}
