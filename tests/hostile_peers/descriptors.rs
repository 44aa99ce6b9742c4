// SPDX-License-Identifier: Apache-2.0
//! Peers that exhaust the file descriptors of the switch.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::eventfd::EventFd;
use nix::sys::socket::SockType;

use crate::memif;
use crate::process::{Footprint, other_threads};
use crate::rig::{DEADLINE, within};
use crate::scene::Scene;
use crate::sockets::{memory, send, try_connect};
use crate::vhost;

/// Descriptor limit of the switch.
const LIMIT: &str = "--nofile=256:256";
const OPEN_MAX: usize = 250;
/// Duration of an observation, the maximum CPU time of all threads but the forwarding ones during it, and the maximum number
/// of log lines.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const MOST_BUSY: Duration = Duration::from_millis(400);
const MOST_LINES: usize = 100;

fn scene(kind: &str, scheme: &str) -> Scene {
    let uri = |name: &str| format!("{scheme}:DIR/{name}.sock?role=server&queues=8");
    let ports = [("v", uri("v")), ("w", uri("w"))];
    let ports = [("v", ports[0].1.as_str()), ("w", ports[1].1.as_str())];
    Scene::by(kind, &ports, &["v,w"], &["prlimit", LIMIT])
}

/// Checks that the switch neither spins nor fills the log while descriptors are short and connections are waiting, and that
/// it has its descriptors again once `peers` are dropped.
fn is_calm<T>(scene: &Scene, before: Footprint, peers: T) {
    let pid = scene.switch.pid();
    // Connections that wait at the control socket and the others.
    let kinds = [SockType::Stream, SockType::SeqPacket];
    let waiting: Vec<_> = ["control.sock", "a.sock", "v.sock", "w.sock"]
        .iter()
        .flat_map(|name| kinds.map(|kind| (name, kind)))
        .flat_map(|both| [both; 8])
        .filter_map(|(name, kind)| try_connect(&scene.path(name), kind))
        .collect();
    let busy = other_threads(pid);
    let lines = scene.switch.printed().lines().count();
    let began = Instant::now();
    std::thread::sleep(POLL_INTERVAL);
    let lines = scene.switch.printed().lines().count() - lines;
    let busy = other_threads(pid) - busy;
    let had = Footprint::of(pid).expect("the switch runs");
    println!(
        "{} descriptors, before {}: {busy:?} of a CPU and {lines} lines in {:?}",
        had.descriptors,
        before.descriptors,
        began.elapsed()
    );
    assert!(lines <= MOST_LINES, "{lines} lines in {POLL_INTERVAL:?}");
    assert!(busy <= MOST_BUSY, "{busy:?} of a CPU in {POLL_INTERVAL:?}");
    drop((peers, waiting));
    let again = within(DEADLINE, || {
        let now = Footprint::of(pid)?;
        (now.descriptors <= before.descriptors).then_some(())
    });
    assert!(
        again.is_some(),
        "{:?}, before {before:?}",
        Footprint::of(pid)
    );
}

#[test]
fn memif_peers_that_use_up_descriptors_cost_their_own_ports_only() {
    let scene = scene("descriptors-memif", "memif");
    scene.withstands(|| {
        let before = Footprint::of(scene.switch.pid()).unwrap();
        let (file, event) = (memory(memif::REGION), EventFd::new().unwrap());
        let (region, wake) = ([file.as_raw_fd()], [event.as_raw_fd()]);
        // Peers with the maximum number of regions and rings; the last descriptors remain for connections alone.
        let has_space = || Footprint::of(scene.switch.pid()).unwrap().descriptors < OPEN_MAX;
        let greedy = ["v.sock", "w.sock"].map(|name| {
            let peer = memif::Peer::begun(&scene.path(name));
            let taken = |octets: &[u8], files: &[i32]| peer.ask(octets, files) == Some(memif::ACK);
            let regions = (0..256).take_while(|index| {
                has_space() && taken(&memif::add_region(*index, memif::REGION), &region)
            });
            println!("{name}: {} regions", regions.count());
            let rings = (0..256).take_while(|index| {
                let ring = memif::add_ring(index % 2 == 0, index / 2, 0, 0, memif::LOG2);
                has_space() && taken(&ring, &wake)
            });
            println!("{name}: {} rings", rings.count());
            peer
        });
        // Descriptors with messages that carry none, and several with those that carry one.
        let many = [file.as_raw_fd(); 60];
        let mut strange = Vec::new();
        for kind in [memif::ACK, memif::HELLO, memif::ADD_REGION, memif::ADD_RING] {
            for name in ["v.sock", "w.sock"] {
                if let Some(peer) = memif::Peer::try_connect(&scene.path(name)) {
                    peer.send(&memif::message(kind, &[]), &many);
                    strange.push(peer);
                }
            }
        }
        // Also many peers that only connect.
        let silent: Vec<_> = (0..150)
            .filter_map(|_| memif::Peer::try_connect(&scene.path("v.sock")))
            .collect();
        is_calm(&scene, before, (greedy, strange, silent));
    });
    scene.serves_next("memif");
    scene.ends();
}

#[test]
fn guests_that_use_up_descriptors_cost_their_own_ports_only() {
    let scene = scene("descriptors-vhost", "vhost");
    scene.withstands(|| {
        let before = Footprint::of(scene.switch.pid()).unwrap();
        let file: File = memory(vhost::MEMORY);
        let event = EventFd::new().unwrap();
        let wake = [event.as_raw_fd()];
        let greedy: Vec<_> = ["v.sock", "w.sock"]
            .iter()
            .flat_map(|name| [name; 8])
            .filter_map(|name| try_connect(&scene.path(name), SockType::Stream))
            .collect();
        for stream in &greedy {
            // The maximum number of regions of a table, and eventfds for every ring.
            let table = vhost::mem_table(8, vhost::MEMORY, 0);
            send(stream, &table, &[file.as_raw_fd(); 8]);
            for ring in 0..16 {
                for request in [vhost::SET_VRING_CALL, vhost::SET_VRING_KICK] {
                    send(stream, &vhost::vring_file(request, ring), &wake);
                }
            }
        }
        let many = [file.as_raw_fd(); 60];
        let mut strange = Vec::new();
        for request in [vhost::GET_FEATURES, vhost::SET_OWNER, vhost::SET_VRING_CALL] {
            for name in ["v.sock", "w.sock"] {
                if let Some(stream) = try_connect(&scene.path(name), SockType::Stream) {
                    send(&stream, &vhost::message(request, &[0; 8]), &many);
                    strange.push(stream);
                }
            }
        }
        let silent: Vec<_> = (0..150)
            .filter_map(|_| try_connect(&scene.path("v.sock"), SockType::Stream))
            .collect();
        is_calm(&scene, before, (greedy, strange, silent));
    });
    scene.serves_next("virtio-user");
    scene.ends();
}
