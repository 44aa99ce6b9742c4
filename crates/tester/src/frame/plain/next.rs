// SPDX-License-Identifier: Apache-2.0
//! Plain frames of a row: each is compared with the one that follows the frame before.

use quietwire_dpdk::{FilledSlots, RowTaken};
use quietwire_memory::Span;

use super::{Covered, PlainFrame, folded, words};
use crate::frame::head::{IPV4, IPV6};
use crate::narrow::low_u32;
use crate::trial::IpVersion;

/// Reads the next frames of a row where they lie, at most `most`: the first if its checksums are right and `is_next` returns true, then
/// each that differs from the one before in nothing but the next sequence number, and the checksum that it causes.
#[inline(always)]
pub(crate) fn read_row(
    slots: &mut impl FilledSlots,
    most: usize,
    ip: IpVersion,
    is_next: impl Fn(&PlainFrame) -> bool,
) -> RowTaken {
    match ip {
        IpVersion::V4 => read_heads::<IPV4>(slots, most, is_next),
        IpVersion::V6 => read_heads::<IPV6>(slots, most, is_next),
    }
}

#[inline(always)]
fn read_heads<const N: usize>(
    slots: &mut impl FilledSlots,
    most: usize,
    is_next: impl Fn(&PlainFrame) -> bool,
) -> RowTaken {
    let mut next = None;
    let first = slots.take_while(
        most.min(1),
        #[inline(always)]
        |frame| {
            let after = NextFrame::<N>::after(frame).filter(|(read, _)| is_next(read));
            next = after.map(|(_, next)| next);
            next.is_some()
        },
    );
    let Some(mut next) = next.filter(|_| first > 0) else {
        return RowTaken::default();
    };
    let others = slots.take_while(
        most.saturating_sub(first),
        #[inline(always)]
        |frame| next.is(frame),
    );
    let frames = first.saturating_add(others);
    RowTaken {
        frames,
        octets: frames.saturating_mul(next.length) as u64,
    }
}

/// The plain frame that follows a verified one, with the same time stamp.
#[derive(Clone, Copy, Debug)]
struct NextFrame<const N: usize> {
    covered: Covered,
    /// Length of the frame, octets.
    length: usize,
}

impl<const N: usize> NextFrame<N> {
    /// Word and shift of the sequence number, whose octets lie in memory from the lowest to the highest.
    const SEQUENCE: (usize, u32) = if N == IPV6 { (6, 32) } else { (5, 0) };
    /// Word and shift of the UDP checksum.
    const CHECKSUM: (usize, u32) = if N == IPV6 { (5, 32) } else { (4, 0) };

    /// Reads and verifies a frame. Returns it with the one that follows it; `None` as [`PlainFrame::read`] does.
    #[inline(always)]
    fn after(frame: Span<'_>) -> Option<(PlainFrame, Self)> {
        let (read, covered) = if N == IPV6 {
            PlainFrame::read_v6(frame)?
        } else {
            PlainFrame::read_v4(frame)?
        };
        let length = frame.len();
        let mut next = Self { covered, length };
        next.advance();
        Some((read, next))
    }

    /// Returns true if a frame is this one, and then becomes the one that follows it. The checksums of such a frame are right. Each octet
    /// is read at most once.
    #[inline(always)]
    fn is(&mut self, frame: Span<'_>) -> bool {
        if frame.len() != self.length {
            return false;
        }
        let Some(words) = words::<N>(frame) else {
            return false;
        };
        let mut differences = 0;
        for (word, expected) in words.iter().zip(&self.covered.words) {
            differences |= word ^ expected;
        }
        if differences != 0 || folded(frame.split_at(N).1) != self.covered.rest {
            return false;
        }
        self.advance();
        true
    }

