// SPDX-License-Identifier: Apache-2.0
//! Shared memory that its peer withdraws: truncated before it is sealed, in a file that cannot be sealed, or with holes
//! punched into it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::memif;
use crate::process::{forwarding_faults, shared_memory};
use crate::rig::{until, within};
use crate::rng::{Rng, attack_time, from_environment};
use crate::scene::Scene;
use crate::sockets::memory;
use crate::vhost;

const MIB: u64 = 1 << 20;
/// Octets that the kernel allocates while the peer keeps others from the file.
const BUSY: u64 = 256 * MIB;
/// Time limit for a forwarding thread to poll a ring.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit for a port to end a connection or to serve it.
const ANSWER: Duration = Duration::from_secs(5);

/// Truncates a file soon. Two times in three at a random moment; otherwise the kernel is allocating memory for the file
/// first, so that a reader of its size finds the old one, and a seal has to wait until it is truncated.
fn truncate_soon<'scope>(scope: &'scope Scope<'scope, '_>, file: &'scope File, rng: &mut Rng) {
    let is_busy = rng.between(0, 2) == 0;
    let delay = Duration::from_micros(rng.between(0, 500));
    if is_busy {
        scope.spawn(move || {
            let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
            fallocate(file, keep, 0, BUSY.cast_signed()).unwrap();
        });
        // The allocation takes many times as long.
        thread::sleep(Duration::from_millis(3));
    }
    scope.spawn(move || {
        thread::sleep(delay);
        // Refused if the port was first.
        let _ = file.set_len(0);
    });
    if is_busy {
        thread::sleep(Duration::from_millis(3));
    }
}

#[test]
fn memory_that_a_memif_client_truncates_before_it_is_sealed_costs_its_port_only() {
    let scene = Scene::polling("truncate-memif", "memif");
    let mut rng = Rng::new();
    scene.withstands(|| {
        let file = memory(memif::REGION);
        let handle = file.try_clone().unwrap();
        let at = [memif::ADD_REGION, memif::CONNECT][rng.between(0, 1) as usize];
        thread::scope(|scope| {
            let path = scene.path("v.sock");
            let shared = memif::Shared::by_steps(&path, file, memif::REGION, |kind| {
                if kind == at {
                    truncate_soon(scope, &handle, &mut rng);
                }
            });
            if let Some(shared) = shared {
                // The port reads the ring at its present position.
                let octets = [memif::SLOTS as u8, 0];
                let _ = shared.file.write_at(&octets, memif::HEAD);
                thread::sleep(POLL_INTERVAL);
            }
        });
    });
    scene.serves_next("memif");
    scene.ends();
}

#[test]
fn memory_that_a_guest_truncates_before_it_is_sealed_costs_its_port_only() {
    let scene = Scene::polling("truncate-vhost", "vhost");
    let mut rng = Rng::new();
    scene.withstands(|| {
        let file = memory(vhost::MEMORY);
        let handle = file.try_clone().unwrap();
        let path = scene.path("v.sock");
        thread::scope(|scope| {
            truncate_soon(scope, &handle, &mut rng);
            let guest = vhost::Guest::with_memory(&path, vhost::FEATURES, file, vhost::MEMORY);
            guest.begin();
            // Until the port has read everything, or has ended the connection.
            vhost::settle(&guest.stream);
            let index = vhost::RING + vhost::AVAILABLE + 2;
            let _ = guest.memory.write_at(&[1], index);
            thread::sleep(POLL_INTERVAL);
        });
    });
    scene.serves_next("virtio-user");
    scene.ends();
}

/// Returns files that cannot be sealed: one in a directory, and one that its creator sealed against seals.
fn unsealable(scene: &Scene, size: u64) -> [File; 2] {
    let path = scene.path("memory");
    let mut options = File::options();
    let ordinary = options.create(true).truncate(true).read(true).write(true);
    let files = [
        ordinary.open(path).unwrap(),
        File::from(memfd_create("unsealable", MFdFlags::empty()).unwrap()),
    ];
    for file in &files {
        file.set_len(size).unwrap();
    }
    files
}

