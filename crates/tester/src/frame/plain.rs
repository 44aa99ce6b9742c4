// SPDX-License-Identifier: Apache-2.0
//! Plain frames verified where they lie in a ring, in registers. This is the fast way for the frames that come back unharmed; all others
//! are copied and verified by the reference ([`crate::checksums`]).
//!
//! A frame that follows a verified one in its flow differs from it only in sequence number and checksum, both of which are known in
//! advance. It is compared with what is expected ([`read_row`]), which takes fewer instructions than a sum.

// Frames from outside: no cast loses a sign.
#![cfg_attr(not(test), deny(clippy::cast_sign_loss))]

mod next;

use quietwire_memory::Span;
use quietwire_packet::{IpProtocol, fold_sum};

pub(crate) use next::read_row;

use super::head::{IPV4, IPV6};
use super::signature::{Epoch, MAGIC, Signature};
use crate::narrow::{low_u16, low_u32};
use crate::trial::IpVersion;

/// Offset of the UDP header in an IPv4 frame.
const UDP_OF_V4: usize = 34;
/// Offset of the UDP header in an IPv6 frame.
const UDP_OF_V6: usize = 54;
/// Bits of the magic number, epoch, port and flow.
const IDENTITY: u64 = (1 << 48) - 1;

/// Signature of a plain frame whose magic number and checksums are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainFrame {
    /// Magic number, epoch, port and flow, as they lie in memory. Never 0.
    pub(crate) identity: u64,
    /// Sequence number within the flow.
    pub(crate) sequence: u32,
    /// Time stamp.
    pub(crate) tick: u64,
}

/// Octets of a plain frame that its checksums cover, as read, eight each, in little-endian order.
#[derive(Clone, Copy, Debug)]
struct Covered {
    words: [u64; WORDS],
    /// Folded sum of the octets after these words.
    rest: u16,
}

/// Words of a head: the octets from 8 on over IPv4, from 16 on over IPv6. In the first, the octets that no checksum covers are zero.
const WORDS: usize = 8;

/// Reads the words of a head.
#[inline(always)]
fn words<const N: usize>(frame: Span<'_>) -> Option<[u64; WORDS]> {
    // The only check of the length.
    let head = frame.sub(0, N)?;
    let (first, seventh, last) = if N == IPV6 {
        (16_usize, word(head, 64)?, word(head, 72)?)
    } else {
        // The head ends after four octets of the seventh word.
        (8, u64::from(u32::from_le_bytes(head.read_at(56)?)), 0)
    };
    Some([
        u64::from(u16::from_le_bytes(head.read_at(first.wrapping_add(6))?)) << 48,
        word(head, first.wrapping_add(8))?,
        word(head, first.wrapping_add(16))?,
        word(head, first.wrapping_add(24))?,
        word(head, first.wrapping_add(32))?,
        word(head, first.wrapping_add(40))?,
        seventh,
        last,
    ])
}

impl PlainFrame {
    /// Reads a frame, each octet at most once. Returns `None` for a damaged frame, and for one that is not exactly as long as its UDP
    /// datagram.
    #[inline(always)]
    pub(crate) fn read(frame: Span<'_>, ip: IpVersion) -> Option<Self> {
        let read = match ip {
            IpVersion::V4 => Self::read_v4(frame),
            IpVersion::V6 => Self::read_v6(frame),
        };
        read.map(|(frame, _)| frame)
    }

    #[inline(always)]
    fn read_v4(frame: Span<'_>) -> Option<(Self, Covered)> {
        let rest = frame.sub(IPV4, frame.len().checked_sub(IPV4)?)?;
        // The signature begins in the fifth.
        let words = words::<IPV4>(frame)?;
        let [ethernet, a, b, c, udp, numbers, last, _] = words;
        let length = datagram_length(frame, UDP_OF_V4);
        let identity = udp >> 16;
        if c >> 48 != length || udp & 0xffff == 0 || !is_magic(identity) {
            return None;
        }
        // The addresses (octets 26 to 33) are in the IPv4 header and in the pseudo header.
        let addresses = (b >> 16) | (c << 48);
        // One sum verifies both checksums, as in the reference.
        let sum = Sum(ethernet >> 48)
            .with(a)
            .with(b)
            .with(c)
            .with(udp)
            .with(numbers)
            .with(last)
            .with(addresses);
        let rest = folded(rest);
        let read = Self {
            identity,
            sequence: low_u32(numbers),
            tick: (numbers >> 32) | (last << 32),
        };
        sum.is_right(length, rest)
            .then_some((read, Covered { words, rest }))
    }

