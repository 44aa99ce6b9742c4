// SPDX-License-Identifier: Apache-2.0
//! Eventfds of a peer that are full and blocking when the switch writes to them, or files that are not eventfds.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Pid;

use crate::memif;
use crate::rng::{Rng, attack_time};
use crate::scene::Scene;
use crate::sockets::memory;
use crate::vhost;

/// Maximum of an eventfd's counter (eventfd(2)).
const FULL: u64 = u64::MAX - 1;
/// A forwarding thread that receives no frame for this long hangs.
const HANGS: Duration = Duration::from_millis(300);
/// A write that takes this long had to wait.
const LATE: Duration = Duration::from_micros(30);
/// Precision of the attack's moment, and its maximum delay; ns.
const SPREAD: u64 = 400;
const MOST_DELAY: u64 = 10_000;

/// Publishes frames repeatedly, and fills the eventfd, which blocks, at the moment at which the switch has taken the frames
/// and is about to signal it. `publish` publishes one frame, `is_taken` returns true once the switch has taken all.
fn race(event: &EventFd, rng: &mut Rng, publish: impl Fn(), is_taken: impl Fn() -> bool) {
    let is_held = || {
        let before = Instant::now();
        publish();
        while !is_taken() {
            if before.elapsed() > HANGS {
                return true;
            }
            std::thread::yield_now();
        }
        false
    };
    // One reader at a time, so that a reader that finds the counter readable can read it.
    let reading = Mutex::new(());
    let drain = |reading: &Mutex<()>| {
        let _held = reading.lock().unwrap();
        let mut ends = [PollFd::new(event.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ends, PollTimeout::ZERO).unwrap() == 1 {
            event.read().unwrap();
        }
    };
    // Odd while the peer itself writes.
    let stage = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let (mut delay, mut tries, mut late) = (1000, 0, 0);
    let everywhere = keep_off_the_last_cpu();
    let began = Instant::now();
    std::thread::scope(|scope| {
        // If the switch was first, the peer waits for space.
        scope.spawn(|| {
            let mut last = 0;
            while !is_over.load(Ordering::Relaxed) {
                let now = stage.load(Ordering::Relaxed);
                if now == last && now % 2 == 1 {
                    drain(&reading);
                }
                last = now;
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        while began.elapsed() < attack_time() {
            // The switch may have made it non-blocking; the flag is shared with the peer.
            fcntl(event, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
            // A switch that has just taken a frame is running, and takes the next immediately.
            publish();
            let before = Instant::now();
            while !is_taken() && before.elapsed() < HANGS {}
            drain(&reading);
            publish();
            // Every other try is at a random time, so that the test does not depend on the estimated moment.
            let at = match rng.between(0, 1) {
                0 => delay + rng.between(0, SPREAD),
                _ => rng.between(0, MOST_DELAY),
            };
            let published = Instant::now();
            while published.elapsed() < Duration::from_nanos(at) {
                std::hint::spin_loop();
            }
            let before = Instant::now();
            stage.fetch_add(1, Ordering::Relaxed);
            let _ = event.write(FULL);
            stage.fetch_add(1, Ordering::Relaxed);
            // A write that had to wait was late. The right moment is between late and early.
            delay = if before.elapsed() > LATE {
                delay.saturating_sub(SPREAD / 4)
            } else {
                (delay + SPREAD / 8).min(MOST_DELAY)
            };
            tries += 1;
            late += u32::from(before.elapsed() > LATE);
            if is_held() || is_held() {
                // The switch remains blocked: the peer never reads the counter again.
                println!("the switch takes no frame after {tries} tries");
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        println!("{tries} tries, {late} too late, the last after {delay} ns");
    });
    sched_setaffinity(SELF, &everywhere).unwrap();
}

/// The calling thread.
const SELF: Pid = Pid::from_raw(0);

/// Keeps the calling thread off the switch's forwarding CPU, the last one, if there is another. Returns the previous CPU
/// set.
fn keep_off_the_last_cpu() -> CpuSet {
    let allowed = sched_getaffinity(SELF).unwrap();
    let mut set = allowed;
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu).unwrap();
    let mut cpus = (0..CpuSet::count()).filter(is_allowed);
    if let (Some(_), Some(last)) = (cpus.next(), cpus.next_back()) {
        set.unset(last).unwrap();
    }
    sched_setaffinity(SELF, &set).unwrap();
    allowed
}

#[test]
fn a_memif_peer_with_a_full_blocking_eventfd_blocks_no_other_port() {
    let scene = Scene::polling("full-memif", "memif");
    let mut rng = Rng::new();
    let mut number = 0;
    scene.withstands(|| {
        let peer = memif::Shared::new(&scene.path("v.sock"));
        let other = memif::Shared::new(&scene.path("w.sock"));
        let buffers = 2 * memif::RING as u32;
        for slot in 0..memif::SLOTS {
            for sender in [&peer, &other] {
                sender.describe(0, slot, 0, 0, 60, buffers);
            }
            peer.describe(memif::RING, slot, 0, 0, memif::BUFFER as u32, buffers);
        }
        for port in ["v", "w"] {
            scene.comes_to(port, "connected");
        }
        // The ring that the peer sends on, and in the next round the one that it receives on.
        number += 1;
        let sent = Cell::new(0_u16);
        let publish = || {
            sent.set(sent.get().wrapping_add(1));
            peer.set(memif::HEAD, sent.get());
        };
        let is_taken = || peer.get(memif::TAIL) == sent.get();
        if number % 2 == 1 {
            race(&peer.events[0], &mut rng, publish, is_taken);
        } else {
            let got = Cell::new(0_u16);
            let publish = || {
                got.set(got.get().wrapping_add(1));
                let space = got.get().wrapping_add(memif::SLOTS / 2);
                peer.set(memif::RING + memif::HEAD, space);
                other.set(memif::HEAD, got.get());
            };
            let is_taken = || peer.get(memif::RING + memif::TAIL) == got.get();
            race(&peer.events[1], &mut rng, publish, is_taken);
        }
    });
    scene.serves_next("memif");
    scene.ends();
}

#[test]
fn a_guest_with_a_full_blocking_eventfd_blocks_no_other_port() {
    let scene = Scene::polling("full-vhost", "vhost");
    let mut rng = Rng::new();
    let mut number = 0;
    scene.withstands(|| {
        let guest = vhost::Guest::start(&scene.path("v.sock"));
        let other = vhost::Guest::start(&scene.path("w.sock"));
        let inside = vhost::GUEST + vhost::BUFFERS;
        for sender in [&guest, &other] {
            sender.describe(1, 0, inside, 12 + 60, 0, 0);
            sender.publish(1, 0, 0);
        }
        guest.describe(0, 0, inside, 2048, vhost::WRITE, 0);
        guest.publish(0, 0, 0);
        for port in ["v", "w"] {
            scene.comes_to(port, "connected");
        }
        // The ring that the peer sends on, and in the next round the one that it receives on.
        number += 1;
        let sent = Cell::new(0_u16);
        let publish = || {
            sent.set(sent.get().wrapping_add(1));
            guest.advance(1, sent.get());
        };
        let is_taken = || guest.used(1).0 == sent.get();
        if number % 2 == 1 {
            race(&guest.events[3], &mut rng, publish, is_taken);
        } else {
            let got = Cell::new(0_u16);
            let publish = || {
                got.set(got.get().wrapping_add(1));
                guest.advance(0, got.get().wrapping_add(vhost::SLOTS / 2));
                other.advance(1, got.get());
            };
            let is_taken = || guest.used(0).0 == got.get();
            race(&guest.events[1], &mut rng, publish, is_taken);
        }
    });
    scene.serves_next("virtio-user");
    scene.ends();
}

/// Files that are not eventfds. Writes to the first three are visible.
struct Others {
    pipe: (OwnedFd, OwnedFd),
    sockets: (UnixStream, UnixStream),
    memory: File,
    rest: Vec<(&'static str, OwnedFd)>,
}

impl Others {
    fn new() -> Self {
        let memory = memfd_create("no-eventfd", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        let null = File::options().write(true).open("/dev/null").unwrap();
        let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
        Self {
            pipe: nix::unistd::pipe().unwrap(),
            sockets: UnixStream::pair().unwrap(),
            memory: File::from(memory),
            rest: vec![("/dev/null", null.into()), ("epoll", epoll.0)],
        }
    }

    fn all(&self) -> Vec<(&'static str, i32)> {
        let mut all = vec![
            ("pipe", self.pipe.1.as_raw_fd()),
            ("socket", self.sockets.1.as_raw_fd()),
            ("memory", self.memory.as_raw_fd()),
        ];
        let rest = self.rest.iter();
        all.extend(rest.map(|(name, file)| (*name, file.as_raw_fd())));
        all
    }

    fn are_untouched(&self) {
        assert_eq!(self.memory.metadata().unwrap().len(), 0);
        let mut ends = [self.pipe.0.as_fd(), self.sockets.0.as_fd()]
            .map(|end| PollFd::new(end, PollFlags::POLLIN));
        assert_eq!(poll(&mut ends, PollTimeout::ZERO).unwrap(), 0, "{ends:?}");
    }
}

#[test]
fn a_memif_peer_whose_eventfds_are_other_files_is_refused() {
    let scene = Scene::of("other-memif", "memif", "");
    let others = Others::new();
    scene.withstands(|| {
        for (name, file) in others.all() {
            for wrong in [true, false] {
                let peer = memif::Peer::begun(&scene.path("v.sock"));
                let (memory, event) = (memory(memif::REGION), memif::event());
                let region = memif::add_region(0, memif::REGION);
                assert_eq!(peer.ask(&region, &[memory.as_raw_fd()]), Some(memif::ACK));
                for (c2s, place) in [(true, 0), (false, memif::RING)] {
                    memory
                        .write_all_at(&memif::COOKIE.to_le_bytes(), place)
                        .unwrap();
                    let wake = if c2s == wrong {
                        file
                    } else {
                        event.as_raw_fd()
                    };
                    let ring = memif::add_ring(c2s, 0, 0, place as u32, memif::LOG2);
                    assert_eq!(peer.ask(&ring, &[wake]), Some(memif::ACK), "{name}");
                }
                // The port never waits for the ring that the client fills, and closes the descriptor of that ring.
                let answer = peer.ask(&memif::message(memif::CONNECT, &[]), &[]);
                assert_eq!(
                    answer == Some(memif::CONNECTED),
                    wrong,
                    "{name}: {answer:?}"
                );
            }
        }
    });
    others.are_untouched();
    scene.serves_next("memif");
    scene.ends();
}

#[test]
fn a_guest_whose_eventfds_are_other_files_is_refused() {
    let scene = Scene::of("other-vhost", "vhost", "");
    let others = Others::new();
    scene.withstands(|| {
        for (name, file) in others.all() {
            let guest = vhost::Guest::with_memory(
                &scene.path("v.sock"),
                vhost::FEATURES,
                memory(vhost::MEMORY),
                vhost::MEMORY,
            );
            let inside = vhost::GUEST + vhost::BUFFERS;
            guest.describe(1, 0, inside, 12 + 60, 0, 0);
            let call = vhost::vring_file(vhost::SET_VRING_CALL, 1);
            let mut is_refused = !guest.begin() || !guest.say(&call, &[file]);
            guest.publish(1, 0, 64);
            is_refused |= guest.is_refused();
            assert!(is_refused, "{name}");
        }
        scene.comes_to("v", "waiting");
    });
    others.are_untouched();
    scene.serves_next("virtio-user");
    scene.ends();
}