#[test]
fn memory_of_a_memif_client_that_cannot_be_sealed_is_refused() {
    let scene = Scene::of("unsealed-memif", "memif", "");
    scene.withstands(|| {
        for file in unsealable(&scene, memif::REGION) {
            let shared = memif::Shared::with(&scene.path("v.sock"), file, memif::REGION);
            assert!(shared.is_none(), "the port maps the file");
        }
    });
    scene.serves_next("memif");
    scene.ends();
}

#[test]
fn memory_of_a_guest_that_cannot_be_sealed_is_refused() {
    let scene = Scene::of("unsealed-vhost", "vhost", "");
    scene.withstands(|| {
        for file in unsealable(&scene, vhost::MEMORY) {
            let path = scene.path("v.sock");
            let guest = vhost::Guest::with_memory(&path, vhost::FEATURES, file, vhost::MEMORY);
            assert!(
                !guest.begin() || guest.is_refused(),
                "the port maps the file"
            );
            scene.comes_to("v", "waiting");
        }
    });
    scene.serves_next("virtio-user");
    scene.ends();
}

#[test]
fn memory_of_a_trusted_memif_client_that_is_truncated_costs_its_port_only() {
    let scene = Scene::of("trusted-memif", "memif", "&trust-memory=on");
    scene.withstands(|| {
        for file in unsealable(&scene, memif::REGION) {
            let path = scene.path("v.sock");
            let shared = memif::Shared::with(&path, file, memif::REGION);
            let shared = shared.expect("a trusted peer is served");
            shared.describe(0, 0, 0, 0, 60, 2 * memif::RING as u32);
            shared.publish(1);
            shared.file.set_len(0).unwrap();
            // The port reads the ring, and finds nothing there.
            shared.peer.is_refused("memory that is gone");
        }
        scene.comes_to("v", "waiting");
    });
    scene.serves_next("memif");
    scene.ends();
}

#[test]
fn memory_of_a_trusted_guest_that_is_truncated_costs_its_port_only() {
    let scene = Scene::of("trusted-vhost", "vhost", "&trust-memory=on");
    scene.withstands(|| {
        for file in unsealable(&scene, vhost::MEMORY) {
            let path = scene.path("v.sock");
            let guest = vhost::Guest::with_memory(&path, vhost::FEATURES, file, vhost::MEMORY);
            assert!(guest.begin(), "a trusted guest is served");
            scene.comes_to("v", "connected");
            let inside = vhost::GUEST + vhost::BUFFERS;
            guest.describe(1, 0, inside, 12 + 60, 0, 0);
            guest.publish(1, 0, 1);
            until("the port takes the frame", || {
                (guest.used(1).0 == 1).then_some(())
            });
            guest.memory.set_len(0).unwrap();
            let is_ended = within(ANSWER, || guest.is_refused().then_some(()));
            assert!(is_ended.is_some(), "the port keeps memory that is gone");
        }
        scene.comes_to("v", "waiting");
    });
    scene.serves_next("virtio-user");
    scene.ends();
}

