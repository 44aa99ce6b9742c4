// SPDX-License-Identifier: Apache-2.0
//! Guests with rarely used features: packed rings, and the log of a migration. Their contents are checked as well.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::rig::{until, within};
use crate::scene::Scene;
use crate::sockets::memory;
use crate::vhost::*;

/// VIRTIO_F_RING_PACKED (virtio 1.2, section 6), VIRTIO_F_INDIRECT_DESC, and VHOST_F_LOG_ALL of vhost-user.
const PACKED: u64 = 1 << 34;
const INDIRECT_DESC: u64 = 1 << 28;
const LOG_ALL: u64 = 1 << 26;
/// Flags of packed descriptors (section 2.8.1).
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// Both wrap counters are 1, both positions 0.
const PACKED_BASE: u32 = 0x8000_8000;

/// Address of tables that descriptors refer to.
const TABLE: u64 = 0x6_0000;
const INSIDE: u64 = GUEST + BUFFERS;

/// Address, length and flags of a descriptor.
type Entry = (u64, u32, u16);

fn entry((address, length, flags): Entry, id: u16) -> Vec<u8> {
    let words = [id.to_le_bytes(), flags.to_le_bytes()].concat();
    [&address.to_le_bytes()[..], &length.to_le_bytes(), &words].concat()
}

/// A guest with packed rings that has made `place` descriptors available; the ring does not wrap.
struct PackedGuest {
    guest: Guest,
    place: u64,
}

impl PackedGuest {
    fn start(scene: &Scene) -> Self {
        let features = FEATURES | PACKED | INDIRECT_DESC;
        let path = scene.path("v.sock");
        let guest = Guest::with_memory(&path, features, memory(MEMORY), MEMORY);
        assert!((0..2).all(|ring| guest.begin_ring(ring, PACKED_BASE)));
        scene.comes_to("v", "connected");
        Self { guest, place: 0 }
    }

    /// Makes descriptors available in the guest's transmit ring, the first of them last.
    fn offer(&mut self, entries: &[Entry]) {
        for (number, (address, length, flags)) in entries.iter().enumerate().rev() {
            let octets = entry((*address, *length, flags | AVAIL), number as u16);
            let slot = (self.place + number as u64) % u64::from(SLOTS);
            self.guest.write(RING + DESCRIPTORS + 16 * slot, &octets);
        }
        self.place += entries.len() as u64;
    }

    fn table(&self, entries: &[Entry]) {
        for (number, fields) in (0..).zip(entries) {
            self.guest.write(TABLE + 16 * number, &entry(*fields, 0));
        }
    }

    /// Waits until the switch has returned the descriptor at a position; returns false if it does not in time.
    fn comes_back(&self, place: u64) -> bool {
        within(ANSWER, || self.is_used(place).then_some(())).is_some()
    }

    /// Returns true if the switch has returned the descriptor at a position.
    fn is_used(&self, place: u64) -> bool {
        let mut flags = [0; 2];
        let slot = RING + DESCRIPTORS + 16 * place;
        self.guest
            .memory
            .read_exact_at(&mut flags, slot + 14)
            .unwrap();
        u16::from_le_bytes(flags) & (AVAIL | USED) == AVAIL | USED
    }
}

#[test]
fn invalid_packed_rings_of_a_guest_are_dropped_and_counted() {
    let scene = Scene::of("packed", "vhost", "");
    let table = GUEST + TABLE;
    let many = [(INSIDE, 64, NEXT); SLOTS as usize];
    let most = [(INSIDE, 64, 0); SLOTS as usize + 1];
    // Contents of the ring and of the table.
    let lies: [(&[Entry], &[Entry]); 13] = [
        // Partly or entirely outside the memory.
        (&[(0, 1514, 0)], &[]),
        (&[(u64::MAX, 1514, 0)], &[]),
        (&[(GUEST + MEMORY - 4, 1514, 0)], &[]),
        (&[(INSIDE, u32::MAX, 0)], &[]),
        (&[(INSIDE, 64, NEXT), (GUEST + MEMORY - 4, 64, 0)], &[]),
        // Writable, in the guest's transmit ring.
        (&[(INSIDE, 1514, WRITE)], &[]),
        // Longer than any frame.
        (&[(INSIDE, 0x4_0000, NEXT), (INSIDE, 0x4_0000, 0)], &[]),
        // Tables outside the memory, empty or too large. (In a table, a device ignores all flags but WRITE: virtio 1.2,
        // section 2.8.7.)
        (&[(0, 160, INDIRECT)], &[]),
        (&[(GUEST + MEMORY - 8, 32, INDIRECT)], &[]),
        (&[(table, 15, INDIRECT)], &[(INSIDE, 64, 0)]),
        (&[(table, u32::MAX, INDIRECT)], &[(INSIDE, 64, 0)]),
        (&[(table, 16 * (SLOTS as u32 + 1), INDIRECT)], &most),
        // A chain without an end.
        (&many, &[]),
    ];
    let received = || scene.switch.port("v")["rx_frames"].as_u64().unwrap();
    // A valid frame is accepted.
    let takes = |guest: &mut PackedGuest, after: &str| {
        let (before, place) = (received(), guest.place);
        guest.offer(&[(INSIDE, 12 + 64, 0)]);
        let taken = within(ANSWER, || (received() > before).then_some(()));
        assert!(taken.is_some(), "a valid frame after {after}");
        assert!(guest.comes_back(place), "a valid frame after {after} stays");
    };
    scene.withstands(|| {
        let mut guest = PackedGuest::start(&scene);
        takes(&mut guest, "no lie");
        drop(guest);
        for (number, (ring, entries)) in lies.iter().enumerate() {
            scene.comes_to("v", "waiting");
            let before = (scene.errors("v"), received());
            let mut guest = PackedGuest::start(&scene);
            guest.table(entries);
            guest.offer(ring);
            let counted = within(ANSWER, || (scene.errors("v") > before.0).then_some(()));
            assert!(
                counted.is_some(),
                "lie {number}: {}",
                scene.switch.port("v")
            );
            assert_eq!(received(), before.1, "lie {number}");
            if ring.len() < many.len() {
                assert!(guest.comes_back(0), "lie {number} stays");
                takes(&mut guest, &format!("lie {number}"));
            }
        }
    });
    scene.serves_next("virtio-user");
    scene.ends();
}

