// SPDX-License-Identifier: Apache-2.0
//! Parts that the client's and the server's end share: packets to send, and the state of all their connections.

use std::collections::VecDeque;

use super::count;
use super::request::Contents;
use super::tcp::{Counters, Environment, GapPool, Outgoing, Segment, Settings};
use super::wire::{Addresses, Arrived, Packet, Payload, Rejected, Transport, read};

/// Packets that wait for their transmission at most: those of 1 ms at 4 million a second.
pub(crate) const OUTBOX_MAX: usize = 4096;
/// Connections with gaps at a time, as a part of all.
const GAPS_PART: u32 = 16;
/// Connections with gaps at a time at least.
const GAPS_MIN: u32 = 1024;

/// Frames that belong to no conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OtherFrames {
    /// Other protocols, other addresses, fragments.
    pub(crate) foreign: u64,
    /// Wrong lengths, checksums or options.
    pub(crate) damaged: u64,
    /// Packets of conversations that do not exist, or not any more.
    pub(crate) stray: u64,
}

/// Shared parts of an end.
#[derive(Debug)]
pub(crate) struct Shared {
    settings: Settings,
    gaps: GapPool,
    pub(crate) counters: Counters,
    pub(crate) others: OtherFrames,
    /// Packets for which there was no space.
    pub(crate) dropped: u64,
    outbox: VecDeque<Packet>,
}

impl Shared {
    /// Creates the shared parts for so many connections.
    pub(crate) fn new(settings: Settings, open_max: u32) -> Self {
        Self {
            settings,
            gaps: GapPool::new((open_max / GAPS_PART).max(GAPS_MIN).min(open_max)),
            counters: Counters::default(),
            others: OtherFrames::default(),
            dropped: 0,
            outbox: VecDeque::with_capacity(OUTBOX_MAX),
        }
    }

    /// Returns what connections share.
    #[inline]
    pub(crate) fn environment(&mut self) -> Environment<'_> {
        Environment {
            settings: &self.settings,
            gaps: &mut self.gaps,
            counters: &mut self.counters,
        }
    }

    /// Reads a frame, and verifies its checksums. Counts a frame that belongs to no conversation.
    #[inline]
    pub(crate) fn read<'frame>(&mut self, frame: &'frame [u8]) -> Option<Arrived<'frame>> {
        match read(frame) {
            Ok(arrived) => return Some(arrived),
            Err(Rejected::Foreign) => count(&mut self.others.foreign),
            Err(Rejected::Damaged) => count(&mut self.others.damaged),
        }
        None
    }

    /// Returns the number of packets for which there is space.
    pub(crate) fn space(&self) -> usize {
        OUTBOX_MAX.saturating_sub(self.outbox.len())
    }

    /// Adds a packet to send. It is dropped if there is no space, which TCP repairs.
    pub(crate) fn push(&mut self, packet: Packet) {
        if self.space() > 0 {
            self.outbox.push_back(packet);
        } else {
            count(&mut self.dropped);
        }
    }

    /// Returns the packets to send, in order.
    pub(crate) fn outbox(&mut self) -> &mut VecDeque<Packet> {
        &mut self.outbox
    }

    /// Adds a segment with its part of the stream.
    pub(crate) fn push_segment(
        &mut self,
        addresses: Addresses,
        outgoing: Outgoing,
        contents: impl FnOnce() -> Contents,
    ) {
        let payload = (outgoing.length > 0).then(|| Payload {
            contents: contents(),
            offset: outgoing.offset,
            length: outgoing.length,
        });
        self.push(Packet {
            addresses,
            transport: Transport::Tcp(outgoing.segment),
            payload,
        });
    }

    /// Answers a segment of a connection that does not exist. `addresses` are those of the answer.
    pub(crate) fn push_reset(&mut self, addresses: Addresses, reset: Option<Segment>) {
        if let Some(segment) = reset {
            self.push(Packet {
                addresses,
                transport: Transport::Tcp(segment),
                payload: None,
            });
        }
    }
}
