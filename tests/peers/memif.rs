// SPDX-License-Identifier: Apache-2.0
//! A handmade memif client that sends and writes arbitrary values. The protocol is that of memif.h of DPDK and of libmemif.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{MsgFlags, SockType, recv};

use crate::rig::until;
use crate::sockets::{memory, send, try_connect};

pub(crate) const MESSAGE: usize = 128;
pub(crate) const VERSION: u16 = 0x0200;
pub(crate) const COOKIE: u32 = 0x03E3_1F20;

pub(crate) const ACK: u16 = 1;
pub(crate) const HELLO: u16 = 2;
pub(crate) const INIT: u16 = 3;
pub(crate) const ADD_REGION: u16 = 4;
pub(crate) const ADD_RING: u16 = 5;
pub(crate) const CONNECT: u16 = 6;
pub(crate) const CONNECTED: u16 = 7;

/// Octets of a ring's header; each descriptor has 16 more.
pub(crate) const RING_HEADER: u64 = 128;
pub(crate) const LOG2: u8 = 5;
pub(crate) const SLOTS: u16 = 1 << LOG2;
pub(crate) const RING: u64 = RING_HEADER + 16 * SLOTS as u64;
pub(crate) const BUFFER: u64 = 2048;
pub(crate) const REGION: u64 = 2 * RING + 2 * BUFFER * SLOTS as u64;
/// Offsets in a ring.
pub(crate) const HEAD: u64 = 6;
pub(crate) const TAIL: u64 = 64;

pub(crate) const NEXT: u16 = 1;

/// Returns a message: a type and fields, little-endian like the machine.
pub(crate) fn message(kind: u16, fields: &[&[u8]]) -> Vec<u8> {
    let mut octets = kind.to_le_bytes().to_vec();
    octets.extend(fields.concat());
    octets.resize(MESSAGE, 0);
    octets
}

pub(crate) fn init(version: u16, id: u32, mode: u8) -> Vec<u8> {
    message(INIT, &[&version.to_le_bytes(), &id.to_le_bytes(), &[mode]])
}

pub(crate) fn add_region(index: u16, size: u64) -> Vec<u8> {
    message(ADD_REGION, &[&index.to_le_bytes(), &size.to_le_bytes()])
}

pub(crate) fn add_ring(c2s: bool, index: u16, region: u16, offset: u32, log2: u8) -> Vec<u8> {
    message(
        ADD_RING,
        &[
            &u16::from(c2s).to_le_bytes(),
            &index.to_le_bytes(),
            &region.to_le_bytes(),
            &offset.to_le_bytes(),
            &[log2, 0, 0],
        ],
    )
}

/// One end of a control channel.
pub(crate) struct Peer(OwnedFd);

impl Peer {
    pub(crate) fn connect(path: &Path) -> Self {
        until("the port accepts a connection", || Self::try_connect(path))
    }

    /// Returns `None` if the port accepts no connection now.
    pub(crate) fn try_connect(path: &Path) -> Option<Self> {
        try_connect(path, SockType::SeqPacket).map(Self)
    }

    pub(crate) fn send(&self, octets: &[u8], files: &[i32]) -> bool {
        send(&self.0, octets, files)
    }

    /// Returns the type of the next message; `None` if the port ends the connection.
    pub(crate) fn receive(&self) -> Option<u16> {
        let mut descriptors = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let count = poll(&mut descriptors, PollTimeout::from(20_000_u16)).unwrap();
        assert_eq!(count, 1, "the port neither answers nor ends the connection");
        let mut octets = [0; MESSAGE];
        match recv(self.0.as_raw_fd(), &mut octets, MsgFlags::empty()) {
            Ok(MESSAGE) => Some(u16::from_le_bytes([octets[0], octets[1]])),
            _ => None,
        }
    }

    /// Sends a message and returns the answer.
    pub(crate) fn ask(&self, octets: &[u8], files: &[i32]) -> Option<u16> {
        self.send(octets, files);
        self.receive()
    }

