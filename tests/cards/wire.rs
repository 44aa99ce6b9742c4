// SPDX-License-Identifier: Apache-2.0
//! The host's ends of the cards' cables: pairs of Unix datagram sockets, one frame a datagram; and the frames.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::DEADLINE;

/// Time without any frame after which all frames that have not arrived count as lost. It passes at most once.
const SILENCE: Duration = Duration::from_secs(5);
/// The same if all frames must arrive: it passes only before a failure. Emulated CPUs may stand still for seconds if the machine is busy.
const SILENCE_OF_ALL: Duration = Duration::from_secs(30);
/// Octets of the longest frame.
const FRAME_MAX: usize = 16_384;
/// UDP port of the test's frames; a guest may send others.
const PORT: u16 = 7777;
/// Places in the test's frames: EtherType, source and destination ports, flow, sequence.
const ETHERTYPE: usize = 12;
const DESTINATION_PORT: usize = 36;
const FLOW: usize = 42;
const SEQUENCE: usize = 46;
/// Octets of the shortest of the test's frames.
pub(crate) const FRAME_MIN: usize = 60;

/// The end of a cable.
pub(crate) struct Wire {
    socket: UnixDatagram,
    /// QEMU's end, or that of a relay.
    far: PathBuf,
}

/// Frames that arrived, and their order.
#[derive(Default)]
pub(crate) struct Carried {
    pub(crate) frames: Vec<Vec<u8>>,
    /// Number of frames that did not arrive, or could not be sent any more.
    pub(crate) lost: usize,
    /// Time from the first frame to the end.
    pub(crate) duration: Duration,
}

impl Wire {
    pub(crate) fn new(directory: &Path, name: &str) -> Self {
        let near = directory.join(format!("{name}.host"));
        let socket = UnixDatagram::bind(near).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            far: directory.join(format!("{name}.card")),
        }
    }

    /// Returns the paths of a relay's end and of this one.
    pub(crate) fn ends(&self) -> [PathBuf; 2] {
        let near = self.socket.local_addr().unwrap();
        [self.far.clone(), near.as_pathname().unwrap().to_owned()]
    }

    /// Returns QEMU's network device of this cable.
    pub(crate) fn netdev(&self, id: &str) -> String {
        let [far, near] = self.ends();
        format!(
            "dgram,id={id},local.type=unix,local.path={},remote.type=unix,remote.path={}",
            far.display(),
            near.display()
        )
    }

    /// Returns QEMU's network device of a cable from this card to another one, without an end here.
    pub(crate) fn netdev_to(&self, id: &str, other: &Self) -> String {
        format!(
            "dgram,id={id},local.type=unix,local.path={},remote.type=unix,remote.path={}",
            self.far.display(),
            other.far.display()
        )
    }

    /// Sends a frame, unless the card accepts none now.
    fn try_send(&self, frame: &[u8]) -> bool {
        match self.socket.send_to(frame, &self.far) {
            Ok(count) => {
                assert_eq!(count, frame.len());
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{}: {error}", self.far.display()),
        }
    }

    /// Receives a frame of the test, if one has arrived.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; FRAME_MAX];
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(count) => {
                    let frame = &buffer[..count];
                    if is_of_test(frame) {
                        return Some(frame.to_vec());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => panic!("{}: {error}", self.far.display()),
            }
        }
    }

    /// Waits for a frame, at most 1 ms: the card of the other cable may accept one first.
    fn wait(&self) {
        let mut file = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        poll(&mut file, PollTimeout::from(1_u8)).unwrap();
    }

    /// Sends frames to the card of this cable, and receives what arrives at another, with `window` frames under way at most: rings that
    /// overflow are no part of these tests. It ends when all frames have arrived, or none for a while: frames that a device drops stay
    /// under way, so that the window closes.
    pub(crate) fn carry(&self, to: &Self, frames: &[Vec<u8>], window: usize) -> Carried {
        let carried = self.carry_within(to, frames, window, SILENCE);
        assert!(
            carried.duration < DEADLINE,
            "{} of {} frames arrived at {} within {DEADLINE:?}",
            carried.frames.len(),
            frames.len(),
            to.far.display()
        );
        carried
    }

    /// The same with another time without any frame, `silence`. It also ends after [`DEADLINE`].
    pub(crate) fn carry_within(
        &self,
        to: &Self,
        frames: &[Vec<u8>],
        window: usize,
        silence: Duration,
    ) -> Carried {
        let began = Instant::now();
        let mut carried = Carried::default();
        let mut left: VecDeque<&Vec<u8>> = frames.iter().collect();
        let mut under_way = 0;
        let mut last = Instant::now();
        while under_way > 0 || !left.is_empty() {
            let mut is_idle = true;
            if under_way < window
                && let Some(frame) = left.front()
                && self.try_send(frame)
            {
                left.pop_front();
                under_way += 1;
                is_idle = false;
            }
            while let Some(frame) = to.receive() {
                carried.frames.push(frame);
                under_way = under_way.saturating_sub(1);
                is_idle = false;
            }
            if !is_idle {
                last = Instant::now();
            } else if last.elapsed() > silence {
                break;
            } else {
                to.wait();
            }
            if began.elapsed() >= DEADLINE {
                break;
            }
        }
        carried.lost = under_way + left.len();
        carried.duration = began.elapsed();
        carried
    }

    /// Checks that every frame arrives at another card, unchanged and in order.
    pub(crate) fn carries(&self, to: &Self, frames: &[Vec<u8>]) {
        let carried = self.carry_within(to, frames, 16, SILENCE_OF_ALL);
        assert!(
            carried.lost == 0 && carried.frames == frames,
            "{} of {} frames from {} arrived at {} within {:?}, {} were lost; {}",
            carried.frames.len(),
            frames.len(),
            self.far.display(),
            to.far.display(),
            carried.duration,
            carried.lost,
            first_difference(frames, &carried.frames)
        );
    }
}

