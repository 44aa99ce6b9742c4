// SPDX-License-Identifier: Apache-2.0
//! The tester's frames: Ethernet, IPv4, UDP, and an 18-octet signature that fills a frame of 64 octets:
//!
//! | octets | what |
//! |---|---|
//! | 42..44 | magic number |
//! | 44 | epoch: which part of which trial |
//! | 45 | index of the transmitting port |
//! | 46..48 | flow |
//! | 48..52 | sequence number within the flow |
//! | 52..60 | time stamp counter at transmission |

use std::net::Ipv4Addr;

use quietwire_dpdk::Burst;
use quietwire_packet::{BuildError, MacAddress, UdpChecksum, UdpFrame};

use crate::trial::Trial;

/// Octets of the smallest Ethernet frame without FCS: what each frame begins with.
pub(crate) const HEAD: usize = 60;
/// Octets of the FCS, which sizes include and buffers do not.
const FCS: u16 = 4;
const MAGIC: [u8; 2] = *b"QW";
const SIGNATURE: std::ops::Range<usize> = 42..60;

/// Which part of which trial a frame belongs to. Even for a counted part, the odd one before for its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u8);

impl Epoch {
    /// The epoch of the counted part of the `trial`-th trial of this tester.
    pub(crate) fn of_trial(trial: u64) -> Self {
        Self(((trial % 127) as u8 + 1) * 2)
    }

    /// The epoch of the warm-up before.
    pub(crate) fn warm_up(self) -> Self {
        Self(self.0 - 1)
    }
}

/// What a received frame says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) epoch: Epoch,
    pub(crate) port: u8,
    pub(crate) flow: u16,
    pub(crate) sequence: u32,
    pub(crate) tick: u64,
}

impl Signature {
    /// Reads a frame's signature; `None` for a frame that no tester sent.
    #[inline(always)]
    pub(crate) fn read(frame: &[u8]) -> Option<Self> {
        let octets: &[u8; 18] = frame.get(SIGNATURE)?.try_into().ok()?;
        let [m0, m1, epoch, port, f0, f1, s0, s1, s2, s3, tick @ ..] = *octets;
        if [m0, m1] != MAGIC {
            return None;
        }
        Some(Self {
            epoch: Epoch(epoch),
            port,
            flow: u16::from_le_bytes([f0, f1]),
            sequence: u32::from_le_bytes([s0, s1, s2, s3]),
            tick: u64::from_le_bytes(tick),
        })
    }

    #[inline(always)]
    fn write(self, head: &mut [u8; HEAD]) {
        let [f0, f1] = self.flow.to_le_bytes();
        let [s0, s1, s2, s3] = self.sequence.to_le_bytes();
        let [m0, m1] = MAGIC;
        head[42..50].copy_from_slice(&[m0, m1, self.epoch.0, self.port, f0, f1, s0, s1]);
        head[50..52].copy_from_slice(&[s2, s3]);
        head[52..60].copy_from_slice(&self.tick.to_le_bytes());
    }

    /// True for a frame of the warm-up before the counted part `epoch`.
    #[cold]
    pub(crate) fn is_of_warm_up(frame: &[u8], epoch: Epoch) -> bool {
        Self::read(frame).is_some_and(|signature| signature.epoch == epoch.warm_up())
    }
}

/// Writes the frames of one port, in the order of their sequence.
#[derive(Clone, Debug)]
pub(crate) struct FrameWriter {
    /// Length without FCS and first octets, one a position of the size pattern.
    pattern: Vec<(u16, [u8; HEAD])>,
    /// Sums of the IPv4 headers without their destinations and checksums, one a position of the pattern.
    sums: Vec<u32>,
    epoch: Epoch,
    port: u8,
    flows: u16,
    addresses: u32,
    destinations: u32,
    learned: u32,
    cursor: Cursor,
}

/// What the next frame will be. Small and copied, so that it stays in registers over a burst.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    position: usize,
    flow: u16,
    sequence: u64,
    address: u32,
    written: u64,
    random: u64,
}

/// First octets of a frame of `size` octets with FCS. Addresses are of the range set aside for
/// benchmarks (RFC 2544, appendix C.2.2); the UDP checksum is absent, since each frame's payload differs.
fn head(size: u16, port: u8, peer: u8) -> Result<[u8; HEAD], BuildError> {
    let mut frame = vec![0; usize::from(size)];
    UdpFrame {
        destination_mac: MacAddress(mac_address(peer, 0)),
        source_mac: MacAddress(mac_address(port, 0)),
        tag: None,
        destination_ip: Ipv4Addr::new(198, 18, peer, 1),
        source_ip: Ipv4Addr::new(198, 18, port, 1),
        ttl: 64,
        destination_port: UDP_DESTINATION,
        source_port: UDP_SOURCE_FIRST,
        udp_checksum: UdpChecksum::Absent,
        payload: &[0; 18],
        size_with_fcs: size,
    }
    .write(&mut frame)?;
    let mut head = [0; HEAD];
    for (octet, written) in head.iter_mut().zip(frame) {
        *octet = written;
    }
    Ok(head)
}

