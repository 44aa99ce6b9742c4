// SPDX-License-Identifier: Apache-2.0
//! Frames of all writers in the buffers of a ring.

use quietwire_dpdk::{FrameSource, FramesTaken, Scratch, SlotBuffer, TxQueue};

use super::{Described, Replayed, Writer};
use crate::traffic::BufferContents;

impl Writer {
    /// Sends the next `count` frames with the time stamp `tick` through the buffers of a queue's ring. All of them are written:
    /// those that the ring has no space for are refused. Returns the number of frames sent.
    #[inline(always)]
    pub(crate) fn send_in_place(
        &mut self,
        queue: &mut TxQueue,
        scratch: &mut Scratch,
        count: usize,
        tick: u64,
    ) -> usize {
        match self {
            Self::Plain(writer) => writer.write_in_place(count, tick, |source| {
                queue.write_in_place(count, source, scratch)
            }),
            Self::Described(writer) => writer.write_in_place(count, tick, |source| {
                queue.write_in_place(count, source, scratch)
            }),
            Self::Replayed(writer) => {
                writer.write_in_place(count, |source| queue.write_in_place(count, source, scratch))
            }
        }
    }
}

/// Bits of a mark that number the template of a writer.
const TEMPLATE_BITS: u32 = 8;
/// Number of all templates that a mark has no number for.
const OTHER_TEMPLATE: u32 = (1 << TEMPLATE_BITS) - 1;

/// The next frames of a description, with one time stamp.
struct DescribedSource<'w> {
    writer: &'w mut Described,
    tick: u64,
}

impl DescribedSource<'_> {
    /// Returns the contents of a buffer, and marks it as one with the next frame.
    #[inline(always)]
    fn contents(&self, buffer: &mut SlotBuffer<'_>) -> BufferContents {
        // The peer only reads the frame. Next time the slot may have another buffer.
        let Some(mark) = buffer.mark.as_deref_mut() else {
            return BufferContents::Other;
        };
        let Described {
            program,
            id,
            position,
            ..
        } = &*self.writer;
        let template = u32::from(program.template_index(*position)).min(OTHER_TEMPLATE);
        let own = (id << TEMPLATE_BITS) | template;
        if *mark == own && template != OTHER_TEMPLATE {
            return BufferContents::Template;
        }
        // Behind the heads of this writer's frames, all buffers have the same octets.
        if *mark >> TEMPLATE_BITS != *id {
            program.write_tail(buffer.octets);
        }
        *mark = own;
        BufferContents::Tail
    }
}

impl FrameSource for DescribedSource<'_> {
    #[inline(always)]
    fn next_length(&self) -> usize {
        usize::from(self.writer.program.length(self.writer.position))
    }

    #[inline(always)]
    fn equally_long(&self) -> usize {
        match self.writer.program.sequence_length() {
            1 => usize::MAX,
            _ => 1,
        }
    }

    #[inline(always)]
    fn changed_length(&self) -> usize {
        self.writer.program.head()
    }

    #[inline(always)]
    fn write(&mut self, mut buffer: SlotBuffer<'_>) {
        let contents = self.contents(&mut buffer);
        let writer = &mut *self.writer;
        let flow = writer.next_flow();
        let signature = writer.next_signature(flow, self.tick);
        let place = (buffer.octets, contents);
        let position = writer.position;
        writer
            .program
            .write_shared(position, flow, signature, place);
        writer.advance();
    }

    fn write_apart(&mut self, frame: &mut [u8]) {
        self.writer
            .write_frame(self.writer.next_flow(), frame, self.tick);
    }
}

impl Described {
    /// Has `send` take up to `count` frames with the time stamp `tick`, and counts all of them as written. Returns the number of frames
    /// sent.
    #[inline(always)]
    fn write_in_place(
        &mut self,
        count: usize,
        tick: u64,
        send: impl FnOnce(&mut DescribedSource<'_>) -> FramesTaken,
    ) -> usize {
        let taken = send(&mut DescribedSource {
            writer: &mut *self,
            tick,
        });
        (taken.written..count).for_each(|_| self.skip());
        taken.sent
    }

    /// Counts the next frame as written.
    #[cold]
    fn skip(&mut self) {
        self.next_signature(self.next_flow(), 0);
        self.advance();
    }
}

impl Replayed {
    /// Has `send` take up to `count` frames, and counts all of them as written. Returns the number of frames sent.
    #[inline(always)]
    fn write_in_place(
        &mut self,
        count: usize,
        send: impl FnOnce(&mut Self) -> FramesTaken,
    ) -> usize {
        let taken = send(self);
        (taken.written..count).for_each(|_| self.advance());
        taken.sent
    }
}

impl FrameSource for Replayed {
    #[inline(always)]
    fn next_length(&self) -> usize {
        self.capture.frame(self.next).map_or(0, <[u8]>::len)
    }

    #[inline(always)]
    fn write(&mut self, buffer: SlotBuffer<'_>) {
        if let Some(mark) = buffer.mark {
            *mark = 0;
        }
        if let Some(octets) = self.capture.frame(self.next) {
            buffer.octets.copy_from(octets);
        }
        self.advance();
    }

    fn write_apart(&mut self, frame: &mut [u8]) {
        if let Some(octets) = self.capture.frame(self.next) {
            frame
                .iter_mut()
                .zip(octets)
                .for_each(|(to, from)| *to = *from);
        }
        self.advance();
    }
}

#[cfg(test)]
mod tests;
