// SPDX-License-Identifier: Apache-2.0
//! Any guest of a vhost-user port: a sound handshake, then rings and descriptors that lie and messages in between, while
//! frames are received and sent. The port goes on within a bound, holds every octet that it hands out, and takes the next
//! guest.
#![no_main]

use std::fs::File;
use std::io::{IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use quietwire_dpdk::{
    Burst, Eal, EalOptions, HugePages, Mempool, Port, PortHandle, PortOptions, RxQueue, TxQueue,
};

/// The library's thread may wait for a CPU.
const TIMEOUT: Duration = Duration::from_secs(20);
const FRAME_MAX: u16 = 1518;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ENABLE: u32 = 18;

/// Features that a guest agrees to: VIRTIO_F_VERSION_1 and VHOST_USER_F_PROTOCOL_FEATURES, and one of these sets.
const ALWAYS: u64 = 1 << 32 | 1 << 30;
const SETS: [u64; 4] = [
    0,
    1 << 15 | 1 << 28,
    // Checksums, segments, events.
    1 << 0 | 1 << 1 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12 | 1 << 15 | 1 << 28 | 1 << 29,
    1 << 0 | 1 << 11 | 1 << 29,
];

const USER: u64 = 0x7f00_0000_0000;
const GUEST: u64 = 0x10_0000;
/// Two regions, one behind the other in the guest's addresses.
const REGION: u64 = 0x2_0000;
const SLOTS: u16 = 8;
/// Places in the first region: descriptors, the guest's ring, the host's ring; the second ring stands further on.
const RING: u64 = 0x1000;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;
const TABLE: u64 = 0x4000;
const BUFFERS: u64 = 0x8000;

struct Switch {
    rx: RxQueue,
    tx: TxQueue,
    handle: PortHandle,
    pool: Mempool,
    eal: Eal,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

static SWITCH: LazyLock<Mutex<Switch>> = LazyLock::new(|| Mutex::new(open()));

fn open() -> Switch {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("vhost.sock");
    let eal = Eal::start(&EalOptions {
        control_cpus: vec![0],
        memory_mib: 64,
        huge_pages: HugePages::Never,
        pci_devices: Vec::new(),
        file_prefix: format!("quietwire-fuzz-{}", std::process::id()),
    })
    .expect("DPDK starts");
    let options = PortOptions {
        rx_ring_size: 64,
        tx_ring_size: 64,
        ..PortOptions::new("fuzzed", FRAME_MAX)
    };
    let pool = Mempool::new(&eal, "fuzzed", 2047, options.data_room()).expect("memory");
    let uri = format!("vhost:{}?tso=on", socket.display());
    let port = Port::open(&eal, &uri.parse().expect("a URI"), &options, &pool).expect("a port");
    let mut port = port.start().expect("a port that starts");
    Switch {
        rx: port.rx.remove(0),
        tx: port.tx.remove(0),
        handle: port.handle,
        pool,
        eal,
        socket,
        _directory: directory,
    }
}

fn octet(input: &mut &[u8]) -> u8 {
    let Some((first, rest)) = input.split_first() else {
        return 0;
    };
    *input = rest;
    *first
}

fn number(input: &mut &[u8]) -> u16 {
    u16::from_le_bytes([octet(input), octet(input)])
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_le_bytes()).collect()
}

struct Guest {
    stream: UnixStream,
    memory: File,
    events: Vec<EventFd>,
}

impl Guest {
    fn new(switch: &Switch, features: u64) -> Option<Self> {
        let stream = UnixStream::connect(&switch.socket).expect("the port listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let memory = memfd_create(c"guest", MFdFlags::MFD_ALLOW_SEALING).expect("a file in memory");
        let memory = File::from(memory);
        memory.set_len(2 * REGION).expect("room");
        fcntl(&memory, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).expect("a seal");
        let guest = Self {
            stream,
            memory,
            events: (0..4)
                .map(|_| EventFd::new().expect("an eventfd"))
                .collect(),
        };
        let is_sound = guest.say(SET_OWNER, &[], &[])
            && guest.say(SET_FEATURES, &longs(&[ALWAYS | features]), &[])
            && guest.map()
            && (0..2).all(|ring| guest.set_up(ring))
            && guest.settles();
        is_sound.then_some(guest)
    }

    fn map(&self) -> bool {
        let mut table = words(&[2, 0]);
        for region in 0..2 {
            let at = region * REGION;
            table.extend(longs(&[GUEST + at, REGION, USER + at, at]));
        }
        self.say(SET_MEM_TABLE, &table, &[self.memory.as_raw_fd(); 2])
    }

    fn set_up(&self, ring: u32) -> bool {
        let base = USER + u64::from(ring) * RING;
        let at = ring as usize * 2;
        let file = |event: &EventFd| [event.as_fd().as_raw_fd()];
        let mut address = words(&[ring, 0]);
        address.extend(longs(&[base, base + USED, base + AVAILABLE, 0]));
        let index = longs(&[ring.into()]);
        self.say(SET_VRING_NUM, &words(&[ring, SLOTS.into()]), &[])
            && self.say(SET_VRING_BASE, &words(&[ring, 0]), &[])
            && self.say(SET_VRING_ADDR, &address, &[])
            && self.say(SET_VRING_CALL, &index, &file(&self.events[at]))
            && self.say(SET_VRING_KICK, &index, &file(&self.events[at + 1]))
            && self.say(SET_VRING_ENABLE, &words(&[ring, 1]), &[])
    }

    fn say(&self, request: u32, payload: &[u8], files: &[i32]) -> bool {
        let mut octets = words(&[request, 1, payload.len() as u32]);
        octets.extend(payload);
        let control = [ControlMessage::ScmRights(files)];
        let control = if files.is_empty() { &[][..] } else { &control };
        let socket = self.stream.as_raw_fd();
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(socket, &[IoSlice::new(&octets)], control, flags, None).is_ok()
    }

    /// Waits until everything said was done; false when the connection has ended.
    fn settles(&self) -> bool {
        let mut answer = [0; 20];
        self.say(GET_FEATURES, &[], &[]) && (&self.stream).read_exact(&mut answer).is_ok()
    }

    fn poke(&self, at: u64, octets: &[u8]) {
        if at + octets.len() as u64 <= 2 * REGION {
            self.memory.write_all_at(octets, at).expect("room");
        }
    }

    /// Writes a descriptor that makes sense more often than not.
    fn describe(&self, at: u64, input: &mut &[u8]) {
        let (kind, detail) = (octet(input), number(input));
        let address = match kind & 7 {
            0..=3 => GUEST + BUFFERS + u64::from(detail),
            // At the end of one region, or of both.
            4 => GUEST + REGION - u64::from(detail & 0xfff),
            5 => GUEST + 2 * REGION - u64::from(detail & 0x3f),
            6 => GUEST + TABLE + u64::from(detail & 0x70),
            _ => u64::from(detail) << (kind >> 3),
        };
        let length = match kind >> 3 & 7 {
            0..=3 => u32::from(number(input)) % 2048,
            4 => u32::from(detail) & 0xff,
            5 => 16 * (u32::from(detail) & 0xf),
            6 => u32::from(number(input)) << 4,
            _ => u32::MAX - u32::from(detail),
        };
        let flags = octet(input);
        let flags = if flags & 0x10 == 0 {
            flags & 3
        } else {
            flags & 7
        };
        self.poke(at, &longs(&[address]));
        self.poke(at + 8, &words(&[length]));
        self.poke(at + 12, &[flags, 0, octet(input) % 10, 0]);
    }
}

impl Switch {
    fn receive(&mut self) {
        let mut burst = Burst::new(&self.eal);
        self.rx.receive(&mut burst, 32);
        for frame in burst.drain() {
            assert!(frame.length() > 0);
            let mut octets = vec![0; frame.length() as usize];
            assert!(frame.read_at(0, &mut octets));
            std::hint::black_box(octets);
        }
    }

    fn send(&mut self, count: usize, length: u16) {
        let mut burst = Burst::new(&self.eal);
        assert!(
            burst.allocate(&self.pool, count.clamp(1, 32)),
            "buffers are lost"
        );
        burst.write_each(|blank| {
            if let Some(octets) = blank.octets(length.clamp(14, FRAME_MAX - 4)) {
                octets.fill(0xa5);
            }
        });
        self.tx.send(&mut burst);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = input;
    let mut switch = SWITCH.lock().expect("one thread");
    let set = octet(&mut input);
    let Some(guest) = Guest::new(&switch, SETS[usize::from(set & 3)]) else {
        panic!("a sound guest is shown the door");
    };
    while !input.is_empty() {
        let step = octet(&mut input);
        let ring = u64::from(step >> 7) * RING;
        let goes_on = match step & 7 {
            0 | 1 => {
                let slot = u64::from(step >> 3 & 15) % u64::from(SLOTS);
                guest.describe(ring + 16 * slot, &mut input);
                true
            }
            2 => {
                guest.describe(TABLE + 16 * u64::from(step >> 3 & 7), &mut input);
                true
            }
            3 => {
                // The guest's ring, or a header before a frame.
                let at = u64::from(octet(&mut input));
                let value = number(&mut input);
                let value = if value & 0x30 == 0 {
                    value
                } else {
                    value & 0xf
                };
                let place = if at & 0x80 == 0 {
                    ring + AVAILABLE + 2 * (at % 11)
                } else {
                    BUFFERS + at
                };
                guest.poke(place, &value.to_le_bytes());
                true
            }
            4 | 5 => {
                if step & 1 == 0 {
                    switch.receive();
                } else {
                    let (count, length) = (octet(&mut input), number(&mut input));
                    switch.send(usize::from(count), length);
                }
                true
            }
            6 => {
                // Another burst of frames, at any position of the ring.
                let index = number(&mut input);
                guest.poke(ring + AVAILABLE + 2, &(index & 0xf).to_le_bytes());
                true
            }
            _ => {
                let ring = u32::from(step >> 7);
                let value = octet(&mut input);
                let printed = match step >> 3 & 7 {
                    0 => guest.map(),
                    1 => guest.say(SET_VRING_ENABLE, &words(&[ring, u32::from(value & 1)]), &[]),
                    2 => guest.say(SET_VRING_BASE, &words(&[ring, value.into()]), &[]),
                    3 => guest.say(SET_VRING_NUM, &words(&[ring, 1 << (value & 15)]), &[]),
                    4 => {
                        guest.say(GET_VRING_BASE, &words(&[ring, 0]), &[]) && {
                            let mut answer = [0; 20];
                            (&guest.stream).read_exact(&mut answer).is_ok() && guest.set_up(ring)
                        }
                    }
                    _ => guest.set_up(ring),
                };
                printed && guest.settles()
            }
        };
        if !goes_on {
            break;
        }
    }
    for _ in 0..2 {
        switch.receive();
        switch.send(4, 60);
    }
    std::hint::black_box(switch.handle.stats());
    drop(guest);
});
