// SPDX-License-Identifier: Apache-2.0
//! A handmade guest side of vhost-user that sends and writes arbitrary values. The protocol is that of QEMU's
//! docs/interop/vhost-user.rst.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::eventfd::EventFd;
use nix::sys::socket::SockType;

use crate::rig::{DEADLINE, until};
use crate::sockets::{memory, send, try_connect};

pub(crate) const VERSION: u32 = 1;

pub(crate) const GET_FEATURES: u32 = 1;
pub(crate) const SET_FEATURES: u32 = 2;
pub(crate) const SET_OWNER: u32 = 3;
pub(crate) const SET_MEM_TABLE: u32 = 5;
pub(crate) const SET_VRING_NUM: u32 = 8;
pub(crate) const SET_VRING_ADDR: u32 = 9;
pub(crate) const SET_VRING_BASE: u32 = 10;
pub(crate) const GET_VRING_BASE: u32 = 11;
pub(crate) const SET_VRING_KICK: u32 = 12;
pub(crate) const SET_VRING_CALL: u32 = 13;
pub(crate) const SET_VRING_ENABLE: u32 = 18;

/// VIRTIO_F_VERSION_1 and VHOST_USER_F_PROTOCOL_FEATURES.
pub(crate) const FEATURES: u64 = 1 << 32 | 1 << 30;

/// Addresses of the peer's memory, in its own address space and in the guest's.
pub(crate) const USER: u64 = 0x7f00_0000_0000;
pub(crate) const GUEST: u64 = 0x10_0000;
pub(crate) const MEMORY: u64 = 1 << 20;

pub(crate) const SLOTS: u16 = 256;
/// Offsets in the memory: descriptors, the guest's ring, the host's ring; the second ring is 64 KiB further.
pub(crate) const DESCRIPTORS: u64 = 0;
pub(crate) const AVAILABLE: u64 = 0x2000;
pub(crate) const USED: u64 = 0x4000;
pub(crate) const RING: u64 = 0x1_0000;
pub(crate) const BUFFERS: u64 = 0x8_0000;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(crate) fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_le_bytes()).collect()
}

pub(crate) fn message(request: u32, payload: &[u8]) -> Vec<u8> {
    let mut octets = words(&[request, VERSION, payload.len() as u32]);
    octets.extend(payload);
    octets
}

pub(crate) fn mem_table(count: u32, size: u64, offset: u64) -> Vec<u8> {
    let mut payload = words(&[count, 0]);
    for region in 0..u64::from(count.min(8)) {
        payload.extend(longs(&[
            GUEST + region * size,
            size,
            USER + region * size,
            offset,
        ]));
    }
    message(SET_MEM_TABLE, &payload)
}

pub(crate) fn vring(request: u32, index: u32, number: u32) -> Vec<u8> {
    message(request, &words(&[index, number]))
}

pub(crate) fn vring_addr(index: u32, descriptors: u64, used: u64, available: u64) -> Vec<u8> {
    let mut payload = words(&[index, 0]);
    payload.extend(longs(&[descriptors, used, available, 0]));
    message(SET_VRING_ADDR, &payload)
}

pub(crate) fn vring_file(request: u32, index: u64) -> Vec<u8> {
    message(request, &longs(&[index]))
}

