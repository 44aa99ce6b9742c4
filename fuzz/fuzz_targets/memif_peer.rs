// SPDX-License-Identifier: Apache-2.0
//! Any peer of a memif port: messages that are cut, repeated or of no sense, rings and descriptors that lie, while frames
//! are received and sent. The port answers or ends the connection within a bound, holds every octet that it hands out, and
//! takes the next peer.
#![no_main]

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, connect, recv,
    sendmsg, shutdown, socket,
};
use quietwire_dpdk::{
    Burst, Eal, EalOptions, HugePages, Mempool, Port, PortHandle, PortOptions, RxQueue, TxQueue,
};

/// The driver's thread may wait for a CPU.
const TIMEOUT_MS: u16 = 10_000;
const MESSAGE: usize = 128;
const FRAME_MAX: u16 = 1518;
const QUEUES: u16 = 2;
/// Rings of 8 descriptors of 16 octets behind 192 octets of head, and buffers behind them.
const RING_LOG2: u8 = 3;
const RING_OCTETS: u32 = 192 + 16 * 8;
const REGION_OCTETS: u64 = 16 * 1024;
const COOKIE: u32 = 0x03e3_1f20;

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const DISCONNECT: u16 = 8;

struct Switch {
    rx: Vec<RxQueue>,
    tx: Vec<TxQueue>,
    handle: PortHandle,
    pool: Mempool,
    eal: Eal,
    socket: UnixAddr,
    _directory: tempfile::TempDir,
}

static SWITCH: LazyLock<Mutex<Switch>> = LazyLock::new(|| Mutex::new(open()));

fn open() -> Switch {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("memif.sock");
    let eal = Eal::start(&EalOptions {
        control_cpus: vec![0],
        memory_mib: 64,
        huge_pages: HugePages::Never,
        pci_devices: Vec::new(),
        file_prefix: format!("quietwire-fuzz-{}", std::process::id()),
    })
    .expect("DPDK starts");
    let options = PortOptions {
        rx_queues: QUEUES,
        tx_queues: QUEUES,
        rx_ring_size: 64,
        tx_ring_size: 64,
        ..PortOptions::new("fuzzed", FRAME_MAX)
    };
    let pool = Mempool::new(&eal, "fuzzed", 2047, options.data_room()).expect("memory");
    let uri = format!("memif:{}?role=server&queues={QUEUES}", path.display());
    let uri = uri.parse().expect("a URI");
    let port = Port::open(&eal, &uri, &options, &pool).expect("a port");
    let port = port.start().expect("a port that starts");
    Switch {
        rx: port.rx,
        tx: port.tx,
        handle: port.handle,
        pool,
        eal,
        socket: UnixAddr::new(&path).expect("a path"),
        _directory: directory,
    }
}

fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

fn octet(input: &mut &[u8]) -> u8 {
    take(input, 1).first().copied().unwrap_or(0)
}

fn number(input: &mut &[u8]) -> u16 {
    u16::from_le_bytes([octet(input), octet(input)])
}

struct Peer {
    socket: OwnedFd,
    memory: File,
    wake: EventFd,
    step: u8,
    /// Whether it is some port's peer yet.
    is_known: bool,
}

impl Peer {
    fn new(address: &UnixAddr, input: &mut &[u8]) -> Self {
        let kind = octet(input);
        let flags = if kind & 1 == 0 {
            MFdFlags::MFD_ALLOW_SEALING
        } else {
            MFdFlags::empty()
        };
        let memory = File::from(memfd_create(c"peer", flags).expect("a file in memory"));
        let octets = if kind & 6 == 6 {
            u64::from(kind) * 16
        } else {
            REGION_OCTETS
        };
        memory.set_len(octets).expect("room");
        let socket = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .expect("a socket");
        connect(socket.as_raw_fd(), address).expect("the port listens");
        let peer = Self {
            socket,
            memory,
            wake: EventFd::new().expect("an eventfd"),
            step: 0,
            is_known: false,
        };
        for ring in 0..4u32 {
            peer.poke(u64::from(ring * RING_OCTETS), &COOKIE.to_le_bytes());
            for slot in 0..8u32 {
                let at = ring * RING_OCTETS + 192 + 16 * slot;
                let buffer = 4 * RING_OCTETS + (ring * 8 + slot) % 4 * 2048;
                let mut descriptor = vec![0, 0, 0, 0];
                descriptor.extend(2048u32.to_le_bytes());
                descriptor.extend(buffer.to_le_bytes());
                peer.poke(u64::from(at), &descriptor);
            }
        }
        assert_eq!(peer.answer(), Some(HELLO));
        peer
    }

    /// Writes into the shared memory, as far as it goes.
    fn poke(&self, at: u64, octets: &[u8]) {
        let length = self.memory.metadata().expect("a file").len();
        let space = usize::try_from(length.saturating_sub(at)).unwrap_or(0);
        let octets = &octets[..octets.len().min(space)];
        self.memory.write_all_at(octets, at).expect("room");
    }

    /// The kind of the next message; none when the connection has ended.
    fn answer(&self) -> Option<u16> {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let ready = loop {
            match poll(&mut fds, TIMEOUT_MS) {
                Err(Errno::EINTR) => {}
                ready => break ready,
            }
        };
        assert_eq!(ready, Ok(1), "the driver says nothing");
        let mut message = [0; MESSAGE];
        match recv(self.socket.as_raw_fd(), &mut message, MsgFlags::empty()) {
            Ok(2..) => Some(u16::from_le_bytes([message[0], message[1]])),
            _ => None,
        }
    }