    /// Returns a connection to interface 0.
    pub(crate) fn begun(path: &Path) -> Self {
        let peer = Self::connect(path);
        assert_eq!(peer.receive(), Some(HELLO));
        // The previous port may not have noticed the end of its last peer yet.
        if peer.ask(&init(VERSION, 0, 0), &[]) == Some(ACK) {
            return peer;
        }
        until("the port accepts a new peer", || {
            let peer = Self::connect(path);
            assert_eq!(peer.receive(), Some(HELLO));
            (peer.ask(&init(VERSION, 0, 0), &[]) == Some(ACK)).then_some(peer)
        })
    }

    /// Checks that the port ends the connection.
    pub(crate) fn is_refused(&self, what: &str) {
        let mut messages = 0;
        while self.receive().is_some() {
            messages += 1;
            assert!(messages < 1000, "{what}");
        }
    }
}

pub(crate) fn event() -> EventFd {
    EventFd::new().unwrap()
}

/// A connection with memory that the peer writes arbitrarily.
pub(crate) struct Shared {
    pub(crate) peer: Peer,
    pub(crate) file: File,
    /// Eventfds for the ring that the peer fills and for the one that the port fills.
    pub(crate) events: [EventFd; 2],
}

impl Shared {
    /// Connects like a well-behaved client: one ring each way.
    pub(crate) fn new(path: &Path) -> Self {
        Self::with(path, memory(REGION), REGION).expect("a well-behaved client is served")
    }

    /// Connects as a client whose region is this file, with the stated size. Returns `None` if the port ends the connection.
    pub(crate) fn with(path: &Path, file: File, size: u64) -> Option<Self> {
        Self::by_steps(path, file, size, |_| ())
    }

    /// As [`Self::with`]. Calls `before` with the type of each message before it is sent.
    pub(crate) fn by_steps(
        path: &Path,
        file: File,
        size: u64,
        mut before: impl FnMut(u16),
    ) -> Option<Self> {
        let peer = Peer::begun(path);
        for ring in [0, RING] {
            file.write_all_at(&COOKIE.to_le_bytes(), ring).unwrap();
        }
        let events = [event(), event()];
        let region = [file.as_raw_fd()];
        let is_taken = |octets: &[u8], files: &[i32]| peer.ask(octets, files) == Some(ACK);
        before(ADD_REGION);
        if !is_taken(&add_region(0, size), &region) {
            return None;
        }
        for (index, event) in events.iter().enumerate() {
            let ring = add_ring(index == 0, 0, 0, index as u32 * RING as u32, LOG2);
            before(ADD_RING);
            if !is_taken(&ring, &[event.as_raw_fd()]) {
                return None;
            }
        }
        before(CONNECT);
        (peer.ask(&message(CONNECT, &[]), &[]) == Some(CONNECTED)).then_some(Self {
            peer,
            file,
            events,
        })
    }

    pub(crate) fn describe(
        &self,
        ring: u64,
        slot: u16,
        flags: u16,
        region: u16,
        length: u32,
        offset: u32,
    ) {
        let fields: [&[u8]; 4] = [
            &flags.to_le_bytes(),
            &region.to_le_bytes(),
            &length.to_le_bytes(),
            &offset.to_le_bytes(),
        ];
        let place = ring + RING_HEADER + 16 * u64::from(slot % SLOTS);
        self.file.write_all_at(&fields.concat(), place).unwrap();
    }

    pub(crate) fn set(&self, place: u64, value: u16) {
        self.file.write_all_at(&value.to_le_bytes(), place).unwrap();
    }

    pub(crate) fn get(&self, place: u64) -> u16 {
        let mut octets = [0; 2];
        self.file.read_exact_at(&mut octets, place).unwrap();
        u16::from_le_bytes(octets)
    }

    /// Publishes slots, and waits until the port has processed them.
    pub(crate) fn publish(&self, head: u16) {
        self.set(HEAD, head);
        until("the port processes the published slots", || {
            (self.get(TAIL) == head).then_some(())
        });
    }
}
