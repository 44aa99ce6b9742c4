// SPDX-License-Identifier: Apache-2.0
//! Frames of the tester: Ethernet, IPv4 or IPv6, UDP, and an 18-octet signature. With the signature, the smallest frame is 64 octets over
//! IPv4 and 84 octets over IPv6:
//!
//! | octets | what |
//! |---|---|
//! | 0..2 | magic number |
//! | 2 | epoch: which part of which trial |
//! | 3 | index of the transmitting port |
//! | 4..6 | flow |
//! | 6..10 | sequence number within the flow |
//! | 10..18 | time stamp counter at transmission |

mod head;
mod in_place;
mod plain;
mod signature;

use std::sync::atomic::{AtomicU32, Ordering};

use quietwire_dpdk::Burst;
use quietwire_packet::BuildError;

use crate::narrow::low_u32;
use crate::trial::{IpVersion, Trial};
use crate::writer::Share;
use head::{IPV4, IPV6, Template, UDP_SOURCE_FIRST};

pub(crate) use head::{SIGNATURE, mac_address, signature_place};
pub(crate) use plain::{PlainFrame, read_row};
pub(crate) use signature::{Epoch, MAGIC, Signature};

/// Addresses that change from frame to frame if there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Varied {
    /// Both addresses, with the same number.
    Both,
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// Writer of one port's plain frames, in sequence order.
#[derive(Clone, Debug)]
pub(crate) struct FrameWriter {
    /// One template for each position of the size pattern.
    pattern: Vec<Template>,
    /// Number of this writer in the process, for marks of buffers; 0 for none.
    number: u32,
    ip: IpVersion,
    epoch: Epoch,
    port: u8,
    flows: u16,
    share: Share,
    addresses: u32,
    varied: Varied,
    destinations: u32,
    /// Index of the first source address without a learning frame.
    learned: u32,
    /// Number of low-rate frames written. Their flow number follows those of the load.
    low_rate_written: u64,
    cursor: Cursor,
}

/// Returns the number of a writer in the process, for marks of buffers: from 1 on, below 2^24. The 16 million writers before did not
/// have it.
pub(crate) fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (NEXT.fetch_add(1, Ordering::Relaxed) % 0x00ff_ffff).saturating_add(1)
}

/// State of the next frame. It is small and copied, so that it stays in registers over a burst.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    position: usize,
    flow: u16,
    sequence: u64,
    address: u32,
    written: u64,
    random: u64,
}

impl FrameWriter {
    /// Creates the writer of a port's frames for a trial.
    ///
    /// # Errors
    /// A size that does not hold the headers and the signature.
    pub(crate) fn new(trial: &Trial, port: u8, peer: u8, share: Share) -> Result<Self, BuildError> {
        let sizes = trial.frame_sizes.pattern().into_iter();
        let pattern = sizes.map(|size| Template::new(trial.ip, size, port, peer));
        Ok(Self {
            pattern: pattern.collect::<Result<_, _>>()?,
            number: next_number(),
            ip: trial.ip,
            epoch: Epoch(0),
            port,
            flows: trial.flows,
            share,
            addresses: trial.mac_addresses,
            varied: Varied::Both,
            destinations: trial.destinations,
            learned: 0,
            low_rate_written: 0,
            cursor: Cursor::default(),
        })
    }

    /// Returns the writer with `addresses` addresses, of which each frame uses the next one, on one side only, and without learning
    /// frames.
    pub(crate) fn varying(self, varied: Varied, addresses: u32) -> Self {
        Self {
            addresses,
            varied,
            ..self
        }
        .silent()
    }

    /// Returns the writer without learning frames.
    pub(crate) fn silent(self) -> Self {
        Self {
            learned: self.addresses,
            ..self
        }
    }

