// SPDX-License-Identifier: Apache-2.0
//! Checksums of TCP and UDP that a network card has verified, and those that it computes.

use std::mem::ManuallyDrop;

use quietwire_packet::{TCP_CHECKSUM_OFFSET, UDP_CHECKSUM_OFFSET, complete_partial_checksum};

use crate::burst::{Burst, Mbuf};
use crate::segment::{HeaderLengths, LargeKind};
use crate::sys::{self, field};

/// Bits of a driver's report about the checksum of a received frame. If both are set, the checksum is incomplete.
const REPORT: u64 = sys::CHECKSUM_BAD | sys::CHECKSUM_GOOD;

/// Returns true if the report about a buffer is that the checksum of TCP or UDP is correct.
///
/// # Safety
/// The buffer exists, and no other thread writes to it.
#[inline(always)]
pub(crate) unsafe fn is_verified(mbuf: *mut sys::rte_mbuf) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { *field::ol_flags(mbuf) & REPORT == sys::CHECKSUM_GOOD }
}

/// Returns true if a driver has found TCP or UDP outside of a tunnel. Some drivers report a correct checksum of every frame in which the
/// card has found no wrong one, also of frames that it has not checked. Of a tunnel, drivers differ in which checksum they mean.
const fn has_checked_type(packet_type: u32) -> bool {
    let transport = packet_type & sys::TYPE_TRANSPORT;
    let is_known = transport == sys::TYPE_TCP || transport == sys::TYPE_UDP;
    is_known && packet_type & sys::TYPE_TUNNEL == 0
}

impl Burst {
    /// Removes the reports of a driver about checksums.
    #[inline(always)]
    pub(crate) fn forget_checksum_reports(&mut self) {
        for mbuf in self.held() {
            // SAFETY: the buffers are owned by this burst, and just received.
            unsafe {
                let flags = field::ol_flags(*mbuf);
                if *flags & REPORT != 0 {
                    *flags &= !REPORT;
                }
            }
        }
    }

    /// Keeps only the reports that a checksum is correct, and completes incomplete checksums, which a card may receive from a peer on the
    /// same machine (virtio). Frames whose checksum cannot be completed are dropped. Returns their number.
    #[inline(always)]
    pub(crate) fn settle_checksum_reports(&mut self) -> usize {
        let mut is_any_incomplete = false;
        for mbuf in self.held() {
            // SAFETY: the buffers are owned by this burst, and just received.
            let (flags, [packet_type, _]) =
                unsafe { (*field::ol_flags(*mbuf), *field::type_and_length(*mbuf)) };
            let report = flags & REPORT;
            if report == 0 || report == sys::CHECKSUM_GOOD && has_checked_type(packet_type) {
                continue;
            }
            if report == REPORT && !complete(*mbuf) {
                is_any_incomplete = true;
                continue;
            }
            // SAFETY: as above.
            unsafe { *field::ol_flags(*mbuf) = flags & !REPORT };
        }
        if !is_any_incomplete {
            return 0;
        }
        // SAFETY: as above.
        let (dropped, _) =
            self.retain(|frame| unsafe { *field::ol_flags(frame.mbuf) & REPORT != REPORT });
        dropped
    }
}

/// Completes the checksum of a frame. Returns false if the frame is in several buffers.
#[cold]
fn complete(mbuf: *mut sys::rte_mbuf) -> bool {
    let mut frame = ManuallyDrop::new(Mbuf::of_buffer(mbuf));
    let Some(octets) = frame.octets_mut() else {
        return false;
    };
    // One of 65,536 checksums is correct as it is.
    complete_partial_checksum(octets);
    true
}

impl LargeKind {
    /// Returns the offset of the checksum in the header of TCP or UDP, octets.
    pub(crate) const fn checksum_offset(self) -> usize {
        if self.is_tcp {
            TCP_CHECKSUM_OFFSET
        } else {
            UDP_CHECKSUM_OFFSET
        }
    }
}

impl Mbuf<'_> {
    /// Returns true if the network card that received the frame has verified the checksum of TCP or UDP. Changes of the frame with an update
    /// of the checksum keep this.
    #[inline(always)]
    #[must_use]
    pub fn has_verified_checksum(&self) -> bool {
        // SAFETY: owned by this value.
        unsafe { is_verified(self.mbuf) }
    }

    /// Removes the sender's request to cut TCP or UDP data ([`Mbuf::segment_size`]), of a frame that is one segment or datagram.
    pub fn clear_segment_size(&mut self) {
        // SAFETY: owned by this value.
        unsafe { *field::ol_flags(self.mbuf) &= !sys::TSO };
    }

    /// Requests the checksum of TCP or UDP from the network card that sends the frame. The frame is not shared, and its checksum field has
    /// the sum of the pseudo header. Returns false and changes nothing if the headers are longer than a request can state.
    #[expect(clippy::cast_possible_truncation, reason = "`fit` checks the lengths")]
    pub(crate) fn request_checksum(&mut self, lengths: HeaderLengths, kind: LargeKind) -> bool {
        if !lengths.fit() {
            return false;
        }
        let HeaderLengths {
            ethernet,
            network,
            transport,
        } = lengths;
        // SAFETY: owned by this value, and by no other (the caller).
        unsafe {
            sys::qw_request_checksum(
                self.mbuf,
                ethernet as u16,
                network as u16,
                transport as u16,
                i32::from(kind.is_ipv4),
                i32::from(kind.is_tcp),
            );
        }
        true
    }

    /// Returns true if the network card that sends the frame computes its checksum.
    #[cfg(test)]
    pub(crate) fn has_checksum_request(&self) -> bool {
        // SAFETY: owned by this value.
        unsafe { *field::ol_flags(self.mbuf) & sys::TRANSPORT_CHECKSUM != 0 }
    }

    /// Removes the request of [`Self::request_checksum`].
    pub(crate) fn withdraw_checksum_request(&mut self) {
        // SAFETY: owned by this value.
        unsafe {
            *field::ol_flags(self.mbuf) &= !(sys::TRANSPORT_CHECKSUM | sys::IS_IPV4 | sys::IS_IPV6);
        }
    }

    /// Writes the report of a driver about a received frame.
    #[cfg(test)]
    pub(crate) fn set_report(&mut self, report: u64, packet_type: u32) {
        // SAFETY: owned by this value.
        unsafe {
            *field::ol_flags(self.mbuf) |= report;
            let [_, length] = *field::type_and_length(self.mbuf);
            *field::type_and_length(self.mbuf) = [packet_type, length];
        }
    }
}

