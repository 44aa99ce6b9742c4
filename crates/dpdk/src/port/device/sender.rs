// SPDX-License-Identifier: Apache-2.0
//! Transmit queues of devices.

use std::sync::Arc;

use super::checksums::CardChecksums;
use super::segmentation::CardSegmentation;
use crate::burst::{Burst, Mbuf};
use crate::mempool::Mempool;
use crate::port::checksum;
use crate::port::counters::QueueCounters;
use crate::segment::{HeaderLengths, LargeKind};
use crate::sys;

/// One transmit queue.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(super) port: u16,
    pub(super) queue: u16,
    pub(super) takes_chains: bool,
    /// TCP segmentation of the card, if the port uses it.
    pub(super) segmentation: Option<CardSegmentation>,
    /// Checksums of the card that the port uses.
    pub(super) checksums: CardChecksums,
    /// Buffers of the port.
    pub(super) pool: Mempool,
    /// Octets of the longest frame, without FCS.
    pub(super) length_max: u32,
    pub(super) counters: Arc<QueueCounters>,
}

impl Sender {
    #[inline(always)]
    pub(crate) fn send(&mut self, burst: &mut Burst) -> usize {
        let (takes_chains, length_max) = (self.takes_chains, self.length_max);
        let cuts_frames = self.cuts_frames();
        let (dropped, octets) = burst.retain(|frame| {
            let fits = frame.length() <= length_max && (takes_chains || frame.is_whole());
            fits || cuts_frames && frame.has_segment_request()
        });
        if dropped > 0 {
            self.counters.refused.add(dropped as u64);
            burst.note_refused(octets);
        }
        burst.hand_to(self.port, self.queue)
    }

    /// Returns true if the card cuts frames with TCP data.
    pub(crate) const fn cuts_frames(&self) -> bool {
        self.segmentation.is_some()
    }

    /// Returns true if the card cuts frames of this kind. Cards differ in the segments that have CWR.
    pub(crate) const fn accepts_whole(&self, kind: LargeKind) -> bool {
        self.cuts_frames() && kind.is_tcp && !kind.has_cwr
    }

    /// Prepares a frame that [`Self::accepts_whole`]. The error returns it without its request.
    pub(crate) fn prepare<'eal>(&self, frame: Mbuf<'eal>) -> Result<Mbuf<'eal>, Mbuf<'eal>> {
        match self.segmentation {
            Some(card) => card.prepare((self.port, self.queue), &self.pool, frame),
            None => Ok(frame),
        }
    }

    /// Returns true if the card computes the checksum of TCP or UDP of a frame of this kind.
    pub(crate) const fn computes_checksum(&self, kind: LargeKind) -> bool {
        self.checksums.computes(kind.is_tcp)
    }

    /// Leaves the checksum of a frame to the card. The CPU computes it if the card does not compute it for this kind, or refuses the frame.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "lengths of headers within one frame"
    )]
    pub(crate) fn leave_checksum<'eal>(
        &self,
        mut frame: Mbuf<'eal>,
        lengths: HeaderLengths,
        kind: LargeKind,
    ) -> Mbuf<'eal> {
        let (start, offset) = (lengths.ethernet + lengths.network, kind.checksum_offset());
        let field = |octets: &[u8]| octets.get(start + offset..)?.first_chunk::<2>().copied();
        let Some(sum) = field(frame.octets()) else {
            return frame;
        };
        if self.computes_checksum(kind) && frame.request_checksum(lengths, kind) {
            let mut mbuf = frame.mbuf;
            // SAFETY: the frame owns its buffer. The driver reads and writes within the headers whose lengths are in the request.
            let is_ready =
                unsafe { sys::qw_tx_prepare(self.port, self.queue, &raw mut mbuf, 1) == 1 };
            if is_ready {
                return frame;
            }
            frame.withdraw_checksum_request();
        }
        if let Some(octets) = frame.octets_mut() {
            // The driver may have changed the field, which is within the frame.
            if let Some(field) = octets.get_mut(start + offset..start + offset + 2) {
                field.copy_from_slice(&sum);
            }
            let _ = checksum::complete(octets, start, offset);
        }
        frame
    }
}
