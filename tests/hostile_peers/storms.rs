// SPDX-License-Identifier: Apache-2.0
//! Peers that connect and disconnect, or change their configuration, as fast as possible.

use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::memif;
use crate::process::other_threads;
use crate::rng::attack_time;
use crate::scene::Scene;
use crate::sockets::{memory, send};
use crate::vhost;

/// Maximum number of log lines per second of a storm.
const LINES: usize = 100;

/// Runs a storm: `gust` is repeated, and returns whether it succeeded. Prints the rate, and the CPU time of the threads that
/// do not forward.
fn blows(scene: &Scene, what: &str, mut gust: impl FnMut() -> bool) {
    let before = other_threads(scene.switch.pid());
    let lines = scene.switch.printed().lines().count();
    let began = Instant::now();
    let mut count = 0_u64;
    while began.elapsed() < attack_time() {
        count += u64::from(gust());
    }
    let seconds = began.elapsed().as_secs_f64();
    let cost = other_threads(scene.switch.pid()).saturating_sub(before);
    let lines = scene.switch.printed().lines().count() - lines;
    println!(
        "{what}: {:.0} a second, {:.0} % of a CPU, {lines} lines",
        count as f64 / seconds,
        100.0 * cost.as_secs_f64() / seconds
    );
    let most = LINES * (seconds.ceil() as usize);
    assert!(lines <= most, "{what}: {lines} lines in {seconds:.1} s");
}

#[test]
fn a_storm_of_memif_connections_blocks_no_other_port() {
    let scene = Scene::polling("storm-memif", "memif");
    let path = scene.path("v.sock");
    scene.withstands(|| {
        blows(&scene, "connections", || {
            // Without waiting for an answer.
            memif::Peer::try_connect(&path)
                .is_some_and(|peer| peer.send(&memif::init(memif::VERSION, 0, 0), &[]))
        });
        blows(&scene, "clients", || {
            drop(memif::Shared::new(&path));
            true
        });
    });
    scene.serves_next("memif");
    scene.ends();
}

#[test]
fn a_storm_of_guests_and_of_ring_messages_blocks_no_other_port() {
    let scene = Scene::polling("storm-vhost", "vhost");
    let path = scene.path("v.sock");
    scene.withstands(|| {
        blows(&scene, "guests", || {
            let memory = memory(vhost::MEMORY);
            let guest = vhost::Guest::with_memory(&path, vhost::FEATURES, memory, vhost::MEMORY);
            guest.begin()
        });
        let guest = Cell::new(Some(vhost::Guest::start(&path)));
        blows(&scene, "ring messages", || {
            let current = guest.take().filter(|guest| {
                let [kick, call] = [&guest.events[2], &guest.events[3]].map(AsRawFd::as_raw_fd);
                let ring = |request, value| vhost::vring(request, 1, value);
                let file = |request| vhost::vring_file(request, 1);
                let patiently = |octets: &[u8], files: &[i32]| says(guest, octets, files);
                patiently(&ring(vhost::SET_VRING_ENABLE, 0), &[])
                    && patiently(&ring(vhost::SET_VRING_ENABLE, 1), &[])
                    && patiently(&file(vhost::SET_VRING_CALL), &[call])
                    && patiently(&file(vhost::SET_VRING_KICK), &[kick])
            });
            // A port may also end the connection.
            let is_taken = current.is_some();
            guest.set(current.or_else(|| Some(vhost::Guest::start(&path))));
            is_taken
        });
    });
    scene.serves_next("virtio-user");
    scene.ends();
}

/// Sends as soon as there is space for a message; returns false if the port has ended the connection.
fn says(guest: &vhost::Guest, octets: &[u8], files: &[i32]) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    loop {
        let flags = PollFlags::POLLOUT;
        let mut ends = [PollFd::new(guest.stream.as_fd(), flags)];
        poll(&mut ends, PollTimeout::from(1000_u16)).unwrap();
        let found = ends[0].revents().unwrap_or(PollFlags::empty());
        if found.contains(PollFlags::POLLHUP) {
            return false;
        }
        if found.contains(flags) && send(&guest.stream, octets, files) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