/// Time limit for a port to take a frame.
const ANSWER: std::time::Duration = std::time::Duration::from_secs(5);

/// vhost-user requests of a migration, and the bit of the feature for the log's file.
const SET_LOG_BASE: u32 = 6;
const SET_PROTOCOL_FEATURES: u32 = 16;
const LOG_SHMFD: u64 = 1 << 1;
/// VHOST_VRING_F_LOG.
const LOG_RING: u32 = 1;

/// Returns a guest with logging of all writes to its memory, in a file with the log at this position.
fn logging(scene: &Scene, packed: bool, size: u64, offset: u64, ring_log: u64) -> Option<Guest> {
    let mut features = FEATURES | LOG_ALL;
    let mut base = 0;
    if packed {
        features |= PACKED;
        base = PACKED_BASE;
    }
    let path = scene.path("v.sock");
    let guest = Guest::with_memory(&path, features, memory(MEMORY), MEMORY);
    let log = memory(4096);
    let protocol = message(SET_PROTOCOL_FEATURES, &longs(&[LOG_SHMFD]));
    let set_base = message(SET_LOG_BASE, &longs(&[size, offset]));
    let is_begun = guest.say(&protocol, &[])
        && guest.say(&set_base, &[log.as_raw_fd()])
        && (0..2).all(|ring| {
            let place = USER + u64::from(ring) * RING;
            let mut addresses = words(&[ring, LOG_RING]);
            addresses.extend(longs(&[
                place + DESCRIPTORS,
                place + crate::vhost::USED,
                place + AVAILABLE,
                ring_log,
            ]));
            guest.begin_ring(ring, base) && guest.say(&message(SET_VRING_ADDR, &addresses), &[])
        });
    // Writes beyond the log show here.
    let _ = log.set_len(4096);
    is_begun.then_some(guest)
}

#[test]
fn invalid_logs_of_a_migration_cost_their_guest_only() {
    let scene = Scene::of("log", "vhost", "");
    let logs = [
        // Shorter than the memory requires, or empty.
        (8, 0, 0),
        (0, 0, 0),
        (1, 0, u64::MAX),
        // Beyond the file.
        (1 << 20, 0, 0),
        (4096, 1 << 30, 0),
        (u64::MAX, 0, 0),
        (u64::MAX - 4095, 4096, 0),
        (4096, u64::MAX, u64::MAX - 1),
        // Not on a page boundary.
        (64, 1, 1),
    ];
    scene.withstands(|| {
        for packed in [false, true] {
            for (size, offset, ring_log) in logs {
                let guest = logging(&scene, packed, size, offset, ring_log);
                let other = Guest::start(&scene.path("w.sock"));
                if let Some(guest) = &guest {
                    settle(&guest.stream);
                    // The switch writes to the rings and buffers, if it still uses them.
                    guest.describe(0, 0, INSIDE, 2048, WRITE, 0);
                    guest.describe(1, 0, INSIDE, 12 + 64, 0, 0);
                    for ring in [0, 1] {
                        let _ = guest
                            .memory
                            .write_at(&AVAIL.to_le_bytes(), ring * RING + 14);
                        guest.publish(ring, 0, 16);
                    }
                }
                other.describe(1, 0, INSIDE, 12 + 64, 0, 0);
                other.publish(1, 0, 64);
                until("frames come from the other side", || {
                    (other.used(1).0 == 64).then_some(())
                });
                drop((guest, other));
                for port in ["v", "w"] {
                    scene.comes_to(port, "waiting");
                }
            }
        }
    });
    scene.serves_next("virtio-user");
    scene.ends();
}