    #[inline(always)]
    fn read_v6(frame: Span<'_>) -> Option<(Self, Covered)> {
        let rest = frame.sub(IPV6, frame.len().checked_sub(IPV6)?)?;
        // The signature begins in the sixth.
        let words = words::<IPV6>(frame)?;
        let [header, a, b, c, d, udp, numbers, tick] = words;
        let length = datagram_length(frame, UDP_OF_V6);
        let identity = (udp >> 48) | ((numbers << 16) & IDENTITY);
        if (udp >> 16) & 0xffff != length || (udp >> 32) & 0xffff == 0 || !is_magic(identity) {
            return None;
        }
        // Addresses (octets 22 to 53), UDP header and payload.
        let sum = Sum(header >> 48)
            .with(a)
            .with(b)
            .with(c)
            .with(d)
            .with(udp)
            .with(numbers)
            .with(tick);
        let rest = folded(rest);
        let read = Self {
            identity,
            sequence: low_u32(numbers >> 32),
            tick,
        };
        sum.is_right(length, rest)
            .then_some((read, Covered { words, rest }))
    }

    /// Returns the signature.
    #[inline(always)]
    pub(crate) fn signature(&self) -> Signature {
        let [_, _, epoch, port, f0, f1, _, _] = self.identity.to_le_bytes();
        Signature {
            epoch: Epoch(epoch),
            port,
            flow: u16::from_le_bytes([f0, f1]),
            sequence: self.sequence,
            tick: self.tick,
        }
    }
}

#[inline(always)]
fn word(frame: Span<'_>, offset: usize) -> Option<u64> {
    frame.read_at(offset).map(u64::from_le_bytes)
}

#[inline(always)]
fn is_magic(identity: u64) -> bool {
    identity & 0xffff == u64::from(u16::from_le_bytes(MAGIC))
}

/// Returns the folded sum of the octets after a head, as it lies in memory.
#[inline(always)]
fn folded(rest: Span<'_>) -> u16 {
    if rest.is_empty() {
        return 0;
    }
    fold_sum(rest.sum_of_words()).to_le()
}

/// Returns the length of a UDP datagram up to the end of the frame, as it lies in memory.
#[inline(always)]
fn datagram_length(frame: Span<'_>, udp: usize) -> u64 {
    let length = low_u16(frame.len().wrapping_sub(udp) as u64);
    u64::from(length.swap_bytes())
}

/// Ones' complement sum of 16-bit words, four at a time, as a little-endian machine reads them. The sum is independent of the byte order
/// (RFC 1071, section 2).
#[derive(Clone, Copy)]
struct Sum(u64);

impl Sum {
    /// Adds four words. The carry is added at the other end.
    #[inline(always)]
    fn with(self, words: u64) -> Self {
        let (sum, has_carry) = self.0.overflowing_add(words);
        // After a carry, at least one bit of the sum is 0.
        Self(sum.wrapping_add(u64::from(has_carry)))
    }

    /// Returns true if the checksums are right, given the length in the pseudo header and the folded sum of the octets after those summed.
    #[inline(always)]
    fn is_right(self, length: u64, rest: u16) -> bool {
        let protocol = u16::from(IpProtocol::UDP.0).swap_bytes();
        let words = length
            .wrapping_add(u64::from(protocol))
            .wrapping_add(u64::from(rest));
        let sum = self.with(words);
        fold_sum(sum.0) == u16::MAX
    }
}