/// 16.0.0.0.
const FIRST_DESTINATION: u32 = 0x1000_0000;

/// The sum of an IPv4 header's words, but for the destination and the checksum.
fn sum_without_destination(head: &[u8; HEAD]) -> u32 {
    let words = head[14..34].as_chunks::<2>().0.iter().enumerate();
    words
        .filter(|(index, _)| !matches!(index, 5 | 8 | 9))
        .map(|(_, [a, b])| u32::from(u16::from_be_bytes([*a, *b])))
        .sum()
}

/// A MAC address of the tester: locally administered, the port, and a number.
fn mac_address(port: u8, number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [0x02, port, a, b, c, d]
}

impl FrameWriter {
    /// # Errors
    /// A size that does not hold the headers and the signature.
    pub(crate) fn new(trial: &Trial, port: u8, peer: u8) -> Result<Self, BuildError> {
        let pattern: Vec<(u16, [u8; HEAD])> = trial
            .frame_sizes
            .pattern()
            .into_iter()
            .map(|size| Ok((size - FCS, head(size, port, peer)?)))
            .collect::<Result<_, BuildError>>()?;
        let sums = pattern
            .iter()
            .map(|(_, head)| sum_without_destination(head));
        Ok(Self {
            sums: sums.collect(),
            pattern,
            epoch: Epoch(0),
            port,
            flows: trial.flows,
            addresses: trial.mac_addresses,
            destinations: trial.destinations,
            learned: 0,
            cursor: Cursor::default(),
        })
    }

    /// Starts numbering afresh, for another epoch.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.cursor = Cursor::default();
    }

    /// Frames written since [`Self::begin`].
    pub(crate) fn written(&self) -> u64 {
        self.cursor.written
    }

    /// Frames written of one flow since [`Self::begin`].
    pub(crate) fn written_of_flow(&self, flow: u16) -> u64 {
        self.cursor.sequence + u64::from(flow < self.cursor.flow)
    }

    /// Learning frames not yet written.
    pub(crate) fn learning_frames_left(&self) -> usize {
        (self.addresses - self.learned) as usize
    }

    /// Writes the next learning frames: warm-up frames, one from each source address.
    pub(crate) fn write_learning(&mut self, burst: &mut Burst) {
        self.cursor.address = self.learned;
        let before = self.cursor.written;
        self.write(burst, 0);
        self.learned += u32::try_from(self.cursor.written - before).unwrap_or(u32::MAX);
        self.learned = self.learned.min(self.addresses);
    }

    /// Writes all frames of a burst with the time stamp `tick`.
    #[inline(always)]
    pub(crate) fn write(&mut self, burst: &mut Burst, tick: u64) {
        let mut cursor = self.cursor;
        burst.write_each(|frame| {
            let Some((length, template)) = self.pattern.get(cursor.position) else {
                return;
            };
            let Some(head) = frame
                .octets(*length)
                .and_then(|octets| octets.first_chunk_mut::<HEAD>())
            else {
                return;
            };
            *head = *template;
            self.stamp(&cursor, head, tick);
            self.advance(&mut cursor);
        });
        self.cursor = cursor;
    }

    #[inline(always)]
    fn stamp(&self, cursor: &Cursor, head: &mut [u8; HEAD], tick: u64) {
        if self.addresses > 1 {
            let number = cursor.address.to_be_bytes();
            head[2..6].copy_from_slice(&number);
            head[8..12].copy_from_slice(&number);
        }
        if self.destinations > 1 {
            self.address_network(cursor, head);
        }
        head[34..36].copy_from_slice(&cursor.flow.wrapping_add(UDP_SOURCE_FIRST).to_be_bytes());
        let signature = Signature {
            epoch: self.epoch,
            port: self.port,
            flow: cursor.flow,
            sequence: cursor.sequence as u32,
            tick,
        };
        signature.write(head);
    }

    /// Writes the destination that the random number says, and the checksum of the header with it (RFC 1071).
    #[inline(always)]
    fn address_network(&self, cursor: &Cursor, head: &mut [u8; HEAD]) {
        let drawn = ((cursor.random >> 32) * u64::from(self.destinations)) >> 32;
        let destination = FIRST_DESTINATION + ((drawn as u32) << 8) + 1;
        head[30..34].copy_from_slice(&destination.to_be_bytes());
        let rest = self.sums.get(cursor.position).copied().unwrap_or_default();
        let sum = rest + (destination >> 16) + (destination & 0xffff);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        head[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }

    #[inline(always)]
    fn advance(&self, cursor: &mut Cursor) {
        cursor.written += 1;
        // xorshift64 (Marsaglia, 2003); 0 is its one fixed point, and where each epoch begins.
        if self.destinations > 1 {
            let mut random = cursor.random | u64::from(cursor.random == 0);
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            cursor.random = random;
        }
        cursor.flow += 1;
        if cursor.flow >= self.flows {
            cursor.flow = 0;
            cursor.sequence += 1;
        }
        cursor.address += 1;
        if cursor.address >= self.addresses {
            cursor.address = 0;
        }
        cursor.position += 1;
        if cursor.position >= self.pattern.len() {
            cursor.position = 0;
        }
    }
}

