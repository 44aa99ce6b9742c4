// SPDX-License-Identifier: Apache-2.0
//! Frames of all writers in the buffers of a ring.

use quietwire_dpdk::{FrameSource, Scratch, SlotBuffer, TxQueue};

use super::{Described, Replayed, Writer};

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
            Self::Described(writer) => {
                let mut source = DescribedSource { writer, tick };
                let taken = queue.write_in_place(count, &mut source, scratch);
                (taken.written..count).for_each(|_| writer.skip(tick));
                taken.sent
            }
            Self::Replayed(writer) => {
                let taken = queue.write_in_place(count, writer, scratch);
                (taken.written..count).for_each(|_| writer.advance());
                taken.sent
            }
        }
    }
}

/// The next frames of a description, with one time stamp.
struct DescribedSource<'w> {
    writer: &'w mut Described,
    tick: u64,
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
    fn write(&mut self, buffer: SlotBuffer<'_>) {
        if let Some(mark) = buffer.mark {
            *mark = 0;
        }
        self.writer.compose(self.tick, |frame| {
            buffer.octets.copy_from(frame);
        });
    }

    fn write_apart(&mut self, frame: &mut [u8]) {
        self.writer
            .write_frame(self.writer.next_flow(), frame, self.tick);
    }
}

impl Described {
    /// Composes the next frame and has it used.
    #[inline(always)]
    fn compose(&mut self, tick: u64, take: impl FnOnce(&[u8])) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let length = usize::from(self.program.length(self.position));
        if let Some(frame) = scratch.get_mut(..length) {
            self.write_frame(self.next_flow(), frame, tick);
            take(frame);
        }
        self.scratch = scratch;
    }

    /// Counts the next frame as written.
    #[cold]
    fn skip(&mut self, tick: u64) {
        self.compose(tick, |_| ());
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
