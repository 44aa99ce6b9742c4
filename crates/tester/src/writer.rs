// SPDX-License-Identifier: Apache-2.0
//! Writers of a port's frames: plain frames of the tester, frames of a traffic description, or frames of a capture.

mod in_place;
mod share;

use std::sync::Arc;

use quietwire_dpdk::Burst;

use crate::frame::{Epoch, FrameWriter, Signature, next_number};
use crate::narrow::{low_u16, low_u32};
use crate::traffic::{Capture, Program, TRACKED_MAX};

pub(crate) use share::Share;

/// Writer of the frames of one lane, in sequence order.
#[derive(Clone, Debug)]
pub(crate) enum Writer {
    /// Plain frames, defined by the trial's parameters.
    Plain(Box<FrameWriter>),
    /// Frames of a traffic description.
    Described(Box<Described>),
    /// Frames of a capture, repeated.
    Replayed(Replayed),
}

impl Writer {
    /// Restarts the numbering for another epoch.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        match self {
            Self::Plain(writer) => writer.begin(epoch),
            Self::Described(writer) => writer.begin(epoch),
            Self::Replayed(writer) => writer.number = 0,
        }
    }

    /// Returns the number of frames written since [`Self::begin`].
    pub(crate) fn written(&self) -> u64 {
        match self {
            Self::Plain(writer) => writer.written(),
            Self::Described(writer) => writer.number,
            Self::Replayed(writer) => writer.number,
        }
    }

    /// Returns the number of frames of one flow written since [`Self::begin`].
    pub(crate) fn written_of_flow(&self, flow: u16) -> u64 {
        match self {
            Self::Plain(writer) => writer.written_of_flow(flow),
            Self::Described(writer) => {
                let sequence = writer.sequences.get(usize::from(flow));
                sequence.copied().unwrap_or(0)
            }
            Self::Replayed(writer) => writer.number,
        }
    }

    /// Returns the number of low-rate frames written since [`Self::begin`]. [`Self::written`] includes them.
    pub(crate) fn low_rate_written(&self) -> u64 {
        match self {
            Self::Plain(writer) => writer.low_rate_written(),
            Self::Described(writer) => writer.low_rate_written,
            Self::Replayed(_) => 0,
        }
    }

    /// Writes the single frame of a burst as the next one of the low-rate stream. The numbering of the load's flows is unaffected.
    #[cold]
    pub(crate) fn write_low_rate(&mut self, burst: &mut Burst, tick: u64) {
        match self {
            Self::Plain(writer) => writer.write_low_rate(burst, tick),
            Self::Described(writer) => writer.write_low_rate(burst, tick),
            Self::Replayed(writer) => writer.write(burst),
        }
    }

    /// Returns the number of learning frames not yet written.
    pub(crate) fn learning_frames_left(&self) -> usize {
        match self {
            Self::Plain(writer) => writer.learning_frames_left(),
            Self::Described(writer) => writer.learning_left as usize,
            Self::Replayed(_) => 0,
        }
    }

    /// Writes the next learning frames: warm-up frames, one from each source address.
    pub(crate) fn write_learning(&mut self, burst: &mut Burst) {
        match self {
            Self::Plain(writer) => writer.write_learning(burst),
            Self::Described(writer) => writer.write_learning(burst),
            Self::Replayed(writer) => writer.write(burst),
        }
    }

    /// Writes all frames of a burst with the time stamp `tick`.
    #[inline(always)]
    pub(crate) fn write(&mut self, burst: &mut Burst, tick: u64) {
        match self {
            Self::Plain(writer) => writer.write(burst, tick),
            Self::Described(writer) => writer.write(burst, tick),
            Self::Replayed(writer) => writer.write(burst),
        }
    }
}

/// Writer of the unchanged frames of a capture.
#[derive(Clone, Debug)]
pub(crate) struct Replayed {
    capture: Arc<Capture>,
    number: u64,
    next: usize,
}

impl Replayed {
    pub(crate) fn new(capture: Arc<Capture>) -> Self {
        Self {
            capture,
            number: 0,
            next: 0,
        }
    }

    #[inline(always)]
    fn write(&mut self, burst: &mut Burst) {
        burst.write_each(|frame| {
            let Some(octets) = self.capture.frame(self.next) else {
                return;
            };
            // No frame of a capture is longer than 9000 octets.
            let Some(place) = frame.octets(low_u16(octets.len() as u64)) else {
                return;
            };
            place.copy_from_slice(octets);
            self.advance();
        });
    }

    /// Advances to the next frame.
    #[inline(always)]
    fn advance(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.next = self.next.wrapping_add(1);
        if self.next == self.capture.frames() {
            self.next = 0;
        }
    }
}

/// Writer of frames of a traffic description.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    program: Arc<Program>,
    /// Number of this writer in the process, for marks of buffers.
    id: u32,
    port: u8,
    share: Share,
    epoch: Epoch,
    position: usize,
    number: u64,
    next: u32,
    /// Next sequence number of each flow. Flows beyond the table share entries.
    sequences: Box<[u64]>,
    learning_left: u32,
    low_rate_written: u64,
}