/// Punches holes into a file while frames are read from it; `frames` causes some to be read.
fn punch(file: &File, size: u64, mut frames: impl FnMut()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Everything but the beginning, which contains the rings.
            let (begin, count) = (2 * MIB.cast_signed(), (size - 2 * MIB).cast_signed());
            let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            while !is_over.load(Ordering::Relaxed) {
                fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, begin, count).unwrap();
                fallocate(file, punch, begin, count).unwrap();
            }
        });
        let began = Instant::now();
        while began.elapsed() < attack_time() {
            frames();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn holes_in_the_memory_of_a_memif_client_block_no_other_port() {
    let scene = Scene::polling("holes-memif", "memif");
    let mut rng = Rng::new();
    scene.withstands(|| {
        let size = 256 * MIB;
        let file = memory(size);
        let handle = file.try_clone().unwrap();
        let shared = memif::Shared::with(&scene.path("v.sock"), file, size);
        let shared = shared.expect("the maximum memory of a client is accepted");
        let mut head = 0_u16;
        punch(&handle, size, || {
            for _ in 0..memif::SLOTS {
                let place = rng.between(2 * MIB, size - 2048);
                shared.describe(0, head, 0, 0, 1514, place as u32);
                head = head.wrapping_add(1);
            }
            shared.publish(head);
        });
    });
    scene.serves_next("memif");
    scene.ends();
}

#[test]
fn holes_in_the_memory_of_a_guest_block_no_other_port() {
    let scene = Scene::polling("holes-vhost", "vhost");
    let mut rng = Rng::new();
    scene.withstands(|| {
        let size = from_environment("QUIETWIRE_HOSTILE_HOLE_MIB").unwrap_or(384) * MIB;
        let file = memory(size);
        let handle = file.try_clone().unwrap();
        let path = scene.path("v.sock");
        let guest = vhost::Guest::with_memory(&path, vhost::FEATURES, file, size);
        assert!(guest.begin());
        for slot in 0..vhost::SLOTS {
            let entry = vhost::RING + vhost::AVAILABLE + 4 + 2 * u64::from(slot);
            guest.write(entry, &slot.to_le_bytes());
        }
        let mut index = 0_u16;
        punch(&handle, size, || {
            for slot in 0..32 {
                let slot = index.wrapping_add(slot) % vhost::SLOTS;
                let place = vhost::GUEST + rng.between(2 * MIB, size - 2048);
                guest.describe(1, slot, place, 12 + 1514, 0, 0);
            }
            index = index.wrapping_add(32);
            guest.advance(1, index);
            until("the port takes the frames", || {
                (guest.used(1).0 == index).then_some(())
            });
        });
    });
    scene.serves_next("virtio-user");
    scene.ends();
}

#[test]
fn pages_of_a_guest_are_faulted_in_before_a_forwarding_thread_needs_them() {
    const SIZE: u64 = 64 * MIB;
    let scene = Scene::of("populate-vhost", "vhost", "");
    let pid = scene.switch.pid();
    let mut rng = Rng::new();
    let file = memory(SIZE);
    // Written, because lseek(2) treats pages that are only allocated as holes.
    file.write_all_at(&vec![0; SIZE as usize], 0).unwrap();
    let before = shared_memory(pid);
    let guest = vhost::Guest::with_memory(&scene.path("v.sock"), vhost::FEATURES, file, SIZE);
    assert!(guest.begin());
    until("the port has all pages", || {
        // The kernel's count lags behind by some pages.
        (shared_memory(pid) - before >= SIZE - MIB).then_some(())
    });
    for slot in 0..vhost::SLOTS {
        let entry = vhost::RING + vhost::AVAILABLE + 4 + 2 * u64::from(slot);
        guest.write(entry, &slot.to_le_bytes());
    }
    let faults = forwarding_faults(pid);
    let (mut index, mut pages) = (0_u16, 0);
    while pages < 2000 {
        for slot in 0..32 {
            let slot = index.wrapping_add(slot) % vhost::SLOTS;
            let place = vhost::GUEST + rng.between(2 * MIB, SIZE - 2048);
            guest.describe(1, slot, place, 12 + 60, 0, 0);
        }
        index = index.wrapping_add(32);
        pages += 32;
        guest.advance(1, index);
        until("the port takes the frames", || {
            (guest.used(1).0 == index).then_some(())
        });
    }
    let faults = forwarding_faults(pid) - faults;
    println!("{faults} page faults for {pages} frames, each in another page");
    assert!(faults < 200, "{faults} page faults for {pages} frames");
    drop(guest);
    scene.serves_next("virtio-user");
    scene.ends();
}

#[test]
fn a_memif_client_that_shares_more_than_256_mib_is_refused() {
    let scene = Scene::of("much-memif", "memif", "");
    scene.withstands(|| {
        for sizes in [
            vec![257 * MIB],
            vec![128 * MIB, 129 * MIB],
            vec![64 * MIB; 5],
        ] {
            let peer = memif::Peer::begun(&scene.path("v.sock"));
            let mut is_refused = false;
            for (index, size) in (0..).zip(&sizes) {
                let file = memory(*size);
                let region = memif::add_region(index, *size);
                is_refused |= peer.ask(&region, &[file.as_raw_fd()]) != Some(memif::ACK);
            }
            assert!(is_refused, "{sizes:?}");
        }
    });
    scene.serves_next("memif");
    scene.ends();
}
