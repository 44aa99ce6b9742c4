// SPDX-License-Identifier: Apache-2.0
//! The tester's signature in each frame.

// Frames from outside: no cast loses a sign.
#![cfg_attr(not(test), deny(clippy::cast_sign_loss))]

use super::head::SIGNATURE;

pub(crate) const MAGIC: [u8; 2] = *b"QW";

/// Mark of a part of a trial. Even values mark the counted part; the odd value before marks its warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch(pub(super) u8);

impl Epoch {
    /// Returns the epoch of the counted part of the `trial`-th trial of this tester.
    pub(crate) fn of_trial(trial: u64) -> Self {
        let [number, ..] = (trial % 127).to_le_bytes();
        Self(number.wrapping_add(1).wrapping_mul(2))
    }

    /// Returns the epoch of the preceding warm-up.
    pub(crate) fn warm_up(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
}

/// Contents of the signature of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) epoch: Epoch,
    pub(crate) port: u8,
    pub(crate) flow: u16,
    pub(crate) sequence: u32,
    pub(crate) tick: u64,
}

impl Signature {
    /// Reads the signature at offset `place` of a frame. Returns `None` if the frame has no magic number of the tester.
    #[inline(always)]
    pub(crate) fn read(frame: &[u8], place: usize) -> Option<Self> {
        let octets: &[u8; SIGNATURE] = frame.get(place..)?.first_chunk()?;
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

    /// Returns the signature as it is stored in a frame.
    #[inline(always)]
    pub(crate) fn octets(self) -> [u8; SIGNATURE] {
        let [f0, f1] = self.flow.to_le_bytes();
        let [s0, s1, s2, s3] = self.sequence.to_le_bytes();
        let [m0, m1] = MAGIC;
        let [t0, t1, t2, t3, t4, t5, t6, t7] = self.tick.to_le_bytes();
        [
            m0,
            m1,
            self.epoch.0,
            self.port,
            f0,
            f1,
            s0,
            s1,
            s2,
            s3,
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            t6,
            t7,
        ]
    }

    /// Returns the sum of the signature's words in memory order. It is computed from the values, which is faster than reading the octets
    /// back.
    #[inline(always)]
    pub(super) fn sum(&self) -> u64 {
        let [t0, t1, t2, t3, t4, t5, t6, t7] = self.tick.to_le_bytes();
        let word = |octets| u64::from(u16::from_ne_bytes(octets));
        let two = |octets| u64::from(u32::from_ne_bytes(octets));
        word(MAGIC)
            .wrapping_add(word([self.epoch.0, self.port]))
            .wrapping_add(word(self.flow.to_le_bytes()))
            .wrapping_add(two(self.sequence.to_le_bytes()))
            .wrapping_add(two([t0, t1, t2, t3]))
            .wrapping_add(two([t4, t5, t6, t7]))
    }

    /// Returns the signature as it is stored in a frame, in parts that are stored without delay: magic number; epoch, port, flow and
    /// sequence; time stamp.
    #[inline(always)]
    pub(super) fn parts(self) -> ([u8; 2], [u8; 8], [u8; 8]) {
        let [f0, f1] = self.flow.to_le_bytes();
        let [s0, s1, s2, s3] = self.sequence.to_le_bytes();
        let numbers = [self.epoch.0, self.port, f0, f1, s0, s1, s2, s3];
        (MAGIC, numbers, self.tick.to_le_bytes())
    }

    #[inline(always)]
    pub(super) fn write<const N: usize>(self, head: &mut [u8; N]) {
        if let Some(end) = head.last_chunk_mut::<SIGNATURE>() {
            *end = self.octets();
        }
    }

    /// Returns true if a payload begins with the magic number.
    #[inline(always)]
    pub(crate) fn is_at_front(payload: &[u8]) -> bool {
        payload.starts_with(&MAGIC)
    }

    /// Returns true if the frame belongs to the warm-up before the counted part `epoch`.
    #[cold]
    pub(crate) fn is_of_warm_up(frame: &[u8], place: usize, epoch: Epoch) -> bool {
        Self::read(frame, place).is_some_and(|signature| signature.epoch == epoch.warm_up())
    }
}