    /// Restarts the numbering for another epoch.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.low_rate_written = 0;
        self.cursor = Cursor {
            flow: self.share.index,
            ..Cursor::default()
        };
    }

    /// Returns the number of frames written since [`Self::begin`].
    pub(crate) fn written(&self) -> u64 {
        self.cursor.written
    }

    /// Returns the number of frames of one flow written since [`Self::begin`].
    pub(crate) fn written_of_flow(&self, flow: u16) -> u64 {
        if flow.checked_rem(self.share.of) != Some(self.share.index) {
            return 0;
        }
        let is_ahead = flow < self.cursor.flow;
        self.cursor.sequence.saturating_add(u64::from(is_ahead))
    }

    /// Returns the number of low-rate frames written since [`Self::begin`]. [`Self::written`] includes them.
    pub(crate) fn low_rate_written(&self) -> u64 {
        self.low_rate_written
    }

    /// Writes the single frame of a burst as the next one of the low-rate stream. The numbering of the load's flows is unaffected.
    #[cold]
    pub(crate) fn write_low_rate(&mut self, burst: &mut Burst, tick: u64) {
        let load = self.cursor;
        self.cursor.flow = self.flows;
        self.cursor.sequence = self.low_rate_written;
        self.write(burst, tick);
        let written = self.cursor.written.saturating_sub(load.written);
        self.low_rate_written = self.low_rate_written.saturating_add(written);
        self.cursor = Cursor {
            flow: load.flow,
            sequence: load.sequence,
            address: load.address,
            ..self.cursor
        };
    }

    /// Returns the number of learning frames not yet written.
    pub(crate) fn learning_frames_left(&self) -> usize {
        self.addresses.saturating_sub(self.learned) as usize
    }

    /// Writes the next learning frames: warm-up frames, one from each source address.
    pub(crate) fn write_learning(&mut self, burst: &mut Burst) {
        self.cursor.address = self.learned;
        let before = self.cursor.written;
        self.write(burst, 0);
        let written = self.cursor.written.saturating_sub(before);
        let written = u32::try_from(written).unwrap_or(u32::MAX);
        self.learned = self.learned.saturating_add(written).min(self.addresses);
    }

    /// Writes all frames of a burst with the time stamp `tick`.
    #[inline(always)]
    pub(crate) fn write(&mut self, burst: &mut Burst, tick: u64) {
        match self.ip {
            IpVersion::V4 => self.write_heads::<IPV4>(burst, tick),
            IpVersion::V6 => self.write_heads::<IPV6>(burst, tick),
        }
    }

    #[inline(always)]
    fn write_heads<const N: usize>(&mut self, burst: &mut Burst, tick: u64) {
        let mut cursor = self.cursor;
        burst.write_each(|frame| {
            let Some(template) = self.pattern.get(cursor.position) else {
                return;
            };
            let octets = frame.octets(template.length);
            if octets.is_some_and(|it| self.write_frame::<N>(template, &cursor, it, tick)) {
                self.advance(&mut cursor);
            }
        });
        self.cursor = cursor;
    }

    /// Writes the frame of a template into private memory. Returns false if it has no space for the head.
    #[inline(always)]
    fn write_frame<const N: usize>(
        &self,
        template: &Template,
        cursor: &Cursor,
        frame: &mut [u8],
        tick: u64,
    ) -> bool {
        let Some((head, rest)) = frame.split_first_chunk_mut::<N>() else {
            return false;
        };
        // A buffer holds old data, but the checksum assumes zeros.
        rest.fill(0);
        self.write_head(template, cursor, head, tick);
        true
    }

    #[inline(always)]
    fn write_head<const N: usize>(
        &self,
        template: &Template,
        cursor: &Cursor,
        head: &mut [u8; N],
        tick: u64,
    ) {
        if let Some(octets) = template.head() {
            *head = *octets;
        }
        if self.addresses > 1 {
            let number = cursor.address.to_be_bytes();
            if self.varied != Varied::Source {
                head[2..6].copy_from_slice(&number);
            }
            if self.varied != Varied::Destination {
                head[8..12].copy_from_slice(&number);
            }
        }
        let source = cursor.flow.wrapping_add(UDP_SOURCE_FIRST);
        head[const { N - 26 }..const { N - 24 }].copy_from_slice(&source.to_be_bytes());
        let signature = Signature {
            epoch: self.epoch,
            port: self.port,
            flow: cursor.flow,
            sequence: low_u32(cursor.sequence),
            tick,
        };
        signature.write(head);
        let network = (self.destinations > 1).then(|| self.drawn(cursor));
        let source = u64::from(u16::from_ne_bytes(source.to_be_bytes()));
        let varied = source.wrapping_add(signature.sum());
        template.complete(head, network, varied);
    }

    /// Returns the index of the network for the random number.
    #[inline(always)]
    fn drawn(&self, cursor: &Cursor) -> u32 {
        // A product of two numbers of 32 bits.
        low_u32((cursor.random >> 32).wrapping_mul(u64::from(self.destinations)) >> 32)
    }

    #[inline(always)]
    fn advance(&self, cursor: &mut Cursor) {
        cursor.written = cursor.written.wrapping_add(1);
        // xorshift64 (Marsaglia, 2003). Its only fixed point is 0, the value at the start of each epoch.
        if self.destinations > 1 {
            let mut random = cursor.random | u64::from(cursor.random == 0);
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            cursor.random = random;
        }
        cursor.flow = cursor.flow.saturating_add(self.share.of);
        if cursor.flow >= self.flows {
            cursor.flow = self.share.index;
            cursor.sequence = cursor.sequence.wrapping_add(1);
        }
        cursor.address = cursor.address.wrapping_add(1);
        if cursor.address >= self.addresses {
            cursor.address = 0;
        }
        cursor.position = cursor.position.wrapping_add(1);
        if cursor.position >= self.pattern.len() {
            cursor.position = 0;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use quietwire_packet::{Checksum, Network, Transport, parse};

    use super::*;
    use crate::traffic::Genome;
    use crate::trial::FrameSizes;

    pub(crate) fn trial(frame_sizes: FrameSizes, flows: u16, mac_addresses: u32) -> Trial {
        Trial {
            flows,
            mac_addresses,
            ..Trial::new(1.0, 1.0, frame_sizes)
        }
    }

    fn frames<const N: usize>(writer: &mut FrameWriter, count: usize) -> Vec<[u8; N]> {
        (0..count)
            .map(|index| {
                let mut cursor = writer.cursor;
                let mut head = [0; N];
                let template = &writer.pattern[cursor.position];
                writer.write_head(template, &cursor, &mut head, index as u64);
                writer.advance(&mut cursor);
                writer.cursor = cursor;
                head
            })
            .collect()
    }

    #[test]
    fn a_frame_is_sound_and_its_signature_survives() {
        let mut writer =
            FrameWriter::new(&trial(FrameSizes::Fixed(64), 3, 5), 1, 0, Share::WHOLE).unwrap();
        writer.begin(Epoch(4));
        for (index, frame) in frames::<IPV4>(&mut writer, 7).iter().enumerate() {
            let parsed = parse(frame).unwrap();
            let Network::Ipv4(ip) = parsed.network else {
                panic!("{parsed:?}");
            };
            assert!(matches!(ip.transport, Transport::Udp { .. }), "{ip:?}");
            assert_eq!(udp_sum_over_ipv4(frame), 0, "{frame:?}");
            assert_ne!(frame[40..42], [0, 0]);
            let signature = Signature::read(frame, 42).unwrap();
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
    fn one_side_alone_may_have_many_addresses() {
        let writer = |varied| {
            let trial = trial(FrameSizes::Fixed(64), 1, 1);
            let writer = FrameWriter::new(&trial, 1, 0, Share::WHOLE).unwrap();
            let mut writer = writer.varying(varied, 300);
            assert_eq!(writer.learning_frames_left(), 0);
            writer.begin(Epoch(2));
            frames::<IPV4>(&mut writer, 301)
        };
        for (number, frame) in writer(Varied::Source).iter().enumerate() {
            let [high, low] = (number as u16 % 300).to_be_bytes();
            assert_eq!(frame[..12], [2, 0, 0, 0, 0, 0, 2, 1, 0, 0, high, low]);
            assert_eq!(Signature::read(frame, 42).unwrap().sequence, number as u32);
        }
        let to = writer(Varied::Destination);
        assert_eq!(to[299][..12], [2, 0, 0, 0, 1, 43, 2, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn destinations_are_drawn_and_their_headers_are_sound() {
        let trial = Trial {
            destinations: 8,
            ..trial(FrameSizes::Imix, 1, 1)
        };
        for (port, first) in [(0, 16), (1, 48)] {
            let mut writer = FrameWriter::new(&trial, port, 1 - port, Share::WHOLE).unwrap();
            writer.begin(Epoch(2));
            let mut observed = std::collections::BTreeMap::new();
            for frame in frames::<IPV4>(&mut writer, 4000) {
                assert_eq!(quietwire_packet::checksum(&frame[14..34]), 0);
                assert_eq!(udp_sum_over_ipv4(&frame), 0, "{frame:?}");
                let destination: [u8; 4] = frame[30..34].try_into().unwrap();
                *observed.entry(Ipv4Addr::from(destination)).or_insert(0) += 1;
            }
            let expected = (0..8).map(|number| Ipv4Addr::new(first, 0, number, 1));
            assert_eq!(
                observed.keys().copied().collect::<Vec<_>>(),
                expected.collect::<Vec<_>>()
            );
            assert!(
                observed.values().all(|count| (350..650).contains(count)),
                "{observed:?}"
            );
        }
    }

    /// Returns the UDP checksum of a frame with zeros after `head`, with the pseudo header of RFC 768.
    fn udp_sum_over_ipv4(head: &[u8; IPV4]) -> u16 {
        let mut sum = Checksum::new();
        sum.add(&head[26..34]);
        sum.add(&[0, 17]);
        sum.add(&head[38..40]);
        sum.add(&head[34..]);
        sum.finish()
    }

    /// Returns the UDP checksum of a frame with zeros after `head`, with the pseudo header of RFC 8200, section 8.1.
    fn udp_sum_over_ipv6(head: &[u8; IPV6]) -> u16 {
        let mut sum = Checksum::new();
        sum.add(&head[22..54]);
        sum.add(&head[18..20]);
        sum.add(&[0, 17]);
        sum.add(&head[54..]);
        sum.finish()
    }

    #[test]
    fn frames_of_ipv6_are_sound_whatever_is_drawn() {
        for (size, flows, destinations) in [(84, 1, 1), (84, 3, 70_000), (1518, 2, 1)] {
            let trial = Trial {
                destinations,
                ip: IpVersion::V6,
                ..trial(FrameSizes::Fixed(size), flows, 5)
            };
            let mut writer = FrameWriter::new(&trial, 1, 0, Share::WHOLE).unwrap();
            writer.begin(Epoch(2));
            let mut networks = std::collections::BTreeSet::new();
            for (index, head) in frames::<IPV6>(&mut writer, 4000).iter().enumerate() {
                let mut frame = head.to_vec();
                frame.resize(usize::from(size) - 4, 0);
                let Network::Ipv6(ip) = parse(&frame).unwrap().network else {
                    panic!("{head:?}");
                };
                assert!(matches!(ip.transport, Transport::Udp { .. }), "{ip:?}");
                assert_eq!(udp_sum_over_ipv6(head), 0, "{head:?}");
                assert_ne!(head[60..62], [0, 0]);
                let signature = Signature::read(head, signature_place(IpVersion::V6)).unwrap();
                assert_eq!(signature.tick, index as u64);
                assert_eq!(u32::from(signature.flow), index as u32 % u32::from(flows));
                let octets: [u8; 16] = head[38..54].try_into().unwrap();
                networks.insert(Ipv6Addr::from(octets).to_string());
            }
            if destinations == 1 {
                assert_eq!(networks.into_iter().collect::<Vec<_>>(), ["2001:2::1"]);
            } else {
                assert!(networks.len() > 3500, "{}", networks.len());
                assert!(
                    networks.iter().all(|network| {
                        network.starts_with("3fff:2") && network.ends_with("::1")
                    }),
                    "{networks:?}"
                );
            }
        }
        let small = Trial {
            ip: IpVersion::V6,
            ..trial(FrameSizes::Fixed(83), 1, 1)
        };
        assert!(FrameWriter::new(&small, 1, 0, Share::WHOLE).is_err());
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
        let composition = FrameSizes::Imix.composition();
        assert_eq!(
            composition.into_iter().collect::<Vec<_>>(),
            [(64, 7), (594, 4), (1518, 1)]
        );
    }

    #[test]
    fn the_genome_of_imix_is_its_pattern() {
        let (genome, letter) = FrameSizes::Imix.genome().unwrap().split_once(", ").unwrap();
        assert_eq!(letter, "A = 594");
        let genome = Genome::new(genome, None, [('A', 594)].into()).unwrap();
        assert_eq!(genome.sizes(), FrameSizes::Imix.pattern());
        assert_eq!(FrameSizes::Fixed(64).genome(), None);
    }

    #[test]
    fn strange_frames_have_no_signature() {
        assert_eq!(Signature::read(&[0; 59], 42), None);
        assert_eq!(Signature::read(&[0; 60], 42), None);
        assert_eq!(Signature::read(&[], 42), None);
    }

    #[test]
    fn a_warm_up_is_distinguished_from_its_trial_and_from_the_one_before() {
        for trial in 0..1000 {
            let epoch = Epoch::of_trial(trial);
            assert_ne!(epoch, epoch.warm_up());
            assert_ne!(Epoch::of_trial(trial + 1), epoch);
            assert_ne!(Epoch::of_trial(trial + 1).warm_up(), epoch);
        }
    }
}