    /// The message that comes next in a sound handshake.
    fn next(&mut self) -> (Vec<u8>, u8) {
        let step = self.step;
        self.step = (step + 1) % 7;
        let mut message = Vec::new();
        let kind = [
            INIT, ADD_REGION, ADD_RING, ADD_RING, ADD_RING, ADD_RING, CONNECT,
        ];
        message.extend(kind[usize::from(step)].to_le_bytes());
        let file = match step {
            0 => {
                message.extend(0x0200u16.to_le_bytes());
                message.extend([0; 5]);
                0
            }
            1 => {
                message.extend([0; 2]);
                message.extend(REGION_OCTETS.to_le_bytes());
                1
            }
            2..=5 => {
                let ring = u32::from(step - 2);
                let (index, c2s) = (ring as u8 >> 1, 1 - (ring as u8 & 1));
                message.extend([c2s, 0, index, 0, 0, 0]);
                message.extend((ring * RING_OCTETS).to_le_bytes());
                message.extend([RING_LOG2, 0, 0]);
                2
            }
            _ => 0,
        };
        message.resize(MESSAGE, 0);
        (message, file)
    }

    /// Sends a message, and waits for what it leads to. False when the connection has ended.
    fn say(&mut self, message: &[u8], file: u8) -> bool {
        let other = file & 4 != 0;
        let files = match file & 3 {
            0 => Vec::new(),
            1 => vec![self.memory.as_raw_fd(); 1 + usize::from(other)],
            2 => vec![self.wake.as_fd().as_raw_fd()],
            _ => vec![self.socket.as_raw_fd()],
        };
        let control = [ControlMessage::ScmRights(&files)];
        let control = if files.is_empty() { &[][..] } else { &control };
        let octets = [IoSlice::new(message)];
        let socket = self.socket.as_raw_fd();
        let flags = MsgFlags::MSG_NOSIGNAL;
        if sendmsg::<UnixAddr>(socket, &octets, control, flags, None).is_err() {
            return false;
        }
        if self.is_known && message.len() >= MESSAGE && message[..2] == ACK.to_le_bytes() {
            // Nothing is said to that.
            return true;
        }
        let answer = self.answer();
        self.is_known |= message[..2] == INIT.to_le_bytes() && answer == Some(ACK);
        answer.is_some_and(|kind| kind != DISCONNECT)
    }

    /// Ends the connection; the driver does likewise.
    fn leave(self) {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Write);
        while self.answer().is_some() {}
    }
}

impl Switch {
    fn receive(&mut self, queue: usize) {
        let mut burst = Burst::new(&self.eal);
        self.rx[queue].receive(&mut burst, 32);
        for frame in burst.drain() {
            assert!(frame.length() > 0);
            let copy = frame.octets().to_vec();
            std::hint::black_box(copy);
        }
    }

    fn send(&mut self, queue: usize, count: usize, length: u16) {
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
        self.tx[queue].send(&mut burst);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = input;
    let mut switch = SWITCH.lock().expect("one thread");
    let mut peer = Peer::new(&switch.socket, &mut input);
    while !input.is_empty() {
        let step = octet(&mut input);
        let queue = usize::from(step >> 7);
        let goes_on = match step & 7 {
            0 | 1 => {
                let (message, file) = peer.next();
                peer.say(&message, file)
            }
            2 => {
                // The whole of a sound handshake.
                let mut goes_on = true;
                while goes_on && peer.step < 6 {
                    let (message, file) = peer.next();
                    goes_on = peer.say(&message, file);
                }
                let (message, file) = peer.next();
                goes_on && peer.say(&message, file)
            }
            3 => {
                let (mut message, file) = peer.next();
                for _ in 0..1 + (step >> 3 & 3) {
                    let at = usize::from(octet(&mut input)) % 24;
                    message[at] = octet(&mut input);
                }
                let file = if step & 0x40 == 0 {
                    file
                } else {
                    octet(&mut input)
                };
                peer.say(&message, file)
            }
            4 => {
                let file = octet(&mut input);
                let mut message = vec![octet(&mut input) % 10, 0];
                let length = usize::from(octet(&mut input)) % (MESSAGE + 8);
                message.extend(take(&mut input, length));
                if step & 0x40 == 0 {
                    message.resize(MESSAGE, 0);
                }
                peer.say(&message, file)
            }
            5 => {
                // Heads, tails, cookies, descriptors.
                for _ in 0..1 + (step >> 3) {
                    let ring = u64::from(octet(&mut input)) % 4 * u64::from(RING_OCTETS);
                    let at = u64::from(octet(&mut input));
                    let at = match at & 3 {
                        0 => 6,
                        1 => 64,
                        2 => at,
                        _ => 192 + at % 128,
                    };
                    let value = number(&mut input);
                    // Most of the time numbers that lie near the sound ones.
                    let value = if value & 0x30 == 0 {
                        value
                    } else {
                        value & 0xf
                    };
                    peer.poke(ring + at, &value.to_le_bytes());
                }
                true
            }
            6 => {
                switch.receive(queue);
                true
            }
            _ => {
                let (count, length) = (octet(&mut input), number(&mut input));
                switch.send(queue, usize::from(count), length);
                true
            }
        };
        if !goes_on {
            break;
        }
    }
    for queue in 0..usize::from(QUEUES) {
        switch.receive(queue);
        switch.send(queue, 4, 60);
    }
    peer.leave();
    std::hint::black_box(switch.handle.stats());
});