#[cfg(test)]
mod tests {
    use quietwire_packet::checksum;

    use super::*;
    use crate::mempool::Mempool;
    use crate::segment::MergedFrame;
    use crate::testing;

    /// A datagram over IPv4 whose checksum has only the sum of the pseudo header.
    fn datagram() -> [u8; 60] {
        let mut frame = [0; 60];
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
        frame[17] = 46;
        frame[23] = 17;
        frame[26..34].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        frame[39] = 26;
        let sum = !checksum(&pseudo_header());
        frame[40..42].copy_from_slice(&sum.to_be_bytes());
        frame[50] = 7;
        frame
    }

    fn pseudo_header() -> [u8; 12] {
        [192, 0, 2, 1, 192, 0, 2, 2, 0, 17, 0, 26]
    }

    /// Returns true if the checksum of the datagram is correct.
    fn is_correct(frame: &[u8]) -> bool {
        checksum(&[&pseudo_header()[..], &frame[34..]].concat()) == 0
    }

    #[test]
    fn only_correct_checksums_that_the_card_has_checked_count_as_verified() {
        const GOOD: u64 = sys::CHECKSUM_GOOD;
        const IPV4: u32 = 0x10;
        let eal = testing::eal();
        let pool = Mempool::new(&eal, "reports", 511, 2048).unwrap();
        for (report, packet_type, is_verified) in [
            (GOOD, IPV4 | sys::TYPE_TCP, true),
            (GOOD, IPV4 | sys::TYPE_UDP, true),
            (0, IPV4 | sys::TYPE_TCP, false),
            (sys::CHECKSUM_BAD, IPV4 | sys::TYPE_TCP, false),
            // The headers are not known, a fragment, SCTP, and VXLAN.
            (GOOD, 0, false),
            (GOOD, IPV4 | 0x300, false),
            (GOOD, IPV4 | 0x400, false),
            (GOOD, IPV4 | sys::TYPE_UDP | 0x3000, false),
        ] {
            let mut burst = Burst::new(&eal);
            let mut frame = Mbuf::new(&eal, &pool, &datagram()).unwrap();
            frame.set_report(report, packet_type);
            burst.push(frame).unwrap();
            assert_eq!(burst.settle_checksum_reports(), 0);
            let frame = burst.drain().next().unwrap();
            let case = format!("{report:x} {packet_type:x}");
            assert_eq!(frame.has_verified_checksum(), is_verified, "{case}");
            assert_eq!(frame.octets(), datagram(), "{case}");
        }
        // A port that does not use the reports removes all of them.
        let mut burst = Burst::new(&eal);
        let mut frame = Mbuf::new(&eal, &pool, &datagram()).unwrap();
        frame.set_report(GOOD, IPV4 | sys::TYPE_TCP);
        burst.push(frame).unwrap();
        burst.forget_checksum_reports();
        assert!(!burst.drain().next().unwrap().has_verified_checksum());
    }

    #[test]
    fn incomplete_checksums_are_completed_or_their_frames_dropped() {
        let eal = testing::eal();
        let pool = Mempool::new(&eal, "incomplete", 511, 2048).unwrap();
        let new = || {
            let frame = Mbuf::new(&eal, &pool, &datagram()).unwrap();
            frame.into_exclusive().unwrap()
        };
        // The second frame is in two buffers.
        let mut merged = MergedFrame::new(new());
        merged.append(new(), 42);
        let frames = [new().into_frame(), merged.into_frame(), new().into_frame()];
        let mut burst = Burst::new(&eal);
        for mut frame in frames {
            frame.set_report(REPORT, sys::TYPE_UDP);
            burst.push(frame).unwrap();
        }
        assert!(!is_correct(&datagram()));
        assert_eq!(burst.settle_checksum_reports(), 1);
        assert_eq!(burst.len(), 2);
        for frame in burst.drain() {
            assert!(is_correct(frame.octets()));
            assert!(!frame.has_verified_checksum());
        }
        assert_eq!(pool.available(), 511);
    }
}