/// Describes the first frame that differs from the one that was sent, for failures.
fn first_difference(sent: &[Vec<u8>], arrived: &[Vec<u8>]) -> String {
    const SHOWN: usize = 64;
    let describe = |frame: Option<&Vec<u8>>| match frame {
        Some(frame) => {
            let shown = &frame[..frame.len().min(SHOWN)];
            format!("{} octets {shown:02x?}", frame.len())
        }
        None => "no frame".to_owned(),
    };
    let mut places = 0..sent.len().max(arrived.len());
    match places.find(|place| sent.get(*place) != arrived.get(*place)) {
        Some(place) => format!(
            "number {place} is {} instead of {}",
            describe(arrived.get(place)),
            describe(sent.get(place))
        ),
        None => "no frame differs".to_owned(),
    }
}

fn is_of_test(frame: &[u8]) -> bool {
    let at = ethertype_at(frame) - ETHERTYPE;
    frame.get(DESTINATION_PORT + at..DESTINATION_PORT + at + 2) == Some(&PORT.to_be_bytes()[..])
        || frame.get(DESTINATION_PORT + at - 2..DESTINATION_PORT + at)
            == Some(&PORT.to_be_bytes()[..])
}

/// Returns the place of the EtherType: a frame may have a VLAN tag.
fn ethertype_at(frame: &[u8]) -> usize {
    match frame.get(ETHERTYPE..ETHERTYPE + 2) {
        Some([0x81, 0]) => ETHERTYPE + 4,
        _ => ETHERTYPE,
    }
}

/// Returns the VLAN of a tagged frame.
pub(crate) fn vlan_of(frame: &[u8]) -> Option<u16> {
    match frame.get(ETHERTYPE..ETHERTYPE + 4) {
        Some([0x81, 0, high, low]) => Some(u16::from_be_bytes([*high, *low]) & 0xfff),
        _ => None,
    }
}

/// Returns a frame with a VLAN tag.
pub(crate) fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let [high, low] = vlan.to_be_bytes();
    [
        &frame[..ETHERTYPE],
        &[0x81, 0, high, low],
        &frame[ETHERTYPE..],
    ]
    .concat()
}

fn number_at(frame: &[u8], place: usize) -> u32 {
    let octets = frame[place..place + 4].try_into().unwrap();
    u32::from_be_bytes(octets)
}

/// Returns the flow and the sequence number of a frame without a tag.
pub(crate) fn flow_and_sequence(frame: &[u8]) -> (u32, u32) {
    (number_at(frame, FLOW), number_at(frame, SEQUENCE))
}

/// A frame of the test: UDP over IPv4 over Ethernet (RFC 768, RFC 791), without a UDP checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) destination: [u8; 6],
    /// Chooses addresses and ports.
    pub(crate) flow: u32,
    pub(crate) sequence: u32,
    /// Octets without FCS.
    pub(crate) length: usize,
    /// True for the other direction of the flow.
    pub(crate) is_answer: bool,
}

impl Frame {
    pub(crate) fn of(flow: u32, sequence: u32) -> Self {
        Self {
            destination: [0x52, 0x54, 0, 0, 1, 0],
            flow,
            sequence,
            length: FRAME_MIN,
            is_answer: false,
        }
    }

    pub(crate) fn octets(self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.length);
        frame.extend(self.destination);
        frame.extend([0x52, 0x54, 0, 0, 2, 0]);
        frame.extend([8, 0]);
        let length = (self.length - 14) as u16;
        let [_, b, c, d] = self.flow.to_be_bytes();
        let mut ends = [
            (
                [10, b, c, d],
                (self.flow.wrapping_mul(40_503) >> 3) as u16 | 0x400,
            ),
            ([192, 0, 2, 1], PORT),
        ];
        if self.is_answer {
            ends.reverse();
        }
        let [(source, source_port), (destination, destination_port)] = ends;
        let mut header = vec![0x45, 0];
        header.extend(length.to_be_bytes());
        header.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        header.extend(source);
        header.extend(destination);
        let sum = checksum(&header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        frame.extend(header);
        frame.extend(source_port.to_be_bytes());
        frame.extend(destination_port.to_be_bytes());
        frame.extend((length - 20).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(self.flow.to_be_bytes());
        frame.extend(self.sequence.to_be_bytes());
        let rest = frame.len()..self.length;
        frame.extend(rest.map(|place| place as u8));
        assert_eq!(frame.len(), self.length);
        frame
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