/// UDP source port of flow 0.
const UDP_SOURCE_FIRST: u16 = 1024;
/// UDP destination port of every frame: echo, as RFC 2544, appendix C.2.6.4, has it.
const UDP_DESTINATION: u16 = 7;

#[cfg(test)]
mod tests {
    use quietwire_packet::{Network, Transport, parse};

    use super::*;
    use crate::trial::{Directions, FrameSizes};

    fn trial(frame_sizes: FrameSizes, flows: u16, mac_addresses: u32) -> Trial {
        Trial {
            offered_rate_pps: 1.0,
            duration_s: 1.0,
            warm_up_s: 0.0,
            drain_s: 0.0,
            frame_sizes,
            directions: Directions::Both,
            flows,
            mac_addresses,
            destinations: 1,
        }
    }

    fn frames(writer: &mut FrameWriter, count: usize) -> Vec<[u8; HEAD]> {
        (0..count)
            .map(|index| {
                let mut cursor = writer.cursor;
                let mut head = writer.pattern[cursor.position].1;
                writer.stamp(&cursor, &mut head, index as u64);
                writer.advance(&mut cursor);
                writer.cursor = cursor;
                head
            })
            .collect()
    }

    #[test]
    fn a_frame_is_sound_and_its_signature_survives() {
        let mut writer = FrameWriter::new(&trial(FrameSizes::Fixed(64), 3, 5), 1, 0).unwrap();
        writer.begin(Epoch(4));
        for (index, frame) in frames(&mut writer, 7).iter().enumerate() {
            let parsed = parse(frame).unwrap();
            let Network::Ipv4(ip) = parsed.network else {
                panic!("{parsed:?}");
            };
            assert!(matches!(ip.transport, Transport::Udp { .. }), "{ip:?}");
            let signature = Signature::read(frame).unwrap();
            assert_eq!(
                signature,
                Signature {
                    epoch: Epoch(4),
                    port: 1,
                    flow: index as u16 % 3,
                    sequence: index as u32 / 3,
                    tick: index as u64
                }
            );
            assert_eq!(frame[6..12], [2, 1, 0, 0, 0, index as u8 % 5]);
            assert_eq!(frame[0..6], [2, 0, 0, 0, 0, index as u8 % 5]);
        }
        assert_eq!(
            [0, 1, 2].map(|flow| writer.written_of_flow(flow)),
            [3, 2, 2]
        );
        assert_eq!(writer.written(), 7);
    }

    #[test]
    fn destinations_are_drawn_and_their_headers_are_sound() {
        let trial = Trial {
            destinations: 8,
            ..trial(FrameSizes::Imix, 1, 1)
        };
        let mut writer = FrameWriter::new(&trial, 0, 1).unwrap();
        writer.begin(Epoch(2));
        let mut seen = std::collections::BTreeMap::new();
        for frame in frames(&mut writer, 4000) {
            assert_eq!(quietwire_packet::checksum(&frame[14..34]), 0);
            let destination: [u8; 4] = frame[30..34].try_into().unwrap();
            *seen.entry(Ipv4Addr::from(destination)).or_insert(0) += 1;
        }
        let expected = (0..8).map(|number| Ipv4Addr::new(16, 0, number, 1));
        assert_eq!(
            seen.keys().copied().collect::<Vec<_>>(),
            expected.collect::<Vec<_>>()
        );
        assert!(
            seen.values().all(|count| (350..650).contains(count)),
            "{seen:?}"
        );
    }

    #[test]
    fn imix_has_its_sizes_in_its_ratio() {
        let pattern = FrameSizes::Imix.pattern();
        for (size, share) in [(64, 7), (594, 4), (1518, 1)] {
            assert_eq!(
                pattern.iter().filter(|found| **found == size).count(),
                share
            );
        }
        assert_eq!(FrameSizes::Imix.largest(), 1518);
    }

    #[test]
    fn strange_frames_have_no_signature() {
        assert_eq!(Signature::read(&[0; 59]), None);
        assert_eq!(Signature::read(&[0; 60]), None);
        assert_eq!(Signature::read(&[]), None);
    }

    #[test]
    fn a_warm_up_is_told_from_its_trial_and_from_the_one_before() {
        for trial in 0..1000 {
            let epoch = Epoch::of_trial(trial);
            assert_ne!(epoch, epoch.warm_up());
            assert_ne!(Epoch::of_trial(trial + 1), epoch);
            assert_ne!(Epoch::of_trial(trial + 1).warm_up(), epoch);
        }
    }
}