pub(crate) fn connect(path: &Path) -> UnixStream {
    let socket = until("the port accepts a connection", || {
        try_connect(path, SockType::Stream)
    });
    let stream = UnixStream::from(socket);
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Waits until the port has read everything: it answers a request, or has ended the connection.
pub(crate) fn settle(mut stream: &UnixStream) {
    if send(stream, &message(GET_FEATURES, &[]), &[]) {
        let mut octets = [0; 1024];
        let _ = stream.read(&mut octets);
    }
}

/// A peer that completes the handshake.
pub(crate) struct Guest {
    pub(crate) stream: UnixStream,
    pub(crate) memory: File,
    /// Eventfds for kicks and calls: two of each ring.
    pub(crate) events: Vec<EventFd>,
}

impl Guest {
    pub(crate) fn start(path: &Path) -> Self {
        Self::with_features(path, FEATURES)
    }

    /// Connects a peer that acknowledges these features.
    pub(crate) fn with_features(path: &Path, features: u64) -> Self {
        let guest = Self::with_memory(path, features, memory(MEMORY), MEMORY);
        assert!(guest.begin(), "the port ends the connection");
        guest
    }

    /// Connects a peer whose memory is this file, with the stated size; its rings are not started yet.
    pub(crate) fn with_memory(path: &Path, features: u64, memory: File, size: u64) -> Self {
        let guest = Self {
            stream: connect(path),
            memory,
            events: (0..4).map(|_| EventFd::new().unwrap()).collect(),
        };
        guest.say(&message(SET_OWNER, &[]), &[]);
        guest.say(&message(SET_FEATURES, &longs(&[features])), &[]);
        guest.say(&mem_table(1, size, 0), &[guest.memory.as_raw_fd()]);
        guest
    }

    /// Starts both rings; returns false if the port has ended the connection.
    pub(crate) fn begin(&self) -> bool {
        (0..2).all(|ring| self.begin_ring(ring, 0))
    }

    /// Starts a ring whose first entry is `base` (of a packed ring with the wrap counters: virtio 1.2, section 2.8.1).
    pub(crate) fn begin_ring(&self, ring: u32, base: u32) -> bool {
        let place = USER + u64::from(ring) * RING;
        let at = ring as usize * 2;
        let (kick, call) = (&self.events[at], &self.events[at + 1]);
        let addresses = vring_addr(ring, place + DESCRIPTORS, place + USED, place + AVAILABLE);
        let file = |request| vring_file(request, ring.into());
        self.say(&vring(SET_VRING_NUM, ring, u32::from(SLOTS)), &[])
            && self.say(&vring(SET_VRING_BASE, ring, base), &[])
            && self.say(&addresses, &[])
            && self.say(&file(SET_VRING_CALL), &[call.as_raw_fd()])
            && self.say(&file(SET_VRING_KICK), &[kick.as_raw_fd()])
            && self.say(&vring(SET_VRING_ENABLE, ring, 1), &[])
    }

    /// Sends a message; returns false if the port has ended the connection.
    pub(crate) fn say(&self, octets: &[u8], files: &[i32]) -> bool {
        send(&self.stream, octets, files)
    }

    /// Waits for the port to end the connection; returns false if it answers instead.
    pub(crate) fn is_refused(&self) -> bool {
        let mut octets = [0; 1024];
        !send(&self.stream, &message(GET_FEATURES, &[]), &[])
            || !matches!((&self.stream).read(&mut octets), Ok(1..))
    }

    pub(crate) fn write(&self, place: u64, octets: &[u8]) {
        self.memory.write_all_at(octets, place).unwrap();
    }

    pub(crate) fn describe(
        &self,
        ring: u64,
        slot: u16,
        address: u64,
        length: u32,
        flags: u16,
        next: u16,
    ) {
        let place = ring * RING + DESCRIPTORS + 16 * u64::from(slot);
        self.write(place, &longs(&[address]));
        self.write(place + 8, &words(&[length]));
        self.write(
            place + 12,
            &[flags.to_le_bytes(), next.to_le_bytes()].concat(),
        );
    }

    /// Returns the number of buffers that the host has used of a ring, and the octets in the last of them.
    pub(crate) fn used(&self, ring: u64) -> (u16, u32) {
        let place = ring * RING + USED;
        let (mut index, mut length) = ([0; 2], [0; 4]);
        self.memory.read_exact_at(&mut index, place + 2).unwrap();
        let index = u16::from_le_bytes(index);
        let slot = u64::from(index.wrapping_sub(1) % SLOTS);
        self.memory
            .read_exact_at(&mut length, place + 8 + 8 * slot)
            .unwrap();
        (index, u32::from_le_bytes(length))
    }

    /// Makes the contents of the slots available, up to `index`.
    pub(crate) fn advance(&self, ring: u64, index: u16) {
        self.write(ring * RING + AVAILABLE + 2, &index.to_le_bytes());
    }

    /// Makes descriptor 0 available in every slot, up to `index`.
    pub(crate) fn publish(&self, ring: u64, head: u16, index: u16) {
        let place = ring * RING + AVAILABLE;
        for slot in 0..u64::from(SLOTS) {
            self.write(place + 4 + 2 * slot, &head.to_le_bytes());
        }
        self.write(place + 2, &index.to_le_bytes());
    }
}