/// Returns the number of flows of a port with individual sequence numbers if `lanes` lanes share the port. No two lanes share a sequence.
pub(crate) fn tracked_flows(flows: u32, lanes: u32) -> u32 {
    let beyond = TRACKED_MAX.checked_rem(lanes).unwrap_or(0);
    flows.min(TRACKED_MAX.saturating_sub(beyond))
}

impl Described {
    pub(crate) fn new(program: Arc<Program>, port: u8, share: Share) -> Self {
        let flows = program.flows();
        let (first, lanes) = (u32::from(share.index), u32::from(share.of));
        Self {
            id: next_number(),
            port,
            share,
            epoch: Epoch::default(),
            position: 0,
            number: 0,
            next: first,
            sequences: vec![0; tracked_flows(flows, lanes) as usize].into_boxed_slice(),
            learning_left: flows.saturating_sub(first).div_ceil(lanes.max(1)),
            low_rate_written: 0,
            program,
        }
    }

    pub(crate) fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.position = 0;
        self.number = 0;
        self.low_rate_written = 0;
        self.next = u32::from(self.share.index);
        self.sequences.fill(0);
    }

    /// Writes a frame of the low-rate stream. Its flow number follows those of the load, and its headers are those of the lane's first
    /// flow.
    fn write_low_rate(&mut self, burst: &mut Burst, tick: u64) {
        burst.write_each(|frame| {
            let Some(octets) = frame.octets(self.program.length(self.position)) else {
                return;
            };
            let signature = Signature {
                epoch: self.epoch,
                port: self.port,
                flow: low_u16(self.sequences.len() as u64),
                sequence: low_u32(self.low_rate_written),
                tick,
            };
            let flow = u32::from(self.share.index);
            self.program.write(self.position, flow, signature, octets);
            self.low_rate_written = self.low_rate_written.wrapping_add(1);
            self.number = self.number.wrapping_add(1);
            self.advance_size();
        });
    }

    #[inline(always)]
    fn advance_size(&mut self) {
        self.position = self.position.wrapping_add(1);
        if self.position >= self.program.sequence_length() {
            self.position = 0;
        }
    }

    /// Writes one frame of every flow, independent of the flow order.
    fn write_learning(&mut self, burst: &mut Burst) {
        burst.write_each(|frame| {
            let flow = self.next;
            let Some(octets) = frame.octets(self.program.length(self.position)) else {
                return;
            };
            self.write_frame(flow, octets, 0);
            self.learning_left = self.learning_left.saturating_sub(1);
        });
    }

    #[inline(always)]
    fn write(&mut self, burst: &mut Burst, tick: u64) {
        burst.write_each(|frame| {
            let flow = self.next_flow();
            let Some(octets) = frame.octets(self.program.length(self.position)) else {
                return;
            };
            self.write_frame(flow, octets, tick);
        });
    }

    #[inline(always)]
    pub(crate) fn next_flow(&self) -> u32 {
        let drawn = self.program.flow(self.number, self.next);
        if self.share == Share::WHOLE {
            return drawn;
        }
        // A lane uses its own flow next to the one drawn.
        let (first, lanes) = (u32::from(self.share.index), u32::from(self.share.of));
        let other = drawn.checked_rem(lanes).unwrap_or(0);
        // Flows have numbers of 20 bits.
        let flow = drawn.wrapping_sub(other).wrapping_add(first);
        if flow < self.program.flows() {
            flow
        } else {
            first
        }
    }

    #[inline(always)]
    pub(crate) fn write_frame(&mut self, flow: u32, octets: &mut [u8], tick: u64) {
        let signature = self.next_signature(flow, tick);
        self.program.write(self.position, flow, signature, octets);
        self.advance();
    }

    /// Returns the signature of the next frame, which belongs to a flow, and counts it in its flow.
    #[inline(always)]
    fn next_signature(&mut self, flow: u32, tick: u64) -> Signature {
        let count = low_u32(self.sequences.len() as u64);
        let tracked = if flow < count {
            flow
        } else {
            flow.checked_rem(count).unwrap_or(0)
        };
        let sequence = self.sequences.get_mut(tracked as usize);
        let number = sequence.map_or(0, |sequence| {
            let number = *sequence;
            *sequence = number.wrapping_add(1);
            number
        });
        Signature {
            epoch: self.epoch,
            port: self.port,
            flow: low_u16(u64::from(tracked)),
            sequence: low_u32(number),
            tick,
        }
    }

    /// Advances to the next frame.
    #[inline(always)]
    fn advance(&mut self) {
        self.number = self.number.wrapping_add(1);
        // Flows have numbers of 20 bits.
        self.next = self.next.wrapping_add(u32::from(self.share.of));
        if self.next >= self.program.flows() {
            self.next = u32::from(self.share.index);
        }
        self.advance_size();
    }
}