    /// Becomes the next frame.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        reason = "constants, below the number of words"
    )]
    fn advance(&mut self) {
        let words = &mut self.covered.words;
        let (at, shift) = Self::SEQUENCE;
        if low_u32(words[at] >> shift) == u32::MAX {
            // Back to 0, the sum does not change. The next frame has to be verified: no frame has such a word.
            words[0] = u64::MAX;
            return;
        }
        words[at] = words[at].wrapping_add(1 << shift);
        // 2^16 is 1 modulo 2^16 - 1: with a sequence number, the ones' complement sum grows by 1, and the checksum shrinks by 1. Its values
        // are 1 to 2^16 - 1, because 0 means that there is no checksum.
        let (at, shift) = Self::CHECKSUM;
        let is_one = (words[at] >> shift) & 0xffff == 1;
        if is_one {
            words[at] = words[at].wrapping_add(0xfffe << shift);
        } else {
            words[at] = words[at].wrapping_sub(1 << shift);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quietwire_memory::Mapping;

    use super::*;
    use crate::checksums::Checksums;
    use crate::frame::{Epoch, Signature, signature_place};

    const SIZE: usize = 128;

    /// Returns a frame with right checksums whose other octets are `octets`.
    fn frame<const N: usize>(octets: &[u8], sequence: u32) -> Vec<u8> {
        let (udp, ip) = if N == IPV6 {
            (54, IpVersion::V6)
        } else {
            (34, IpVersion::V4)
        };
        let mut frame = octets.to_vec();
        let length = (frame.len() - udp) as u16;
        frame[udp + 4..udp + 6].copy_from_slice(&length.to_be_bytes());
        let signature = Signature {
            epoch: Epoch(frame[0]),
            port: frame[1],
            flow: u16::from_le_bytes([frame[2], frame[3]]),
            sequence,
            tick: 0x0123_4567_89ab_cdef,
        };
        let place = signature_place(ip);
        frame[place..place + 18].copy_from_slice(&signature.octets());
        if ip == IpVersion::V4 {
            frame[24..26].fill(0);
            let header = quietwire_packet::checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&header.to_be_bytes());
        }
        frame[udp + 6..udp + 8].fill(0);
        let addresses = if N == IPV6 { 22..54 } else { 26..34 };
        let mut sum = quietwire_packet::Checksum::new();
        sum.add(&frame[addresses]);
        sum.add(&[0, 17]);
        sum.add(&length.to_be_bytes());
        sum.add(&frame[udp..]);
        let checksum = match sum.finish() {
            0 => u16::MAX,
            checksum => checksum,
        };
        frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
        assert!(Checksums::of_plain(ip).are_right(&frame));
        frame
    }

    fn check<const N: usize>(
        memory: &Mapping,
        octets: &[u8],
        sequence: u32,
        changed: Option<(usize, u8)>,
    ) {
        let placed = |frame: &[u8]| {
            let place = memory.span(0, frame.len()).unwrap();
            place.copy_from(frame);
            place
        };
        let ip = if N == IPV6 {
            IpVersion::V6
        } else {
            IpVersion::V4
        };
        let (read, mut next) =
            NextFrame::<N>::after(placed(&frame::<N>(octets, sequence))).unwrap();
        let mut second = frame::<N>(octets, sequence.wrapping_add(1));
        if let Some((at, bits)) = changed {
            let at = at % second.len();
            second[at] ^= bits;
        }
        let is_same = changed.is_none_or(|(at, bits)| {
            // Octets that no checksum covers.
            let first = if N == IPV6 { 22 } else { 14 };
            bits == 0 || at % second.len() < first
        });
        let is_expected = next.is(placed(&second));
        assert_eq!(is_expected, is_same && sequence != u32::MAX);
        if is_expected {
            let found = PlainFrame::read(placed(&second), ip).unwrap();
            assert_eq!(found.sequence, sequence + 1);
            assert_eq!((found.identity, found.tick), (read.identity, read.tick));
            assert!(Checksums::of_plain(ip).are_right(&second));
        }
    }

    proptest! {
        #[test]
        fn the_expected_frame_is_the_next_one_and_no_other(
            octets in prop::collection::vec(any::<u8>(), IPV6..SIZE),
            is_short: bool,
            sequence in prop_oneof![any::<u32>(), Just(u32::MAX), Just(u32::MAX - 1), 0xfff0u32..0x1_0010],
            changed in prop::option::of((0..SIZE, any::<u8>())),
        ) {
            let memory = Mapping::create("next", SIZE).unwrap().0;
            let of_v4 = if is_short { &octets[..IPV4] } else { &octets[..] };
            let of_v6 = if is_short { &octets[..IPV6] } else { &octets[..] };
            check::<IPV4>(&memory, of_v4, sequence, changed);
            check::<IPV6>(&memory, of_v6, sequence, changed);
        }
    }

    /// The checksum takes each of its values, and passes from 1 to 65,535.
    #[test]
    fn a_row_is_expected_to_its_end() {
        let memory = Mapping::create("next", SIZE).unwrap().0;
        let octets = [0x11; 64];
        let place = memory.span(0, octets.len()).unwrap();
        for start in [0, u32::MAX - 70_000] {
            place.copy_from(&frame::<IPV4>(&octets, start));
            let (_, mut next) = NextFrame::<IPV4>::after(place).unwrap();
            for sequence in start + 1..=start + 70_000 {
                place.copy_from(&frame::<IPV4>(&octets, sequence));
                assert!(next.is(place), "{sequence}");
            }
        }
    }
}
